package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestBinariesOfAssets(t *testing.T) {
	cases := map[string]struct {
		reason string
		assets func(t *testing.T) string
		own    bool     // the folder itself is returned
		built  []string // what had to be built
		err    string
	}{
		"Complete": {
			reason: "A folder with all three is used as it is.",
			assets: func(t *testing.T) string { return folder(t, etcd, apiServer, controllerManager) },
			own:    true,
		},
		"NoControllerManager": {
			reason: "The one program that envtest's folders lack is built.",
			assets: func(t *testing.T) string { return folder(t, etcd, apiServer, kubectl) },
			built:  []string{controllerManager},
		},
		"NoAPIServer": {
			reason: "A missing program is named, with what to do.",
			assets: func(t *testing.T) string { return folder(t, etcd) },
			err:    "no executable kube-apiserver: set it to a folder that has etcd and kube-apiserver, or unset it",
		},
		"NotExecutable": {
			reason: "A file that can't be run is as good as none.",
			assets: func(t *testing.T) string {
				dir := folder(t, apiServer)
				if err := os.WriteFile(filepath.Join(dir, etcd), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				return dir
			},
			err: "no executable etcd:",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, buildOK)
			assets := tc.assets(t)
			f.env[assetsVariable] = assets
			before := list(t, assets)

			dir, err := f.source.binaries(context.Background())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("\n%s\nwant an error with %q, got: %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("\n%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.own, dir == assets); diff != "" {
				t.Errorf("\n%s\nthe folder itself: -want, +got:\n%s", tc.reason, diff)
			}
			for _, name := range []string{etcd, apiServer, controllerManager} {
				if ok, err := isProgram(filepath.Join(dir, name)); !ok || err != nil {
					t.Errorf("\n%s\n%s is no program: %v", tc.reason, name, err)
				}
			}
			if diff := cmp.Diff(before, list(t, assets)); diff != "" {
				t.Errorf("\nA folder that isn't ours is not written to.\n-before, +after:\n%s", diff)
			}
			if tc.own {
				return
			}
			again, err := f.source.binaries(context.Background())
			if diff := cmp.Diff(dir, again); diff != "" || err != nil {
				t.Errorf("\nThe second call finds the same.\n-want, +got:\n%s, error: %v", diff, err)
			}
			if diff := cmp.Diff(tc.built, f.built(t)); diff != "" {
				t.Errorf("\n%s\nbuilt: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBinariesAreCached(t *testing.T) {
	f := newFixture(t, buildOK)
	dir, err := f.source.binaries(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{etcd, apiServer, controllerManager, kubectl}
	if diff := cmp.Diff(want, list(t, dir)); diff != "" {
		t.Errorf("The folder holds what envtest wants: -want, +got:\n%s", diff)
	}
	if !strings.Contains(f.progress.String(), "2 of 3: kube-apiserver v1.35.4: building") {
		t.Errorf("Progress says what is built, got:\n%s", f.progress)
	}

	again, err := f.source.binaries(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dir, again); diff != "" {
		t.Errorf("The second call returns the same folder: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{etcd, apiServer, controllerManager}, f.built(t)); diff != "" {
		t.Errorf("The second call builds nothing: -want, +got:\n%s", diff)
	}

	if err := os.Remove(filepath.Join(dir, apiServer)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.source.binaries(context.Background()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{etcd, apiServer, controllerManager, apiServer}, f.built(t)); diff != "" {
		t.Errorf("What has gone missing is all that is built again: -want, +got:\n%s", diff)
	}
}

func TestBinariesFailure(t *testing.T) {
	cases := map[string]struct {
		reason string
		build  string
		want   []string
	}{
		"Disk": {
			reason: "A full disk is told with the space that is needed and where.",
			build:  `echo "link: writing output: write /x: no space left on device" >&2; exit 1`,
			want:   []string{"cannot build etcd", "the disk is full", "3 GB", "GOCACHE", "no space left on device"},
		},
		"Memory": {
			reason: "A compiler that the kernel has killed wants memory.",
			build:  `echo "k8s.io/api/core/v1: compile: signal: killed" >&2; exit 1`,
			want:   []string{"ran out of memory", "2.2 GiB", "GOMAXPROCS=1"},
		},
		"Proxy": {
			reason: "A proxy that isn't reached is a matter of the network.",
			build:  `echo 'go: k8s.io/api@v0.35.4: Get "https://proxy.example.org": dial tcp: lookup proxy.example.org: no such host' >&2; exit 1`,
			want:   []string{"the module proxy can't be reached", "GOPROXY"},
		},
		"OldGo": {
			reason: "A go command that is too old is told what it needs.",
			build:  `echo 'go: go.mod requires go >= 1.25.0 (running go 1.24.1; GOTOOLCHAIN=local)' >&2; exit 1`,
			want:   []string{"the go command is too old", "GOTOOLCHAIN=auto", "running go 1.24.1"},
		},
		"Other": {
			reason: "An error of an unknown kind shows the last lines of the output, and only these.",
			build:  `i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo "line $i."; done; exit 3`,
			want:   []string{"cannot build etcd: exit status 3\nthe go command said last:\n\tline 26.\n", "\tline 40."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.build)
			_, err := f.source.binaries(context.Background())
			if err == nil {
				t.Fatalf("\n%s\nno error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("\n%s\nwant %q in:\n%v", tc.reason, want, err)
				}
			}
			leavesNothing(t, f)
		})
	}
}

func TestBinariesWithoutGo(t *testing.T) {
	f := newFixture(t, buildOK)
	f.source.goCommand = "no-such-go-command"
	_, err := f.source.binaries(context.Background())
	if err == nil || !strings.Contains(err.Error(), "there is no go command on the PATH") || !strings.Contains(err.Error(), assetsVariable) {
		t.Errorf("A missing go command is told with what to do instead, got: %v", err)
	}
}

// Each build starts another process, reports through a fifo that it runs, and never
// ends by itself. The other process keeps the fifo open: its end is the
// end of them all.
func TestBinariesCancelled(t *testing.T) {
	cases := map[string]struct {
		reason string
		trap   string
	}{
		"Stubborn":  {reason: "One that doesn't is killed after a while.", trap: "trap '' INT"},
		"Forgetful": {reason: "One that ends but leaves its compilers behind has them killed.", trap: "trap 'exit 1' INT"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			mkfifo(t, fifo)
			f := newFixture(t, tc.trap+`
echo half of it >"$out"
exec 4>`+quote(fifo)+`
sleep 1000 &
echo started >&4
while :; do wait; done
`)
			clk := clocktesting.NewFakeClock(time.Now())
			f.source.clock = clk
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)

			done := make(chan error, 1)
			go func() {
				_, err := f.source.binaries(ctx)
				done <- err
			}()
			fifoEnd := waitForLine(t, fifo)

			cause := errors.New("changed my mind")
			cancel(cause)
			var err error
			until(t, func() bool {
				clk.Step(buildGrace)
				select {
				case err = <-done:
					return true
				default:
					return false
				}
			})
			if diff := cmp.Diff(cause, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("\n%s\nerror: -want, +got:\n%s", tc.reason, diff)
			}
			fifoEnd()
			leavesNothing(t, f)
		})
	}
}

// leavesNothing fails the test if a build has left more in the cache than an
// empty set and its lock.
func leavesNothing(t *testing.T, f *fixture) {
	t.Helper()
	for _, name := range list(t, f.cache) {
		if strings.HasSuffix(name, ".lock") {
			continue
		}
		if diff := cmp.Diff([]string{kubectl}, list(t, filepath.Join(f.cache, name))); diff != "" {
			t.Errorf("A failed build leaves nothing half done: %s: -want, +got:\n%s", name, diff)
		}
	}
}

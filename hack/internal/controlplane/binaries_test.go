package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Of a folder of envtest's, the one program that it lacks is built. A folder that isn't
// ours is not written to.
func TestBinariesOfAssets(t *testing.T) {
	f := newFixture(t)
	assets := folder(t, etcd, apiServer)
	t.Setenv(assetsVariable, assets)
	before := list(t, assets)
	var dir string
	for range 2 {
		var err error
		dir, err = Binaries(context.Background(), f.progress)
		must(t, err)
	}
	want := [][]string{{controllerManager}, before, {etcd, apiServer, controllerManager}}
	if diff := cmp.Diff(want, [][]string{f.built(t), list(t, assets), list(t, dir)}); diff != "" {
		t.Errorf("built, in the folder, and in the one that is returned: -want, +got:\n%s", diff)
	}
	t.Setenv(assetsVariable, folder(t, etcd))
	says := "no executable kube-apiserver: set it to a folder that has etcd and kube-apiserver, or unset it"
	if _, err := Binaries(context.Background(), f.progress); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("want an error with %q, got: %v", says, err)
	}
}

func TestBinariesAreCached(t *testing.T) {
	f := newFixture(t)
	binaries := func() string {
		dir, err := Binaries(context.Background(), f.progress)
		if err != nil {
			t.Error(err)
		}
		return dir
	}
	var dir, other string
	var wg sync.WaitGroup
	wg.Go(func() { dir = binaries() })
	wg.Go(func() { other = binaries() })
	wg.Wait()
	built := []string{etcd, apiServer, controllerManager}
	if diff := cmp.Diff(built, f.built(t)); diff != "" || dir != other {
		t.Errorf("One of two builds, and both return %s and %s: -want, +got:\n%s", dir, other, diff)
	}
	if diff := cmp.Diff(built, list(t, dir)); diff != "" {
		t.Errorf("The folder holds the programs: -want, +got:\n%s", diff)
	}
	if said := read(t, f.progress.Name()); !strings.Contains(said, "2 of 3: kube-apiserver v1.35.4: building") ||
		!strings.Contains(said, ", 2 packages compiled\n") {
		t.Errorf("Progress says what is built, got:\n%s", said)
	}
	must(t, os.Remove(filepath.Join(dir, apiServer)))
	if again := binaries(); again != dir {
		t.Errorf("A later call returns the same folder, got %s", again)
	}
	if diff := cmp.Diff(append(built, apiServer), f.built(t)); diff != "" {
		t.Errorf("What has gone missing is all that is built again: -want, +got:\n%s", diff)
	}
	sums := filepath.Join(f.checkout, "hack", "internal", "controlplane", "kubernetes", "go.sum")
	must(t, os.WriteFile(sums, []byte("others\n"), 0o644))
	if binaries() == dir {
		t.Error("Other modules make other programs, in another folder.")
	}
}

func TestStartFails(t *testing.T) {
	assets := folder(t, apiServer, controllerManager)
	script(t, filepath.Join(assets, etcd), `echo "cannot do anything today" >&2; exit 1`)
	t.Setenv(assetsVariable, assets)
	tmp, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	t.Setenv("TMPDIR", tmp)
	_, err := Start(context.Background(), Options{LogDir: logs})
	want := "etcd said last:\n\tcannot do anything today"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("The error has the last words of what didn't start: want %q, got: %v", want, err)
	}
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
	}
	if kept := read(t, filepath.Join(logs, etcd+".log")); !strings.Contains(kept, "cannot do anything today") {
		t.Errorf("The folder for the output has it, got: %q", kept)
	}
}

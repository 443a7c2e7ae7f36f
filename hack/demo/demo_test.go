package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

// overview returns a line for each story, with the measurements of both sides. If one
// changes, the story and the README have to change too.
func overview() []string {
	return []string{
		"lost-external-name                   x 2 in the cloud     + 1 in the cloud\n",
		"name-collision                       x 2 wrong deletes    + 0 wrong deletes\n",
		"forgotten-operation                  x 2 in the cloud     + 1 in the cloud\n",
		"silent-deletion/slow-delete          x READY True         + READY False\n",
		"silent-deletion/claim *              x READY True         + READY False\n",
		"undead-informer *                    x READY not set      + READY True\n",
		"collected-alive *                    x READY not set      + READY True\n",
		"finalizer-race *                     x stuck              + gone\n",
		"steady-state-writes                  x 100 writes         + 0 writes\n",
		"endless-update                       x 600 writes         + 15 writes\n",
	}
}

// The columns of the demo differ in one import.
func TestSameProvider(t *testing.T) {
	without := func(side, path string) string {
		b, err := os.ReadFile(filepath.Join("provider", side, "controller.go"))
		if err != nil || strings.Count(string(b), path) != 1 {
			t.Fatalf("want %s's provider to import %s: %v\n%s", side, path, err, b)
		}
		// Groups of imports are set apart by empty lines.
		return strings.Join(strings.Fields(strings.Replace(string(b), path, "", 1)), "\n")
	}
	upstream := without("upstream", `"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`)
	if diff := cmp.Diff(upstream, without("graft", `"github.com/crossplane-graft/graft/pkg/managed"`)); diff != "" {
		t.Errorf("the providers differ, -upstream, +Graft:\n%s", diff)
	}
}

func broken(fn reconcile.Func) newReconciler {
	return func(manager.Manager, resource.ManagedKind, managed.ExternalConnector) reconcile.Reconciler { return fn }
}

func TestCommand(t *testing.T) {
	upstream, graft := bothSides().upstream, bothSides().graft
	cases := map[string]struct {
		reason   string
		args     []string
		env      map[string]string
		upstream newReconciler
		graft    newReconciler
		want     int
		stdout   []string
		stderr   []string
	}{
		"All": {
			reason: "There is a line for each story, and all are as they should be.",
			stdout: append(overview(), "make demo STORY=lost-external-name",
				fmt.Sprintf("+ %d stories: upstream fails, Graft holds.", len(overview()))),
		},
		"OneStory": {
			reason: "A story is selected by its name, and shows the timeline of a user.",
			args:   []string{"-story", "lost-external-name"},
			stdout: []string{
				"TIME    NAME        READY  SYNCED  EXTERNAL-NAME\n",
				"> a user deletes example-01\n",
				"> the cloud is called: Delete database-0001\n",
				"s  example-01  True   True    database-0001\n",
				"          NotFound\n",
				"+ 1 story: upstream fails, Graft holds.",
			},
		},
		"UTF8": {
			reason: "Marks are beyond ASCII where the locale has such characters.",
			args:   []string{"-story", "steady-state-writes"},
			env:    map[string]string{"LANG": "en_US.UTF-8"},
			stdout: []string{"✓ 1 story", "status writes      ✗ 100                         ✓ 0\n"},
		},
		"GraftFails": {
			reason: "A Graft that is no better than upstream fails the demo, by name of what failed.",
			args:   []string{"-story", "steady-state-writes"},
			graft:  upstream.newReconciler,
			want:   intest.ExitFailed,
			stdout: []string{"x Graft fails at \"status writes\": 100", "Not as it should be: 1 of 1 story."},
			stderr: []string{errFailed.Error()},
		},
		"GraftDoesNothing": {
			reason: "A Graft that does nothing fails the demo, and the other stories are played, too.",
			graft: broken(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, nil
			}),
			want:   intest.ExitFailed,
			stdout: []string{"x failed", "Not as it should be:"},
			stderr: []string{errFailed.Error()},
		},
		"GraftErrors": {
			reason: "A story that doesn't come to its end fails the demo, and says why.",
			args:   []string{"-story", "lost-external-name"},
			graft: broken(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, errors.New("boom")
			}),
			want:   intest.ExitFailed,
			stdout: []string{"x Graft: the story doesn't come to its end", "boom"},
			stderr: []string{errFailed.Error()},
		},
		"UpstreamFixed": {
			reason:   "A story that upstream has fixed fails the demo, and says which story to update.",
			args:     []string{"-story", "lost-external-name"},
			upstream: graft.newReconciler,
			want:     intest.ExitFailed,
			stdout:   []string{"x Upstream fixed this: update the story at \"external-name annotation\":"},
			stderr:   []string{errFailed.Error()},
		},
		"UnknownStory": {
			reason: "A story that isn't there is a mistake of who asks.",
			args:   []string{"-story", "once-upon-a-time"},
			want:   intest.ExitUsage,
			stderr: []string{`there is no story "once-upon-a-time"`, "lost-external-name"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sd := bothSides()
			if tc.upstream != nil {
				sd.upstream.newReconciler = tc.upstream
			}
			if tc.graft != nil {
				sd.graft.newReconciler = tc.graft
			}
			var stdout, stderr bytes.Buffer
			got := command(t.Context(), t, tc.args, func(k string) string { return tc.env[k] }, sd, &stdout, &stderr)
			if got != tc.want {
				t.Errorf("\n%s\nexit status: want %d, got %d\n%s%s", tc.reason, tc.want, got, &stdout, &stderr)
			}
			for _, want := range tc.stdout {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("\n%s\nwant %q in the output:\n%s", tc.reason, want, &stdout)
				}
			}
			for _, want := range tc.stderr {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("\n%s\nwant %q among the errors:\n%s", tc.reason, want, &stderr)
				}
			}
			checkLayout(t, stdout.String(), tc.env["LANG"] == "")
		})
	}
}

func checkLayout(t *testing.T, out string, ascii bool) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("a line of %d characters, at most %d fit: %q", n, width, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("spaces at the end of a line: %q", line)
		}
		if strings.Contains(line, "\x1b") {
			t.Errorf("colours where there is no terminal: %q", line)
		}
		for _, c := range line {
			if ascii && c >= utf8.RuneSelf {
				t.Errorf("%q isn't ASCII: %q", c, line)
			}
		}
	}
}

// TestSimulatedStory holds that a story in simulated time leaves the context usable for the
// stories beside it: the first one that waits makes its channel.
func TestSimulatedStory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := tell(ctx, t, story{name: "simulated", simulated: true, play: func(s *scene) []finding {
		select {
		case <-s.ctx.Done():
			check(s.ctx.Err())
		default:
		}
		return nil
	}}, bothSides())
	if len(r.problems) != 0 {
		t.Errorf("want no problems, got %q", r.problems)
	}
	cancel()
	<-ctx.Done()
}

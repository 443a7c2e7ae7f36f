package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// seen is what a finding is compared by.
type seen struct {
	Where string
	Seen  string
	Good  bool
}

// TestStories holds what is measured on both sides. If upstream's column changes
// here, the story and the README have to change too.
func TestStories(t *testing.T) {
	const (
		available = "True (Available)"
		deleting  = "False (Deleting)"
		silent    = "no condition says why"
		gone      = "gone, from the cloud too"
	)

	// What is in each row with upstream, whether that is as it should be, and what is in it
	// with Graft, which always is.
	type row struct {
		where, upstream string
		good            bool
		graft           string
	}

	cases := map[string]struct {
		reason string
		rows   []row
	}{
		"lost-external-name": {
			reason: "Upstream doesn't store the name, creates a second resource after the restart, and leaves the first one behind.",
			rows: []row{
				{"external resources", "2 for 1 managed resource", false, "1 for 1 managed resource"},
				{"external-name annotation", "empty", false, "stored"},
				{"READY", available, true, available},
				{"left in the cloud after deletion", "1 for 1 managed resource", false, "0 for 1 managed resource"},
			},
		},
		"name-collision": {
			reason: "Upstream's old one deletes the external resource of the new one.",
			rows: []row{
				{"does the new one wait?", "no: it acts on the same external resource", false, "yes, and says for which: see SYNCED"},
				{"deletes of the new one's external resource", "2", false, "0"},
				{"READY of the new one", available, true, available},
				{"its external resources", "1 for 1 managed resource", true, "1 for 1 managed resource"},
			},
		},
		"silent-deletion/claim": {
			reason: "Crossplane's reconciler says nothing in its first pass, and never why.",
			rows: []row{
				{"READY after the first reconcile", available, false, deleting},
				{whyRow, silent, false, "WaitingForDependents"},
				{"in the end", "gone", true, "gone"},
			},
		},
		"undead-informer": {
			reason: "An engine of upstream's shape reads nothing while it waits for a kind that is gone, and never stops to list it.",
			rows: []row{
				{"READY of the XBucket", "not set", false, available},
				{"stop of its controller", "at once", true, "at once"},
				{"requests for the kind that is gone, afterwards", "it is still listed", false, "none"},
			},
		},
		"collected-alive": {
			reason: "A collector of the old shape stops the watch of the composites themselves.",
			rows: []row{
				{"READY of the composite", "not set", false, available},
				{"READY after a restart", available, true, available},
			},
		},
		"finalizer-race": {
			reason: "In the usual order the object is stuck, and the finalizer of another controller lost.",
			rows: []row{
				{"the finalizer of another controller", "removed", false, "still there"},
				{"the object in the end", "stuck\nheld by example.org/audit", false, "gone"},
				{"external resources", "1 for 1 managed resource", true, "1 for 1 managed resource"},
			},
		},
		"forgotten-operation": {
			reason: "Upstream creates a second resource, and leaves the first one behind.",
			rows: []row{
				{"external resources", "2 for 1 managed resource", false, "1 for 1 managed resource"},
				{"external-name annotation", "stored", true, "stored"},
				{"READY", available, true, available},
				{"left in the cloud after deletion", "1 for 1 managed resource", false, "0 for 1 managed resource"},
			},
		},
		"silent-deletion/slow-delete": {
			reason: "Upstream says nothing before the delete call has returned, and never why.",
			rows: []row{
				{"READY while the delete call runs", available, false, deleting},
				{whyRow, silent, false, "ExternalDeleteRequested\nThe external resource is being deleted."},
				{"READY while the resource goes", deleting, true, deleting},
				{whyRow, silent, false, "WaitingForExternalResource\nThe external resource still exists after its deletion was requested."},
				{"in the end", gone, true, gone},
			},
		},
		"silent-deletion/other-finalizer": {
			reason: "Upstream says nothing at all while another finalizer is there.",
			rows: []row{
				{"READY after 10 reconciles", available, false, deleting},
				{whyRow, silent, false, "WaitingForFinalizers\nWaiting for other controllers to remove their finalizers: example.org/backup"},
				{"in the end", gone, true, gone},
			},
		},
		"silent-deletion/broken-credentials": {
			reason: "Upstream sets only Synced.",
			rows: []row{
				{"READY", available, false, deleting},
				{"SYNCED", "False (ReconcileError)", true, "False (ReconcileError)"},
				{whyRow, silent, false, "ConnectFailed\nThe provider could not be connected to: see the Synced condition. The external resource was not touched."},
				{"in the end", gone, true, gone},
			},
		},
		"steady-state-writes": {
			reason: "Upstream writes in every reconcile.",
			rows: []row{
				{"reconciles", "100", true, "100"},
				{"status writes", "100", false, "0"},
				{"other writes", "0", true, "0"},
				{"READY", available, true, available},
			},
		},
		"first-status": {
			reason: "Upstream loses what it observed when it adds the finalizer.",
			rows: []row{
				{"READY after the first reconcile", "not set", false, available},
				{"status.atProvider", "empty", false, "id, endpoint and state"},
				{"READY after the next poll", available, true, available},
			},
		},
	}

	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			tc, ok := cases[s.name]
			if !ok {
				t.Fatal("nothing holds what is measured in this story")
			}

			got := (&demo{env: inMemory{}, sides: bothSides()}).story(t.Context(), s)

			var upstream, graft []seen
			for _, r := range tc.rows {
				upstream = append(upstream, seen{r.where, r.upstream, r.good})
				graft = append(graft, seen{r.where, r.graft, true})
			}

			if diff := cmp.Diff(upstream, measured(got.Upstream.Findings)); diff != "" {
				t.Errorf("\n%s\nupstream: -want, +got:\n%s", tc.reason, diff)
			}

			if diff := cmp.Diff(graft, measured(got.Graft.Findings)); diff != "" {
				t.Errorf("\n%s\nGraft: -want, +got:\n%s", tc.reason, diff)
			}

			if len(got.Problems) > 0 {
				t.Errorf("\n%s\nthe story isn't as it should be: %q", tc.reason, got.Problems)
			}

			if outcome(got.Upstream) == "failed" {
				t.Error("the overview has no headline for this story")
			}
		})
	}
}

func measured(fs []finding) []seen {
	out := make([]seen, 0, len(fs))
	for _, f := range fs {
		out = append(out, seen{Where: f.Where, Seen: f.Seen, Good: f.Good})
	}

	return out
}

// TestSameProvider holds what the demo claims: that its columns differ in one
// import.
func TestSameProvider(t *testing.T) {
	read := func(side string) (imports, rest string) {
		b, err := os.ReadFile(filepath.Join("provider", side, "controller.go"))
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(string(b)) {
			switch trimmed := strings.TrimSpace(line); {
			case strings.HasSuffix(trimmed, `/managed"`):
				imports += trimmed
			case trimmed != "": // Groups of imports are set apart by empty lines.
				rest += line
			}
		}

		return imports, rest
	}

	upstreamImports, upstream := read("upstream")
	graftImports, graft := read("graft")

	if diff := cmp.Diff(upstream, graft); diff != "" {
		t.Errorf("the providers differ, -upstream, +Graft:\n%s", diff)
	}

	if want := `"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`; upstreamImports != want {
		t.Errorf("upstream's provider imports %s, want %s", upstreamImports, want)
	}

	if want := `"github.com/crossplane-graft/graft/pkg/managed"`; graftImports != want {
		t.Errorf("Graft's provider imports %s, want %s", graftImports, want)
	}
}

type newReconcilerFn = func(manager.Manager, resource.ManagedKind, managed.ExternalConnector) reconcile.Reconciler

// broken returns what makes reconcilers that do as fn does.
func broken(fn reconcile.Func) newReconcilerFn {
	return func(manager.Manager, resource.ManagedKind, managed.ExternalConnector) reconcile.Reconciler { return fn }
}

func TestCommand(t *testing.T) {
	upstream, graft := bothSides().upstream, bothSides().graft

	cases := map[string]struct {
		reason   string
		args     []string
		env      map[string]string
		upstream newReconcilerFn
		graft    newReconcilerFn
		want     int
		stdout   []string
		stderr   []string
	}{
		"All": {
			reason: "There is a line for each story, and all are as they should be.",
			stdout: append(names(), "story", "x 2 in the cloud     + 1 in the cloud", "make demo STORY=lost-external-name", fmt.Sprintf("+ %d stories: upstream fails, Graft holds.", len(names()))),
		},
		"OneStory": {
			reason: "A story is selected by its name, and shows what a user sees.",
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
		"UnknownFormat": {
			reason: "There is one format for programs.",
			args:   []string{"-format", "yaml"},
			want:   exitUsage,
			stderr: []string{`there is no format "yaml"`},
		},
		"GraftFails": {
			reason: "A Graft that is no better than upstream fails the demo, by name of what failed.",
			args:   []string{"-story", "steady-state-writes"},
			graft:  upstream.newReconciler,
			want:   exitFailed,
			stdout: []string{"x Graft fails at \"status writes\": 100", "Not as it should be: 1 of 1 story."},
			stderr: []string{errFailed.Error()},
		},
		"GraftDoesNothing": {
			reason: "A Graft that does nothing fails the demo, and the other stories are played, too.",
			graft:  broken(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }),
			want:   exitFailed,
			stdout: []string{"x failed", "Not as it should be:"},
			stderr: []string{errFailed.Error()},
		},
		"GraftErrors": {
			reason: "A story that doesn't come to its end fails the demo, and says why.",
			args:   []string{"-story", "lost-external-name"},
			graft: broken(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, errors.New("boom")
			}),
			want:   exitFailed,
			stdout: []string{"x Graft: the story doesn't come to its end", "boom"},
			stderr: []string{errFailed.Error()},
		},
		"UpstreamFixed": {
			reason:   "A story that isn't true of upstream any more fails the demo, and says which and what to do.",
			args:     []string{"-story", "lost-external-name"},
			upstream: graft.newReconciler,
			want:     exitFailed,
			stdout:   []string{"x Upstream fixed this: update the story at \"external-name annotation\":"},
			stderr:   []string{errFailed.Error()},
		},
		"UnknownStory": {
			reason: "A story that isn't there is a mistake of who asks.",
			args:   []string{"-story", "once-upon-a-time"},
			want:   exitUsage,
			stderr: []string{`there is no story "once-upon-a-time"`, "lost-external-name"},
		},
		"UnknownControlPlane": {
			reason: "A typing error must not pass for the default.",
			env:    map[string]string{"CONTROL_PLANE": "rael"},
			want:   exitUsage,
			stderr: []string{`CONTROL_PLANE is "rael"`},
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

			got := command(t.Context(), tc.args, func(k string) string { return tc.env[k] }, sd, &stdout, &stderr)
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

			// Help is set by hand, the rest wrapped.
			checkLayout(t, stdout.String(), tc.env["LANG"] == "")
		})
	}
}

func TestJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if got := command(t.Context(), []string{"-story", "steady-state-writes", "-format", "json"}, func(string) string { return "" }, bothSides(), &stdout, &stderr); got != exitOK {
		t.Fatalf("exit status: want %d, got %d: %s", exitOK, got, &stderr)
	}

	var got struct {
		Failed  int      `json:"failed"`
		Stories []result `json:"stories"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	if got.Failed != 0 || len(got.Stories) != 1 || len(got.Stories[0].Graft.Timeline) == 0 || len(got.Stories[0].Problems) != 0 {
		t.Fatalf("want one story that is as it should be, and its timeline, got %s", &stdout)
	}

	if f := got.Stories[0].Upstream.Findings[1]; f.Seen != "100" || f.Good || !f.Broken {
		t.Errorf("status writes with upstream: got %+v", f)
	}
}

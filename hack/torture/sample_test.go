package torture

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

// rowNamed returns the row of a name.
func rowNamed(t *testing.T, name string) row {
	t.Helper()
	all := rows(defaultLag)
	i := slices.IndexFunc(all, func(r row) bool { return r.name() == name })
	if i < 0 {
		t.Fatalf("there is no row %q", name)
	}
	return all[i]
}

// TestSample leads runs with faults that a seed picks. The command leads all of them.
func TestSample(t *testing.T) {
	for _, name := range []string{
		"create/sync/finder", "delete/sync/token", "delete-in-create/async/connect", "update/async/plan",
		"create-late/async/token", "delete-in-create-late/sync/name", "create-throttled/async/finder",
	} {
		t.Run(name, func(t *testing.T) {
			vs, err := (options{seed: 1}).lead(t, rowNamed(t, name), graftSide, crashtest.Runs(10))
			if err != nil || len(vs) < 10 {
				t.Fatalf("lead(...): %d runs, error %v", len(vs), err)
			}
			for _, v := range vs {
				if text := v.bad(); text != "" {
					t.Errorf("%s: %s\n%s", v.name(), text, v.command())
				}
			}
		})
	}
}

// TestDenied proves what Graft promises of a create that succeeded, and returned an error
// that does not say so.
func TestDenied(t *testing.T) {
	cases := map[string]struct {
		reason string
		row    string
		misled bool
	}{
		"SyncFinder": {reason: "It is looked up before the next create.", row: "create/sync/finder"},
		"SyncDeleted": {
			reason: "It is looked up before the finalizer is removed.", row: "delete-in-create/sync/connect",
		},
		"SyncName":     {reason: "It is observed under its name.", row: "create/sync/name"},
		"SyncNothing":  {reason: "There is nothing to look it up by.", row: "create/sync/nothing", misled: true},
		"AsyncFinder":  {reason: "It is looked up before the next create.", row: "create/async/finder"},
		"AsyncConnect": {reason: "It is looked up before the next create.", row: "create/async/connect"},
		"AsyncDeleted": {
			reason: "It is looked up before the finalizer is removed.", row: "delete-in-create/async/finder",
		},
		"AsyncName": {reason: "It is observed under its name.", row: "create/async/name"},
		"AsyncNameLate": {
			reason: "A name cannot be observed while the cloud hides it.",
			row:    "delete-in-create-late/async/name", misled: true,
		},
		"AsyncToken": {reason: "The next attempt has another token.", row: "create/async/token", misled: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			vs, err := (options{seed: 1}).lead(t, rowNamed(t, tc.row), graftSide, crashtest.Only("./^409-after$"))
			if err != nil {
				t.Fatal(err)
			}
			misled := false
			for _, v := range vs {
				misled = misled || v.misled()
				if text := v.bad(); text != "" || v.has(crashtest.Stopped) {
					t.Errorf("\n%s\n%s: %s", tc.reason, v.name(), text)
				}
			}
			if misled != tc.misled {
				t.Errorf("\n%s\nmisled(): want %t, got %t", tc.reason, tc.misled, misled)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		want   int
		out    string
		errs   string
	}{
		"Help": {reason: "Help is no failure.", args: []string{"-h"}, want: intest.ExitOK, out: "Usage: go test"},
		"BadReplay": {
			reason: "A second fault is at a later step.",
			args:   []string{"-replay", "create/sync/token/crash-after/7/reset-after/7"},
			want:   intest.ExitFailed,
			errs:   "no run matches",
		},
		"BadLife": {
			reason: "The form of a name is shown.",
			args:   []string{"-replay", "move/sync/token/crash-after/7"},
			want:   intest.ExitUsage,
			errs:   "create/sync/token/undisturbed",
		},
		"OnlyNone": {
			reason: "A prefix that no scenario has is a typing error.",
			args:   []string{"-only", "move"},
			want:   intest.ExitUsage,
			errs:   `no run whose name begins with "move"`,
		},
		"OneFault": {
			reason: "One fault is led at as many points as are wanted.",
			args: []string{
				"-only", "update/sync/token", "-fault", "crash-before", "-sample", "2", "-pairs", "0",
			}, want: intest.ExitOK, out: "1 : 1",
		},
		"Replay": {
			reason: "A replay shows the steps, here with two faults.",
			args: []string{
				"-replay", "delete/sync/token/crash-before/4/reset-before/9",
			}, want: intest.ExitOK, out: "Delete database-0001",
		},
		"ReplayOfATracker": {
			reason: "The same seed leads the same operations.",
			args: []string{
				"-replay", "delete-in-create/async/finder/failover-before/9", "-seed", "3",
			}, want: intest.ExitOK, out: "fine",
		},
		"ReplayBad": {
			reason: "The replay of a run that ends badly fails.",
			args: []string{
				"-replay", "create/async/nothing/crash-after/10", "-side", upstreamSide, "-seed", "2",
			}, want: intest.ExitFailed, out: "external resources were created",
		},
		"TooFewSteps": {
			reason: "A fault that did not strike proves nothing.",
			args: []string{
				"-replay", "delete/sync/token/crash-before/99",
			}, want: intest.ExitFailed, errs: "fewer than 99 requests",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out, errs, again bytes.Buffer
			if got := command(t, tc.args, &out, &errs); got != tc.want {
				t.Errorf(
					"\n%s\nexit status: want %d, got %d\n%s%s", tc.reason, tc.want, got, out.String(), errs.String(),
				)
			}
			if !strings.Contains(out.String(), tc.out) || !strings.Contains(errs.String(), tc.errs) {
				t.Errorf(
					"\n%s\nwant output with %q and %q, got:\n%s%s",
					tc.reason,
					tc.out,
					tc.errs,
					out.String(),
					errs.String(),
				)
			}
			if _ = command(t, tc.args, &again, io.Discard); again.String() != out.String() {
				t.Errorf("\n%s\n-first, +second:\n%s", tc.reason, cmp.Diff(out.String(), again.String()))
			}
		})
	}
}

func TestTable(t *testing.T) {
	add := func(r *report, row, side, name string, vs ...crashtest.Verdict) {
		res := &crashtest.Result{Name: name}
		for _, v := range vs {
			res.Violations = append(res.Violations, crashtest.Violation{Verdict: v, Text: "because"})
		}
		r.add(verdictOf{row: rowNamed(t, row), side: side, seed: 5, result: res})
	}
	r := &report{counts: map[string]count{}}
	add(r, "create/sync/token", upstreamSide, "create/crash-before/1", crashtest.SecondResource, crashtest.Leak)
	add(r, "create/sync/token", upstreamSide, "create/undisturbed")
	add(r, "create/sync/token", graftSide, "create/409-after/1", crashtest.SecondResource, crashtest.InvariantBroken)
	if !r.asExpected(true) {
		t.Errorf("asExpected(): upstream has a second resource, Graft was misled: want true")
	}
	add(r, "create/sync/name", graftSide, "create/409-after/1", crashtest.SecondResource, crashtest.InvariantBroken)
	add(r, "create/sync/name", graftSide, "create/crash-before/1", crashtest.Stopped)
	add(r, "create/sync/name", graftSide, "create/crash-before/2", crashtest.LostName, crashtest.HotLoop)
	if r.asExpected(true) {
		t.Errorf("asExpected(): a client that chooses names can't be misled: want false")
	}

	var out bytes.Buffer
	r.print(&out)
	r.explain(&out, false)
	for _, want := range []string{
		"create sync token 1 : 1 1 : 0 1 : 0 0 : 0 0 : 0 0 : 0 0 : 1",
		"sync name 0 : 3 0 : 1 0 : 0 0 : 1 0 : 1 0 : 1 0 : 0",
		"all 1 : 4 1 : 1 1 : 0 0 : 1 0 : 1 0 : 1 0 : 1",
		"go test -tags torture -v ./torture -args -- -replay create/sync/name/crash-before/2 -seed 5",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

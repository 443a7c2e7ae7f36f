package torture

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/crashtest"
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

// TestSample makes runs with faults that a seed picks. TestTorture makes all of them.
func TestSample(t *testing.T) {
	for _, name := range []string{
		"create/sync/finder", "delete/sync/token", "delete-in-create/async/connect", "update/async/plan",
		"create-late/async/token", "delete-in-create-late/sync/name", "create-throttled/async/finder",
	} {
		t.Run(name, func(t *testing.T) {
			vs := makeRuns(t, rowNamed(t, name), graftSide, 1, crashtest.Runs(10))
			if len(vs) < 10 {
				t.Fatalf("makeRuns(...): %d runs", len(vs))
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
			vs := makeRuns(t, rowNamed(t, tc.row), graftSide, 1, crashtest.Only("./^409-after$"))
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

// TestReplay proves that a run can be made again by its name, and has the same timeline then.
func TestReplay(t *testing.T) {
	cases := map[string]struct {
		reason string
		row    string
		side   string
		seed   uint64
		run    string
		bad    bool
		want   string
	}{
		"TwoFaults": {
			reason: "Each request should be shown.",
			row:    "delete/sync/token", side: graftSide, seed: 1, run: "delete/crash-before/4/reset-before/9",
			want: "Delete database-0001",
		},
		"Tracker": {
			reason: "The same seed should make the same operations.",
			row:    "delete-in-create/async/finder", side: graftSide, seed: 3,
			run: "delete-in-create/failover-before/9", want: "failover-before",
		},
		"Bad": {
			reason: "A run that ends badly should be shown.",
			row:    "create/async/nothing", side: upstreamSide, seed: 2, run: "create/crash-after/10", bad: true,
			want: "crash-after",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			replay := func() (string, bool) {
				vs := makeRuns(t, rowNamed(t, tc.row), tc.side, tc.seed, crashtest.Only(tc.run))
				if len(vs) != 1 {
					t.Fatalf("makeRuns(...): want 1 run, got %d", len(vs))
				}
				return vs[0].result.Timeline(), vs[0].bad() != ""
			}
			first, bad := replay()
			if bad != tc.bad || !strings.Contains(first, tc.want) {
				t.Errorf("\n%s\nwant a run with %q, bad %t, got %t:\n%s", tc.reason, tc.want, tc.bad, bad, first)
			}
			if second, _ := replay(); second != first {
				t.Errorf("\n%s\n-first, +second:\n%s", tc.reason, cmp.Diff(first, second))
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
	r.explain(&out)
	for _, want := range []string{
		"create sync token 1 : 1 1 : 0 1 : 0 0 : 0 0 : 0 0 : 0 0 : 1",
		"sync name 0 : 3 0 : 1 0 : 0 0 : 1 0 : 1 0 : 1 0 : 0",
		"all 1 : 4 1 : 1 1 : 0 0 : 1 0 : 1 0 : 1 0 : 1",
		"-run '^TestTorture$/^create$/^sync$/^name$/^graft$/^create$/^crash-before$/^2$' -args -seed 5",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
}

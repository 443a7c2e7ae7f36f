package crashtest

import (
	"slices"
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// findings makes runs, and returns those that ended badly.
func findings[C Cloud](t *testing.T, p Provider[C], o ...Option) []*Result {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r *Result) bool { return len(r.Violations) == 0 })
}

func oracleHas(r *Result, v Verdict) bool { return oracle.Has(r.Violations, v) }

// replayed makes one run.
func replayed[C Cloud](t *testing.T, p Provider[C], name string, o ...Option) *Result {
	t.Helper()
	s, err := newSweep(t, p, append(o, Only(name)))
	if err != nil {
		t.Fatal(err)
	}
	rs, _, err := s.run()
	if err != nil || len(rs) == 0 {
		t.Fatalf("run(): %d runs, error %v", len(rs), err)
	}
	return rs[len(rs)-1]
}

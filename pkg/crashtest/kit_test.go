package crashtest

import (
	"slices"
	"testing"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// findings makes runs, and returns those that ended badly.
func findings[C Cloud](t *testing.T, p Provider[C], o ...Option) []result {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		t.Fatal(err)
	}
	s.progress = func(string, ...any) {}
	all, _, err := s.run()
	if err != nil && !errors.Is(err, errHung) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r result) bool { return len(r.violations) == 0 })
}

func oracleHas(r result, v Verdict) bool { return oracle.Has(r.violations, v) }

// replayed makes one run.
func replayed[C Cloud](t *testing.T, p Provider[C], name string, o ...Option) result {
	t.Helper()
	s, err := newSweep(t, p, append(o, Only(name)))
	if err != nil {
		t.Fatal(err)
	}
	s.progress = func(string, ...any) {}
	rs, _, err := s.run()
	if err != nil || len(rs) == 0 {
		t.Fatalf("run(): %d runs, error %v", len(rs), err)
	}
	return rs[len(rs)-1]
}

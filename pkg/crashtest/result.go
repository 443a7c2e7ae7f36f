package crashtest

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// A Result is how one run ended.
type Result struct {
	testCase

	// Name of the scenario and its faults, for instance create/crash-after/7.
	Name string

	// Violations are empty if the run ended as it should.
	Violations []Violation

	// advice is the usual cause of each violation, and what ends it.
	advice []oracle.Advice

	// events of the run. They are dropped if nothing needs them any more, and again makes the run again.
	events []*history.Event
	again  func() *Result

	// final is the state at the end.
	final oracle.State

	// diverged says that a request was another one than in the run without a fault. hung says that the run did not
	// end. err says that it was not possible.
	diverged, hung bool
	err            error
}

// Timeline returns what happened in the run. It may make the run again.
func (r *Result) Timeline() string {
	if r.events == nil && !r.hung {
		r.events = r.again().events
	}
	return history.Timeline(r.events)
}

// Results makes the runs of a provider as [Run] does, and returns how each ended. No result
// fails the test. It is for tests with their own account of the results.
func Results[C Cloud](t *testing.T, p Provider[C], o ...Option) ([]*Result, error) {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		return nil, err
	}
	out, _, err := s.run()
	return out, err
}

package crashtest

import "testing"

// A Result is how one run ended.
type Result struct {
	// Name of the scenario and its faults, for instance create/crash-after/7.
	Name string

	// Violations are empty if the run ended as it should.
	Violations []Violation

	// Reconciles from the last fault until nothing changed any more.
	Reconciles int

	timeline func() string
}

// Timeline makes the run again and returns what happened in it.
func (r Result) Timeline() string { return r.timeline() }

// Results makes the runs of a provider as [Run] does, and returns how each ended. No result
// fails the test. It is for tests with their own account of the results.
func Results[C Cloud](t *testing.T, p Provider[C], o ...Option) ([]Result, error) {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		return nil, err
	}
	rs, _, err := s.run()
	out := make([]Result, 0, len(rs))
	for _, r := range rs {
		c := r.testCase
		one := Result{
			Name: r.name(), Reconciles: r.reconciles,
			timeline: func() string { return s.execute(c).timeline() },
		}
		for _, v := range r.violations {
			one.Violations = append(one.Violations, Violation(v))
		}
		out = append(out, one)
	}
	return out, err
}

package crashtest

import "testing"

// A Violation is one thing that is wrong with a life.
type Violation struct {
	Verdict Verdict
	Text    string
}

// A Result is how one life ended.
type Result struct {
	// Name of the life and its faults, for instance create/crash-after/7.
	Name string

	// Violations are empty if the life ended as it should.
	Violations []Violation

	// Reconciles from the last fault until nothing changed any more.
	Reconciles int

	timeline func() string
}

// Timeline leads the life again and returns what happened in it.
func (r Result) Timeline() string { return r.timeline() }

// Lead leads the lives of a provider as [Run] does, and returns how each ended. No result
// fails the test. It is for programs with their own account of the results.
func Lead[C Cloud](t *testing.T, p Provider[C], o ...Option) ([]Result, error) {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		return nil, err
	}
	led, _, err := s.run()
	out := make([]Result, 0, len(led))
	for _, r := range led {
		out = append(out, Result{
			Name: r.point.name(), Violations: r.finding.violations, Reconciles: r.finding.reconciles,
			timeline: func() string {
				tl := &timeline{}
				lead(t, s.subject, r.point, s.seed, s.calm[r.point.life.Name], tl)
				return tl.String()
			},
		})
	}
	return out, err
}

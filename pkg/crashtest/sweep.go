package crashtest

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// A sweep makes the runs of a provider.
type sweep struct {
	*subject
	settings

	t         *testing.T
	scenarios []Scenario
	lags      bool

	// patience is how long, in real time, nothing may happen in a run.
	patience time.Duration

	// enough ends the sweep early. It is nil except in tests. stopped says that no further run is made.
	enough  func(r *Result) bool
	stopped atomic.Bool

	// calm are the final states of the scenarios without a fault, effective the calls that had an effect in one.
	// notices are what failed in them, with the scenarios in which it did.
	calm      map[string]*oracle.State
	effective map[string]bool
	notices   map[string][]string
}

func newSweep[C Cloud](t *testing.T, p Provider[C], o []Option) (*sweep, error) {
	s := &sweep{
		t: t, patience: defaultPatience, calm: map[string]*oracle.State{}, effective: map[string]bool{},
		notices: map[string][]string{},
	}
	var err error
	if s.subject, err = p.check(); err != nil {
		return nil, err
	}
	if s.scenarios, err = checkScenarios(p.Scenarios); err != nil {
		return nil, err
	}
	if s.settings, err = newSettings(append(slices.Clone(o), onlyRun(t.Name()))); err != nil {
		return nil, err
	}
	cloud, err := s.newCloud()
	if err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(cloud); v.Kind() == reflect.Pointer && v.Type().Elem().Size() > 0 && cloud == s.Cloud() {
		return nil, errors.New("crashtest: Provider.Cloud returned the same fake twice: create a new one in each call, " +
			"because a run must not see the resources of another one")
	}
	_, s.lags = cloud.(Lagging)
	return s, nil
}

// run makes the runs without a fault, then with one at each request, and with two if the budget allows. places is how
// many cases there are with one fault.
func (s *sweep) run() (out []*Result, places int, err error) {
	alone, isAlone := parseCase(s.only, s.scenarios)
	var calm []testCase
	for _, o := range s.scenarios {
		if isAlone && o.Name == alone.scenario.Name || !isAlone && s.selects(o.Name, true) {
			calm = append(calm, testCase{scenario: o})
		}
	}
	candidates, out, err := s.runCalm(calm)
	if err != nil {
		return nil, 0, err
	}
	if isAlone && len(alone.injections) > 0 {
		out, err = s.makeRuns([]testCase{alone})
	}
	if isAlone {
		return out, 1, err
	}
	candidates = slices.DeleteFunc(candidates, func(c testCase) bool { return !s.selects(c.name(), false) })
	out = slices.DeleteFunc(out, func(r *Result) bool { return len(r.Violations) == 0 && !s.selects(r.Name, false) })
	if len(candidates) == 0 && len(out) == 0 {
		return nil, 0, errors.Errorf("crashtest: no run matches %s of -run or Only", s.only)
	}
	for i := range candidates {
		candidates[i].place = i
	}
	once, err := s.makeRuns(s.pick(candidates, s.runs-s.pairs))
	slices.SortFunc(once, func(a, b *Result) int { return cmp.Compare(a.place, b.place) })
	out = append(out, once...)
	if err != nil || s.only != "" {
		return out, len(candidates), err
	}
	left := s.runs - len(once)
	if !s.fill {
		left = min(left, s.pairs)
	}
	twice, err := s.makeRuns(s.twice(once, left))
	return append(out, twice...), len(candidates), err
}

// runCalm makes the runs without a fault, and returns the cases with one.
func (s *sweep) runCalm(cases []testCase) (candidates []testCase, out []*Result, err error) {
	rs, err := s.makeRuns(cases)
	for _, r := range rs {
		switch {
		case r.scenario.optional && errors.Is(r.err, errNotApplicable):
			s.t.Logf("crashtest: scenario %s is left out: %v", r.scenario.Name, r.err)
			err = r.err
			continue
		case r.err != nil:
			return nil, nil, errors.Errorf("%v\n\n%s", r.err, r.Timeline())
		}
		out = append(out, r)
		for _, text := range refusals(r.events) {
			if of := s.notices[text]; len(of) == 0 || of[len(of)-1] != r.scenario.Name {
				s.notices[text] = append(of, r.scenario.Name)
			}
		}
		// A scenario that ends badly by itself tells nothing new with a fault.
		if s.accepts(r) {
			s.calm[r.scenario.Name] = &r.final
			candidates = append(candidates, r.further(r.events, s.lags)...)
			for _, e := range r.events {
				if len(e.Effects) > 0 {
					s.effective[e.Request.String()] = true
				}
			}
		}
	}
	if len(out) > 0 || len(rs) == 0 {
		err = nil // Some scenarios may be left out, but not all.
	}
	return candidates, out, err
}

// accepts reports whether a result doesn't fail the test.
func (s *sweep) accepts(r *Result) bool {
	return !slices.ContainsFunc(r.Violations, func(v Violation) bool { return !slices.Contains(s.Accept, v.Verdict) })
}

// pick at most n cases: first those whose request and fault no other case of the scenario has.
func (s *sweep) pick(cases []testCase, n int) []testCase {
	type kind struct {
		scenario, fault, request string
		occurrence               int
	}
	seen := map[kind]int{}
	rank := make([]int, len(cases))
	order := s.random().Perm(len(cases))
	for i, c := range cases {
		k := kind{c.scenario.Name, c.injections[0].Fault.Name, c.injections[0].Want, c.occurrence}
		rank[i] = seen[k]
		seen[k]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	out := make([]testCase, 0, min(n, len(order)))
	for _, i := range order[:cap(out)] {
		out = append(out, cases[i])
	}
	return out
}

// twice returns at most n cases with a second fault of those that end well with one.
func (s *sweep) twice(once []*Result, n int) (out []testCase) {
	random, seen := s.random(), map[string]bool{}
	once = slices.DeleteFunc(slices.Clone(once), func(r *Result) bool { return len(r.Violations) > 0 })
	// Each case has few pairs that differ, so that some draws give a case again.
	for tries := 0; len(out) < n && tries < 2*n && len(once) > 0; tries++ {
		r := once[random.IntN(len(once))]
		cases := r.further(r.events, s.lags)
		if len(cases) == 0 {
			continue
		}
		if c := cases[random.IntN(len(cases))]; !seen[c.name()] {
			seen[c.name()] = true
			out = append(out, c)
		}
	}
	return out
}

// random numbers, which are the same for the same seed.
func (s *sweep) random() *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, s.seed)) //nolint:gosec // The same seed has to select the same cases.
}

// makeRuns makes some runs at a time. None follows a run that hangs, or is not possible.
func (s *sweep) makeRuns(cases []testCase) ([]*Result, error) {
	out := make([]*Result, len(cases))
	var workers sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, c := range cases {
		free <- struct{}{}
		if s.stopped.Load() {
			break
		}
		workers.Go(func() {
			defer func() { <-free }()
			r := s.execute(c)
			out[i] = r
			if r.hung || r.err != nil && len(c.injections) > 0 || s.enough != nil && s.enough(r) {
				s.stopped.Store(true)
			}
		})
	}
	workers.Wait()
	out = slices.DeleteFunc(out, func(r *Result) bool { return r == nil })
	for _, r := range out {
		if r.err != nil && len(r.injections) > 0 {
			return out, errors.Wrap(r.err, r.Name)
		}
	}
	return out, nil
}

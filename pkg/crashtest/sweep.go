package crashtest

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// progressEvery is how often the progress is shown, in real time.
const progressEvery = 5 * time.Second

// maxHung is how many runs may hang. Each leaves its goroutines behind.
const maxHung = 3

// A result is the ending of a case.
type result struct {
	testCase
	ending
}

// A sweep executes the cases of a provider.
type sweep struct {
	execution
	budget
	selection

	scenarios []Scenario

	// enough ends the sweep early. It is nil except in tests.
	enough func(r result) bool

	// progress gets a line now and then.
	progress func(format string, a ...any)

	mu   sync.Mutex
	hung map[string]bool // Scenarios with runs that hang.

	// diverged counts the runs in which a request was another one than in the run without a fault. notices are what
	// failed in the runs without a fault, with the scenarios in which it did.
	diverged int
	notices  map[string][]string
}

func newSweep[C Cloud](t *testing.T, p Provider[C], o []Option) (*sweep, error) {
	checked, err := p.check()
	if err != nil {
		return nil, err
	}
	scenarios, err := checkScenarios(p.Scenarios)
	if err != nil {
		return nil, err
	}
	set := settings{seed: 1}
	for _, fn := range o {
		fn(&set)
	}
	b, err := set.budget()
	if err != nil {
		return nil, err
	}
	sel, err := newSelection(set.only, scenarios)
	return &sweep{
		execution: execution{t: t, provider: checked, seed: set.seed, patience: defaultPatience}, budget: b,
		selection: sel, scenarios: scenarios,
		hung: map[string]bool{}, notices: map[string][]string{},
		progress: func(format string, a ...any) {
			if testing.Verbose() {
				t.Logf("crashtest: "+format, a...)
			}
		},
	}, err
}

// run makes the runs without a fault, then with one at each request, and with two if the budget allows. all is how many
// cases there are with one fault.
func (s *sweep) run() (out []result, all int, err error) {
	cloud, err := s.freshCloud()
	if err != nil {
		return nil, 0, err
	}
	candidates, out, err := s.runCalm(cloud)
	if err != nil {
		return out, 0, err
	}
	if s.alone != nil {
		if len(s.alone.injections) == 0 {
			return out, 1, nil
		}
		out, err = s.executeAll([]testCase{*s.alone}, "named")
		return out, 1, err
	}
	candidates = slices.DeleteFunc(candidates, func(c testCase) bool { return !s.has(c) })
	matches := func(r result) bool { return s.has(r.testCase) }
	if len(candidates) == 0 && len(s.matches) > 0 && !slices.ContainsFunc(out, matches) {
		return nil, 0, errors.Errorf("crashtest: no run matches %s of -run or Only", strings.Join(s.patterns, ", "))
	}
	if slices.ContainsFunc(out, s.ends) {
		return out, len(candidates), nil
	}
	once, err := s.executeAll(s.pick(candidates, s.runs-s.pairs), "with one fault")
	out = append(out, once...)
	if err != nil || len(s.matches) > 0 || slices.ContainsFunc(once, s.ends) {
		return out, len(candidates), err
	}
	left := s.runs - len(once)
	if !s.fill {
		left = min(left, s.pairs)
	}
	twice, err := s.executeAll(s.twice(once, left, cloud), "with two faults")
	return append(out, twice...), len(candidates), err
}

// freshCloud returns a fake that no run uses.
func (s *sweep) freshCloud() (Cloud, error) {
	cloud, err := s.provider.newCloud()
	if err != nil {
		return nil, err
	}
	v := reflect.ValueOf(cloud)
	if another, err := s.provider.newCloud(); err == nil && v.Kind() == reflect.Pointer && v.Type().Elem().Size() > 0 &&
		cloud == another {
		return nil, errors.New(
			"crashtest: Provider.Cloud returned the same fake twice: create a new one in each call, " +
				"because a run must " +
				"not see the resources of another one",
		)
	}
	return cloud, nil
}

// runCalm makes the runs without a fault, and returns the cases with one.
func (s *sweep) runCalm(cloud Cloud) (candidates []testCase, out []result, err error) {
	var calm []testCase
	for _, o := range s.scenarios {
		if s.alone != nil && s.alone.scenario.Name == o.Name || s.alone == nil && s.hasScenario(o) {
			calm = append(calm, testCase{scenario: o})
		}
	}
	if len(calm) == 0 {
		return nil, nil, errors.Errorf(
			"crashtest: no scenario matches %s of -run or Only", strings.Join(s.patterns, ", "),
		)
	}
	rs, err := s.executeAll(calm, undisturbed)
	s.calm, s.effective = map[string]*oracle.State{}, map[string]bool{}
	for _, r := range rs {
		switch {
		case r.scenario.optional && errors.Is(r.err, errNotApplicable):
			s.progress("scenario %s is left out: %v", r.scenario.Name, r.err)
			continue
		case r.err != nil && !errors.Is(r.err, errHung):
			return nil, nil, errors.Errorf("%v\n\n%s", r.err, r.timeline())
		}
		out = append(out, r)
		for _, text := range refusals(r.events) {
			if of := s.notices[text]; len(of) == 0 || of[len(of)-1] != r.scenario.Name {
				s.notices[text] = append(of, r.scenario.Name)
			}
		}
		// A scenario that ends badly by itself tells nothing new with a fault.
		if s.accepted(r.ending) {
			s.calm[r.scenario.Name] = &r.final
			candidates = append(candidates, r.further(r.events, cloud)...)
			for _, e := range r.events {
				if len(e.Effects) > 0 {
					s.effective[e.Request.String()] = true
				}
			}
		}
	}
	if err == nil && len(out) == 0 {
		err = rs[0].err // All scenarios are left out.
	}
	return candidates, out, err
}

// accepted reports whether an ending doesn't fail the test.
func (s *sweep) accepted(e ending) bool {
	for _, v := range e.violations {
		if !slices.Contains(s.provider.accept, v.Verdict) {
			return false
		}
	}
	return true
}

// ends reports whether a result ends the sweep.
func (s *sweep) ends(r result) bool { return s.enough != nil && s.enough(r) }

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
func (s *sweep) twice(once []result, n int, c Cloud) (out []testCase) {
	random, seen := s.random(), map[string]bool{}
	once = slices.DeleteFunc(slices.Clone(once), func(r result) bool { return len(r.violations) > 0 })
	if len(once) == 0 {
		return nil
	}

	// Each case has few pairs that differ, so that some draws are in vain.
	for tries := 0; len(out) < n && tries < 2*n; tries++ {
		r := once[random.IntN(len(once))]
		cs := r.further(r.events, c)
		if len(cs) == 0 {
			continue
		}
		if c := cs[random.IntN(len(cs))]; !seen[c.name()] {
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

// execute cases, some at a time. Of a scenario with a run that hangs no other run is made, and none at all after a few.
func (s *sweep) executeAll(cases []testCase, what string) ([]result, error) {
	out := make([]result, len(cases))
	next := make(chan int)
	var (
		workers sync.WaitGroup
		done    int
		failed  error
		ended   bool
		shown   = time.Now()
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				r := result{cases[i], s.execute(cases[i])}
				s.mu.Lock()
				switch {
				case errors.Is(r.err, errHung):
					s.hung[r.scenario.Name] = true
					if len(s.hung) >= maxHung {
						failed = errors.Wrap(r.err, r.name())
					}
				case r.err != nil && failed == nil && len(r.injections) > 0:
					failed = errors.Wrap(r.err, r.name())
				}
				done++
				s.count(&r)
				out[i] = r
				ended = ended || s.ends(r)
				if time.Since(shown) > progressEvery {
					shown = time.Now()
					s.progress("%d runs %s are done, %d are left", done, what, len(cases)-done)
				}
				s.mu.Unlock()
			}
		})
	}
	for i, c := range cases {
		s.mu.Lock()
		stop, skip := failed != nil || ended, s.hung[c.scenario.Name]
		s.mu.Unlock()
		if stop {
			break
		}
		if !skip {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	out = slices.DeleteFunc(out, func(r result) bool { return r.scenario.Name == "" })
	slices.SortStableFunc(out, s.compare)
	return out, failed
}

// count a result, and drop the events that nothing needs any more.
func (s *sweep) count(r *result) {
	if r.diverged {
		s.diverged++
	}
	if len(r.injections) > 1 || len(r.injections) == 1 && len(r.violations) > 0 {
		r.events = nil
	}
}

// compare results by their scenarios and requests.
func (s *sweep) compare(a, b result) int {
	scenario := func(r result) int {
		return slices.IndexFunc(s.scenarios, func(o Scenario) bool { return o.Name == r.scenario.Name })
	}
	if c := cmp.Compare(scenario(a), scenario(b)); c != 0 {
		return c
	}
	for i := range min(len(a.injections), len(b.injections)) {
		if c := cmp.Compare(a.injections[i].Number, b.injections[i].Number); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a.injections), len(b.injections))
}

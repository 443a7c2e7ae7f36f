package crashtest

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
)

// A result is the finding of the life that was led at a point.
type result struct {
	point   point
	finding finding
}

// A sweep leads lives.
type sweep struct {
	t       *testing.T
	subject *subject
	seed    uint64
	points  int

	// pairs of the points have two faults, and all that are left if fill is set.
	pairs int
	fill  bool

	// only selects the points to lead. All if it is nil. alone is the only life to lead.
	only  func(p point) bool
	alone *point

	// enough ends the sweep early. It is nil except in tests.
	enough func(r result) bool

	// progress gets a line now and then.
	progress func(format string, a ...any)

	calm map[string]*finding
}

// run leads the lives without a fault, then with one at each step, and with two if the
// budget allows. all is how many points there are with one fault.
func (s *sweep) run() (out []result, all int, err error) {
	cloud, err := s.subject.newCloud()
	if err != nil {
		return nil, 0, err
	}
	if another, err := s.subject.newCloud(); err == nil && same(cloud, another) {
		return nil, 0, errors.New(
			"crashtest: Provider.Cloud returned the same fake twice: create a new one in each call, because a life must " +
				"not see the resources of another one",
		)
	}
	var calm []point
	for _, l := range s.subject.lives {
		calm = append(calm, point{life: l})
	}
	s.calm = map[string]*finding{}
	if s.alone != nil {
		f := lead(s.t, s.subject, point{life: s.alone.life}, s.seed, nil, nil)
		s.calm[s.alone.life.Name] = &f
		out, err = s.lead([]point{*s.alone}, "named")
		return out, 1, err
	}
	led, err := s.lead(calm, "undisturbed")
	var candidates []point

	for _, r := range led {
		if r.point.life.optional && errors.Is(r.finding.err, errNotApplicable) {
			s.progress("life %s is left out: %v", r.point.life.Name, r.finding.err)
			continue
		}
		if r.finding.err != nil && !errors.Is(r.finding.err, errHung) {
			tl := &timeline{}
			lead(s.t, s.subject, r.point, s.seed, nil, tl)
			return nil, 0, errors.Errorf("%v\n\n%s", r.finding.err, tl)
		}
		out = append(out, r)

		// A life that ends badly by itself tells nothing new with a fault.
		if s.accepted(r.finding) {
			s.calm[r.point.life.Name] = &r.finding
			candidates = append(candidates, r.point.further(r.finding.steps, cloud)...)
		}
	}
	if err == nil && len(out) == 0 {
		err = led[0].finding.err // All lives are left out.
	}
	if err != nil {
		return out, 0, err
	}

	if s.only != nil {
		candidates = slices.DeleteFunc(candidates, func(p point) bool { return !s.only(p) })
	}
	if slices.ContainsFunc(out, s.ends) {
		return out, len(candidates), nil
	}
	once, err := s.lead(s.pick(candidates, s.points-s.pairs), "with one fault")
	out = append(out, once...)
	if err != nil || s.only != nil || slices.ContainsFunc(once, s.ends) {
		return out, len(candidates), err
	}
	left := s.points - len(once)
	if !s.fill {
		left = min(left, s.pairs)
	}
	twice, err := s.lead(s.twice(once, left, cloud), "with two faults")
	return append(out, twice...), len(candidates), err
}

// same reports whether two clouds share their resources.
func same(a, b Cloud) bool {
	v := reflect.ValueOf(a)
	return v.Kind() == reflect.Pointer && v.Type().Elem().Size() > 0 && a == b
}

// ends reports whether a result ends the sweep.
func (s *sweep) ends(r result) bool { return s.enough != nil && s.enough(r) }

// pick at most n points: first those whose step and fault no other point has.
func (s *sweep) pick(points []point, n int) []point {
	type kind struct{ life, fault, step string }
	seen := map[kind]int{}
	rank := make([]int, len(points))
	order := s.random().Perm(len(points))
	for i, p := range points {
		k := kind{p.life.Name, p.at[0].fault.name, p.at[0].want}
		rank[i] = seen[k]
		seen[k]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	out := make([]point, 0, min(n, len(order)))
	for _, i := range order[:cap(out)] {
		out = append(out, points[i])
	}
	return out
}

// twice returns at most n points with a second fault in lives that end well with one.
func (s *sweep) twice(once []result, n int, c Cloud) []point {
	r := s.random()
	seen := map[string]bool{}
	var out []point
	once = slices.DeleteFunc(slices.Clone(once), func(r result) bool { return len(r.finding.violations) > 0 })
	if len(once) == 0 {
		return nil
	}

	// Each life has few pairs that differ, so that some draws are in vain.
	for tries := 0; len(out) < n && tries < 2*n; tries++ {
		o := once[r.IntN(len(once))]
		ps := o.point.further(o.finding.steps, c)
		if len(ps) == 0 {
			continue
		}
		if p := ps[r.IntN(len(ps))]; !seen[p.name()] {
			seen[p.name()] = true
			out = append(out, p)
		}
	}
	return out
}

// random numbers, which are the same for the same seed.
func (s *sweep) random() *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, s.seed)) //nolint:gosec // The same seed has to select the same points.
}

// progressEvery is how often the progress is shown, in real time.
const progressEvery = 5 * time.Second

// lead the lives at these points, some at a time. It stops at the first one that hangs.
func (s *sweep) lead(points []point, what string) ([]result, error) {
	out := make([]result, len(points))
	next := make(chan int)
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		done    int
		failed  error
		ended   bool
		shown   = time.Now()
	)

	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				p := points[i]
				f := lead(s.t, s.subject, p, s.seed, s.calm[p.life.Name], nil)
				if len(p.at) > 1 && len(f.violations) == 0 {
					f.steps = nil // They are most of a result, and no life gets a third fault.
				}
				out[i] = result{point: p, finding: f}
				mu.Lock()
				done++
				if f.err != nil && failed == nil && len(p.at) > 0 || errors.Is(f.err, errHung) {
					failed = errors.Wrap(f.err, p.name())
				}
				ended = ended || s.ends(out[i])
				if time.Since(shown) > progressEvery {
					shown = time.Now()
					s.progress("%d lives %s are done, %d are left", done, what, len(points)-done)
				}
				mu.Unlock()
			}
		})
	}

	for i := range points {
		mu.Lock()
		stop := failed != nil || ended
		mu.Unlock()
		if stop {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	out = slices.DeleteFunc(out, func(r result) bool { return r.point.life.Name == "" })
	slices.SortStableFunc(out, s.compare)
	return out, failed
}

// compare points by their lives and steps.
func (s *sweep) compare(a, b result) int {
	life := func(r result) int {
		return slices.IndexFunc(s.subject.lives, func(l Life) bool { return l.Name == r.point.life.Name })
	}
	if c := cmp.Compare(life(a), life(b)); c != 0 {
		return c
	}
	return slices.CompareFunc(a.point.at, b.point.at, func(a, b disturbance) int { return cmp.Compare(a.step, b.step) })
}

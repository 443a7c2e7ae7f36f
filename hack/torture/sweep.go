package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// A verdictOf a point is the finding of the life that was led at it.
type verdictOf struct {
	point   point
	finding finding
}

// A sweep leads lives.
type sweep struct {
	columns     []column
	environment environment

	// only selects what is led. Everything, if it's nil.
	only func(p point) bool

	// faults that strike.
	faults []fault

	// lives is how many lives are led, and sample at how many points of those they
	// are disturbed, picked by the seed. All, if it's 0. Of those, pairs are
	// disturbed once more at most.
	lives, sample, pairs int

	// progress gets a line now and then.
	progress io.Writer
}

// run all lives: the undisturbed ones first, to count their steps, then those with a
// fault at each of them, and then some of those with a second fault.
func (s sweep) run(t *testing.T) []verdictOf {
	var calm []point

	for _, st := range stories() {
		for _, c := range s.columns {
			for _, k := range clientKinds() {
				if p := (point{story: st, column: c, kind: k}); s.only == nil || s.only(p) {
					calm = append(calm, p)
				}
			}
		}
	}

	out := s.lead(t, s.pick(calm, s.lives))
	var points []point
	for _, v := range out {
		points = append(points, disturbed(v.point, v.finding.steps, s.faults)...)
	}
	once := s.lead(t, s.pick(points, s.sample))
	return slices.Concat(out, once, s.lead(t, s.pick(s.twice(once), s.pairs)))
}

// twice returns points with a second fault: for each life that was led with one, one
// of those that it can have.
func (s sweep) twice(once []verdictOf) []point {
	r := s.random()
	var out []point
	for _, v := range once {
		if ps := disturbed(v.point, v.finding.steps, s.faults); len(ps) > 0 && s.pairs > 0 {
			out = append(out, ps[r.IntN(len(ps))])
		}
	}
	return out
}

// random numbers, which are the same for the same seed.
func (s sweep) random() *rand.Rand {
	return rand.New(rand.NewPCG(s.environment.seed, s.environment.seed)) //nolint:gosec // As it says.
}

// pick n of the points, or all if n is 0.
func (s sweep) pick(points []point, n int) []point {
	if n <= 0 || n >= len(points) {
		return points
	}
	s.random().Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return points[:n]
}

// disturbed returns the points of a life that took these steps, with one more fault
// after those that it has.
func disturbed(p point, steps []step, fs []fault) []point {
	var out []point

	for i := p.last(); i < len(steps); i++ {
		for _, f := range fs {
			if f.suits(steps[i]) {
				d := disturbance{fault: f, step: i + 1}
				if len(p.at) == 0 {
					d.want = steps[i].String()
				}
				out = append(out, p.disturbed(d))
			}
		}
	}
	return out
}

// lead the lives of all these points, some at a time.
func (s sweep) lead(t *testing.T, points []point) []verdictOf {
	out := make([]verdictOf, len(points))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				out[i] = verdictOf{point: points[i], finding: points[i].lead(t, s.environment, nil)}
			}
		})
	}

	for i := range points {
		if s.progress != nil && i%500 == 499 {
			fmt.Fprintf(s.progress, "torture: %d of %d\n", i+1, len(points))
		}
		next <- i
	}

	close(next)
	workers.Wait()
	return out
}

// patience is how long a life may take. One that is led at all takes milliseconds.
const patience = 5 * time.Minute

func (p point) lead(t *testing.T, e environment, trace io.Writer) finding {
	// Simulated time stands still while a goroutine waits for a mutex, and then
	// nothing in the bubble can notice that it will wait for ever.
	watchdog := time.AfterFunc(patience, func() {
		panic(fmt.Sprintf("a life has hung for %s: was a mutex held while its holder waited?\n%s", patience, p.command(e)))
	})
	defer watchdog.Stop()
	f := lead(t, p.story, p.column, p.kind, plan{at: p.at}, e, trace)
	if f.err == nil && len(p.at) > 0 && f.struck == 0 {
		f.err = fmt.Errorf("the life had fewer than %d steps: the fault didn't strike", p.at[0].step)
	}
	return f
}

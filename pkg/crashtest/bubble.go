package crashtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

// defaultPatience is how long, in real time, nothing may happen in a run. A run without progress is repeated
// before it is a finding.
const defaultPatience = 10 * time.Second

// execute a case. One without progress is executed again: a machine that is slow is no finding.
func (s *sweep) execute(c testCase) *Result {
	r := s.attempt(c)
	if r.hung {
		r = s.attempt(c)
	}
	r.testCase, r.Name, r.again = c, c.name(), func() *Result { return s.attempt(c) }
	if n := len(c.injections); n > 1 || n == 1 && len(r.Violations) > 0 {
		r.events = nil // Nothing needs them but a timeline.
	}
	return r
}

// escaped returns the result of a run that can't end.
func escaped(hung bool, format string, a ...any) *Result {
	return &Result{
		hung: hung, Violations: []Violation{{Verdict: Escaped, Text: fmt.Sprintf(format, a...)}},
		advice: []oracle.Advice{oracle.Advise(Escaped, oracle.Run{})},
	}
}

// attempt to execute a case in a bubble of its own. A run that hangs is left behind, because a goroutine can't be ended
// from outside.
func (s *sweep) attempt(c testCase) *Result {
	var (
		beats  atomic.Int64
		bubble atomic.Pointer[string]
	)
	done := make(chan *Result, 1)
	go func() {
		r := &Result{err: errors.New("crashtest: the run ended without a result")}
		defer func() {
			if v := recover(); v != nil { // Of synctest: goroutines are left.
				left := escaped(false, "%v\n%s", v, stacksOf(*bubble.Load()))
				r.Violations, r.err = append(r.Violations, left.Violations...), nil
				r.advice = append(r.advice, left.advice...)
			}
			done <- r
		}()
		synctest.Test(s.t, func(*testing.T) {
			id := bubbleID()
			bubble.Store(&id)
			r = s.inBubble(c, &beats)
		})
	}()

	look := time.NewTicker(s.patience)
	defer look.Stop()
	for last := int64(-1); ; {
		select {
		case r := <-done:
			return r
		case <-look.C:
		}
		n := beats.Load()
		if id := bubble.Load(); id != nil && n == last {
			return escaped(
				true, "a goroutine waits or loops for ever, so that no simulated time passes:\n%s", stacksOf(*id),
			)
		}
		last = n
	}
}

// inBubble executes a case in the bubble of the caller.
func (s *sweep) inBubble(c testCase, beats *atomic.Int64) (out *Result) {
	defer func() {
		if v := recover(); v != nil {
			out = &Result{err: errors.Errorf(
				"crashtest: the fake of the external system or a function of Provider panicked: %v\n%s", v,
				simulation.Stack(),
			)}
		}
	}()
	r, err := newRun(s.subject, c, s.seed, beats)
	if err != nil {
		return &Result{err: err}
	}
	defer r.sim.Close()
	err = r.play(c.scenario)
	out = &Result{events: r.events, diverged: r.faults.diverged, err: err}
	if err != nil {
		return out
	}
	out.final = r.final()
	judged := oracle.Run{
		Events: out.events, Final: out.final, Calm: s.calm[c.scenario.Name], End: r.sim.Since(), Window: r.window(),
		Effective: s.effective,
	}
	out.Violations = append(oracle.Judge(judged), judgeInvariant(r)...)
	for i, v := range out.Violations {
		if len(c.injections) == 0 {
			out.Violations[i].Text += hint(r, v)
		}
		out.advice = append(out.advice, oracle.Advise(v.Verdict, judged))
	}
	if len(c.injections) > 0 && r.faults.struck == 0 && len(out.Violations) == 0 {
		out.err = errors.Errorf(
			"crashtest: there are fewer than %d requests, or none that suits the fault: it did not strike",
			c.injections[0].Number,
		)
	}
	return out
}

// judgeInvariant asks the Invariant of the author.
func judgeInvariant(r *run) []Violation {
	if r.provider.Invariant == nil {
		return nil
	}
	o, err := r.sim.API.Stored(r.first)
	if err == nil {
		err = r.provider.Invariant(o, r.cloud, r.sim.API.Admin())
	}
	if err == nil {
		return nil
	}
	return []Violation{{Verdict: InvariantBroken, Text: err.Error()}}
}

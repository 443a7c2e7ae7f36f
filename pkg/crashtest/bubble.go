package crashtest

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

// defaultPatience is how long, in real time, nothing may happen in a run. A run without progress is repeated
// before it is a finding.
const defaultPatience = 10 * time.Second

// errHung says that a run can't be ended.
var errHung = errors.New("crashtest: a goroutine waits or loops for ever, so that no simulated time passes")

// An execution has the part that a run shares with others, and its result.
type execution struct {
	t        *testing.T
	provider *checked
	seed     uint64
	patience time.Duration

	// calm are the final states of the scenarios without a fault, effective the calls that had an effect in one.
	calm      map[string]*oracle.State
	effective map[string]bool
}

// An ending is the result of one run.
type ending struct {
	violations []oracle.Violation

	// advice is the usual cause of each violation, and what ends it.
	advice []oracle.Advice

	// events of the run, and the final state.
	events []*history.Event
	final  oracle.State

	// reconciles from the last fault until nothing changed any more.
	reconciles int

	// diverged says that a request was another one than in the run without a fault.
	diverged bool

	// err says that the run could not be ended.
	err error
}

// timeline of a run.
func (e ending) timeline() string { return history.Timeline(e.events) }

// execute a case. One without progress is executed again: a machine that is slow is no finding.
func (x *execution) execute(c testCase) ending {
	e := x.attempt(c)
	if errors.Is(e.err, errHung) {
		e = x.attempt(c)
	}
	return e
}

// attempt to execute a case in a bubble of its own. A run that hangs is left behind, because a goroutine can't be ended
// from outside.
func (x *execution) attempt(c testCase) ending {
	var (
		beats  atomic.Int64
		bubble atomic.Pointer[string]
	)
	done := make(chan ending, 1)

	go func() {
		e := ending{err: errors.New("crashtest: the run ended without a result")}
		defer func() {
			if v := recover(); v != nil {
				e.err = nil
				e.violations = append(e.violations, oracle.Violation{
					Verdict: oracle.Escaped, Text: fmt.Sprintf("%v\n%s", v, stacksOf(*bubble.Load())),
				})
				e.advice = append(e.advice, oracle.Advise(oracle.Escaped, oracle.Run{}))
			}
			done <- e
		}()
		synctest.Test(x.t, func(*testing.T) {
			id := bubbleID()
			bubble.Store(&id)
			e = x.inBubble(c, &beats)
		})
	}()

	look := time.NewTicker(x.patience / 10)
	defer look.Stop()
	last, since := int64(-1), time.Now()

	for {
		select {
		case e := <-done:
			return e
		case <-look.C:
		}
		if n := beats.Load(); n != last {
			last, since = n, time.Now()
			continue
		}
		if id := bubble.Load(); id != nil && time.Since(since) > x.patience {
			return ending{
				err: errHung,
				violations: []oracle.Violation{{
					Verdict: oracle.Escaped,
					Text:    "a goroutine waits or loops for ever, so that no simulated time passes:\n" + stacksOf(*id),
				}},
				advice: []oracle.Advice{oracle.Advise(oracle.Escaped, oracle.Run{})},
			}
		}
	}
}

// inBubble executes a case in the bubble of the caller.
func (x *execution) inBubble(c testCase, beats *atomic.Int64) (e ending) {
	defer func() {
		if v := recover(); v != nil {
			e = ending{err: errors.Errorf(
				"crashtest: the fake of the external system or a function of Provider panicked: %v\n%s", v,
				simulation.Stack(),
			)}
		}
	}()
	r, err := newRun(x.provider, c, x.seed, beats)
	if err != nil {
		return ending{err: err}
	}
	defer r.sim.Close()
	err = r.play(c.scenario)
	e = ending{events: r.history.Events(), diverged: r.diverged, err: err}
	if err != nil {
		return e
	}
	e.final, e.reconciles = r.final(), oracle.Reconciles(e.events)
	judged := oracle.Run{
		Events: e.events, Final: e.final, Calm: x.calm[c.scenario.Name], End: r.sim.Since(), Window: r.window(),
		Effective: x.effective,
	}
	e.violations = oracle.Judge(judged)
	e.violations = append(e.violations, r.judgeInvariant()...)
	for i, v := range e.violations {
		if len(c.injections) == 0 {
			e.violations[i].Text += r.hint(v)
		}
		e.advice = append(e.advice, oracle.Advise(v.Verdict, judged))
	}
	if len(c.injections) > 0 && r.struck == 0 && len(e.violations) == 0 {
		e.err = errors.Errorf(
			"crashtest: scenario %q has fewer than %d requests, or none that suits the fault: it did not strike",
			c.name(), c.injections[0].Number,
		)
	}
	return e
}

// judgeInvariant asks the Invariant of the author.
func (r *run) judgeInvariant() []oracle.Violation {
	if r.provider.invariant == nil {
		return nil
	}
	o, err := r.sim.Stored(r.first)
	if err == nil {
		err = r.provider.invariant(o, r.cloud, r.sim.Admin())
	}
	if err == nil {
		return nil
	}
	return []oracle.Violation{{Verdict: oracle.InvariantBroken, Text: err.Error()}}
}

var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// bubbleID returns how a stack names the bubble of the goroutine that calls it.
func bubbleID() string {
	b := make([]byte, 256)
	header, _, _ := strings.Cut(string(b[:runtime.Stack(b, false)]), "\n")
	return bubbleName.FindString(header)
}

// stacksOf returns the stacks of some goroutines in a bubble, without those of this package. Nothing is decided from
// them.
func stacksOf(bubble string) string {
	const most = 3
	b := make([]byte, 1<<20)
	for n := runtime.Stack(b, true); n == len(b); n = runtime.Stack(b, true) {
		b = make([]byte, 2*len(b))
	}
	var locks, others []string
	for _, s := range strings.Split(string(bytes.TrimRight(b, "\x00")), "\n\n") {
		header, _, _ := strings.Cut(s, "\n")
		switch {
		case !strings.Contains(header, bubble+"]"), strings.Contains(s, "testing.tRunner"),
			strings.Contains(s, "synctest.Run("), strings.Contains(s, "network).forever"):
		case strings.Contains(header, "[sync."):
			locks = append(locks, s)
		default:
			others = append(others, s)
		}
	}
	locks = append(locks, others...)
	return strings.Join(locks[:min(most, len(locks))], "\n\n")
}

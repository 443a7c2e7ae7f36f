package main

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

const (
	// restAfter is how long nothing may change before a life counts as at rest, so
	// that every poll and every retry has run that was due when something changed
	// last: none is farther away than a poll interval. What only a later look puts
	// right is stuck, since that is the resync, which providers have once an hour, or
	// a look that a person is told not to wait for.
	restAfter = pollInterval

	// longestLook is how seldom an interrupted create is looked up at the most. As long
	// as that goes on, there is no rest. A person alone knows more of one that is looked
	// at less often.
	longestLook = 5 * time.Minute

	// maxReconciles and maxTime is how long it may take to come to rest. Absence is
	// believed when an operation's deadline has passed, for each fault once.
	maxReconciles = 100
	maxTime       = time.Hour
)

// rest waits until no goroutine can go on without time passing or a verdict.
func (w *world) rest() { synctest.Wait() }

// An arrival is the effect of a call whose caller is gone.
type arrival struct {
	at     time.Time
	step   step
	effect func() error
}

// A retirement is the end of a process's grace.
type retirement struct {
	at      time.Time
	process *process
}

// An action is something that can happen now.
type action func() error

// settle lets things happen until nothing changes any more. It returns false if
// that took too long.
func (w *world) settle() (bool, error) {
	w.changed = time.Now()
	began, budget := time.Now(), w.reconciles+maxReconciles

	for {
		w.rest()
		if err := w.observe(); err != nil {
			return false, err
		}
		if w.atRest() {
			return true, nil
		}
		if w.reconciles >= budget || time.Since(began) > maxTime {
			return false, nil
		}
		now, next := w.possible()
		if len(now) == 0 {
			w.sleep(next)
			continue
		}
		i := 0
		if len(now) > 1 {
			i = w.rand.IntN(len(now))
		}

		if err := now[i](); err != nil {
			return false, err
		}
	}
}

// possible returns what can happen now, and when something else can.
func (w *world) possible() (now []action, next time.Time) {
	at := func(t time.Time, a action) {
		switch {
		case !t.After(time.Now()):
			now = append(now, a)
		case next.IsZero() || t.Before(next):
			next = t
		}
	}

	for _, t := range w.tickets() {
		w.delay(t)

		if t.ctx.Err() != nil {
			// Its caller stops waiting, once its process runs.
			at(t.process.awake(), func() error { w.rest(); return nil })
			continue
		}

		at(later(t.notBefore, t.process.awake()), func() error { return w.admit(t) })
	}

	for _, p := range w.alive() {
		if thaws, ok := p.thawing(); ok {
			at(thaws, func() error { p.thaw(); return nil })
		}

		if due, ok := p.next(); ok {
			at(due, func() error { p.reconcile(); return nil })
		}
	}

	for i, a := range w.arrivals {
		at(a.at, func() error {
			w.arrivals = append(w.arrivals[:i:i], w.arrivals[i+1:]...)
			w.tracef("        %s arrives: %v", a.step, a.effect())
			return nil
		})
	}

	for i, r := range w.retirements {
		at(r.at, func() error {
			w.retirements = append(w.retirements[:i:i], w.retirements[i+1:]...)
			w.kill(r.process)
			return nil
		})
	}
	return now, next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// delay a call of the cloud that makes or changes something. A provider whose client
// is asynchronous has such a client because calls take long. To delete is to say
// so: that it takes its time is the resource's affair.
func (w *world) delay(t *ticket) {
	if t.delayed || w.column.mode != asyncMode || t.step.verb != string(cloud.OpCreate) && t.step.verb != string(cloud.OpUpdate) {
		return
	}
	slow := []time.Duration{0, 0, 2 * time.Second, 20 * time.Second}
	t.delayed = true
	t.notBefore = t.notBefore.Add(slow[w.rand.IntN(len(slow))])
}

// sleep until t, or until something happens earlier, which may be rest.
func (w *world) sleep(t time.Time) {
	d := resyncEvery
	if !t.IsZero() {
		d = time.Until(t)
	}

	if calm := time.Until(w.changed.Add(restAfter)); calm > 0 {
		d = min(d, calm)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-w.woken:
	case <-timer.C:
	}
}

// admit the goroutine that waits for a step, or let a fault strike.
func (w *world) admit(t *ticket) error {
	if w.plan.armed {
		w.steps = append(w.steps, t.step)
	}

	if u := w.user; u.provoked != nil && u.provoked(t.step) {
		if err := w.provoke(); err != nil {
			return err
		}
	}

	if t.process.doomed {
		if t.process.stepsLeft--; t.process.stepsLeft < 0 {
			w.kill(t.process)
			return nil
		}
	}

	if n, d := len(w.steps), w.plan.next(); d != nil && n >= d.step && d.fault.suits(t.step) {
		if d.want != "" && d.want != t.step.String() {
			return fmt.Errorf("step %d is %q, was %q before the fault: the life is not deterministic", n, t.step, d.want)
		}
		w.plan.struck++
		w.reconcilesBefore = w.reconciles
		w.tracef("%4d %d  %s: %s", n, t.process.id, t.step, d.fault.name)
		return d.fault.strike(w, t)
	}

	if t.step.target == api && time.Now().Before(w.awayUntil) {
		w.tracef("        %s: the API server is away", t.step)
		w.release(t, verdict{instead: away()})
		return nil
	}

	w.tracef("%4d %d  %s", len(w.steps), t.process.id, t.step)
	w.release(t, verdict{})
	return nil
}

// release a goroutine.
func (w *world) release(t *ticket, v verdict) {
	w.leave(t)
	if t.step.target == api && t.step.write {
		w.touched = true
	}
	t.verdict <- v
}

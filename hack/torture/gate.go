package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A target is whom a step is addressed to.
type target string

const (
	api      target = "api"
	cloudAPI target = "cloud"
)

// A step is one request to the API server, or one call of the cloud.
type step struct {
	target target

	// verb of a request, operation of a call.
	verb string

	// of is what it is about.
	of string

	// write says that it may change something, creates that it may make an
	// external resource.
	write, creates bool
}

func (s step) String() string { return fmt.Sprintf("%s %s %s", s.target, s.verb, s.of) }

// A ticket is a goroutine's turn that it waits for.
type ticket struct {
	process *process
	step    step
	ctx     context.Context //nolint:containedctx // It is the request's, which waits here.

	// effect of the step, for a call that outlives its caller.
	effect func() error

	// notBefore lets a step take its time, once it is delayed.
	notBefore time.Time
	delayed   bool

	verdict chan verdict
}

// A verdict is the result of a step.
type verdict struct {
	// instead of the effect the caller gets this error.
	instead error

	// lost is the error that the caller gets after the effect.
	lost error

	// dies says that the process is gone before it learns of the effect.
	dies bool
}

// pass waits until it is this step's turn, and takes it. It never returns to a
// process that is dead.
func (w *world) pass(ctx context.Context, p *process, s step, effect func() error) error {
	if p == nil {
		// The caller is the user, or something else that isn't a provider.
		return effect()
	}
	t := &ticket{process: p, step: s, ctx: ctx, effect: effect, notBefore: time.Now(), verdict: make(chan verdict, 1)}
	w.enter(t)

	select {
	case v := <-t.verdict:
		return w.take(t, v)
	case <-ctx.Done():
		// A process that stalls can't stop waiting either.
		time.Sleep(time.Until(p.awake()))
		if !w.leave(t) {
			w.forever()
		}
		return ctx.Err()
	case <-w.over:
		runtime.Goexit()
	}
	return nil
}

func (w *world) take(t *ticket, v verdict) error {
	if v.instead != nil {
		return v.instead
	}
	err := t.effect()

	switch {
	case v.dies:
		w.forever()
	case err == nil:
		err = v.lost
	}
	return err
}

// forever is where a dead process's goroutines are.
func (w *world) forever() {
	<-w.over
	runtime.Goexit()
}

func (w *world) enter(t *ticket) {
	w.mu.Lock()
	if !t.process.dead {
		w.waiting = append(w.waiting, t)
	}
	w.mu.Unlock()
	w.wake()
}

// leave gives a ticket back. It returns false if its process is dead.
func (w *world) leave(t *ticket) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(o *ticket) bool { return o == t })
	return !t.process.dead
}

// wake up the schedule: something happened.
func (w *world) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// tickets returns those that wait, in an order that doesn't depend on which
// goroutine was faster.
func (w *world) tickets() []*ticket {
	w.mu.Lock()
	defer w.mu.Unlock()

	slices.SortStableFunc(w.waiting, func(a, b *ticket) int {
		return cmp.Or(
			cmp.Compare(a.process.id, b.process.id),
			a.notBefore.Compare(b.notBefore),
			cmp.Compare(a.step.String(), b.step.String()),
		)
	})
	return slices.Clone(w.waiting)
}

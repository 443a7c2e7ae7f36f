package simulation

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// tick is how long a request takes. It hides the jitter of retries, which is random.
const tick = 100 * time.Millisecond

// A network has the requests that wait for their turn.
type network struct {
	waiting []*Request

	// actions counts the actions so far: requests of one action are ordered by their content.
	actions atomic.Int64

	over chan struct{}
}

// A Request waits for its turn.
type Request struct {
	history.Request

	Process *Process

	// Reconcile is the number of the reconcile that makes it, or 0.
	Reconcile int

	// Event records the request. Turn sets it.
	Event *history.Event

	network  *network
	ctx      context.Context //nolint:containedctx // It is the context of a request that waits.
	effect   func() error
	due      time.Time
	action   int64
	decision chan Decision
}

// A Decision says what happens to a request.
type Decision struct {
	// Undelivered says that it has no effect.
	Undelivered bool

	// Answer in place of the real one.
	Answer error

	// Delay of the answer.
	Delay time.Duration

	// Dies says that its process never gets an answer, Stops that the context of the process ends first.
	Dies, Stops bool
}

// Context of the caller.
func (r *Request) Context() context.Context { return r.ctx }

// Decide what happens to the request.
func (r *Request) Decide(d Decision) {
	r.leave()
	r.decision <- d
}

// Pass waits for the turn of a request, and returns its answer. effect has its effect: it is called on the goroutine
// of the caller, unless its process is dead. Pass never returns to a process that is dead.
func (p *Process) Pass(ctx context.Context, q history.Request, effect func(r *Request) error) error {
	n := p.sim.network
	r := &Request{
		Request: q, Process: p, network: n, ctx: ctx, decision: make(chan Decision, 1), action: n.actions.Load(),
		due: time.Now().Truncate(tick).Add(tick),
	}
	r.Reconcile, _ = ctx.Value(reconcileKey{}).(int)
	r.effect = func() error { return effect(r) }
	p.requests.Add(1)
	if p.dead.Load() {
		n.forever()
	}
	p.sim.mail <- func() { n.waiting = append(n.waiting, r) }
	select {
	case d := <-r.decision:
		err := r.take(d)
		p.sim.mail <- func() { p.sim.options.Answered(r, err) }
		return err
	case <-ctx.Done():
		p.sim.mail <- r.leave
		if p.dead.Load() {
			n.forever()
		}
		return ctx.Err()
	case <-n.over:
		runtime.Goexit()
		return nil
	}
}

// turn is called when the turn of the request has come.
func (r *Request) turn() {
	if p := r.Process; p.doomed {
		if p.left--; p.left < 0 {
			p.Kill()
			return
		}
	}
	r.Process.sim.options.Turn(r)
}

// take the decision.
func (r *Request) take(d Decision) error {
	err := d.Answer
	if !d.Undelivered {
		if failed := r.effect(); failed != nil {
			err = failed
		}
	}
	switch {
	case d.Dies:
		r.network.forever()
	case d.Stops:
		r.Process.cancel()
		err = context.Canceled
	}
	if d.Delay > 0 {
		wait := time.NewTimer(d.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.ctx.Done():
			err = r.ctx.Err()
		case <-r.network.over:
			runtime.Goexit()
		}
	}
	if r.Process.dead.Load() {
		r.network.forever()
	}
	return err
}

// forever is where the goroutines of a dead process stay until the run is over.
func (n *network) forever() {
	<-n.over
	runtime.Goexit()
}

func (r *Request) leave() { r.network.leave(func(o *Request) bool { return o == r }) }

// leave removes requests from those that wait.
func (n *network) leave(gone func(r *Request) bool) {
	n.waiting = slices.DeleteFunc(n.waiting, gone)
}

// pending returns the requests that wait, in an order that does not depend on which one was faster. Content may be
// random, so it only orders requests that one action caused.
func (n *network) pending() []*Request {
	slices.SortStableFunc(n.waiting, func(a, b *Request) int {
		return cmp.Or(
			cmp.Compare(a.Process.ID, b.Process.ID),
			a.due.Compare(b.due),
			cmp.Compare(a.String(), b.String()),
			cmp.Compare(a.action, b.action),
			cmp.Compare(a.Content, b.Content),
		)
	})
	// A caller whose context has ended leaves by itself.
	return slices.DeleteFunc(slices.Clone(n.waiting), func(r *Request) bool {
		return r.ctx.Err() != nil || r.Process.dead.Load()
	})
}

package crashtest

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// A target is the addressee of a step.
type target int

const (
	apiTarget target = iota
	cloudTarget
)

// A step is one request to the API server, or one call to the external system.
type step struct {
	target target
	verb   string
	of     string // The kind of object.
	name   string // The object's name, or the rest of a call.

	// write says that the step may change something. Of a call without a method it is
	// known afterwards.
	write bool

	// creates says that the step created an external resource.
	creates bool

	// done says that the step had its effect, so that write and creates are known.
	done bool

	// cached says that the answer comes from a cache, which no fault of the network
	// reaches.
	cached bool

	// http says that an error can be an HTTP response.
	http bool

	// content is a hash of the query and the body, which orders requests to one path that
	// one action caused. Content may be random, so it orders no other requests.
	content uint64
}

func (s step) String() string { return strings.Join(strings.Fields(s.verb+" "+s.of+" "+s.name), " ") }

// tick is how long a step takes. It hides the jitter of retries, which is random.
const tick = 100 * time.Millisecond

// A ticket is a goroutine that waits for its turn.
type ticket struct {
	process *Process
	step    step
	ctx     context.Context //nolint:containedctx // It is the context of a request that waits.
	effect  func() error
	due     time.Time
	ruling  chan ruling

	// action is the number of the last action before the goroutine began to wait.
	action int64

	// number of the step since the first act, or 0.
	number int
}

// A ruling decides what happens to a step.
type ruling struct {
	// instead is the answer without the effect.
	instead error

	// lost is the answer after the effect.
	lost error

	// hangs is how long the answer takes.
	hangs time.Duration

	// dies says that the process never gets the answer, stops that its context ends first.
	dies, stops bool
}

// pass waits for the turn of a step and takes it. It never returns to a process that is
// dead.
func (w *world) pass(ctx context.Context, p *Process, s step, effect func() error) error {
	t := &ticket{process: p, step: s, ctx: ctx, ruling: make(chan ruling, 1), action: w.actions.Load()}
	t.due = time.Now().Truncate(tick).Add(tick)
	t.effect = func() error { return w.guarded(t, effect) }
	if !w.enter(t) {
		w.forever()
	}

	select {
	case r := <-t.ruling:
		return w.take(t, r)
	case <-ctx.Done():
		if !w.leave(t) {
			w.forever()
		}
		return ctx.Err()
	case <-w.over:
		runtime.Goexit()
		return nil
	}
}

// take the step as the ruling says.
func (w *world) take(t *ticket, r ruling) error {
	err := r.instead
	if err == nil {
		if err = t.effect(); err == nil {
			err = r.lost
		}
	}

	switch {
	case r.dies:
		w.forever()
	case r.stops:
		t.process.cancel()
		err = context.Canceled
	}

	if r.hangs > 0 {
		wait := time.NewTimer(r.hangs)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-t.ctx.Done():
			err = t.ctx.Err()
		case <-w.over:
			runtime.Goexit()
		}
	}
	if t.process.isDead() {
		w.forever()
	}
	w.answered(t, err)
	return err
}

// forever is where the goroutines of a dead process stay until the life is over.
func (w *world) forever() {
	<-w.over
	runtime.Goexit()
}

// guarded runs the effect of a step, and records it. Behind [Process.Transport] is only the fake. Any other call may
// run code of the provider, so its panic goes on to the caller. On a goroutine of the provider it would end the test
// binary, so it is recorded.
func (w *world) guarded(t *ticket, effect func() error) (err error) {
	w.beats.Add(1)
	if t.step.target == apiTarget {
		defer w.touch()
		return effect()
	}
	calling := false
	defer func() {
		own := calling && !t.step.http
		if own && recovers() {
			return
		}
		switch v := recover(); {
		case v == nil:
		case own:
			err = errors.Errorf("panic in step %q on a goroutine of the provider: %v\n%s", t.step, v, stack())
			w.mu.Lock()
			w.panics = append(w.panics, err.Error())
			w.mu.Unlock()
		default:
			err = errors.Errorf(
				"crashtest: the fake of the external system panicked in step %q: %v\n%s", t.step, v, stack(),
			)
			w.breaks(err)
		}
	}()
	before := w.snapshot()
	calling = true
	err = effect()
	calling = false
	w.changedBy(t, before, w.snapshot())
	return err
}

// recovers reports whether this package started the goroutine, and recovers its panics.
func recovers() bool {
	s := string(debug.Stack())
	return slices.ContainsFunc([]string{"Process).reconcile", "world).start", "world).arrive"}, func(f string) bool {
		return strings.Contains(s, "/crashtest.(*"+f)
	})
}

func (p *Process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (w *world) enter(t *ticket) bool {
	if t.process.isDead() {
		return false
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, t)
	w.mu.Unlock()
	w.wake()
	return true
}

// leave takes a ticket back. It returns false if its process is dead.
func (w *world) leave(t *ticket) bool {
	w.mu.Lock()
	w.waiting = slices.DeleteFunc(w.waiting, func(o *ticket) bool { return o == t })
	w.mu.Unlock()
	return !t.process.isDead()
}

// wake the schedule.
func (w *world) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// tickets returns the goroutines that wait, in an order that doesn't depend on which one
// was faster.
func (w *world) tickets() []*ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.waiting, func(a, b *ticket) int {
		return cmp.Or(
			cmp.Compare(a.process.id, b.process.id),
			a.due.Compare(b.due),
			cmp.Compare(a.step.String(), b.step.String()),
			cmp.Compare(a.action, b.action),
			cmp.Compare(a.step.content, b.step.content),
		)
	})
	return slices.Clone(w.waiting)
}

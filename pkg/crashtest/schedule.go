package crashtest

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// restAfter is how long nothing may change until a life is at rest.
	restAfter = 2*time.Minute + tick

	// shortestPoll is the shortest poll interval. A provider that reconciles more often
	// waits for something.
	shortestPoll = 10 * time.Second

	// maxTime is how long it may take to come to rest after an act.
	maxTime = time.Hour

	// maxReconciles is how many reconciles that may take. The work queue retries a failure
	// 66 times in maxTime. Such a series can follow the act and each of two faults. Only a
	// provider whose requests never end needs more.
	maxReconciles = 3 * 66

	// maxSteps is how many steps it may take to come to rest after an act. Only a reconcile
	// that never returns needs more.
	maxSteps = 30 * maxReconciles

	// maxQuiet is how many reconciles of an object a process may make while a life is at rest.
	maxQuiet = 30

	// deniedFor is how long the external system refuses each call.
	deniedFor = 2 * time.Minute

	// maxVain is how often a process may make the same call without any effect. One call may
	// be in flight when another process makes the last change.
	maxVain = 1

	// inFlight is how long a call takes to arrive if the process that made it is dead.
	inFlight = 3 * time.Second

	// awayFor is how long the API server is away, and lagFor how long a cache or the
	// external system lags.
	awayFor = time.Minute
	lagFor  = 10 * time.Second

	// graceFor is how long a process that was asked to stop may take, restartAfter how
	// long it takes to start one again that could not start.
	graceFor     = 30 * time.Second
	restartAfter = 10 * time.Second

	// maxOverlap is how many steps the old process takes after a failover at the most.
	maxOverlap = 25
)

// An arrival is the effect of a call whose process is dead.
type arrival struct {
	at     time.Time
	ticket *ticket
}

// A retirement is the end of the time that a process has to stop.
type retirement struct {
	at      time.Time
	process *Process
}

// A release is the time when other controllers remove their finalizers from a managed resource.
type release struct {
	at     time.Time
	object int
}

// settle lets things happen until the provider is at rest. It returns false if that takes
// too long, or if there are more reconciles at rest than polls need.
func (w *world) settle() (bool, error) {
	began, reconciles, admitted := time.Now(), w.reconciles, w.admitted
	w.changed = began
	clear(w.repeats)
	polls := 0

	for {
		wait := max(w.waitUntil.Sub(began), 0)
		polls = max(polls, int(wait/shortestPoll)*w.items()) // There are no items while no process is alive.
		w.rest()
		if err := w.observe(); err != nil {
			return false, err
		}
		now, next := w.possible()
		if len(now) == 0 && w.atRest(next) {
			return w.quiet(), nil
		}
		if w.denied && time.Since(began) > deniedFor+wait {
			return w.quiet(), nil
		}
		if w.reconciles-reconciles >= maxReconciles+polls || w.admitted-admitted >= maxSteps+30*polls ||
			time.Since(began) > maxTime+wait {
			return false, nil
		}
		if len(now) == 0 {
			w.sleep(next)
			continue
		}
		i := 0
		if len(now) > 1 {
			i = w.rand.IntN(len(now))
		}
		w.beats.Add(1)
		w.actions.Add(1)
		if err := now[i](); err != nil {
			return false, err
		}
	}
}

// quiet reports whether no process has reconciled an object more often at rest than polls need.
func (w *world) quiet() bool {
	for _, n := range w.repeats {
		if n > maxQuiet {
			return false
		}
	}
	return true
}

// loops reports whether there are more reconciles than polls need since a time with so many reconciles.
func (w *world) loops(since time.Time, reconciles int) bool {
	items := w.items()
	return items > 0 && w.reconciles-reconciles > int(time.Since(since)/shortestPoll)*items+maxQuiet
}

// items returns how many objects all processes reconcile.
func (w *world) items() (n int) {
	for _, p := range w.alive() {
		p.locked(func() { n += len(p.items) })
	}
	return n
}

// possible returns the actions that can happen now, and the time of the next one.
func (w *world) possible() (now []func() error, next time.Time) {
	at := func(t time.Time, do func() error) {
		switch {
		case !t.After(time.Now()):
			now = append(now, do)
		case next.IsZero() || t.Before(next):
			next = t
		}
	}
	always := func(do func()) func() error {
		return func() error { do(); return nil }
	}

	for _, t := range w.tickets() {
		// A caller whose context has ended leaves by itself.
		if t.ctx.Err() == nil {
			at(t.due, func() error { return w.admit(t) })
		}
	}

	for _, p := range w.alive() {
		p.mu.Lock()
		if thaws := p.thaws; !thaws.IsZero() {
			at(thaws, always(p.thaw))
		}
		busy := false
		for _, it := range p.items {
			busy = busy || it.active && w.subject.serial
		}
		for _, key := range p.queued() {
			it := p.items[key]
			if !busy && p.reconciler != nil && !p.stopped && !it.active && !it.due.IsZero() {
				at(it.due, always(func() { p.reconcile(key) }))
			}
		}
		p.mu.Unlock()
	}

	for i, a := range w.arrivals {
		at(a.at, always(func() {
			w.arrivals = append(w.arrivals[:i:i], w.arrivals[i+1:]...)
			w.timeline.add(entry{
				at:      time.Since(w.began),
				process: a.ticket.process.id,
				target:  cloudTarget,
				step:    true,
				text:    a.ticket.step.String() + " arrives",
			})
			go w.arrive(a.ticket)
		}))
	}

	for i, r := range w.retirements {
		at(r.at, always(func() {
			w.retirements = append(w.retirements[:i:i], w.retirements[i+1:]...)
			if !r.process.isDead() {
				w.kill(r.process)
			}
		}))
	}

	for i, r := range w.releases {
		at(r.at, func() error {
			w.releases = append(w.releases[:i:i], w.releases[i+1:]...)
			return w.releaseFinalizers(r.object)
		})
	}

	for i, t := range w.restarts {
		at(t, always(func() {
			w.restarts = append(w.restarts[:i:i], w.restarts[i+1:]...)
			w.replace()
		}))
	}
	return now, next
}

// arrive carries out the call of a dead process. If the name that it creates was taken
// before and is free again, no provider can prevent that.
func (w *world) arrive(t *ticket) {
	defer func() { _ = recover() }() // The caller, whose panic it is, no longer exists.
	before := w.cloud.Made()
	_ = t.effect()
	if made := w.cloud.Made(); len(made) > len(before) && slices.Contains(before, made[len(before)]) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.excused++
	}
}

// atRest reports whether nothing relevant happens any more. next is when something is due.
func (w *world) atRest(next time.Time) bool {
	w.mu.Lock()
	waiting := len(w.waiting)
	w.mu.Unlock()
	coming := len(w.arrivals) + len(w.retirements) + len(w.restarts) + len(w.releases)
	if waiting+coming > 0 || time.Since(w.changed) < restAfter || time.Now().Before(w.waitUntil) {
		return false
	}
	loose := w.loose()

	for _, p := range w.alive() {
		p.mu.Lock()
		busy := !p.started || !p.thaws.IsZero()
		for _, it := range p.items {
			busy = busy || it.active || !it.polls && !loose
		}
		p.mu.Unlock()
		if busy {
			return false
		}
	}

	// Of a provider that isn't where it should be, a reconcile that is due soon may help.
	return loose || w.right() && w.updated() || next.IsZero() || time.Until(next) > maxTime
}

// loose reports whether the provider can't be expected to come to rest.
func (w *world) loose() bool { return w.denied || w.wants[1].any && !w.wants[1].gone }

// sleep until t, or until something happens earlier, which may be rest.
func (w *world) sleep(t time.Time) {
	d := resyncEvery
	if !t.IsZero() {
		d = time.Until(t)
	}

	for _, at := range []time.Time{w.changed.Add(restAfter), w.waitUntil} {
		if calm := time.Until(at); calm > 0 {
			d = min(d, calm)
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-w.woken:
	case <-timer.C:
	}
}

// admit a goroutine to its step, or let a fault strike.
func (w *world) admit(t *ticket) error {
	w.admitted++
	if w.plan.armed {
		w.mu.Lock()
		w.steps = append(w.steps, t.step)
		t.number = len(w.steps)
		w.mu.Unlock()
	}

	if p := t.process; p.doomed {
		if p.stepsLeft--; p.stepsLeft < 0 {
			w.kill(p)
			return nil
		}
	}
	e := entry{
		at:      time.Since(w.began),
		process: t.process.id,
		target:  t.step.target,
		step:    true,
		number:  t.number,
		text:    t.step.String(),
	}

	if d := w.plan.next(); d != nil && t.number >= d.step && d.fault.suits(t.step, w.cloud) {
		if d.want != "" && d.want != t.step.String() {
			return errors.Errorf(
				"crashtest: step %d is %q, but was %q in the life without a fault: the provider is not "+
					"deterministic, for instance because it ranges over a map or draws random numbers",
				t.number,
				t.step,
				d.want,
			)
		}
		w.plan.struck = append(w.plan.struck, t.number)
		w.reconcilesStruck = w.reconciles
		e.fault = d.fault.name
		w.timeline.add(e)
		t.process.locked(func() { t.process.faulted = true })
		d.fault.strike(w, t)
		return nil
	}

	w.called = w.called || t.step.target == cloudTarget
	if s := t.step; s.target == cloudTarget && s.write && !w.denied {
		w.countVain(t.process.id, s)
	}
	var r ruling
	switch {
	case t.step.target == apiTarget && !t.step.cached && time.Now().Before(w.awayUntil):
		r.instead = refusedConnection()
		t.process.locked(func() { t.process.faulted = true })
	case t.step.target == cloudTarget && w.denied:
		r.instead = w.answer(t.step, 401)
		t.process.locked(func() { t.process.faulted = true })
	}
	w.timeline.add(e)
	w.rule(t, r)
	return nil
}

// countVain counts a call that should change something. A POST may be a query, or a log-in: a DELETE of its path is
// the log-out, which is not in vain.
func (w *world) countVain(process int, s step) {
	if s.verb != http.MethodPost {
		w.vain[vainCall{process, s.String()}]++
		return
	}
	s.verb = http.MethodDelete
	out := vainCall{process, s.String()}
	w.vain[out] = min(w.vain[out], 0) - 1
}

// rule releases a goroutine.
func (w *world) rule(t *ticket, r ruling) {
	w.leave(t)
	t.ruling <- r
}

// lead a life to its end.
func (w *world) lead(l Life) error {
	w.start()
	if err := w.act(l.Before); err != nil || !w.right() {
		// Without a fault this is a finding already.
		return err
	}
	w.plan.armed = true
	w.reconcilesStruck = w.reconciles
	defer func() { w.plan.armed = false }()
	return w.act(l.Acts)
}

// act does one act after the other, and lets the provider come to rest after each. Acts
// during calls that nothing called for happen at rest.
func (w *world) act(acts []Act) error {
	for i := 0; i < len(acts); {
		do, next := acts[i].Do, i+1
		var during []func() error
		for ; next < len(acts) && acts[next].DuringCall; next++ {
			act := acts[next].Do
			during = append(during, func() error { return act(w.user) })
		}
		w.mu.Lock()
		w.pending, w.last = during, w.plan.armed && next == len(acts)
		w.mu.Unlock()
		if err := do(w.user); err != nil {
			return err
		}
		w.touch()
		began, reconciles := time.Now(), w.reconciles
		rested, err := w.settle()
		if err != nil {
			return err
		}

		// The next act may end a hot loop, so remember it. A spec that the external system refuses
		// is no loop: the provider retries it until the user changes it. A lost update is a finding of its own: polls
		// in vain for it are no loop.
		if !rested && w.restless == "" && w.right() && (w.updated() || w.loops(began, reconciles)) {
			w.restless = fmt.Sprintf(
				"after %s of simulated time and %d reconciles the provider is not at rest",
				time.Since(w.began).Round(time.Second),
				w.reconciles,
			)
		}
		w.mu.Lock()
		i = next - len(w.pending)
		w.pending = nil
		w.mu.Unlock()
		w.wants[0].finishes = false
	}
	return nil
}

// objects returns the managed resources as the watch has delivered them.
func (w *world) objects() map[types.NamespacedName]client.Object {
	out := map[types.NamespacedName]client.Object{}
	for i, o := range w.seen {
		if o != nil {
			out[w.key(i)] = o
		}
	}
	return out
}

// A plan says which faults strike at which steps. struck has the steps of those that have.
type plan struct {
	at     []disturbance
	armed  bool
	struck []int
}

// next returns the disturbance that comes next, or nil.
func (p *plan) next() *disturbance {
	if !p.armed || len(p.struck) == len(p.at) {
		return nil
	}
	return &p.at[len(p.struck)]
}

// A disturbance is a fault at a step, or at the next one that suits it.
type disturbance struct {
	fault fault
	step  int

	// want is the step without any fault, if it is known.
	want string
}

func (d disturbance) String() string { return fmt.Sprintf("%s/%d", d.fault.name, d.step) }

// Package simulation runs processes of a provider against an API server in memory, in simulated time. It
// decides nothing: each request waits until [Options.Turn] has decided what happens to it.
//
// A simulation belongs to one bubble of testing/synctest. Its exported functions are called by the goroutine that
// runs it, except [Process.Pass] and the methods of [Process] that a provider uses.
package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

const (
	// graceFor is how long a process that was asked to stop may take, restartAfter how long it
	// takes to start one again that could not start.
	graceFor     = 30 * time.Second
	restartAfter = 10 * time.Second

	// maxOverlap is how many requests the old process makes after a failover at the most.
	maxOverlap = 25

	// inFlight is how long a call takes to arrive if the process that made it is dead.
	inFlight = 3 * time.Second
)

// Options of a simulation.
type Options struct {
	// Scheme, CRDs and Objects of the API server.
	Scheme  *runtime.Scheme
	CRDs    []*extv1.CustomResourceDefinition
	Objects []client.Object

	// Seed decides what happens next if several things can. Serial lets a process reconcile one object at a time.
	Seed   uint64
	Serial bool

	// Start a process of the provider.
	Start func(p *Process) (reconcile.Reconciler, error)

	// Turn is called for each request when it is its turn. Unless it calls [Request.Decide], or ends the process, the
	// request keeps waiting.
	Turn func(r *Request) error

	// Answered is called with the answer to each request that a process gets.
	Answered func(r *Request, err error)

	// Changed is called for each change of a managed resource. process made it, or is 0.
	Changed func(name string, was, is client.Object, process int)

	// Record an event.
	Record func(e history.Event)
}

// A Simulation is the environment of the processes of one run.
type Simulation struct {
	options Options
	rand    *rand.Rand
	began   time.Time

	server  *apiServer
	network *network
	agenda  agenda

	processes  []*Process
	reconciles int
	failure    string

	woken, over chan struct{}
}

// New returns a simulation without any process.
func New(o Options) (*Simulation, error) {
	server, err := newAPIServer(o)
	if err != nil {
		return nil, err
	}
	s := &Simulation{
		options: o,
		rand:    rand.New(rand.NewPCG(o.Seed, o.Seed)), //nolint:gosec // The same seed has to lead to the same run.
		began:   time.Now(), server: server,
		woken: make(chan struct{}, 1), over: make(chan struct{}),
	}
	s.network = &network{over: s.over, woken: s.woken}
	return s, nil
}

// Close ends the simulation. Goroutines that wait for their turn end. The others get a day of simulated time to
// notice that their context has ended.
func (s *Simulation) Close() {
	for _, p := range s.processes {
		p.cancel()
	}
	close(s.over)
	time.Sleep(24 * time.Hour)
}

// Since returns the simulated time since the start.
func (s *Simulation) Since() time.Duration { return time.Since(s.began) }

// Failure returns the error of the last reconcile, or "".
func (s *Simulation) Failure() string { return s.failure }

// After calls fn when d has passed.
func (s *Simulation) After(d time.Duration, fn func() error) { s.agenda.add(time.Now().Add(d), fn) }

// Run until the time that until returns, which is asked again whenever something may have happened. idle says that
// nothing can happen now.
func (s *Simulation) Run(until func(idle bool) (time.Time, error)) error {
	for {
		synctest.Wait()
		if err := s.observe(); err != nil {
			return err
		}
		now, next := s.possible()
		end, err := until(len(now) == 0)
		if err != nil || !end.After(time.Now()) {
			return err
		}
		if len(now) == 0 {
			s.sleep(next, end)
			continue
		}
		i := 0
		if len(now) > 1 {
			i = s.rand.IntN(len(now))
		}
		s.network.acted()
		if err := now[i](); err != nil {
			return err
		}
	}
}

// sleep until next or end, or until something happens earlier.
func (s *Simulation) sleep(next, end time.Time) {
	if !next.IsZero() && next.Before(end) {
		end = next
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-s.woken:
	case <-timer.C:
	}
}

// possible returns the actions that can happen now, and the time of the next one, or the zero time.
func (s *Simulation) possible() (now []func() error, next time.Time) {
	at := func(t time.Time, do func() error) {
		switch {
		case !t.After(time.Now()):
			now = append(now, do)
		case next.IsZero() || t.Before(next):
			next = t
		}
	}
	for _, r := range s.network.pending() {
		// A caller whose context has ended leaves by itself.
		if r.ctx.Err() == nil {
			at(r.due, func() error { return s.turn(r) })
		}
	}
	for _, p := range s.alive() {
		if thaws := p.cache.thaws(); !thaws.IsZero() {
			at(thaws, func() error {
				p.queue.addAll(p.cache.thaw())
				return nil
			})
		}
		for key, due := range p.reconcilable(s.options.Serial) {
			at(due, func() error {
				s.reconcile(p, key)
				return nil
			})
		}
	}
	s.agenda.each(at)
	return now, next
}

// turn of a request has come.
func (s *Simulation) turn(r *Request) error {
	if p := r.Process; p.doomed {
		if p.left--; p.left < 0 {
			s.Kill(p)
			return nil
		}
	}
	return s.options.Turn(r)
}

// observe delivers events, and handles starts and reconciles that ended.
func (s *Simulation) observe() error {
	for _, c := range s.server.changes() {
		if c.delivered {
			for _, p := range s.alive() {
				if !p.cache.missed(c.key) {
					p.queue.add(c.key, 0)
				}
			}
		}
		s.options.Changed(c.key.Name, c.was, c.is, c.process)
	}
	for _, p := range s.alive() {
		if err := s.started(p); err != nil {
			return err
		}
		p.queue.collect(func(name string, o outcome) {
			s.failure = ""
			if o.err != nil {
				s.failure = o.err.Error()
			}
			s.record(history.Event{
				Kind: history.KindReconciled, Process: p.ID, Object: name, Text: name + " " + o.String(),
				Outcome: history.Outcome{Failed: o.err != nil, Backoff: o.backsOff()},
			})
			if o.panicked {
				s.record(history.Event{Kind: history.KindPanic, Process: p.ID, Text: o.err.Error()})
			}
		})
	}
	return nil
}

// started handles a start that has failed: a process that met an error of a fault starts again, as its Deployment
// has it.
func (s *Simulation) started(p *Process) error {
	err := p.takeStartError()
	switch {
	case err == nil:
		return nil
	case !p.disturbed && !p.stopped:
		return err
	}
	s.note(p, "cannot start: %v", err)
	s.Kill(p)
	s.After(restartAfter, func() error {
		s.Replace()
		return nil
	})
	return nil
}

// Start a process.
func (s *Simulation) Start() {
	p := newProcess(s)
	s.processes = append(s.processes, p)
	s.note(p, "starts")
	p.queue.addAll(s.server.keys())
	go p.start()
}

// Replace a process that ends, unless another one has taken over.
func (s *Simulation) Replace() {
	if !slices.ContainsFunc(s.alive(), func(p *Process) bool { return !p.doomed && !p.stopped }) {
		s.Start()
	}
}

// Kill a process. It gets no answer to the requests that it waits for.
func (s *Simulation) Kill(p *Process) {
	p.dead.Store(true)
	s.network.drop(p)
	s.note(p, "is killed")
}

// Stop all processes as a signal does: they begin nothing new, and have some time left.
func (s *Simulation) Stop(ps ...*Process) {
	if len(ps) == 0 {
		ps = s.alive()
	}
	for _, p := range ps {
		p.stopped = true
		s.note(p, "is asked to stop")
		p.cancel()
		last := p.requests.Load()
		s.After(graceFor, func() error {
			if p.dead.Load() {
				return nil
			}
			if name := p.queue.active(); name != "" && p.requests.Load() == last {
				s.record(history.Event{Kind: history.KindOverdue, Process: p.ID, Text: fmt.Sprintf(
					"a reconcile of %s is in progress %s after its context has ended", name, graceFor,
				)})
			}
			s.Kill(p)
			return nil
		})
	}
}

// Failover starts a new process while the old ones continue for some requests.
func (s *Simulation) Failover() {
	for _, p := range s.alive() {
		p.doomed, p.left = true, 1+s.rand.IntN(maxOverlap)
	}
	s.Start()
}

// Arrive has a call of a process that is dead arrive later.
func (s *Simulation) Arrive(r *Request, record func()) {
	s.After(inFlight, func() error {
		record()
		go func() {
			defer func() { _ = recover() }() // The caller, whose panic it is, no longer exists.
			_ = r.effect()
		}()
		return nil
	})
}

// Wait until no goroutine can continue without time passing or a decision.
func (s *Simulation) Wait() { synctest.Wait() }

// Unfinished reports the unfinished work of the processes: a start, or a reconcile.
func (s *Simulation) Unfinished() (starting, reconciling bool) {
	for _, p := range s.alive() {
		starting = starting || p.starting()
		reconciling = reconciling || p.queue.active() != ""
	}
	return starting, reconciling
}

// Poll returns the longest time after which a process repeats a successful reconcile.
func (s *Simulation) Poll() (d time.Duration) {
	for _, p := range s.alive() {
		d = max(d, p.queue.poll())
	}
	return d
}

// alive returns the processes that are.
func (s *Simulation) alive() []*Process {
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *Process) bool { return p.dead.Load() })
}

// reconcile a key on a goroutine of a process.
func (s *Simulation) reconcile(p *Process, key client.ObjectKey) {
	s.reconciles++
	n := s.reconciles
	p.queue.begin(key)
	s.record(history.Event{Kind: history.KindReconcile, Process: p.ID, Reconcile: n, Object: key.Name})
	go p.reconcile(context.WithValue(p.ctx, reconcileKey{}, n), key)
}

// reconcileKey is the key of a reconcile's number in its context.
type reconcileKey struct{}

func (s *Simulation) record(e history.Event) {
	e.At = s.Since()
	s.options.Record(e)
}

func (s *Simulation) note(p *Process, format string, a ...any) {
	s.record(history.Event{Kind: history.KindProcess, Process: p.ID, Text: fmt.Sprintf(format, a...)})
}

// errEnded is the outcome of a reconcile whose goroutine ended without returning.
var errEnded = errors.New("the reconciler ended its goroutine")

// An agenda has what happens at a time.
type agenda struct{ items []*appointment }

type appointment struct {
	at time.Time
	do func() error
}

func (a *agenda) add(at time.Time, do func() error) { a.items = append(a.items, &appointment{at, do}) }

// each calls fn with the due work, which takes it from the agenda.
func (a *agenda) each(fn func(at time.Time, do func() error)) {
	for _, o := range a.items {
		fn(o.at, func() error {
			a.items = slices.DeleteFunc(a.items, func(p *appointment) bool { return p == o })
			return o.do()
		})
	}
}

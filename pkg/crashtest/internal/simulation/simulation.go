// Package simulation runs processes of a provider against an API server in memory, in simulated time. It
// decides nothing: each request waits until [Options.Turn] has decided what happens to it.
//
// A simulation belongs to one bubble of testing/synctest. One goroutine runs it, and calls its exported functions,
// except [Process.Pass] and the methods of [Process] that a provider uses. Other goroutines post their work to its
// mailbox. There is no lock.
package simulation

import (
	"context"
	"math"
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
	Turn func(r *Request)

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

	// API is the API server.
	API     *APIServer
	network *network
	mail    mailbox
	agenda  []*appointment

	processes  []*Process
	reconciles int
	failure    string
}

// An appointment is something that happens at a time.
type appointment struct {
	at time.Time
	do func()
}

// New returns a simulation without any process.
func New(o Options) (*Simulation, error) {
	server, err := newAPIServer(o)
	if err != nil {
		return nil, err
	}
	return &Simulation{
		options: o,
		rand:    rand.New(rand.NewPCG(o.Seed, o.Seed)), //nolint:gosec // The same seed has to lead to the same run.
		began:   time.Now(), API: server,
		network: &network{over: make(chan struct{})}, mail: newMailbox(),
	}, nil
}

// Close ends the simulation. Goroutines that wait for their turn end. The others get a day of simulated time to
// notice that their context has ended.
func (s *Simulation) Close() {
	for _, p := range s.processes {
		p.cancel()
	}
	close(s.network.over)
	time.Sleep(24 * time.Hour)
}

// Since returns the simulated time since the start.
func (s *Simulation) Since() time.Duration { return time.Since(s.began) }

// After calls fn when d has passed.
func (s *Simulation) After(d time.Duration, fn func()) {
	s.agenda = append(s.agenda, &appointment{time.Now().Add(d), fn})
}

// Run until the time since the start that until returns, which is asked again whenever something may have happened.
// idle says that nothing can happen now.
func (s *Simulation) Run(until func(idle bool) (time.Duration, error)) error {
	for {
		synctest.Wait()
		s.mail.empty()
		if err := s.observe(); err != nil {
			return err
		}
		now, next := s.possible()
		end, err := until(len(now) == 0)
		if err != nil || end <= s.Since() {
			return err
		}
		if len(now) == 0 {
			s.mail.sleep(min(end, next) - s.Since())
			continue
		}
		i := 0
		if len(now) > 1 {
			i = s.rand.IntN(len(now))
		}
		s.network.actions.Add(1)
		now[i]()
	}
}

// possible returns the actions that can happen now, and the time of the next one.
func (s *Simulation) possible() (now []func(), next time.Duration) {
	next = math.MaxInt64
	at := func(t time.Time, do func()) {
		if due := t.Sub(s.began); due > s.Since() {
			next = min(next, due)
		} else {
			now = append(now, do)
		}
	}
	for _, r := range s.network.pending() {
		at(r.due, r.turn)
	}
	for _, p := range s.alive() {
		for _, it := range p.reconcilable() {
			at(it.due, func() { s.reconcile(p, it) })
		}
	}
	for _, a := range s.agenda {
		at(a.at, func() {
			s.agenda = slices.DeleteFunc(s.agenda, func(o *appointment) bool { return o == a })
			a.do()
		})
	}
	return now, next
}

// reconcile an item of a work queue.
func (s *Simulation) reconcile(p *Process, it *item) {
	s.reconciles++
	it.begin()
	s.record(history.Event{Kind: history.KindReconcile, Process: p.ID, Reconcile: s.reconciles, Object: it.key.Name})
	go p.reconcile(context.WithValue(p.ctx, reconcileKey{}, s.reconciles), it)
}

// reconcileKey is the key of a reconcile's number in its context.
type reconcileKey struct{}

// observe delivers events, and handles starts and reconciles that ended.
func (s *Simulation) observe() error {
	for _, c := range s.API.changes() {
		for _, p := range s.alive() {
			if c.delivered {
				p.deliver(c.key)
			}
		}
		s.options.Changed(c.key.Name, c.was, c.is, c.process)
	}
	for _, p := range s.alive() {
		if err := p.begun(); err != nil {
			return err
		}
		for _, it := range p.queue.sorted() {
			o := it.finished
			if o == nil {
				continue
			}
			p.queue.again(it)
			s.failure = ""
			if o.err != nil {
				s.failure = o.err.Error()
			}
			s.record(history.Event{
				Kind: history.KindReconciled, Process: p.ID, Object: it.key.Name, Text: it.key.Name + " " + o.String(),
				Outcome: history.Outcome{Failed: o.err != nil, Backoff: o.backsOff()},
			})
			if o.panicked {
				s.record(history.Event{Kind: history.KindPanic, Process: p.ID, Text: o.err.Error()})
			}
		}
	}
	return nil
}

// alive returns the processes that are.
func (s *Simulation) alive() []*Process {
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *Process) bool { return p.dead.Load() })
}

// Progress returns the error of the last reconcile, or "", and the unfinished work of the processes: a start, or a
// reconcile.
func (s *Simulation) Progress() (failure string, starting, reconciling bool) {
	for _, p := range s.alive() {
		starting, reconciling = starting || !p.started, reconciling || p.queue.active() != ""
	}
	return s.failure, starting, reconciling
}

// Poll returns the longest time after which a process repeats a successful reconcile.
func (s *Simulation) Poll() (d time.Duration) {
	for _, p := range s.alive() {
		for _, it := range p.queue.sorted() {
			d = max(d, it.polls)
		}
	}
	return d
}

func (s *Simulation) record(e history.Event) {
	e.At = s.Since()
	s.options.Record(e)
}

// errEnded is the outcome of a reconcile whose goroutine ended without returning.
var errEnded = errors.New("the reconciler ended its goroutine")

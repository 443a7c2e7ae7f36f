package simulation

import (
	"fmt"
	"slices"
	"time"

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

// Start a process.
func (s *Simulation) Start() {
	p := newProcess(s)
	s.processes = append(s.processes, p)
	s.note(p, "starts")
	for key := range s.server.objects() {
		p.queue.add(key, 0)
	}
	go p.start()
}

// started handles a start that has failed: a process that met an error of a fault starts again, as its Deployment
// has it.
func (s *Simulation) started(p *Process) error {
	err := p.startErr
	if err == nil || !p.disturbed && !p.stopped {
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

// Replace a process that ends, unless another one has taken over.
func (s *Simulation) Replace() {
	if !slices.ContainsFunc(s.alive(), func(p *Process) bool { return !p.doomed && !p.stopped }) {
		s.Start()
	}
}

// Kill a process. It gets no answer to the requests that it waits for.
func (s *Simulation) Kill(p *Process) {
	p.dead.Store(true)
	s.network.leave(func(r *Request) bool { return r.Process == p })
	s.note(p, "is killed")
}

// Stop processes as a signal does, or all: they begin nothing new, and have some time left.
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

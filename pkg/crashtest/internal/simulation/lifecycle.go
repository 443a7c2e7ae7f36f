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
	p.note("starts")
	for key := range s.API.objects() {
		p.queue.add(key, 0)
	}
	go p.start()
}

// Restart all processes as an upgrade does.
func (s *Simulation) Restart() {
	for _, p := range s.alive() {
		p.Stop()
	}
	s.Start()
}

// begun handles a start that has failed: a process that met an error of a fault starts again, as its Deployment
// has it.
func (p *Process) begun() error {
	err := p.startErr
	if err == nil || !p.disturbed && !p.stopped {
		return err
	}
	p.note("cannot start: %v", err)
	p.Kill()
	p.sim.After(restartAfter, p.sim.Replace)
	return nil
}

// Replace a process that ends, unless another one has taken over.
func (s *Simulation) Replace() {
	if !slices.ContainsFunc(s.alive(), func(p *Process) bool { return !p.doomed && !p.stopped }) {
		s.Start()
	}
}

// Kill the process. It gets no answer to the requests that it waits for.
func (p *Process) Kill() {
	p.dead.Store(true)
	p.sim.network.leave(func(r *Request) bool { return r.Process == p })
	p.note("is killed")
}

// Stop the process as a signal does: it begins nothing new, and has some time left.
func (p *Process) Stop() {
	p.stopped = true
	p.note("is asked to stop")
	p.cancel()
	last := p.requests.Load()
	p.sim.After(graceFor, func() {
		if p.dead.Load() {
			return
		}
		if name := p.queue.active(); name != "" && p.requests.Load() == last {
			p.sim.record(history.Event{Kind: history.KindOverdue, Process: p.ID, Text: fmt.Sprintf(
				"a reconcile of %s is in progress %s after its context has ended", name, graceFor,
			)})
		}
		p.Kill()
	})
}

func (p *Process) note(format string, a ...any) {
	p.sim.record(history.Event{Kind: history.KindProcess, Process: p.ID, Text: fmt.Sprintf(format, a...)})
}

// Failover starts a new process while the old ones continue for some requests.
func (s *Simulation) Failover() {
	for _, p := range s.alive() {
		p.doomed, p.left = true, 1+s.rand.IntN(maxOverlap)
	}
	s.Start()
}

// Arrive has a call of a process that is dead arrive later.
func (r *Request) Arrive(record func()) {
	r.Process.sim.After(inFlight, func() {
		record()
		go func() {
			defer func() { _ = recover() }() // The caller, whose panic it is, no longer exists.
			_ = r.effect()
		}()
	})
}

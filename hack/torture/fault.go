package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// inFlight is how long a call takes to arrive whose caller is gone.
const inFlight = 3 * time.Second

// awayFor is how long an API server stays away.
const awayFor = 3 * time.Minute

// A fault is what may happen at a step.
type fault struct {
	// name of the fault in a point.
	name string

	// optional faults are those that no reconciler can be entirely safe from.
	// They are tried only if they are asked for.
	optional bool

	// suits reports whether the fault can happen at such a step.
	suits func(s step) bool

	// strike decides the verdict on the step of the ticket. The step keeps waiting
	// for its turn unless it is released, or its process killed.
	strike func(w *world, t *ticket) error
}

func always(step) bool { return true }

func to(t target) func(step) bool { return func(s step) bool { return s.target == t } }

func writesTo(t target) func(step) bool {
	return func(s step) bool { return s.target == t && s.write }
}

// fails returns a strike that releases the step with a verdict.
func fails(v func(s step) verdict) func(*world, *ticket) error {
	return func(w *world, t *ticket) error {
		w.release(t, v(t.step))
		return nil
	}
}

// faults returns all faults.
func faults() []fault {
	return []fault{
		{
			name: "crash-before", suits: always,
			strike: func(w *world, t *ticket) error {
				w.kill(t.process)
				return w.replace()
			},
		},
		{
			name: "crash-after", suits: always,
			strike: func(w *world, t *ticket) error {
				w.release(t, verdict{dies: true})
				w.rest()
				w.kill(t.process)
				return w.replace()
			},
		},
		{
			// The request is on its way when the process dies, and arrives.
			name: "crash-inflight", suits: writesTo(cloudAPI),
			strike: func(w *world, t *ticket) error {
				w.kill(t.process)
				w.arrivals = append(w.arrivals, arrival{at: time.Now().Add(inFlight), step: t.step, effect: t.effect})
				return w.replace()
			},
		},
		{
			name: "api-error", suits: to(api),
			strike: fails(func(step) verdict { return verdict{instead: kerrors.NewInternalError(errors.New("injected"))} }),
		},
		{
			name: "api-conflict", suits: writesTo(api),
			strike: fails(func(s step) verdict {
				return verdict{instead: kerrors.NewConflict(schema.GroupResource{Resource: s.of}, "", errors.New("injected"))}
			}),
		},
		{
			name: "api-lost", suits: writesTo(api),
			strike: fails(func(s step) verdict { return verdict{lost: kerrors.NewTimeoutError("injected", 0)} }),
		},
		{
			name: "api-away", suits: to(api),
			strike: func(w *world, t *ticket) error {
				w.awayUntil = time.Now().Add(awayFor)
				w.release(t, verdict{instead: away()})
				return nil
			},
		},
		{
			// The process's cache doesn't see this write, nor any other, for a while.
			name: "stale-cache", suits: writesTo(api),
			strike: func(w *world, t *ticket) error {
				t.process.freeze(w.seen, time.Now().Add(lagFor))
				w.release(t, verdict{})
				return nil
			},
		},
		{
			name: "cloud-error", suits: to(cloudAPI),
			strike: fails(func(step) verdict { return verdict{instead: errRefused} }),
		},
		{
			name: "cloud-lost", suits: to(cloudAPI),
			strike: fails(func(step) verdict { return verdict{lost: lostAnswer()} }),
		},
		{
			// The create made something and then failed, and its error is one that says
			// that it made nothing.
			name: "cloud-denied", suits: func(s step) bool { return s.creates },
			strike: func(w *world, t *ticket) error {
				w.denied++
				w.release(t, verdict{lost: errDenied})
				return nil
			},
		},
		{
			// The process is asked to stop in the middle of a request. The request
			// takes effect, and its caller stops waiting for the answer.
			name: "shutdown", suits: always,
			strike: func(w *world, t *ticket) error {
				t.process.stop()
				w.retirements = append(w.retirements, retirement{at: time.Now().Add(graceFor), process: t.process})
				w.release(t, verdict{lost: t.ctx.Err()})
				return w.replace()
			},
		},
		{
			// The process doesn't get to run for a while, and another takes its place.
			name: "stall", optional: true, suits: always,
			strike: func(w *world, t *ticket) error {
				t.process.stall(stallFor)
				return w.start()
			},
		},
		{
			// Another process starts while the others still run.
			name: "failover", suits: always,
			strike: func(w *world, _ *ticket) error {
				for _, p := range w.alive() {
					p.doomed, p.stepsLeft = true, 1+w.rand.IntN(maxOverlap)
				}
				return w.start()
			},
		},
	}
}

// lagFor is how long a cache lags behind.
const lagFor = 10 * time.Second

// stallFor is how long a process stalls.
const stallFor = 5 * time.Minute

// graceFor is how long a process that is to end may take.
const graceFor = 30 * time.Second

// maxOverlap is how many steps two processes take together at most before the
// first one is gone.
const maxOverlap = 25

// errRefused is a cloud's answer that says that nothing happened.
var errRefused = fmt.Errorf("%w: the quota is used up (injected)", cloud.ErrInvalid)

// errDenied is an error that says nothing of an outcome.
var errDenied = errors.New("cannot tag the resource (injected)")

// lostAnswer is what the standard library says of an answer that didn't come.
func lostAnswer() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// away is what it says of a server that isn't there.
func away() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused (injected)")}
}

package crashtest

import (
	"net"
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A fault can strike at a step. If its name ends in before, the step has no effect; after a
// failover, the old process still takes it. If its name ends in after, the step has its effect.
type fault struct {
	name string

	// suits reports whether the fault can happen at such a step.
	suits func(s step, c Cloud) bool

	// strike decides about the step of the ticket. The step keeps waiting for its turn
	// unless it is ruled on or its process is killed.
	strike func(w *world, t *ticket)
}

// statusCodes returns the codes that steps can be answered with.
func statusCodes() []int { return []int{401, 409, 429, 500} }

// hangsFor is how long a call takes whose answer doesn't come, if its context has no
// earlier deadline.
const hangsFor = time.Minute

func reachable(s step, _ Cloud) bool { return !s.cached }

// writes reports whether a step changes something, as far as that is known.
func writes(s step, _ Cloud) bool {
	return s.write || s.target == cloudTarget && !s.http && !s.done
}

func toAPI(s step, _ Cloud) bool { return s.target == apiTarget && !s.cached }

func toCloud(s step, _ Cloud) bool { return s.target == cloudTarget }

func both(a, b func(step, Cloud) bool) func(step, Cloud) bool {
	return func(s step, c Cloud) bool { return a(s, c) && b(s, c) }
}

// answers returns a strike that releases the step with a ruling.
func answers(r func(w *world, t *ticket) ruling) func(*world, *ticket) {
	return func(w *world, t *ticket) { w.rule(t, r(w, t)) }
}

// refuses returns a strike that answers with a status in place of the effect.
func refuses(code int) func(*world, *ticket) {
	return answers(func(w *world, t *ticket) ruling { return ruling{instead: w.answer(t.step, code)} })
}

// loses returns a strike that answers with a status after the effect.
func loses(code int) func(*world, *ticket) {
	return answers(func(w *world, t *ticket) ruling { return ruling{lost: w.answer(t.step, code)} })
}

// faults returns all faults.
func faults() []fault {
	return []fault{
		{
			name: "crash-before", suits: reachable,
			strike: func(w *world, t *ticket) {
				w.kill(t.process)
				w.replace()
			},
		},
		{
			name: "crash-after", suits: writes,
			strike: func(w *world, t *ticket) {
				w.rule(t, ruling{dies: true})
				w.rest()
				w.kill(t.process)
				w.replace()
			},
		},
		{
			// The call is on its way when the process dies, and arrives.
			name: "crash-inflight", suits: both(toCloud, writes),
			strike: func(w *world, t *ticket) {
				w.kill(t.process)
				w.arrivals = append(w.arrivals, arrival{at: time.Now().Add(inFlight), ticket: t})
				w.replace()
			},
		},
		{
			name: "stop-before", suits: reachable,
			strike: func(w *world, t *ticket) {
				w.retire(t.process)
				w.rule(t, ruling{instead: t.ctx.Err()})
				w.replace()
			},
		},
		{
			name: "stop-after", suits: writes,
			strike: func(w *world, t *ticket) {
				// Not before the effect, because a call whose context has ended has none.
				w.rule(t, ruling{stops: true})
				w.rest()
				w.retire(t.process)
				w.replace()
			},
		},
		{name: "failover-before", suits: reachable, strike: func(w *world, t *ticket) { w.failover() }},
		{
			name: "failover-after", suits: writes,
			strike: func(w *world, t *ticket) {
				w.rule(t, ruling{})
				w.rest()
				w.failover()
			},
		},
		{
			name: "reset-before", suits: reachable,
			strike: answers(func(*world, *ticket) ruling { return ruling{instead: resetConnection()} }),
		},
		{
			name: "reset-after", suits: writes,
			strike: answers(func(*world, *ticket) ruling { return ruling{lost: resetConnection()} }),
		},
		{
			name: "timeout-before", suits: reachable,
			strike: answers(func(*world, *ticket) ruling { return ruling{instead: timedOut(), hangs: hangsFor} }),
		},
		{
			name: "timeout-after", suits: writes,
			strike: answers(func(*world, *ticket) ruling { return ruling{lost: timedOut(), hangs: hangsFor} }),
		},
		{name: "409-before", suits: writes, strike: refuses(409)},
		// A client that retries by itself gets a 409 if its first attempt succeeded.
		{name: "409-after", suits: both(toCloud, writes), strike: loses(409)},
		{name: "429-before", suits: reachable, strike: refuses(429)},
		{name: "500-before", suits: reachable, strike: refuses(500)},
		{name: "500-after", suits: writes, strike: loses(500)},
		{
			name: "away-before", suits: toAPI,
			strike: func(w *world, t *ticket) {
				w.awayUntil = time.Now().Add(awayFor)
				w.rule(t, ruling{instead: refusedConnection()})
			},
		},
		{
			name: "away-after", suits: both(toAPI, writes),
			strike: func(w *world, t *ticket) {
				w.awayUntil = time.Now().Add(awayFor)
				w.rule(t, ruling{lost: resetConnection()})
			},
		},
		{
			// The cache of the process doesn't see this write, nor any other, for a while.
			name: "stale", suits: both(toAPI, writes),
			strike: func(w *world, t *ticket) {
				t.process.freeze(w.objects(), time.Now().Add(lagFor))
				w.rule(t, ruling{})
			},
		},
		{
			name: "late", suits: func(s step, c Cloud) bool {
				_, can := c.(Lagging)
				return can && s.target == cloudTarget && (s.creates || !s.done)
			},
			strike: func(w *world, t *ticket) {
				l, ok := w.cloud.(Lagging)
				if ok {
					l.Lag(lagFor)
				}
				w.rule(t, ruling{})
				w.rest()
				if ok {
					l.Lag(0)
				}
			},
		},
	}
}

// failover starts a new process while the old ones continue for some steps.
func (w *world) failover() {
	for _, p := range w.alive() {
		p.doomed, p.stepsLeft = true, 1+w.rand.IntN(maxOverlap)
	}
	w.start()
}

// An httpStatus is an error that Transport turns into a response.
type httpStatus int

func (s httpStatus) Error() string { return "status " + statusText(int(s)) }

// answer returns the error that a step gets with a status code.
func (w *world) answer(s step, code int) error {
	if s.target == cloudTarget {
		if s.http {
			return httpStatus(code)
		}
		return w.subject.status(code)
	}
	of := schema.GroupResource{Resource: strings.ToLower(s.of)}
	injected := errors.New("injected")

	switch code {
	case 409:
		return kerrors.NewConflict(of, s.name, injected)
	case 429:
		return kerrors.NewTooManyRequests("injected", 1)
	default:
		return kerrors.NewInternalError(injected)
	}
}

// resetConnection is the error of a connection that breaks.
func resetConnection() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer (injected)")}
}

// timedOut is the error of an answer that doesn't come.
func timedOut() error { return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded} }

// refusedConnection is the error of a server that is away.
func refusedConnection() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused (injected)")}
}

package crashtest

import (
	"net"
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/fault"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

const (
	// hangsFor is how long a call takes whose answer doesn't come, if its context has no earlier deadline.
	hangsFor = time.Minute

	// awayFor is how long the API server is away, and lagFor how long a cache or the external system lags.
	awayFor = time.Minute
	lagFor  = 10 * time.Second
)

// turn decides what happens to a request whose turn it is.
func (r *run) turn(q *simulation.Request) error {
	r.phase.requests++
	e := history.Event{Kind: history.KindRequest, Process: q.Process.ID, Reconcile: q.Reconcile, Request: q.Request}
	if r.armed {
		r.number++
		e.Number = r.number
	}
	q.Event = r.record(e)
	if r.armed && r.struck < len(r.injections) && r.injections[r.struck].Strikes(q.Event) {
		i := r.injections[r.struck]
		r.struck++
		r.diverged = r.diverged || i.Want != "" && i.Want != q.String()
		r.strike(i.Fault, q)
		return nil
	}
	d := simulation.Decision{}
	switch {
	case q.Target == history.API && !q.Cached && time.Now().Before(r.awayUntil):
		d.Answer = connectionRefused()
	case q.Target == history.External && r.denied:
		d.Answer = r.statusAnswer(q.Request, 401)
	}
	if d.Answer != nil {
		d.Undelivered = true
		q.Process.Disturb()
	}
	q.Decide(d)
	return nil
}

// strike a request with a fault.
func (r *run) strike(f fault.Fault, q *simulation.Request) {
	q.Event.Fault = f.Name
	r.phase.disturbed = time.Now()
	q.Process.Disturb()
	d := simulation.Decision{Undelivered: !f.Delivered && f.Then != fault.Failover, Dies: f.Answer == fault.None}

	switch f.Answer {
	case fault.Real, fault.None:
	case fault.Reset:
		d.Answer = connectionReset()
	case fault.Timeout:
		d.Answer, d.Delay = timedOut(), hangsFor
	case fault.Status:
		d.Answer = r.statusAnswer(q.Request, f.Status)
	case fault.ConnectionRefused:
		d.Answer = connectionRefused()
	case fault.Canceled:
		d.Stops = true
	}

	p := q.Process
	// decide lets the request have its effect before something else happens.
	decide := func() {
		q.Decide(d)
		r.sim.Wait()
	}
	switch f.Then {
	case fault.Nothing:
		q.Decide(d)
	case fault.Crash:
		if f.Delivered {
			decide()
		}
		r.sim.Kill(p)
		r.sim.Replace()
	case fault.CrashInFlight:
		r.sim.Kill(p)
		r.sim.Arrive(q, func() {
			q.Event = r.record(history.Event{
				Kind: history.KindArrival, Process: p.ID, Reconcile: q.Reconcile, Request: q.Request, Text: "arrives",
			})
		})
		r.sim.Replace()
	case fault.Stop:
		decide()
		r.sim.Stop(p)
		r.sim.Replace()
	case fault.Failover:
		if f.Delivered {
			decide()
		}
		r.sim.Failover()
	case fault.APIAway:
		r.awayUntil = time.Now().Add(awayFor)
		q.Decide(d)
	case fault.StaleCache:
		p.Freeze(lagFor)
		q.Decide(d)
	case fault.LateListing:
		l, lags := r.cloud.(Lagging)
		if lags {
			l.Lag(lagFor)
		}
		decide()
		if lags {
			l.Lag(0)
		}
	}
}

// statusAnswer returns the error that a request gets with a status code.
func (r *run) statusAnswer(q history.Request, code int) error {
	if q.Target == history.External {
		if q.HTTP {
			return httpStatus(code)
		}
		return r.provider.Status(code)
	}
	of := schema.GroupResource{Resource: strings.ToLower(q.Kind)}
	injected := errors.New("injected")

	switch code {
	case 409:
		return kerrors.NewConflict(of, q.Name, injected)
	case 429:
		return kerrors.NewTooManyRequests("injected", 1)
	default:
		return kerrors.NewInternalError(injected)
	}
}

// connectionReset is the error of a connection that breaks.
func connectionReset() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer (injected)")}
}

// timedOut is the error of an answer that doesn't come.
func timedOut() error { return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded} }

// connectionRefused is the error of a server that is away.
func connectionRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused (injected)")}
}

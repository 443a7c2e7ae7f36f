package crashtest

import (
	"net/http"
	"strings"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/fault"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

// awayFor is how long the API server is away, and lagFor how long a cache or the external system lags.
const (
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
		d.Answer = fault.Refused()
	case q.Target == history.External && r.denied:
		d.Answer = r.statusAnswer(q.Request, http.StatusUnauthorized)
	}
	if d.Undelivered = d.Answer != nil; d.Undelivered {
		q.Process.Disturb()
	}
	q.Decide(d)
	return nil
}

// strike a request with a fault.
func (r *run) strike(f fault.Fault, q *simulation.Request) {
	p := q.Process
	q.Event.Fault = f.Name
	r.phase.disturbed = r.sim.Since()
	p.Disturb()
	d := simulation.Decision{
		Undelivered: !f.Delivered, Answer: f.Answer, Delay: f.Delay, Dies: f.Lost, Stops: f.Then == fault.Stop,
	}
	if f.Status > 0 {
		d.Answer = r.statusAnswer(q.Request, f.Status)
	}
	lag := func(time.Duration) {}
	if l, lags := r.cloud.(Lagging); lags && f.Then == fault.LateListing {
		lag = l.Lag
	}
	// A process that ends before the request has its effect never makes it, or another process makes it.
	ends := f.Then == fault.Crash || f.Then == fault.CrashInFlight || f.Then == fault.Failover
	if f.Delivered || !ends {
		lag(lagFor)
		q.Decide(d)
		r.sim.Wait()
		lag(0)
	}
	switch f.Then {
	case fault.Nothing, fault.LateListing:
	case fault.Crash:
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
		r.sim.Stop(p)
		r.sim.Replace()
	case fault.Failover:
		r.sim.Failover()
	case fault.APIAway:
		r.awayUntil = time.Now().Add(awayFor)
	case fault.StaleCache:
		p.Freeze(lagFor)
	}
}

// statusAnswer returns the error that a request gets with a status code.
func (r *run) statusAnswer(q history.Request, code int) error {
	of, injected := schema.GroupResource{Resource: strings.ToLower(q.Kind)}, errors.New("injected")
	switch {
	case q.Target == history.External && q.HTTP:
		return httpStatus(code)
	case q.Target == history.External:
		return r.provider.Status(code)
	case code == http.StatusConflict:
		return kerrors.NewConflict(of, q.Name, injected)
	case code == http.StatusTooManyRequests:
		return kerrors.NewTooManyRequests("injected", 1)
	default:
		return kerrors.NewInternalError(injected)
	}
}

package crashtest

import (
	"net/http"
	"strings"
	"testing/synctest"
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

// A striker decides what happens to requests.
type striker struct {
	injections []fault.Injection

	// status returns the error of the external system's SDK for a code.
	status func(code int) error

	// armed says that faults can strike. number is the number of the last request since then, struck how many faults
	// have struck. diverged says that one struck another request than in the run without a fault.
	armed          bool
	number, struck int
	diverged       bool

	// denied says that the external system refuses each call. The API server is away until awayUntil.
	denied    bool
	awayUntil time.Time
}

// next returns the fault that strikes a request, or nil. It numbers the request.
func (s *striker) next(e *history.Event) *fault.Fault {
	if !s.armed {
		return nil
	}
	s.number++
	e.Number = s.number
	if s.struck == len(s.injections) || !s.injections[s.struck].Strikes(e) {
		return nil
	}
	i := s.injections[s.struck]
	s.struck++
	s.diverged = s.diverged || i.Want != "" && i.Want != e.Request.String()
	return &i.Fault
}

// refusal returns the answer to a request that no fault strikes and that is not served, or nil.
func (s *striker) refusal(q history.Request) error {
	switch {
	case q.Target == history.API && !q.Cached && time.Now().Before(s.awayUntil):
		return fault.Refused()
	case q.Target == history.External && s.denied:
		return s.answer(q, http.StatusUnauthorized)
	default:
		return nil
	}
}

// answer returns the error that a request gets with a status code.
func (s *striker) answer(q history.Request, code int) error {
	of, injected := schema.GroupResource{Resource: strings.ToLower(q.Kind)}, errors.New("injected")
	switch {
	case q.Target == history.External && q.HTTP:
		return httpStatus(code)
	case q.Target == history.External:
		return s.status(code)
	case code == http.StatusConflict:
		return kerrors.NewConflict(of, q.Name, injected)
	case code == http.StatusTooManyRequests:
		return kerrors.NewTooManyRequests("injected", 1)
	default:
		return kerrors.NewInternalError(injected)
	}
}

// turn decides what happens to a request whose turn it is.
func (r *run) turn(q *simulation.Request) {
	r.phase.requests++
	q.Event = r.record(history.Event{
		Kind: history.KindRequest, Process: q.Process.ID, Reconcile: q.Reconcile, Request: q.Request,
	})
	if f := r.faults.next(q.Event); f != nil {
		r.strike(*f, q)
		return
	}
	refusal := r.faults.refusal(q.Request)
	if refusal != nil {
		q.Process.Disturb()
	}
	q.Decide(simulation.Decision{Undelivered: refusal != nil, Answer: refusal})
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
		d.Answer = r.faults.answer(q.Request, f.Status)
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
		synctest.Wait()
		lag(0)
	}
	switch f.Then {
	case fault.Nothing, fault.LateListing:
	case fault.Crash:
		p.Kill()
		r.sim.Replace()
	case fault.CrashInFlight:
		p.Kill()
		q.Arrive(func() {
			q.Event = r.record(history.Event{
				Kind: history.KindArrival, Process: p.ID, Reconcile: q.Reconcile, Request: q.Request, Text: "arrives",
			})
		})
		r.sim.Replace()
	case fault.Stop:
		p.Stop()
		r.sim.Replace()
	case fault.Failover:
		r.sim.Failover()
	case fault.APIAway:
		r.faults.awayUntil = time.Now().Add(awayFor)
	case fault.StaleCache:
		p.Freeze(lagFor)
	}
}

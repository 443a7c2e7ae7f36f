// Package fault is the table of faults that can strike a request.
package fault

import (
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// hangsFor is how long a call takes whose answer doesn't come, if its context has no earlier deadline.
const hangsFor = time.Minute

// A Fault strikes one request. If its name ends in before, the request has no effect; after a
// failover, the old process still makes it. If its name ends in after, the request has its effect.
type Fault struct {
	Name string

	// Scope of the requests that the fault can strike.
	Scope Scope

	// Writes says that the fault needs a request that changes something.
	Writes bool

	// Delivered says that the request has its effect.
	Delivered bool

	// Answer in place of the real one, after a Delay. Status is the code if the answer is one. Lost says that none
	// comes.
	Answer error
	Delay  time.Duration
	Status int
	Lost   bool

	// Then happens to the process or its environment.
	Then Consequence
}

// A Scope is a set of requests.
type Scope int

// Scopes of faults. Creates are calls that create an external resource.
const (
	Any Scope = iota
	ToAPI
	ToExternal
	Creates
)

// A Consequence is a further event of a fault.
type Consequence int

// Consequences of faults.
const (
	// Nothing else happens.
	Nothing Consequence = iota

	// Crash ends the process with its memory. CrashInFlight: the request arrives later.
	Crash
	CrashInFlight

	// Stop asks the process to end, as a signal does.
	Stop

	// Failover starts a new process while the old one continues for a while.
	Failover

	// APIAway makes the API server refuse connections for a while.
	APIAway

	// StaleCache stops the cache of the process for a while.
	StaleCache

	// LateListing makes the external system hide created resources for a while.
	LateListing
)

// All returns all faults.
func All() []Fault {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer (injected)")}
	timeout := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	return []Fault{
		{Name: "crash-before", Lost: true, Then: Crash},
		{Name: "crash-after", Writes: true, Delivered: true, Lost: true, Then: Crash},
		{Name: "crash-inflight", Scope: ToExternal, Writes: true, Lost: true, Then: CrashInFlight},
		{Name: "stop-before", Then: Stop},
		{Name: "stop-after", Writes: true, Delivered: true, Then: Stop},
		{Name: "failover-before", Then: Failover},
		{Name: "failover-after", Writes: true, Delivered: true, Then: Failover},
		{Name: "reset-before", Answer: reset},
		{Name: "reset-after", Writes: true, Delivered: true, Answer: reset},
		{Name: "timeout-before", Answer: timeout, Delay: hangsFor},
		{Name: "timeout-after", Writes: true, Delivered: true, Answer: timeout, Delay: hangsFor},
		{Name: "away-before", Scope: ToAPI, Answer: Refused(), Then: APIAway},
		{Name: "away-after", Scope: ToAPI, Writes: true, Delivered: true, Answer: reset, Then: APIAway},
		{Name: "stale", Scope: ToAPI, Writes: true, Delivered: true, Then: StaleCache},
		{Name: "late", Scope: Creates, Delivered: true, Then: LateListing},
		{Name: "403-before", Scope: ToExternal, Status: 403},
		{Name: "409-before", Writes: true, Status: 409},
		// A client that retries by itself gets a 409 if its first attempt succeeded.
		{Name: "409-after", Scope: ToExternal, Writes: true, Delivered: true, Status: 409},
		{Name: "429-before", Status: 429},
		{Name: "500-before", Status: 500},
		{Name: "500-after", Writes: true, Delivered: true, Status: 500},
		{Name: "503-before", Scope: ToExternal, Status: 503},
	}
}

// Refused returns the error of a server that is away.
func Refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused (injected)")}
}

// StatusCodes returns the codes that calls to the external system can be answered with. 401 is the
// answer while access is denied.
func StatusCodes() []int {
	out := []int{401}
	for _, f := range All() {
		if f.Status > 0 && !slices.Contains(out, f.Status) {
			out = append(out, f.Status)
		}
	}
	return out
}

// Reaches reports whether the fault can strike such a request at all.
func (f Fault) Reaches(r history.Request) bool {
	switch f.Scope {
	case ToAPI:
		return r.Target == history.API && !r.Cached
	case ToExternal, Creates:
		return r.Target == history.External
	default:
		return !r.Cached
	}
}

// Suits reports whether the fault makes a difference to a request that was made in another run.
// lags says that the external system can hide new resources.
func (f Fault) Suits(e *history.Event, lags bool) bool {
	creates := slices.ContainsFunc(e.Effects, func(o history.Effect) bool { return o.Created })
	return f.Reaches(e.Request) &&
		(!f.Writes || e.Request.Writes || len(e.Effects) > 0) &&
		(f.Scope != Creates || creates && lags)
}

// An Injection is a fault at the request of a number, or at the next one that the fault can strike.
type Injection struct {
	Fault  Fault
	Number int

	// Want is the request in the run without a fault, if it is known.
	Want string
}

func (i Injection) String() string { return fmt.Sprintf("%s/%d", i.Fault.Name, i.Number) }

// Strikes reports whether the injection strikes the request of an event.
func (i Injection) Strikes(e *history.Event) bool {
	return e.Number >= i.Number && i.Fault.Reaches(e.Request) &&
		(e.Number == i.Number || !i.Fault.Writes || e.Request.Writes || e.Request.Unknown())
}

package watchtest

import (
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Verb says what a request wants.
type Verb string

// The verbs that an API knows.
const (
	Discover Verb = "discover"
	List     Verb = "list"
	Watch    Verb = "watch"
	Object   Verb = "object" // Reads or writes one.
)

// A Request is what an API was asked.
type Request struct {
	Verb Verb

	// GVR is the resource that was asked for. Of a discovery request only the
	// group and version are set; of one for the groups that exist, nothing.
	GVR schema.GroupVersionResource

	// Namespace and Name in the path, if any.
	Namespace, Name string

	// Initial says of a watch that it asks for what is there first: it is a list
	// that is streamed.
	Initial bool

	// At is when the request arrived.
	At time.Time
}

// A Match picks requests.
type Match func(r Request) bool

// Everything matches all requests.
func Everything() Match { return func(Request) bool { return true } }

// Of matches requests for objects of a kind, by the resource it is served as.
func Of(k Kind) Match {
	gvr := k.GVR()
	return func(r Request) bool { return r.Verb != Discover && r.GVR == gvr }
}

// DiscoveryOf matches requests for the resources in a kind's group and version.
func DiscoveryOf(k Kind) Match {
	gv := k.GVK.GroupVersion()
	return func(r Request) bool { return r.Verb == Discover && r.GVR.GroupVersion() == gv }
}

// Only matches what m matches if it has one of the verbs.
func (m Match) Only(verbs ...Verb) Match {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) && m(r) }
}

// Initial matches those watches that m matches that stream a list.
func (m Match) Initial() Match {
	return func(r Request) bool { return r.Initial && m(r) }
}

// A Fault is what happens to a request instead of, or before, its answer.
type Fault struct {
	// status to answer with, if not zero.
	status int

	// body to answer with in place of a Status, if not empty.
	body string

	// retryAfter in seconds to name in the answer, if not zero.
	retryAfter int

	// broken is what the connection fails with, if not nil.
	broken error

	// hang until the request is given up or the fault is lifted.
	hang bool

	// delay before the answer, or before an answer with a status.
	delay time.Duration
}

// Hang answers nothing until the fault is lifted. Open watches that match stay
// open and silent, as those of a stopped server do.
func Hang() Fault { return Fault{hang: true} }

// Refuse refuses the connection.
func Refuse() Fault {
	return Break(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
}

// Break fails the connection with an error.
func Break(err error) Fault { return Fault{broken: err} }

// Delay answers later than usual.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// Status answers with an HTTP status.
func Status(code int) Fault { return Fault{status: code} }

// Answer answers with an HTTP status and a body, as a proxy or a broken server does.
func Answer(code int, body string) Fault { return Fault{status: code, body: body} }

// TooManyRequests answers with 429, and asks to come back after some seconds.
// Without any, clients give up at once.
func TooManyRequests(retryAfter int) Fault {
	return Fault{status: http.StatusTooManyRequests, retryAfter: retryAfter}
}

// After is Status or TooManyRequests, answered after d.
func (f Fault) After(d time.Duration) Fault {
	f.delay = d
	return f
}

// An injected fault is one that an API applies until it is lifted.
type injected struct {
	match  Match
	fault  Fault
	lifted chan struct{}
}

// Inject makes matching requests suffer the fault until lift is called. Of
// several faults that match a request the last injected counts. lift may be
// called more than once.
func (a *API) Inject(m Match, f Fault) (lift func()) {
	i := &injected{match: m, fault: f, lifted: make(chan struct{})}
	a.mu.Lock()
	a.faults = append(a.faults, i)
	a.change()
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := slices.Index(a.faults, i)
		if n < 0 {
			return
		}
		a.faults = slices.Delete(a.faults, n, n+1)
		close(i.lifted)
		a.change()
	}
}

// Down refuses all connections and cuts the open ones until up is called.
func (a *API) Down() (up func()) {
	lift := a.Inject(Everything(), Refuse())
	a.Disconnect(Everything())
	return lift
}

// Freeze answers nothing, and keeps open watches silent, until thaw is called.
func (a *API) Freeze() (thaw func()) { return a.Inject(Everything(), Hang()) }

// Disconnect ends the open watches that match.
func (a *API) Disconnect(m Match) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.streams {
		if m(s.req) {
			s.cut()
		}
	}
}

// faultFor returns what a request suffers, if anything. The lock must be held.
func (a *API) faultFor(r Request) *injected {
	for _, i := range slices.Backward(a.faults) {
		if i.match(r) {
			return i
		}
	}
	return nil
}

// Package history is the record of one run: the requests, the processes and the acts of the user, in
// the order in which they happened. The simulation writes it, the oracle judges it, and a timeline
// prints it.
package history

import (
	"strings"
	"time"
)

// A Kind is the subject of an event.
type Kind int

const (
	// KindAct is an act of the user, or of another controller. Act has the details.
	KindAct Kind = iota

	// KindProcess is about a process: it starts, or ends.
	KindProcess

	// KindReconcile is the start of a reconcile.
	KindReconcile

	// KindReconciled is the end of a reconcile.
	KindReconciled

	// KindRequest is a request to the API server or a call to the external system. Request,
	// and Effects of a call to the external system, have the details.
	KindRequest

	// KindArrival is a call to the external system that arrives after its process has ended.
	KindArrival

	// KindAnswer is the answer to a request, if it is an error.
	KindAnswer

	// KindObject is a new version of a managed resource on the API server.
	KindObject

	// KindSettled says that each managed resource is as the user wants it.
	KindSettled

	// KindUnsettled says that a managed resource no longer is as the user wants it.
	KindUnsettled

	// KindPanic is a panic of the provider.
	KindPanic

	// KindOverdue is a reconcile that is in progress although its process had to end before.
	KindOverdue
)

// An Event is one thing that happened in a run. Fields that don't belong to its kind are empty.
type Event struct {
	// At is the simulated time since the start of the run.
	At   time.Duration
	Kind Kind

	// Process that the event belongs to, from 1. 0 is the user or the environment.
	Process int

	// Reconcile is the number of the reconcile that made a request. It is 0 if the context of the
	// request is not the one of a reconcile.
	Reconcile int

	// Object is the name of a managed resource.
	Object string

	// Number of a request since faults can strike, from 1. Fault is the fault that struck it.
	Number int
	Fault  string

	Request Request
	Effects []Effect
	Version Version
	Act     Act
	Outcome Outcome

	// Text is an error, or the text in a timeline.
	Text string
}

// An Outcome is how a reconcile or a request ended.
type Outcome struct {
	// Failed says that it returned an error.
	Failed bool

	// Status of an HTTP response that is an error, or 0.
	Status int

	// Refused says that the API server refuses the request whenever it is repeated.
	Refused bool

	// Backoff says that a reconcile is repeated with backoff, although it returned no error.
	Backoff bool
}

// A Target is the addressee of a request.
type Target int

// Targets of requests.
const (
	API Target = iota
	External
)

// A Request is a request to the API server, or a call to the external system.
type Request struct {
	Target Target

	// Verb is the verb or the HTTP method, or the name of a call that is not HTTP. Kind is the kind
	// of a request to the API server. Name is the object's name, or the path of an HTTP request.
	Verb, Kind, Name string

	// Query of an HTTP request. It is shown, and may be random: it does not identify a request.
	Query string

	// Writes says that the request is made to change something, as far as its verb tells.
	Writes bool

	// Reads says that it is made to change nothing.
	Reads bool

	// Cached says that the answer comes from a cache.
	Cached bool

	// HTTP says that an error can be an HTTP response.
	HTTP bool

	// Content is a hash of the query and the body.
	Content uint64
}

// String returns what identifies the request.
func (r Request) String() string {
	return strings.Join(strings.Fields(r.Verb+" "+r.Kind+" "+r.Name), " ")
}

// Unknown reports whether nothing tells beforehand if the call changes something.
func (r Request) Unknown() bool { return r.Target == External && !r.HTTP }

// An Effect is a change of one external resource. Before is empty if it was created, After if it was deleted.
type Effect struct {
	Name          string
	Before, After string

	// Created says that it was created, Deleted that it was deleted.
	Created, Deleted bool
}

// A Version of a managed resource on the API server.
type Version struct {
	// Exists says that there is one. UID tells it from one of the same name.
	Exists bool
	UID    string

	// External is the external name. Ready says that the managed resource says that it is ready.
	External string
	Ready    bool

	// Orphans says that its external resource has to stay when it is deleted.
	Orphans bool

	// Fields that changed since the last version. Finalizers that were removed since.
	Fields, Finalizers []string
}

// An ActKind is an act of the user that the oracle has to know.
type ActKind int

// Kinds of acts. Those with an external resource name it in Act.External.
const (
	// Other acts don't change the expectations.
	Other ActKind = iota

	// Created and Deleted: a managed resource has to be ready, or gone. CreatedShared: it may
	// have any state, because its external name is another's.
	Created
	CreatedShared
	Deleted

	// Changed: the external resource has to change from Act.State. ChangedBack: it need not any more.
	Changed
	ChangedBack

	// Paused: nothing may be changed for the managed resource, until Resumed.
	Paused
	Resumed

	// Protected: the external resource has to stay in Act.State, until Released.
	Protected
	Released

	// Denied: the external system refuses each call, until Granted.
	Denied
	Granted

	// Lost: the external resource was deleted behind the provider's back.
	Lost

	// Finalized: another controller added the finalizer Act.External.
	Finalized
)

// An Act is an act of the user.
type Act struct {
	Kind     ActKind
	External string
	State    string

	// During says that the act happened during a call.
	During bool
}

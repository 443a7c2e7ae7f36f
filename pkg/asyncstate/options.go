package asyncstate

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// What a Tracker does unless its options say otherwise.
const (
	DefaultTimeout         = time.Hour
	DefaultMaxOperations   = 100
	DefaultFirstBackoff    = time.Second
	DefaultLastBackoff     = 5 * time.Minute
	DefaultShutdownTimeout = 20 * time.Second
	DefaultReportInterval  = 10 * time.Second

	// DefaultCreationGracePeriod is upstream's.
	DefaultCreationGracePeriod = 30 * time.Second
)

// A TrackerOption configures a Tracker. It panics if what it is given makes no
// sense.
type TrackerOption func(*Tracker)

// WithLiveReader sets what reads from the API server itself: a manager's
// GetAPIReader. By default it is the client, and then results may meet more
// conflicts than they need to before they are stored.
func WithLiveReader(r client.Reader) TrackerOption {
	mustNotBeNil(r, "WithLiveReader")
	return func(t *Tracker) { t.writer.Live = r }
}

// WithLogger sets where debug messages go. Nowhere, by default.
func WithLogger(l logging.Logger) TrackerOption {
	mustNotBeNil(l, "WithLogger")
	return func(t *Tracker) { t.log = l }
}

// WithRecorder sets where events go. Nowhere, by default.
func WithRecorder(r event.Recorder) TrackerOption {
	mustNotBeNil(r, "WithRecorder")
	return func(t *Tracker) { t.record = r }
}

// WithMetrics sets what counts operations. Nothing, by default.
func WithMetrics(m *Metrics) TrackerOption {
	if mustNotBeNil(m, "WithMetrics"); m.running == nil {
		panic(errors.New("asyncstate.WithMetrics was given empty metrics: create them with NewMetrics"))
	}
	return func(t *Tracker) { t.metrics = m }
}

// WithTimeout sets how long an operation may take, DefaultTimeout by default. Then its
// context is cancelled. It counts as ended when it returns, not earlier; one that a
// client has to end (see Tracker.Begin) is abandoned a minute later.
func WithTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithTimeout")
	return func(t *Tracker) { t.timeout = d }
}

// WithAbsenceAfter sets how long a create of another process is taken to be still in
// progress, if its external resource is not found. It counts from when this process
// first saw the create's record. By default it is the time that the create was allowed.
// A shorter time is for providers that can be sure that such a process is dead: an
// external resource that appears later is one too many. Nothing waits for a create that
// is known to have ended, unless it repeated one that is not.
func WithAbsenceAfter(d time.Duration) TrackerOption {
	mustBePositive(d, "WithAbsenceAfter")
	return func(t *Tracker) { t.absentAfter = d }
}

// WithCreationGracePeriod sets how long the external system may hide an external resource that
// it has created, DefaultCreationGracePeriod by default. An external resource of a create whose
// outcome is unknown is not believed to be absent before that time has passed, after the create
// has certainly ended. Under Graft's package managed the reconciler's WithCreationGracePeriod
// counts instead.
func WithCreationGracePeriod(d time.Duration) TrackerOption {
	if d < 0 {
		panic(errors.Errorf("asyncstate.WithCreationGracePeriod was given %v: pass 0 or more", d))
	}
	return func(t *Tracker) { t.grace = d }
}

// WithBackoff sets how long an object waits after an operation that failed: first
// after the first, twice as long after each that follows, but never longer than
// last. The defaults are DefaultFirstBackoff and DefaultLastBackoff.
func WithBackoff(first, last time.Duration) TrackerOption {
	mustBePositive(first, "WithBackoff")
	mustBePositive(last, "WithBackoff")
	return func(t *Tracker) { t.firstBackoff, t.lastBackoff = first, max(first, last) }
}

// WithMaxOperations sets how many operations may run at the same time,
// DefaultMaxOperations by default, and as many more of objects that are being
// deleted. Others wait for their turn, and say so.
func WithMaxOperations(n int) TrackerOption {
	mustBePositive(n, "WithMaxOperations")
	return func(t *Tracker) { t.most = n }
}

// WithShutdownTimeout sets how long Start waits for running operations when its
// context is done, DefaultShutdownTimeout by default. Operations that run longer are
// cancelled, and Start waits for them, and for results to be stored, for as long again.
// It should be shorter than the manager's grace period, 30 seconds by default. The
// records of operations that did not end stay.
func WithShutdownTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithShutdownTimeout")
	return func(t *Tracker) { t.shutdown = d }
}

// WithReportInterval sets how often progress is put on the API server at most,
// DefaultReportInterval by default.
func WithReportInterval(d time.Duration) TrackerOption {
	mustBePositive(d, "WithReportInterval")
	return func(t *Tracker) { t.reportEvery = d }
}

// WithDeterministicNames declares that the name of an external resource is known
// before it is created, and that the external system never has two of a name. A
// create whose outcome is unknown is then observed by that name, and repeated.
func WithDeterministicNames() TrackerOption {
	return func(t *Tracker) { t.deterministic = true }
}

// WithIdempotentTokens declares that Create hands Token to an external system that
// makes one resource for a token, however often it is asked to. A create whose outcome
// is unknown is then observed, and repeated with its token.
//
// If the external system insists on the same request with the same token, a spec
// that was changed meanwhile stands in the way. Implement Finder, too.
func WithIdempotentTokens() TrackerOption {
	return func(t *Tracker) { t.idempotent = true }
}

// WithCancellableCreates declares that a Create whose context is cancelled leaves
// nothing behind that it doesn't return the external name of. It is then cancelled
// if its object is deleted, instead of being waited for.
func WithCancellableCreates() TrackerOption {
	return func(t *Tracker) { t.cancellable = true }
}

// WithOwnGoroutines says that the external client's Create, Update and Delete return
// at once, and call Begin before they leave anything running. Without it the tracker
// calls them in goroutines of its own.
func WithOwnGoroutines() TrackerOption {
	return func(t *Tracker) { t.ownGoroutines = true }
}

func mustNotBeNil(v any, where string) {
	if is.Nil(v) {
		panic(errors.Errorf("asyncstate.%s was given nil: leave it out to get the default, or pass what it asks for", where))
	}
}

func mustBePositive[N ~int | ~int64](n N, where string) {
	if n <= 0 {
		panic(errors.Errorf("asyncstate.%s was given %v: pass something greater than 0", where, n))
	}
}

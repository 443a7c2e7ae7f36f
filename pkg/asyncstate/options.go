package asyncstate

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// reportInterval is how often progress is stored at most. A shorter update is not reported as running.
const reportInterval = 10 * time.Second

// DefaultTimeout is how long an operation may take by default.
const DefaultTimeout = time.Hour

// config is the configuration of a tracker.
type config struct {
	writer  seam.Writer
	events  eventRecorder
	metrics *Metrics

	timeout         time.Duration // of an operation
	absenceAfter    time.Duration // 0 means the time that the create was allowed
	gracePeriod     time.Duration // of the reconciler
	backoff         backoff
	shutdownTimeout time.Duration
	maxOperations   int

	// resolveUnrecorded means that the tracker also resolves creates that have no record.
	resolveUnrecorded bool

	deterministicNames bool
	idempotentTokens   bool
	cancellableCreates bool
}

// newConfig returns the default configuration of a tracker.
func newConfig() config {
	return config{
		writer:          seam.Writer{Wait: seam.Wait},
		events:          eventRecorder{log: logging.NewNopLogger(), record: event.NewNopRecorder()},
		metrics:         NewMetrics(),
		timeout:         DefaultTimeout,
		backoff:         backoff{first: time.Second, last: 5 * time.Minute},
		shutdownTimeout: 20 * time.Second,
		maxOperations:   100,
	}
}

// A TrackerOption configures a Tracker. The functions that return one panic if an argument
// makes no sense.
type TrackerOption func(*config)

// WithMetrics sets the metrics that count operations. By default there are none.
func WithMetrics(m *Metrics) TrackerOption {
	if is.MustNotBeNil(m, "asyncstate.WithMetrics"); m.running == nil {
		panic(errors.New("asyncstate.WithMetrics was given empty metrics: create them with NewMetrics"))
	}
	return func(c *config) { c.metrics = m }
}

// WithTimeout sets how long an operation may take, DefaultTimeout by default. Then its context
// is cancelled, and the operation ends when its function returns. One that has not ended a minute
// later is abandoned: nothing waits for it, another operation of the object may begin, and the outcome
// of a create is unknown.
func WithTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithTimeout")
	return func(c *config) { c.timeout = d }
}

// WithAbsenceAfter sets how long a create of another process may be in progress after this
// process first saw its record. By default it is the time that the create was allowed. If the
// external resource is not found when that time and the creation grace period have passed, the
// create is treated as failed. A shorter time is for providers that can be sure that the other
// process is dead: otherwise there may be a second external resource. It does not count for a
// create that has set a handle, nor for one that did not end by its deadline.
func WithAbsenceAfter(d time.Duration) TrackerOption {
	mustBePositive(d, "WithAbsenceAfter")
	return func(c *config) { c.absenceAfter = d }
}

// WithBackoff sets how long an object waits after an operation that failed: first after the
// first failure, twice as long after each further one, and last at most. By default first is a
// second, and last is five minutes. It waits as long after updates of one spec that succeeded, while
// Observe still reports that the external resource is not up to date.
func WithBackoff(first, last time.Duration) TrackerOption {
	mustBePositive(first, "WithBackoff")
	if last < first {
		panic(errors.Errorf(
			"asyncstate.WithBackoff was given %v and %v: the first wait must not be longer than the last", first, last,
		))
	}
	return func(c *config) { c.backoff = backoff{first: first, last: last} }
}

// WithMaxOperations sets how many of the tracker's operations of one account may run at the same
// time, 100 by default. Deletions have a separate limit of the same size. Other objects of the
// account wait, and report that. Each provider config is an account, unless
// ratelimit.WithAccountKey says another one.
func WithMaxOperations(n int) TrackerOption {
	mustBePositive(n, "WithMaxOperations")
	return func(c *config) { c.maxOperations = n }
}

// WithShutdownTimeout sets how long Start waits for running operations when its context is
// done, 20 seconds by default. Operations that run longer are cancelled, and Start waits as
// long again for them, and for results to be stored. The manager stops waiting after its grace
// period, 30 seconds by default, which should be longer. The records of operations that did not
// end stay.
func WithShutdownTimeout(d time.Duration) TrackerOption {
	mustBePositive(d, "WithShutdownTimeout")
	return func(c *config) { c.shutdownTimeout = d }
}

// WithDeterministicNames declares that the name of an external resource is known before it is
// created, and that the external system never has two resources with one name. A create whose
// outcome is unknown is then observed by that name, and repeated.
func WithDeterministicNames() TrackerOption {
	return func(c *config) { c.deterministicNames = true }
}

// WithIdempotentTokens declares that Create passes Token to an external system that creates one
// resource for a token, however often it is asked. A create whose outcome is unknown is then
// observed, and repeated with its token.
//
// If the external system accepts a token only with the same request, a changed spec prevents
// the repetition. If it forgets tokens, after an hour for example, the repetition after a longer
// failure creates a second external resource. In both cases implement Finder, too: it is asked
// first.
func WithIdempotentTokens() TrackerOption {
	return func(c *config) { c.idempotentTokens = true }
}

// WithCancellableCreates declares that a Create whose context is cancelled returns the external
// name of everything that it leaves behind. It is then cancelled if its object is deleted.
// Otherwise the deletion waits for its end.
func WithCancellableCreates() TrackerOption {
	return func(c *config) { c.cancellableCreates = true }
}

func mustBePositive[N ~int | ~int64](n N, option string) {
	if n <= 0 {
		panic(errors.Errorf("asyncstate.%s was given %v: pass a value greater than 0", option, n))
	}
}

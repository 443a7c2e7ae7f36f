package seam

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Postponed is an error of a patch's Open. The reconcile does not start, but runs again after
// that time. It is no failure.
type Postponed struct {
	After time.Duration

	// Priority of the object in a priority queue.
	Priority int
}

func (p *Postponed) Error() string { return "the reconcile is postponed by " + p.After.String() }

// A Requeue says when the reconcile of an object is to run again. The zero Requeue
// leaves that to the inner reconciler.
type Requeue struct {
	// backoff is true if the reconcile is to run again with backoff.
	backoff bool

	// within is the longest time to wait, and instead the time to wait where the
	// inner reconciler asks for backoff. Zero means that there is none.
	within, instead time.Duration

	// deadline is the longest time to wait that counts for instead, too.
	deadline time.Duration
}

// WithBackoff runs the reconcile again with the queue's backoff.
func WithBackoff() Requeue { return Requeue{backoff: true} }

// Within runs the reconcile again after d at the latest. It does not replace a
// backoff, whose delay is not known.
func Within(d time.Duration) Requeue { return Requeue{within: max(d, 1)} }

// Deadline is Within, also where a delay replaces a backoff.
func Deadline(d time.Duration) Requeue { return Requeue{deadline: max(d, 1)} }

// InsteadOfBackoff runs the reconcile again after d where the inner reconciler asks for
// backoff. An earlier retry would have the same result.
func InsteadOfBackoff(d time.Duration) Requeue { return Requeue{instead: max(d, 1)} }

// shorter returns the shorter of two delays. Zero means no delay.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// asksBackoff reports whether controller-runtime retries with the work queue's backoff.
func asksBackoff(result reconcile.Result) bool {
	//nolint:staticcheck // Deprecated, but upstream's reconcilers return it.
	return result.Requeue && result.RequeueAfter <= 0
}

// decide returns the result of a reconcile whose inner reconciler returned result,
// and no error.
func (r Requeue) decide(result reconcile.Result) reconcile.Result {
	backsOff := asksBackoff(result)
	within := shorter(r.within, r.deadline)

	switch {
	case r.backoff:
		return reconcile.Result{Requeue: true, Priority: result.Priority}
	case backsOff && r.instead > 0:
		return reconcile.Result{RequeueAfter: shorter(r.instead, r.deadline), Priority: result.Priority}
	case !backsOff && within > 0 && (result.RequeueAfter <= 0 || result.RequeueAfter > within):
		return reconcile.Result{RequeueAfter: within, Priority: result.Priority}
	default:
		return result
	}
}

package seam

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The delays of upstream's work queue, which ratelimiter.NewController of crossplane-runtime sets.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// notePostponed notes that a reconcile is postponed. controller-runtime calls Forget for a
// result with RequeueAfter, so the work queue loses its count of failures. From then on, backOff
// counts for this object.
func (s *Session) notePostponed() {
	s.histories.backoffs.Update(s.histories.store, s.base, func(next *time.Duration) {
		*next = max(*next, minBackoff)
	})
}

// backOff returns the result for controller-runtime. It replaces the work queue's backoff with
// a delay that doubles, if the object was postponed since its last success. Otherwise an
// object that fails and is postponed in turn never gets past the first delay of the work
// queue, and many of them use all tokens of their account.
func (s *Session) backOff(result reconcile.Result) reconcile.Result {
	if s.base == nil {
		return result
	}
	delay := s.histories.backoffs.Get(s.histories.store, s.base)
	if delay == 0 {
		return result
	}
	if !asksBackoff(result) {
		s.histories.backoffs.Delete(s.histories.store, s.base)
		return result
	}
	s.histories.backoffs.Update(s.histories.store, s.base, func(next *time.Duration) {
		*next = min(2*delay, maxBackoff)
	})
	return reconcile.Result{RequeueAfter: shorter(delay, s.requeue.deadline), Priority: result.Priority}
}

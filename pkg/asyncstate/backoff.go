package asyncstate

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
)

// retryAt returns when an operation that ended without success may be tried once
// more.
func (t *Tracker) retryAt(r *record) time.Time {
	if r.Ended == nil || r.Ended.After(time.Now()) {
		// It ended by another machine's clock, which is ahead. Waiting for this
		// one's to get there would take too long.
		return time.Time{}
	}
	return r.Ended.Add(doubled(t.firstBackoff, t.lastBackoff, r.Failures))
}

// backoff returns how much longer the operation of mg that comes after r has to wait. r
// is nil if there was none. A changed spec ends the wait.
func (t *Tracker) backoff(mg resource.Managed, r *record) time.Duration {
	if r == nil || r.Generation != mg.GetGeneration() {
		return 0
	}
	return time.Until(t.retryAt(r))
}

// doubled returns how long to wait after something happened n times: first, twice
// that, and so on, and last at the most.
func doubled(first, last time.Duration, n int) time.Duration {
	d := first
	for i := 1; i < n && d < last; i++ {
		d += min(d, last-d)
	}
	return min(d, last)
}

// absentFrom returns from when on it is believed that what a create should have made
// does not exist. It counts from when this process first saw the record, by its own
// clock. A create that was seen to end is over, unless it was the repetition of one that
// was not.
func (t *Tracker) absentFrom(r *record, first time.Time) time.Time {
	ended := r.Phase != phaseRunning && !r.Abandoned
	if ended && r.Open == nil {
		return time.Time{}
	}
	allowed := time.Duration(0)

	if !ended {
		allowed = r.Deadline.Sub(r.began())
		if t.absentAfter > 0 {
			allowed = min(allowed, t.absentAfter)
		}
	}

	if r.Open != nil {
		allowed = max(allowed, r.Open.Sub(r.began()))
	}
	return first.Add(allowed)
}

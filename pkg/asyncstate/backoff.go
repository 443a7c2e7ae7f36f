package asyncstate

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// retryAt returns when an operation that ended without success may be tried once
// more.
func (t *Tracker) retryAt(r *creation.Record) time.Time {
	if r.Ended == nil || r.Ended.After(time.Now()) {
		// It ended by another machine's clock, which is ahead. Waiting for this
		// one's to get there would take too long.
		return time.Time{}
	}
	return r.Ended.Add(doubled(t.firstBackoff, t.lastBackoff, r.Failures))
}

// backoff returns how much longer the operation of mg that comes after r has to wait. r
// is nil if there was none. A changed spec ends the wait.
func (t *Tracker) backoff(mg resource.Managed, r *creation.Record) time.Duration {
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

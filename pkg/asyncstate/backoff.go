package asyncstate

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// A backoff is the wait after an operation that failed, or whose effect is not visible yet. It
// doubles with each such operation in a row.
type backoff struct{ first, last time.Duration }

// after returns the wait after n such operations.
func (b backoff) after(n int) time.Duration {
	d := b.first
	for i := 1; i < n && d < b.last; i++ {
		d += min(d, b.last-d)
	}
	return min(d, b.last)
}

// end returns when the wait after the operation of r is over.
func (b backoff) end(r *creation.Record, now time.Time) time.Time {
	if r.Ended == nil || r.Ended.After(now) {
		// The clock of another machine is ahead. Waiting for it could take years.
		return time.Time{}
	}
	return r.Ended.Add(b.after(r.Failures))
}

// until returns how long the wait after the operation of r lasts from now. It is not positive if it is over.
func (b backoff) until(r *creation.Record) time.Duration { return time.Until(b.end(r, time.Now())) }

// left returns how long the next operation of mg after r has to wait. A changed spec ends the
// wait. r may be nil.
func (b backoff) left(mg resource.Managed, r *creation.Record) time.Duration {
	if r == nil || r.Generation != mg.GetGeneration() {
		return 0
	}
	return b.until(r)
}

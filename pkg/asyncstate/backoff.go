package asyncstate

import "time"

// retryAt returns when an operation that ended without success may be tried once
// more.
func (t *Tracker) retryAt(r *record) time.Time {
	if r.Ended == nil || r.Ended.After(time.Now()) {
		// What ends in the future does so by somebody else's clock. Nobody should
		// have to wait for ours to get there.
		return time.Time{}
	}

	return r.Ended.Add(doubled(t.firstBackoff, t.lastBackoff, r.Failures))
}

// doubled returns how long to wait after something happened n times: first, twice
// that, and so on, and last at the most.
func doubled(first, last time.Duration, n int) time.Duration {
	d := first
	for i := 1; i < n && d < last; i++ {
		if d *= 2; d <= 0 { // More than a Duration can hold.
			d = last
		}
	}

	return min(d, last)
}

// settledAt returns from when on it can be believed that what a create should have
// made doesn't exist.
func (t *Tracker) settledAt(r *record) time.Time {
	switch {
	case r.Phase != phaseRunning:
		return r.Ended.Time
	case t.absentAfter == 0 || r.Deadline.Time.Before(r.Started.Add(t.absentAfter)):
		return r.Deadline.Time
	default:
		return r.Started.Add(t.absentAfter)
	}
}

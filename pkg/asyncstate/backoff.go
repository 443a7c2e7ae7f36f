package asyncstate

import "time"

// retryAt returns when an operation that ended without success may be tried once
// more.
func (t *Tracker) retryAt(r *record) time.Time {
	if r.Ended == nil {
		return time.Time{}
	}

	d := t.firstBackoff
	for i := 1; i < r.Failures && d < t.lastBackoff; i++ {
		if d *= 2; d <= 0 { // More than a Duration can hold.
			d = t.lastBackoff
		}
	}

	at := r.Ended.Add(min(d, t.lastBackoff))
	if r.Ended.After(time.Now()) {
		// By somebody else's clock. Nobody should have to wait for ours to
		// get there.
		return time.Time{}
	}

	return at
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

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
		d *= 2
	}

	return r.Ended.Add(min(d, t.lastBackoff))
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

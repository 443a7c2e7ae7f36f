// Package interrupted decides what is known of a create whose outcome was not stored:
// the provider died, or the answer to its request was lost.
package interrupted

import "time"

// How long to wait before the same look-up is made again.
const (
	// FirstAgain is the shortest wait.
	FirstAgain = time.Second

	// LastAgain is the longest wait while an external resource may still appear.
	LastAgain = time.Minute

	// LastAgainUnknown is the longest wait if the look-up failed, or cannot tell.
	LastAgainUnknown = 5 * time.Minute
)

// A Verdict is what is known of an interrupted create.
type Verdict int

const (
	// Unknown means that the look-up cannot tell whether there is an external
	// resource.
	Unknown Verdict = iota

	// Failed means that the look-up failed.
	Failed

	// Wait means that there is no external resource yet, and that the create may
	// still be in progress.
	Wait

	// Absent means that there is no external resource and that the interrupted
	// create will not make one.
	Absent

	// Found means that there is an external resource.
	Found
)

// String returns the name of the verdict.
func (v Verdict) String() string {
	switch v {
	case Failed:
		return "Failed"
	case Wait:
		return "Wait"
	case Absent:
		return "Absent"
	case Found:
		return "Found"
	case Unknown:
	}
	return "Unknown"
}

// A Question is what a look-up returned, and when. All times are of the clock of this
// process.
type Question struct {
	// Found and Absent are the answer of the look-up: there surely is an external
	// resource, or there surely is none. It cannot tell if both are false.
	Found  bool
	Absent bool

	// Err is not nil if the look-up failed, whatever else it returned.
	Err error

	// Now is when the look-up began. A resource that it did not find may exist by
	// the time it returns.
	Now time.Time

	// Until is when the interrupted create can no longer be in progress. Absence
	// is not believed before. The zero time means that it is known to have ended.
	Until time.Time

	// Since is when this process first looked. The wait doubles with the time that
	// has passed since. A time after Now, which is of another clock, stands for
	// one long ago.
	Since time.Time
}

// An Answer is a verdict, and how long to wait before the look-up is made again. The
// wait is zero for Found and Absent, and greater than zero for all others.
type Answer struct {
	Verdict Verdict
	Again   time.Duration
}

// Decide returns what is known of an interrupted create after a look-up.
func Decide(q Question) Answer {
	switch {
	case q.Err != nil:
		return Answer{Verdict: Failed, Again: q.again(LastAgainUnknown)}
	case q.Found:
		return Answer{Verdict: Found}
	case q.Absent && !q.Now.Before(q.Until):
		return Answer{Verdict: Absent}
	case q.Absent:
		return Answer{Verdict: Wait, Again: min(q.again(LastAgain), q.Until.Sub(q.Now))}
	default:
		return Answer{Verdict: Unknown, Again: q.again(LastAgainUnknown)}
	}
}

// again returns how long to wait: as long as this process has been asking, from
// FirstAgain to last.
func (q Question) again(last time.Duration) time.Duration {
	if q.Since.After(q.Now) {
		return last
	}
	return min(max(q.Now.Sub(q.Since), FirstAgain), last)
}

package creation

import (
	"math"
	"time"
)

// clockSkew is how much the clocks of two processes may differ.
const clockSkew = time.Minute

// Sum returns the sum of durations, or the longest duration instead of one that overflows.
func Sum(ds ...time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range ds {
		if d > 0 && sum > math.MaxInt64-d {
			return math.MaxInt64
		}
		sum += d
	}
	return sum
}

// Later returns t plus the durations, or the last time that an annotation can have instead of a later one.
func Later(t time.Time, ds ...time.Duration) time.Time {
	if later := t.Add(Sum(ds...)); later.Before(endOfTime()) {
		return later
	}
	return endOfTime()
}

// endOfTime returns the last time that RFC 3339 can express.
func endOfTime() time.Time { return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC) }

// increment returns n + 1, or the largest number instead of one that overflows.
func increment(n int) int { return n + min(1, math.MaxInt-n) }

package interrupted

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	errBoom := errors.New("boom")
	cases := map[string]struct {
		reason string
		q      Question
		want   Answer
	}{
		"Found": {
			reason: "What exists is found, whether or not the create may still be in progress.",
			q:      Question{Found: true, Now: now, Since: now, Until: now.Add(time.Hour)}, want: Answer{Verdict: Found},
		},
		"FoundAndError": {
			reason: "The result of a look-up that failed is not used.",
			q:      Question{Found: true, Err: errBoom, Now: now, Since: now}, want: Answer{Verdict: Failed, Again: time.Second},
		},
		"AbsentAndError": {
			reason: "A look-up that failed proves no absence.",
			q:      Question{Absent: true, Err: errBoom, Now: now, Since: now}, want: Answer{Verdict: Failed, Again: time.Second},
		},
		"FailedForLong": {
			reason: "A look-up that keeps failing is repeated every five minutes.",
			q:      Question{Err: errBoom, Now: now, Since: now.Add(-time.Hour)}, want: Answer{Verdict: Failed, Again: 5 * time.Minute},
		},
		"AbsentAndEnded": {reason: "Absence is believed at once if the create is known to have ended.", q: Question{Absent: true, Now: now, Since: now}, want: Answer{Verdict: Absent}},
		"AbsentAtUntil":  {reason: "Absence is believed from that very moment on.", q: Question{Absent: true, Now: now, Since: now, Until: now}, want: Answer{Verdict: Absent}},
		"AbsentFirst": {
			reason: "A resource may appear seconds after the first look-up.",
			q:      Question{Absent: true, Now: now, Since: now, Until: now.Add(time.Hour)}, want: Answer{Verdict: Wait, Again: time.Second},
		},
		"AbsentAgain": {
			reason: "The wait doubles the time that has passed since the first look-up.",
			q:      Question{Absent: true, Now: now, Since: now.Add(-8 * time.Second), Until: now.Add(time.Hour)}, want: Answer{Verdict: Wait, Again: 8 * time.Second},
		},
		"AbsentForLong": {
			reason: "The look-up is made every minute as long as absence is not believed.",
			q:      Question{Absent: true, Now: now, Since: now.Add(-10 * time.Minute), Until: now.Add(time.Hour)}, want: Answer{Verdict: Wait, Again: time.Minute},
		},
		"AbsentAlmostUntil": {
			reason: "The next look-up is no later than the time from which absence is believed.",
			q:      Question{Absent: true, Now: now, Since: now.Add(-10 * time.Minute), Until: now.Add(3 * time.Second)}, want: Answer{Verdict: Wait, Again: 3 * time.Second},
		},
		"SinceInTheFuture": {
			reason: "Another machine's clock that is ahead does not make this process look up every second.",
			q:      Question{Absent: true, Now: now, Since: now.Add(24 * time.Hour), Until: now.Add(time.Hour)}, want: Answer{Verdict: Wait, Again: time.Minute},
		},
		"Unknown": {
			reason: "A look-up that cannot tell proves nothing, even when the create has ended.",
			q:      Question{Now: now, Since: now}, want: Answer{Verdict: Unknown, Again: time.Second},
		},
		"UnknownAgain": {
			reason: "It is repeated with backoff.",
			q:      Question{Now: now, Since: now.Add(-90 * time.Second), Until: now.Add(time.Second)}, want: Answer{Verdict: Unknown, Again: 90 * time.Second},
		},
		"UnknownForLong": {
			reason: "It is repeated every five minutes at the latest.",
			q:      Question{Now: now, Since: now.Add(-24 * time.Hour)}, want: Answer{Verdict: Unknown, Again: 5 * time.Minute},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.q)); diff != "" {
				t.Errorf("\n%s\nDecide(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

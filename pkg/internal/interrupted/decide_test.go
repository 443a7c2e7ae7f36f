package interrupted

import (
	"testing"
	"testing/synctest"
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
		"FoundAbsentAndError": {
			reason: "The result of a look-up that failed is not used.",
			q:      Question{Found: true, Absent: true, Err: errBoom, Now: now, Since: now}, want: Answer{Verdict: Failed, Again: time.Second},
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
			reason: "A look-up that cannot tell proves nothing, even when the create has ended, and is repeated every five minutes at the latest.",
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

func TestSightings_First(t *testing.T) {
	cases := map[string]struct {
		reason string
		then   func(s *Sightings)
		create string
		same   bool
		len    int
	}{
		"Again":       {reason: "The first sight counts.", then: func(*Sightings) {}, create: "a", same: true, len: 1},
		"LookedAt":    {reason: "It is remembered as long as it is looked at.", then: func(s *Sightings) { look(s, "a", 30*time.Hour) }, create: "a", same: true, len: 1},
		"Another":     {reason: "Another create of the object was not seen before.", then: func(*Sightings) {}, create: "b", len: 1},
		"Forgotten":   {reason: "It was resolved.", then: func(s *Sightings) { s.Forget("uid") }, create: "a", len: 1},
		"NotLookedAt": {reason: "Nothing is kept of objects that no longer exist.", then: func(*Sightings) { time.Sleep(keepSighting) }, create: "a", len: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Sightings{}
				first := s.First("uid", "a", time.Now())
				time.Sleep(time.Minute)
				tc.then(s)
				synctest.Wait()
				got, now := s.First("uid", tc.create, time.Now()), time.Now()
				if tc.same && !got.Equal(first) || !tc.same && !got.Equal(now) || s.Len() != tc.len {
					t.Errorf("\n%s\nFirst(...): %s, %d remembered", tc.reason, got, s.Len())
				}
				time.Sleep(keepSighting)
				synctest.Wait()
				if s.Len() != 0 {
					t.Errorf("\n%s\n%d are remembered at the end", tc.reason, s.Len())
				}
			})
		})
	}
}

func look(s *Sightings, create string, d time.Duration) {
	for range int(d / (10 * time.Minute)) {
		time.Sleep(10 * time.Minute)
		s.First("uid", create, time.Now())
	}
}

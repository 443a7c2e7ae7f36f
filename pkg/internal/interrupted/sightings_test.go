package interrupted

import (
	"testing"
	"testing/synctest"
	"time"
)

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

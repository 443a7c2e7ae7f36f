package cloud

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestManualClockSleep(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	cases := map[string]struct {
		reason  string
		cancel  bool
		d       time.Duration
		advance []time.Duration
		want    error
	}{
		"NotPositive": {reason: "There is nothing to wait for if no time has to pass."},
		"Advanced": {
			reason:  "Sleep returns once the clock has moved far enough, in any number of steps.",
			d:       time.Minute,
			advance: []time.Duration{30 * time.Second, 30 * time.Second},
		},
		"Cancelled": {
			reason: "A sleeper whose context ends leaves with the context's error.",
			d:      time.Minute,
			cancel: true,
			want:   context.Canceled,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()

				clock, slept := NewManualClock(start), make(chan error, 1)
				go func() { slept <- clock.Sleep(ctx, tc.d) }()

				now := start

				for _, d := range tc.advance {
					synctest.Wait()
					clock.Advance(d)

					now = now.Add(d)
				}

				if tc.cancel {
					cancel()
				}

				if err := <-slept; !errors.Is(err, tc.want) {
					t.Errorf("\n%s\nSleep(%s): want error %v, got %v", tc.reason, tc.d, tc.want, err)
				}

				if got := clock.Now(); !got.Equal(now) {
					t.Errorf("\n%s\nNow(): want %s, got %s", tc.reason, now, got)
				}
			})
		})
	}
}

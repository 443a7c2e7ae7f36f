package cloud

import (
	"context"
	"testing"
	"time"

	"github.com/pkg/errors"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestManualClockSleep(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	cases := map[string]struct {
		reason string
		clock  *ManualClock
		cancel bool
		d      time.Duration
		while  func(ctx context.Context, c *ManualClock) error
		want   error
		now    time.Time
	}{
		"NotPositive": {
			reason: "There is nothing to wait for if no time has to pass.",
			clock:  NewManualClock(start),
			now:    start,
		},
		"Advanced": {
			reason: "Sleep returns once the clock has moved far enough, in any number of steps.",
			clock:  NewManualClock(start),
			d:      time.Minute,
			while: func(ctx context.Context, c *ManualClock) error {
				err := c.AwaitSleepers(ctx, 1)
				c.Advance(30 * time.Second)
				c.Advance(30 * time.Second)

				return err
			},
			now: start.Add(time.Minute),
		},
		"Cancelled": {
			reason: "A sleeper whose context ends leaves with the context's error.",
			clock:  NewManualClock(start),
			d:      time.Minute,
			cancel: true,
			want:   context.Canceled,
			now:    start,
		},
		"Skipping": {
			reason: "The skipping clock moves by itself.",
			clock:  NewSkippingClock(start),
			d:      time.Hour,
			now:    start.Add(time.Hour),
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			slept := make(chan error, 1)
			go func() { slept <- tc.clock.Sleep(ctx, tc.d) }()

			if tc.while != nil {
				if err := tc.while(ctx, tc.clock); err != nil {
					t.Fatalf("\n%s\nwhile sleeping: %v", tc.reason, err)
				}
			}

			if tc.cancel {
				cancel()
			}

			if err := <-slept; !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nSleep(%s): want error %v, got %v", tc.reason, tc.d, tc.want, err)
			}

			if got := tc.clock.Now(); !got.Equal(tc.now) {
				t.Errorf("\n%s\nNow(): want %s, got %s", tc.reason, tc.now, got)
			}
		})
	}
}

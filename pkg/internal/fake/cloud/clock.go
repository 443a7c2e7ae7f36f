package cloud

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Clock tells the time and lets it pass.
type Clock interface {
	// Now returns the current time.
	Now() time.Time

	// Sleep returns nil once d has passed, or the context's error if that ends
	// first. It returns at once if d isn't positive.
	Sleep(ctx context.Context, d time.Duration) error
}

// A RealClock is the machine's clock.
type RealClock struct{}

// Now returns the machine's time.
func (RealClock) Now() time.Time { return time.Now() }

// Sleep waits for d or for the end of the context.
func (RealClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// A ManualClock stands still until it is told to move. It is safe for concurrent
// use.
type ManualClock struct {
	mu       sync.Mutex
	now      time.Time
	sleepers []*sleeper
}

type sleeper struct {
	until time.Time
	wake  chan struct{}
}

// NewManualClock returns a clock that shows start until Advance moves it. Who
// sleeps on it waits for Advance.
func NewManualClock(start time.Time) *ManualClock {
	return &ManualClock{now: start}
}

// Now returns the time that the clock shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d. Calls of Sleep whose time has passed return.
// It panics if d is negative.
func (c *ManualClock) Advance(d time.Duration) {
	if d < 0 {
		panic("cloud: a ManualClock doesn't run backwards")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.sleepers = slices.DeleteFunc(c.sleepers, func(s *sleeper) bool {
		if s.until.After(c.now) {
			return false
		}
		close(s.wake)
		return true
	})
}

// Sleep waits until Advance has moved the clock by d, or for the end of the
// context.
func (c *ManualClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	s := c.enter(d)

	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		c.leave(s)
		return ctx.Err()
	}
}

func (c *ManualClock) enter(d time.Duration) *sleeper {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &sleeper{until: c.now.Add(d), wake: make(chan struct{})}
	c.sleepers = append(c.sleepers, s)
	return s
}

func (c *ManualClock) leave(s *sleeper) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sleepers = slices.DeleteFunc(c.sleepers, func(o *sleeper) bool { return o == s })
}

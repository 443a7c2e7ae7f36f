package reconciler

import (
	"context"
	"time"
)

// WithClock sets what says what time it is.
func WithClock(now func() time.Time) Option {
	return func(r *Reconciler) { r.opts.Now = now }
}

// WithoutWait makes tries follow each other at once.
func WithoutWait() Option {
	return func(r *Reconciler) {
		r.opts.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
}

// Remembered returns how many objects that are being deleted r remembers.
func Remembered(r *Reconciler) int {
	r.deletion.memory.mu.Lock()
	defer r.deletion.memory.mu.Unlock()

	return len(r.deletion.memory.objects)
}

// Reported returns how many objects m knows.
func Reported(m *Metrics) int {
	m.mu.Lock()
	defer m.mu.Unlock()

	return len(m.reports)
}

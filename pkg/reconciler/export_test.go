package reconciler

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Wants fails the test if got differs from want.
func Wants(t *testing.T, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}

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

// ReleaseWithWait sets how Release waits between tries.
func ReleaseWithWait(wait func(ctx context.Context, d time.Duration) error) ReleaseOption {
	return func(r *release) { r.wait = wait }
}

// Kept returns how many objects that are being deleted r and m have in memory.
func Kept(r *Reconciler, m *Metrics) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.deletion.escape.Store.Len() + len(m.reports)
}

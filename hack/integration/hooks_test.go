//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// refusing makes the cloud refuse all calls of an operation.
func refusing(op cloud.Op, why string) cloud.Hooks {
	return cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op == op {
			return errors.New(why)
		}
		return nil
	}}
}

// A barrier holds back the answers of a cloud to calls of an operation while it is
// closed.
type barrier struct {
	mu   sync.Mutex
	held map[cloud.Op]chan struct{}
	came map[cloud.Op]int
}

func newBarrier(world *cloud.Cloud, op cloud.Op) *barrier {
	b := &barrier{held: map[cloud.Op]chan struct{}{}, came: map[cloud.Op]int{}}
	b.close(op)
	world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
		b.mu.Lock()
		held := b.held[c.Op]
		b.came[c.Op]++
		b.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	return b
}

func (b *barrier) close(op cloud.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[op], b.came[op] = make(chan struct{}), 0
}

func (b *barrier) open(op cloud.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.held[op])
	b.held[op] = nil
}

// await that so many calls were made.
func (b *barrier) await(t *testing.T, op cloud.Op, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls of %s have reached the cloud", n, op), func() (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.came[op] >= n, fmt.Sprint(b.came[op])
	})
}

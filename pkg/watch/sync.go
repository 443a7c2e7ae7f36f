package watch

import (
	"context"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
)

// await waits until a channel is closed, unless it is nil, or the context ends.
func await(ctx context.Context, ch <-chan struct{}) error {
	if ch == nil || isClosed(ch) {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// newSyncSignal returns a queue that stays empty. Its Replace method makes HasSynced true, and
// HasSyncedChecker done: client-go's versions differ in that method, and the queue has it.
func newSyncSignal() *kcache.FIFO {
	return kcache.NewFIFO(kcache.MetaNamespaceKeyFunc)
}

// survive turns a panic into an error, as controller-runtime does in a reconcile.
func survive(err *error) {
	if r := recover(); r != nil {
		*err = errors.Errorf("panic: %v", r)
	}
}

package watch

import (
	"context"
	"maps"

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

// predecessors are channels that are closed when something that was stopped has ended. Its
// successor of the same key must not run before.
type predecessors[K comparable] map[K]<-chan struct{}

// stopped records that something was stopped, which ends with done. If its own predecessor
// hasn't ended, it never ran. It returns the channel to wait for, which may be nil.
func (p predecessors[K]) stopped(key K, predecessor, done <-chan struct{}) <-chan struct{} {
	p.prune()
	if predecessor != nil && !isClosed(predecessor) {
		done = predecessor
	}
	if done != nil {
		p[key] = done
	}
	return done
}

// prune removes channels that are closed.
func (p predecessors[K]) prune() {
	maps.DeleteFunc(p, func(_ K, ch <-chan struct{}) bool { return isClosed(ch) })
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

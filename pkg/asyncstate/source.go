package asyncstate

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source returns a source for the controller whose reconciler uses the tracker:
// pass it to WatchesRawSource. It has an object reconciled when its operation has
// ended, when there is progress to report, and when it is its turn to begin.
//
// Without it all of this waits until the object is reconciled anyway, which it
// then asks for often enough.
func (t *Tracker) Source() source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queued++
		n := t.queued
		t.queues[n] = q

		context.AfterFunc(ctx, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.queues, n)
		})
		return nil
	})
}

// watched reports whether a controller watches the source.
func (t *Tracker) watched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queues) > 0
}

// enqueue an object to be reconciled.
func (t *Tracker) enqueue(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(key)
}

// add needs the lock. Adding to a queue doesn't wait.
func (t *Tracker) add(key client.ObjectKey) {
	for _, q := range t.queues {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

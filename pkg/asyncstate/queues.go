package asyncstate

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queues are the work queues of the controllers that watch a tracker. The zero value is ready
// to use, and safe for concurrent use.
type queues struct {
	mu sync.Mutex

	// watched has a key for each call of watch: two calls may pass the same queue.
	watched map[*queue]struct{}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watch adds a queue until ctx is done.
func (q *queues) watch(ctx context.Context, added queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watched == nil {
		q.watched = map[*queue]struct{}{}
	}
	q.watched[&added] = struct{}{}

	context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watched, &added)
	})
}

// any reports whether there is a queue.
func (q *queues) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.watched) > 0
}

// enqueue a reconcile of an object. It does not wait.
func (q *queues) enqueue(key client.ObjectKey) { q.enqueueAfter(key, 0) }

// enqueueAfter queues a reconcile of an object after a delay. It does not wait.
func (q *queues) enqueueAfter(key client.ObjectKey, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for to := range q.watched {
		(*to).AddAfter(reconcile.Request{NamespacedName: key}, d)
	}
}

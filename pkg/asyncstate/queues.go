package asyncstate

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queues are the work queues of the controllers that watch a tracker. The zero value is ready
// to use, and safe for concurrent use.
type queues struct {
	mu    sync.Mutex
	last  int
	queue map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// watch adds a queue until ctx is done.
func (q *queues) watch(ctx context.Context, added workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue == nil {
		q.queue = map[int]workqueue.TypedRateLimitingInterface[reconcile.Request]{}
	}
	q.last++
	n := q.last
	q.queue[n] = added

	context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.queue, n)
	})
}

// watched reports whether there is a queue.
func (q *queues) watched() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0
}

// enqueue a reconcile of an object. It does not wait.
func (q *queues) enqueue(key client.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, to := range q.queue {
		to.Add(reconcile.Request{NamespacedName: key})
	}
}

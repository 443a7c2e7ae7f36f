package asyncstate

import (
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

	// watching has the queues of all controllers. The queue of one that has ended drops each request.
	watching []workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// watch adds a queue.
func (q *queues) watch(added workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watching = append(q.watching, added)
}

// any reports whether there is a queue.
func (q *queues) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.watching) > 0
}

// enqueue a reconcile of an object. It does not wait.
func (q *queues) enqueue(key client.ObjectKey) { q.enqueueAfter(key, 0) }

// enqueueAfter queues a reconcile of an object after a delay. It does not wait.
func (q *queues) enqueueAfter(key client.ObjectKey, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, to := range q.watching {
		to.AddAfter(reconcile.Request{NamespacedName: key}, d)
	}
}

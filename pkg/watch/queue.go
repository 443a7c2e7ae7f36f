package watch

import (
	"math"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// withQueue makes a controller use a queue that can be shut down, unless the
// options say otherwise.
func withQueue(o kcontroller.Options) kcontroller.Options {
	if o.NewQueue != nil || !ptr.Deref(o.UsePriorityQueue, true) {
		return o
	}
	log := o.Logger
	o.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return newQueue(priorityqueue.New(name, func(po *priorityqueue.Opts[reconcile.Request]) {
			po.Log = log.WithValues("controller", name)
			po.RateLimiter = limiter
		}))
	}
	return o
}

// A queue is a priority queue that ends when it is shut down.
//
// controller-runtime's hands an item to a worker that waits, with its locks held.
// If it is shut down at that moment the worker may leave instead of taking the
// item. Then the queue's goroutine stays for ever, and so does each worker that
// has an item to report as done: the controller never ends. So the workers that
// wait must leave first, while the queue still works: each is given something to
// wake up for.
type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	mu      sync.Mutex
	waiting int // Workers.
	closing bool
	left    chan struct{} // Closed when it is closing and no worker waits.
}

func newQueue(q priorityqueue.PriorityQueue[reconcile.Request]) *queue {
	return &queue{PriorityQueue: q, left: make(chan struct{})}
}

// Get waits for a request.
func (q *queue) Get() (reconcile.Request, bool) {
	r, _, shutdown := q.GetWithPriority()
	return r, shutdown
}

// GetWithPriority waits for a request.
func (q *queue) GetWithPriority() (reconcile.Request, int, bool) {
	q.mu.Lock()
	if q.closing {
		q.mu.Unlock()
		return reconcile.Request{}, 0, true
	}
	q.waiting++
	q.mu.Unlock()

	r, priority, shutdown := q.PriorityQueue.GetWithPriority()

	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if !q.closing {
		return r, priority, shutdown
	}
	if q.waiting == 0 {
		close(q.left)
	}
	return reconcile.Request{}, 0, true
}

// ShutDown makes all workers leave, then shuts the queue down.
func (q *queue) ShutDown() {
	q.mu.Lock()
	if q.closing {
		q.mu.Unlock()
		return
	}
	q.closing = true
	waiting := q.waiting
	if waiting == 0 {
		close(q.left)
	}
	q.mu.Unlock()

	for n := range waiting {
		// Nobody sees these.
		q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(math.MaxInt)}, reconcile.Request{
			NamespacedName: types.NamespacedName{Namespace: "\x00leave", Name: strconv.Itoa(n)},
		})
	}
	<-q.left
	q.PriorityQueue.ShutDown()
}

// ShutDownWithDrain is ShutDown, as it is for controller-runtime's queue.
func (q *queue) ShutDownWithDrain() {
	q.ShutDown()
}

// ShuttingDown reports whether ShutDown was called.
func (q *queue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

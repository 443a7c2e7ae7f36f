package asyncstate

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// turnTime is how long a permit is kept for an object that was next in the queue. One
// reconcile uses it; an object that no longer exists never does.
const turnTime = 30 * time.Second

// semaphores bound how many operations of an account run at the same time. Each account has a
// semaphore of its own, and another one for objects that are being deleted: creates that hang
// delay neither another account nor a deletion.
type semaphores struct {
	size    int
	enqueue func(client.ObjectKey)

	mu        sync.Mutex
	byAccount map[semaphoreKey]*semaphore
}

type semaphoreKey struct {
	account  limit.Key
	deleting bool
}

func newSemaphores(size int, enqueue func(client.ObjectKey)) *semaphores {
	return &semaphores{size: size, enqueue: enqueue, byAccount: map[semaphoreKey]*semaphore{}}
}

// of returns the semaphore for the operations of an object. ctx is the context of its
// reconcile, which knows the account. There is one account without managed.NewReconciler.
func (s *semaphores) of(ctx context.Context, o client.Object) *semaphore {
	key := semaphoreKey{account: seam.From(ctx).Meter().Account().Key(), deleting: o.GetDeletionTimestamp() != nil}
	s.mu.Lock()
	defer s.mu.Unlock()
	sem, ok := s.byAccount[key]
	if !ok {
		sem = newSemaphore(s.size, s.enqueue)
		s.byAccount[key] = sem
	}
	return sem
}

// A semaphore has permits for operations, and a queue of the objects that wait for one. It is
// safe for concurrent use.
type semaphore struct {
	size    int
	enqueue func(client.ObjectKey)

	mu      sync.Mutex
	permits map[types.UID]*permit
	queue   []waiter
	queued  map[types.UID]struct{} // objects of the queue that still wait
}

// A waiter is an object that waits for a permit.
type waiter struct {
	uid types.UID
	key client.ObjectKey
}

// A permit belongs to an object. It is reserved until the object begins an operation.
type permit struct{ reserved bool }

func newSemaphore(size int, enqueue func(client.ObjectKey)) *semaphore {
	return &semaphore{size: size, enqueue: enqueue, permits: map[types.UID]*permit{}, queued: map[types.UID]struct{}{}}
}

// acquire a permit for an operation of an object, or a place in the queue. It reports whether
// the object has a permit.
func (s *semaphore) acquire(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := o.GetUID()
	if _, ok := s.permits[uid]; ok || len(s.permits) < s.size {
		s.permits[uid] = &permit{}
		s.leave(uid)
		return true
	}

	if _, ok := s.queued[uid]; !ok {
		s.queued[uid] = struct{}{}
		s.queue = append(s.queue, waiter{uid: uid, key: client.ObjectKeyFromObject(o)})
	}
	return false
}

// release the permit of an object, and reserve it for the next object in the queue.
func (s *semaphore) release(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.permits, uid)

	for len(s.permits) < s.size {
		next, ok := s.next()
		if !ok {
			return
		}
		s.reserve(next.uid)
		s.enqueue(next.key)
	}
}

// reserve a permit for an object for a while. Then any object may acquire it: if reconciles
// are slower than that, reservations must not keep all operations from beginning. The caller
// holds the lock.
func (s *semaphore) reserve(uid types.UID) {
	p := &permit{reserved: true}
	s.permits[uid] = p

	time.AfterFunc(turnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.permits[uid] == p {
			delete(s.permits, uid)
			s.offer()
		}
	})
}

// offer a free permit to one object of the queue after the other until it is acquired. The
// caller holds the lock.
func (s *semaphore) offer() {
	next, ok := s.next()
	if !ok {
		return
	}
	s.enqueue(next.key)
	time.AfterFunc(turnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.permits) < s.size {
			s.offer()
		}
	})
}

// next removes the first object from the queue. The caller holds the lock.
func (s *semaphore) next() (waiter, bool) {
	for len(s.queue) > 0 {
		w := s.queue[0]
		s.queue = s.queue[1:]
		if _, ok := s.queued[w.uid]; ok {
			s.leave(w.uid)
			return w, true
		}
	}
	return waiter{}, false
}

// leave removes an object from the queue. An empty queue releases its memory: neither maps nor
// slices shrink. The caller holds the lock.
func (s *semaphore) leave(uid types.UID) {
	if delete(s.queued, uid); len(s.queued) == 0 && s.queue != nil {
		s.queue, s.queued = nil, map[types.UID]struct{}{}
	}
}

package asyncstate

import (
	"context"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
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
// delay neither another account nor a deletion. They are safe for concurrent use.
type semaphores struct {
	size    int
	enqueue func(client.ObjectKey)

	// mu guards all semaphores, too: one that is in no use is removed, and must not be removed
	// before it is acquired.
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

// acquire a permit for an operation of an object, or a place in the queue. It reports whether
// the object has a permit of the semaphore. ctx is the context of its reconcile, which knows the
// account if calls are limited.
func (s *semaphores) acquire(ctx context.Context, o client.Object) (*semaphore, bool) {
	key := semaphoreKey{account: seam.From(ctx).Meter().Account().Key(), deleting: o.GetDeletionTimestamp() != nil}
	if mg, ok := o.(resource.Managed); ok && key.account == (limit.Key{}) {
		key.account = limit.KeyOf(mg)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sem, ok := s.byAccount[key]
	if !ok {
		sem = &semaphore{semaphores: s, key: key, permits: map[types.UID]*permit{}, queued: map[types.UID]struct{}{}}
		s.byAccount[key] = sem
	}
	acquired := sem.acquire(o)
	return sem, acquired
}

// A semaphore has permits for operations, and a queue of the objects that wait for one. It is
// in semaphores as long as it has any of them. Its methods expect that the caller holds the
// lock of semaphores, except release.
type semaphore struct {
	*semaphores

	key     semaphoreKey
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

// acquire a permit for an operation of an object, or a place in the queue. It reports whether
// the object has a permit.
func (s *semaphore) acquire(o client.Object) bool {
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

// release the permit of an object, and reserve it for the next object in the queue. A nil
// semaphore has no permits.
func (s *semaphore) release(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.removeUnused()
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
// are slower than that, reservations must not keep all operations from beginning.
func (s *semaphore) reserve(uid types.UID) {
	p := &permit{reserved: true}
	s.permits[uid] = p

	time.AfterFunc(turnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.removeUnused()
		if s.permits[uid] == p {
			delete(s.permits, uid)
			s.offer()
		}
	})
}

// offer a free permit to one object of the queue after the other until it is acquired.
func (s *semaphore) offer() {
	next, ok := s.next()
	if !ok {
		return
	}
	s.enqueue(next.key)
	time.AfterFunc(turnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.removeUnused()
		if len(s.permits) < s.size {
			s.offer()
		}
	})
}

// removeUnused removes the semaphore if it has neither permits nor a queue.
func (s *semaphore) removeUnused() {
	if len(s.permits) == 0 && len(s.queued) == 0 && s.byAccount[s.key] == s {
		delete(s.byAccount, s.key)
	}
}

// next removes the first object from the queue.
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
// slices shrink.
func (s *semaphore) leave(uid types.UID) {
	if delete(s.queued, uid); len(s.queued) == 0 && s.queue != nil {
		s.queue, s.queued = nil, map[types.UID]struct{}{}
	}
}

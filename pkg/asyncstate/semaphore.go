package asyncstate

import (
	"context"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// turnTime is how long a semaphore with free permits waits before it wakes further objects: one that was woken may no
// longer exist, or no longer need an operation.
const turnTime = 30 * time.Second

// semaphores bound how many operations of an account run at the same time. Each account has a
// semaphore of its own, and another one for objects that are being deleted: creates that hang
// delay neither another account nor a deletion. They are safe for concurrent use.
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

// A semaphore counts the permits in use. Its queue has the objects that asked for one, the first one first, and waiting
// those that still wait.
type semaphore struct {
	running int
	queue   []client.ObjectKey
	waiting map[client.ObjectKey]struct{}
	waking  bool // The next turn has a timer.
}

func newSemaphores(size int, enqueue func(client.ObjectKey)) *semaphores {
	return &semaphores{size: size, enqueue: enqueue, byAccount: map[semaphoreKey]*semaphore{}}
}

// acquire a permit for an operation of an object. It returns the function that releases the permit, or nil if the
// object has to wait: it is woken. ctx is the context of its reconcile, which knows the account if calls are limited.
func (s *semaphores) acquire(ctx context.Context, mg resource.Managed) (release func()) {
	key := semaphoreKey{account: seam.From(ctx).Meter().Account().Key(), deleting: mg.GetDeletionTimestamp() != nil}
	if key.account == (limit.Key{}) {
		key.account = limit.KeyOf(mg)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sem := s.byAccount[key]
	if sem == nil {
		sem = &semaphore{waiting: map[client.ObjectKey]struct{}{}}
		s.byAccount[key] = sem
	}

	name := client.ObjectKeyFromObject(mg)
	_, waits := sem.waiting[name]
	if sem.running >= s.size {
		if !waits {
			sem.waiting[name], sem.queue = struct{}{}, append(sem.queue, name)
		}
		return nil
	}
	delete(sem.waiting, name)
	sem.running++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sem.running--
		s.wake(key, sem)
	})
}

// wake an object for each free permit, and further ones after a turn if permits are free then. The caller holds the
// lock.
func (s *semaphores) wake(key semaphoreKey, sem *semaphore) {
	for free := s.size - sem.running; free > 0 && len(sem.queue) > 0; sem.queue = sem.queue[1:] {
		next := sem.queue[0]
		if _, waits := sem.waiting[next]; waits {
			delete(sem.waiting, next)
			s.enqueue(next)
			free--
		}
	}
	switch {
	case len(sem.queue) > 0 && sem.running < s.size && !sem.waking:
		sem.waking = true
		time.AfterFunc(turnTime, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			sem.waking = false
			s.wake(key, sem)
		})
	case len(sem.queue) == 0 && sem.running == 0 && s.byAccount[key] == sem:
		delete(s.byAccount, key)
	}
}

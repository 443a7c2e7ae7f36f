package asyncstate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// kept has a value for each of some objects, for a limited time, in memory alone: an
// object that no longer exists is never asked about again. It is safe for concurrent use.
type kept[T any] struct {
	mu sync.Mutex
	of map[types.UID]*keptValue[T]
}

type keptValue[T any] struct {
	value  T
	expiry *time.Timer
}

// keep what fn makes of the value of an object, which is zero if it has none, for as long
// as fn says.
func (k *kept[T]) keep(uid types.UID, fn func(had T) (T, time.Duration)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := &keptValue[T]{}
	if had, ok := k.of[uid]; ok {
		n.value = had.value
		k.drop(uid)
	}

	var limit time.Duration
	n.value, limit = fn(n.value)
	n.expiry = time.AfterFunc(limit, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.of[uid] == n {
			k.drop(uid)
		}
	})

	if k.of == nil {
		k.of = map[types.UID]*keptValue[T]{}
	}
	k.of[uid] = n
}

// see calls fn with the value of an object, if it has one, and drops that unless it stays.
func (k *kept[T]) see(uid types.UID, fn func(v *T) (stays bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if had, ok := k.of[uid]; ok && !fn(&had.value) {
		k.drop(uid)
	}
}

// forget the value of an object.
func (k *kept[T]) forget(uid types.UID) { k.see(uid, func(*T) bool { return false }) }

// drop a value, which there is. It needs the lock. Nothing may hold on to what is dropped:
// it may be secret.
func (k *kept[T]) drop(uid types.UID) {
	k.of[uid].expiry.Stop()
	if delete(k.of, uid); len(k.of) == 0 {
		// A map never shrinks.
		k.of = nil
	}
}

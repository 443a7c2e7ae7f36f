package asyncstate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletions remembers, in memory alone, of which external resources the deletion was
// accepted. Most take a while, in which another request is of no use; but the end of an
// operation requeues the object at once, so that without a pause it would make requests
// as fast as it can. It is safe for concurrent use.
type deletions struct {
	first, last time.Duration

	mu sync.Mutex
	of map[types.UID]*deletion
}

type deletion struct {
	times  int
	again  time.Time
	expiry *time.Timer
}

// accepted notes that a delete succeeded.
func (d *deletions) accepted(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()

	n := &deletion{times: 1}
	if had, ok := d.of[uid]; ok {
		had.expiry.Stop()
		n.times = had.times + 1
	}

	pause := doubled(d.first, d.last, n.times)
	n.again = time.Now().Add(pause)

	// An object that no longer exists never asks again.
	n.expiry = time.AfterFunc(2*pause, func() {
		d.mu.Lock()
		defer d.mu.Unlock()

		if d.of[uid] == n {
			delete(d.of, uid)
		}
	})

	if d.of == nil {
		d.of = map[types.UID]*deletion{}
	}

	d.of[uid] = n
}

// wait returns how long to wait before the next request. It isn't positive if there is
// no reason to wait.
func (d *deletions) wait(uid types.UID) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n, ok := d.of[uid]; ok {
		return time.Until(n.again)
	}

	return 0
}

// gone forgets an external resource that isn't there any more.
func (d *deletions) gone(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n, ok := d.of[uid]; ok {
		n.expiry.Stop()
		delete(d.of, uid)
	}
}

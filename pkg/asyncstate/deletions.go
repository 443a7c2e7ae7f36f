package asyncstate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletions remembers of which external resources the deletion was accepted. Most take
// a while, in which another request is of no use; but the end of an operation requeues
// the object at once, so that without a pause it would make requests as fast as it can.
type deletions struct {
	first, last time.Duration

	kept kept[deletion]
}

type deletion struct {
	times int
	again time.Time
}

// accepted notes that a delete succeeded.
func (d *deletions) accepted(uid types.UID) {
	d.kept.keep(uid, func(had deletion) (deletion, time.Duration) {
		pause := doubled(d.first, d.last, had.times+1)
		return deletion{times: had.times + 1, again: time.Now().Add(pause)}, 2 * pause
	})
}

// wait returns how long to wait before the next request. It isn't positive if there is
// no reason to wait.
func (d *deletions) wait(uid types.UID) (wait time.Duration) {
	d.kept.see(uid, func(n *deletion) bool {
		wait = time.Until(n.again)
		return true
	})
	return wait
}

// gone forgets an external resource that isn't there any more.
func (d *deletions) gone(uid types.UID) { d.kept.forget(uid) }

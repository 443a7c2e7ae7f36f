package asyncstate

import (
	"maps"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"k8s.io/apimachinery/pkg/types"
)

// keepDetails is how long connection details are kept that no reconcile is known to
// have published.
const keepDetails = time.Hour

// details keeps the connection details that operations returned, in memory alone,
// until a reconcile has published them. It is safe for concurrent use.
type details struct {
	mu sync.Mutex
	of map[types.UID]*returned
}

type returned struct {
	details managed.ConnectionDetails
	served  bool
	expiry  *time.Timer
}

// keep the details of an object, in place of those of an earlier operation.
func (d *details) keep(uid types.UID, cd managed.ConnectionDetails) {
	if len(cd) == 0 {
		return
	}

	r := &returned{details: maps.Clone(cd)}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.drop(uid)
	d.of[uid] = r

	r.expiry = time.AfterFunc(keepDetails, func() {
		d.mu.Lock()
		defer d.mu.Unlock()

		if d.of[uid] == r {
			d.drop(uid)
		}
	})
}

// drop needs the lock. Nothing may hold on to what is dropped: it is secret.
func (d *details) drop(uid types.UID) {
	if r, ok := d.of[uid]; ok {
		r.expiry.Stop()
		delete(d.of, uid)
	}

	if len(d.of) == 0 {
		// A map never shrinks.
		d.of = map[types.UID]*returned{}
	}
}

// forget the details of an object that will not be published any more.
func (d *details) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.drop(uid)
}

// serve the details of an object to a reconcile.
func (d *details) serve(uid types.UID) managed.ConnectionDetails {
	d.mu.Lock()
	defer d.mu.Unlock()

	r, ok := d.of[uid]
	if !ok {
		return nil
	}

	r.served = true

	return r.details
}

// published forgets the details of an object that a reconcile was served and has
// published.
func (d *details) published(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if r, ok := d.of[uid]; ok && r.served {
		d.drop(uid)
	}
}

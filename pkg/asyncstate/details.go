package asyncstate

import (
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"k8s.io/apimachinery/pkg/types"
)

// keepDetails is how long connection details are kept that no reconcile is known to
// have published.
const keepDetails = time.Hour

// details keeps the connection details that operations returned until a reconcile has
// published them.
type details struct{ kept kept[returned] }

type returned struct {
	details managed.ConnectionDetails
	served  bool
}

// keep the details of an object, in place of those of an earlier operation.
func (d *details) keep(uid types.UID, cd managed.ConnectionDetails) {
	if len(cd) == 0 {
		return
	}
	d.kept.keep(uid, func(returned) (returned, time.Duration) { return returned{details: maps.Clone(cd)}, keepDetails })
}

// forget the details of an object that will not be published any more.
func (d *details) forget(uid types.UID) { d.kept.forget(uid) }

// serve the details of an object to a reconcile.
func (d *details) serve(uid types.UID) (out managed.ConnectionDetails) {
	d.kept.see(uid, func(r *returned) bool {
		r.served, out = true, r.details
		return true
	})
	return out
}

// published forgets the details of an object that a reconcile was served and has
// published.
func (d *details) published(uid types.UID) {
	d.kept.see(uid, func(r *returned) bool { return !r.served })
}

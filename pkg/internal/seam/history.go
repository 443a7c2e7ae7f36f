package seam

import (
	"slices"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A history has the newest write of this process to one object, and its writes to conditions
// that another writer may replace.
type history struct {
	// version is the newest resourceVersion that a write of this process led to.
	version string

	// doubt is the resourceVersion that the object had before a status write with an
	// unknown outcome. A read that is not newer may lack that status.
	doubt string

	// pending are annotations that could not be stored.
	pending Changes

	// failures counts the reconciles in a row that could not store the deletion status.
	failures int

	// restorations are of conditions that another writer may replace.
	restorations map[xpv2.ConditionType]*restoration
}

// fresh reports whether a read of resource version v is known to have all writes of this
// process.
func (h history) fresh(v string) bool {
	return (h.version == "" || v == h.version || OlderThan(h.version, v)) && (h.doubt == "" || OlderThan(h.doubt, v))
}

// histories holds the history of each object. It is safe for concurrent use.
type histories struct {
	store *store.Store
	key   store.Key[history]

	// backoffs are the next delays of objects that were postponed since their last success. Nothing is kept for others.
	backoffs store.Key[time.Duration]
}

func (h *histories) get(o client.Object) history { return h.key.Get(h.store, o) }

func (h *histories) update(o client.Object, fn func(v *history)) history {
	return h.key.Update(h.store, o, fn)
}

// noteWrite notes that the API server answered a write with o.
func (h *histories) noteWrite(o client.Object) {
	h.update(o, func(v *history) {
		if !OlderThan(o.GetResourceVersion(), v.version) {
			v.version, v.doubt = o.GetResourceVersion(), ""
		}
	})
}

// stored notes that the API server has accepted o's annotations, so that the pending changes
// among them are done.
func (h *histories) stored(o client.Object) {
	if len(h.get(o).pending) == 0 {
		return
	}
	h.update(o, func(v *history) {
		v.pending = slices.DeleteFunc(slices.Clone(v.pending), func(c Change) bool {
			got, ok := o.GetAnnotations()[c.Key]
			return ok && got == c.Value
		})
	})
}

// doubted notes that a status write to an object of o's resource version has an unknown
// outcome.
func (h *histories) doubted(o client.Object) {
	h.update(o, func(v *history) {
		if !OlderThan(o.GetResourceVersion(), v.doubt) {
			v.doubt = o.GetResourceVersion()
		}
	})
}

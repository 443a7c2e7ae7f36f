package seam

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// writes keeps the newest resource version that this process has written of each object,
// and the annotations that could not be stored yet. It is safe for concurrent use.
type writes struct {
	store *store.Store
	key   store.Key[written]
}

func (w *writes) get(o client.Object) written { return w.key.Get(w.store, o) }

func (w *writes) update(o client.Object, fn func(v *written)) { w.key.Update(w.store, o, fn) }

// wrote notes that the API server answered a write with o.
func (w *writes) wrote(o client.Object) {
	w.update(o, func(v *written) {
		if !OlderThan(o.GetResourceVersion(), v.version) {
			v.version, v.doubt = o.GetResourceVersion(), ""
		}
	})
}

// stored notes that the API server has accepted o's annotations, so that the pending changes
// among them are done.
func (w *writes) stored(o client.Object) {
	if len(w.get(o).pending) == 0 {
		return
	}
	w.update(o, func(v *written) {
		v.pending = slices.DeleteFunc(slices.Clone(v.pending), func(c Change) bool {
			got, ok := o.GetAnnotations()[c.Key]
			return ok && got == c.Value
		})
	})
}

// doubted notes that a status write to an object of o's resource version has an unknown
// outcome.
func (w *writes) doubted(o client.Object) {
	w.update(o, func(v *written) {
		if !OlderThan(o.GetResourceVersion(), v.doubt) {
			v.doubt = o.GetResourceVersion()
		}
	})
}

// failed counts a reconcile that could not store the deletion status of o, and returns how
// many there were in a row.
func (w *writes) failed(o client.Object) int {
	n := 0
	w.update(o, func(v *written) {
		v.failures++
		n = v.failures
	})
	return n
}

// succeeded ends the count of failed.
func (w *writes) succeeded(o client.Object) {
	if w.get(o).failures > 0 {
		w.update(o, func(v *written) { v.failures = 0 })
	}
}

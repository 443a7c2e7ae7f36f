package crashtest

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// foreignFinalizers reports whether an object that is being deleted has finalizers of other
// controllers: the finalizers that Provider.Object has.
func (w *world) foreignFinalizers(o client.Object) bool {
	return o != nil && meta.WasDeleted(o) && slices.ContainsFunc(o.GetFinalizers(), w.subject.isForeign)
}

// isForeign reports whether a finalizer is another controller's.
func (s *subject) isForeign(finalizer string) bool {
	return finalizer != managed.FinalizerName && slices.Contains(s.object.GetFinalizers(), finalizer)
}

// releaseFinalizers has the other controllers remove their finalizers.
func (w *world) releaseFinalizers(i int) error {
	return w.user.edit(i, func(o client.Object) error {
		if w.foreignFinalizers(o) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), w.subject.isForeign))
		}
		return nil
	})
}

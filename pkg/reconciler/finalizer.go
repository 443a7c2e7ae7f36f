package reconciler

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// GuardFinalizer returns a finalizer that adds what f adds, but never to an object
// that is paused or being deleted. Those get a conflict (IsConflict) that makes
// the reconcile start again, rather than go on and create something that no
// finalizer protects.
//
// The object in memory may be stale. f must therefore write it under its
// resource version, as crossplane-runtime's APIFinalizer does. It is safe for
// concurrent use if f is. It panics if f is nil.
func GuardFinalizer(f resource.Finalizer) resource.Finalizer {
	if is.Nil(f) {
		panic(errors.New("reconciler.GuardFinalizer was given nil: pass the finalizer that it is to guard, such as crossplane-runtime's APIFinalizer"))
	}
	return seam.GuardFinalizer(f)
}

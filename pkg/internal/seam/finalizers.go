package seam

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RemoveFinalizers removes the supplied finalizers from o, which the inner reconciler has
// not changed yet, and gives o the state that the API server then has. It returns false if
// the object no longer existed. If the object has changed since o was read, it returns a
// conflict. After any other error that is not permanent, the finalizers may be removed.
//
// It updates the object instead of patching it: after a patch that removes the last
// finalizer the API server deletes by name, which may be another object by then.
func (s *Session) RemoveFinalizers(ctx context.Context, o client.Object, remove []string) (bool, error) {
	left := slices.DeleteFunc(
		slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(remove, f) },
	)
	server := clone(o)
	server.SetFinalizers(left)
	err := s.client.Update(ctx, server)

	switch {
	case err != nil && !IsGone(err):
		return false, errors.Wrap(err, "cannot remove finalizers")
	case err != nil || len(left) == 0:
		s.noteGone()
		return err == nil, nil
	}

	s.noteWrite(server, true)
	s.Refresh(o)
	return true, nil
}

// GuardFinalizer returns a finalizer that adds what f adds, but never to an object that is paused or being deleted.
func GuardFinalizer(f resource.Finalizer) resource.Finalizer {
	return resource.FinalizerFns{
		AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
			switch {
			case meta.WasDeleted(o):
				return Conflict(o, "no finalizer is added: it is being deleted")
			case meta.IsPaused(o):
				return Conflict(o, "no finalizer is added: it is paused")
			}
			return f.AddFinalizer(ctx, o)
		},
		RemoveFinalizerFn: f.RemoveFinalizer,
	}
}

package seam

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RemoveFinalizers takes the supplied finalizers from an object with which
// nothing has been done yet, and gives it the state that the API server then
// has. It is false if the object was gone already. It fails with a conflict if
// anything about the object has changed since o was read. Unless the error is
// permanent, any other does not mean that nothing was done.
//
// It is an update, not a patch: after a patch that removes the last finalizer,
// the API server deletes whatever has the name by then, be it another object.
func (s *Session) RemoveFinalizers(ctx context.Context, o client.Object, remove []string) (bool, error) {
	left := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(remove, f) })
	server := clone(o)
	server.SetFinalizers(left)
	err := s.client.Update(ctx, server)

	switch {
	case err != nil && !IsGone(err):
		return false, errors.Wrap(err, "cannot remove finalizers")
	case err != nil || len(left) == 0:
		s.ended()
		return err == nil, nil
	}

	s.wrote(server, true)
	s.Refresh(o)
	return true, nil
}

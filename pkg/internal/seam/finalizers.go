package seam

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pkg/errors"
)

// FinalizersPatch leaves only some of o's finalizers, if the object is still the
// same one and has exactly the finalizers that o has. Whatever else is written to
// it meanwhile doesn't matter, so that nobody who writes all the time can keep
// the patch from succeeding.
func FinalizersPatch(o client.Object, left []string) (client.Patch, error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}

	data, err := json.Marshal([]op{
		{Op: "test", Path: "/metadata/uid", Value: o.GetUID()},
		{Op: "test", Path: "/metadata/finalizers", Value: o.GetFinalizers()},
		{Op: "replace", Path: "/metadata/finalizers", Value: left},
	})

	return client.RawPatch(types.JSONPatchType, data), err
}

// RemoveFinalizers takes the supplied finalizers from an object with which
// nothing has been done yet, and gives it the state that the API server then
// has. It fails if somebody else changed the finalizers meanwhile.
func (s *Session) RemoveFinalizers(ctx context.Context, o client.Object, remove []string) error {
	left := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(remove, f) })

	p, err := FinalizersPatch(o, slices.Concat([]string{}, left))
	if err != nil {
		return errors.Wrap(err, "cannot make a patch of finalizers")
	}

	server := empty(o)
	if err := s.client.Patch(ctx, server, p); err != nil {
		if client.IgnoreNotFound(err) == nil {
			s.ended()
			return nil
		}

		return errors.Wrap(err, "cannot remove finalizers")
	}

	s.wrote(server, true)

	if len(left) == 0 {
		s.ended()
		return nil
	}

	s.Refresh(o)

	return nil
}

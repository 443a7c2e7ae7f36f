package seam

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FinalizersPatch leaves only some of o's finalizers, if the object is still the
// same one and has exactly the finalizers that o has, and what o has under the
// supplied annotations. Whatever else is written to it meanwhile doesn't matter,
// so that nobody who writes all the time can keep the patch from succeeding.
func FinalizersPatch(o client.Object, left []string, annotations ...string) (client.Patch, error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}

	ops := []op{
		{Op: "test", Path: "/metadata/uid", Value: o.GetUID()},
		{Op: "test", Path: "/metadata/finalizers", Value: o.GetFinalizers()},
	}

	for _, a := range annotations {
		ops = append(ops, op{Op: "test", Path: "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(a), Value: o.GetAnnotations()[a]})
	}

	data, err := json.Marshal(append(ops, op{Op: "replace", Path: "/metadata/finalizers", Value: left}))

	return client.RawPatch(types.JSONPatchType, data), err
}

// RemoveFinalizers takes the supplied finalizers from an object with which
// nothing has been done yet, and gives it the state that the API server then
// has. It is false if the object was gone already. It fails with a conflict if
// somebody else changed the finalizers, or one of the supplied annotations,
// meanwhile. Unless the error is permanent too, any other does not mean that
// nothing was done.
func (s *Session) RemoveFinalizers(ctx context.Context, o client.Object, remove []string, annotations ...string) (bool, error) {
	left := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(remove, f) })

	p, err := FinalizersPatch(o, slices.Concat([]string{}, left), annotations...)
	if err != nil {
		return false, errors.Wrap(err, "cannot make a patch of finalizers")
	}

	server := empty(o)

	err = s.client.Patch(ctx, server, p)

	switch {
	case kerrors.IsInvalid(err):
		// What a test that fails is answered with.
		return false, kerrors.NewConflict(schema.GroupResource{Group: o.GetObjectKind().GroupVersionKind().Group, Resource: o.GetObjectKind().GroupVersionKind().Kind},
			o.GetName(), errors.Wrap(err, "cannot remove finalizers"))
	case client.IgnoreNotFound(err) != nil:
		return false, errors.Wrap(err, "cannot remove finalizers")
	case err != nil || len(left) == 0:
		s.ended()
		return err == nil, nil
	}

	s.wrote(server, true)
	s.Refresh(o)

	return true, nil
}

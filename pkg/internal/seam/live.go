package seam

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// liveState reads o from the API server itself. It returns nil if o no longer exists.
func liveState(ctx context.Context, r client.Reader, o client.Object) (client.Object, error) {
	live := Empty(o)
	if err := r.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		if IsGone(err) {
			return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
		}
		return nil, err
	}

	if live.GetUID() != o.GetUID() {
		return nil, nil //nolint:nilnil // As above: another object has the name now.
	}
	return live, nil
}

// unchangedState reads o from the API server itself. It returns an error if o no longer exists, or has another
// version.
func unchangedState(ctx context.Context, r client.Reader, o client.Object) (client.Object, error) {
	live, err := liveState(ctx, r, o)
	switch {
	case err != nil:
		return nil, err
	case live == nil:
		return nil, kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case live.GetResourceVersion() != o.GetResourceVersion():
		return nil, Conflict(o, "the object has changed since it was read")
	}
	return live, nil
}

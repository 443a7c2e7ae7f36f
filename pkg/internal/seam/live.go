package seam

import (
	"context"

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

package layer

import (
	"context"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// External has the calls of a provider. It is safe for concurrent use: the state of one
// reconcile is in the call.
type External interface {
	Connect(ctx context.Context, c *Call) error
	Observe(ctx context.Context, c *Call) (Observation, error)
	Create(ctx context.Context, c *Call) (Creation, error)
	Update(ctx context.Context, c *Call) (upstream.ExternalUpdate, error)
	Delete(ctx context.Context, c *Call) (Deletion, error)
}

// A Call is the reconcile that a layer is called in.
type Call struct {
	*seam.Session

	Managed resource.Managed

	// Announced is the announcement of the create that is about to begin, which Managed may lack.
	Announced string

	// Emptied reports whether Observe has emptied the external name of an external resource that
	// does not exist. The API server keeps the name, but Create is called with an empty one. It is false again once
	// Create has set a name.
	Emptied bool

	// Client is the provider's external client, once it is connected.
	Client upstream.ExternalClient
}

// Results of calls, with the outcome of the operation.
type (
	// An Observation is the result of Observe.
	Observation struct {
		upstream.ExternalObservation
		seam.Outcome
	}

	// A Creation is the result of Create.
	Creation struct {
		upstream.ExternalCreation
		seam.Outcome
	}

	// A Deletion is the result of Delete.
	Deletion struct {
		upstream.ExternalDelete
		seam.Outcome
	}
)

// A Layer decorates the calls of a provider, and patches reads and writes at the client
// seam. It is built once for a reconciler, and concurrent reconciles share it.
type Layer struct {
	// External is called by the previous layer. It is nil if the layer decorates no calls.
	External External

	Initializer func(next upstream.Initializer) upstream.Initializer
	Finalizer   func(next resource.Finalizer) resource.Finalizer

	// Patch is applied at the client seam.
	Patch seam.Patch

	// Report changes the report of a deletion, Explain the message of a report that is made before the inner
	// reconciler runs. They may be nil.
	Report  Report
	Explain func(now time.Time, message string, o client.Object) string

	// Upstream are options for upstream's reconciler.
	Upstream []upstream.ReconcilerOption
}

// Report returns the reason and the message to report about a deletion in place of the supplied ones.
type Report func(
	s *seam.Session, o client.Object, reason xpv2.ConditionReason, message string,
) (xpv2.ConditionReason, string)

// Copy returns a copy of a managed resource, for a call of the provider whose changes must
// not be stored.
func Copy(mg resource.Managed) (resource.Managed, error) {
	c, ok := mg.DeepCopyObject().(resource.Managed)
	if !ok {
		return nil, errors.Errorf("cannot copy managed resource: %T has a deep copy of another type", mg)
	}
	return c, nil
}

// Decorate wraps innermost in the layers. The last layer wraps it first.
func Decorate[T any](layers []Layer, innermost T, of func(l Layer) func(next T) T) T {
	for i := len(layers) - 1; i >= 0; i-- {
		if fn := of(layers[i]); fn != nil {
			innermost = fn(innermost)
		}
	}
	return innermost
}

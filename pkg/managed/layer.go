package managed

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A layer decorates the calls of a provider, and is a patch at the client seam. It is built
// once for a reconciler, which uses it in all of its reconciles at the same time.
//
// Layers don't know each other. A call returns its outcome from layer to layer. A layer
// keeps what it needs between two calls of one reconcile in a seam.Slot, and between two
// reconciles in the store.
type layer struct {
	// external is called by the layer before. It is nil if the layer decorates no calls.
	external external

	initializer func(next Initializer) Initializer
	finalizer   func(next resource.Finalizer) resource.Finalizer

	// patch is applied at the client seam.
	patch seam.Patch

	// upstream are options for upstream's reconciler.
	upstream []upstream.ReconcilerOption
}

// A newLayer returns a layer that calls next. It panics if the layer cannot work with its
// parts.
type newLayer func(p parts, next external) layer

// parts are what layers are made of. A layer takes what it needs.
type parts struct {
	kind    schema.GroupVersionKind
	managed resource.Managed // an empty one of that kind
	scheme  *runtime.Scheme
	client  client.Client
	seam    client.Client // the client seam
	live    client.Reader // reads from the API server itself
	log     logging.Logger
	record  event.Recorder

	// store holds what the process knows about managed resources between reconciles.
	store *store.Store

	// ready knows the Ready conditions of deletions, dropped the events not to be recorded.
	ready   *readyConditions
	dropped *droppedEvents

	// run adds a runnable to the manager. It panics if the manager cannot run any.
	run func(r manager.Runnable) error

	// escape is the deadline of deletions and the way out of them, or nil without either.
	escape seam.Escape

	settings settings
}

// settings are the settings of the reconciler that layers depend on.
type settings struct {
	// timeout of a reconcile, grace period after a create, and time between two polls.
	timeout, grace, pollInterval time.Duration

	deterministicExternalName bool

	// async reports whether WithAsync is set, resolves whether WithCreateResolver is set.
	async, resolves bool

	// ownFinalizer is the name of the finalizer that the reconciler adds. It is empty if
	// it is not known.
	ownFinalizer string

	// critical is the updater of WithCriticalAnnotationUpdater. If it is nil, persist
	// reports whether Graft stores annotations, rather than upstream.
	critical CriticalAnnotationUpdater
	persist  bool
}

// external are the calls of a provider, as layers see them. It is safe for concurrent
// use; everything about one reconcile is in the call.
type external interface {
	Connect(ctx context.Context, c *call) error
	Observe(ctx context.Context, c *call) (observeResult, error)
	Create(ctx context.Context, c *call) (createResult, error)
	Update(ctx context.Context, c *call) (ExternalUpdate, error)
	Delete(ctx context.Context, c *call) (deleteResult, error)
}

// A call is what layers know of the reconcile that they are called in.
type call struct {
	*seam.Session

	mg resource.Managed

	// client is the provider's external client, once it is connected.
	client ExternalClient
}

// createOf returns the state of the last create of o. A record that cannot be used makes its
// outcome unknown.
func createOf(o client.Object) creation.State {
	s, _ := creation.Of(o)
	return s
}

// copyOf returns a copy of a managed resource, to call a provider whose changes of it
// must not be stored.
func copyOf(mg resource.Managed) (resource.Managed, error) {
	c, ok := mg.DeepCopyObject().(resource.Managed)
	if !ok {
		return nil, errors.Errorf("cannot copy managed resource: %T has a deep copy of another type", mg)
	}
	return c, nil
}

// Results of calls, with their outcomes.
type (
	observeResult struct {
		ExternalObservation
		seam.Outcome
	}

	createResult struct {
		ExternalCreation
		seam.Outcome
	}

	deleteResult struct {
		ExternalDelete
		seam.Outcome
	}
)

// decorate innermost with the layers. The last layer is next to it.
func decorate[T any](layers []layer, innermost T, of func(l layer) func(next T) T) T {
	for i := len(layers) - 1; i >= 0; i-- {
		if fn := of(layers[i]); fn != nil {
			innermost = fn(innermost)
		}
	}
	return innermost
}

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
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A layer decorates the calls of a provider, and patches reads and writes at the client
// seam. It is built once for a reconciler, and concurrent reconciles share it.
//
// A layer calls no other one but the next. It learns what others did from the outcome or the
// error that a call returns, and from conditions. The state of one reconcile is in a
// seam.Slot. State that outlives the reconcile is in the store.
type layer struct {
	// external is called by the previous layer. It is nil if the layer decorates no calls.
	external external

	initializer func(next upstream.Initializer) upstream.Initializer
	finalizer   func(next resource.Finalizer) resource.Finalizer

	// patch is applied at the client seam.
	patch seam.Patch

	// upstream are options for upstream's reconciler.
	upstream []upstream.ReconcilerOption
}

// A newLayer returns a layer that calls next. It panics if the layer cannot work with its
// parts.
type newLayer func(p parts, next external) layer

// parts are the dependencies of layers.
type parts struct {
	kind     schema.GroupVersionKind
	managed  resource.Managed // an empty managed resource of that kind
	scheme   *runtime.Scheme
	client   client.Client
	seam     client.Client // the client seam
	live     client.Reader // reads from the API server, not from the cache
	log      logging.Logger
	recorder event.Recorder

	// store holds state of managed resources between reconciles.
	store *store.Store

	// ready records the Ready conditions of deletions, dropped the events to drop.
	ready   *readyConditions
	dropped *droppedEvents

	// run adds a runnable to the manager. It panics if the manager has no Add method.
	run func(r manager.Runnable) error

	// runs knows the operations that may still run.
	runs *runs

	// escape is the deadline of deletions and force orphan, or nil without either.
	escape *deletion.Escape

	settings settings
}

// settings are the settings of the reconciler that layers depend on.
type settings struct {
	// timeout of a reconcile, grace period after a create, and time between two polls.
	timeout, grace, pollInterval time.Duration

	// retryInterval is the time until a reconcile is repeated that waits for the next poll. It is
	// greater than zero, also without polls.
	retryInterval time.Duration

	deterministicExternalName bool

	// policies reports whether management policies are in force. None of them are a pause then.
	policies bool

	// async reports whether WithAsync is set, resolves whether WithCreateResolver is set.
	async, resolves bool

	// ownFinalizer is the name of the finalizer that the reconciler adds, or empty if
	// the name is unknown.
	ownFinalizer string

	// critical is the updater of WithCriticalAnnotationUpdater, or nil.
	critical upstream.CriticalAnnotationUpdater

	// persist reports whether Graft stores annotations after each call, reports whether it
	// reports deletions.
	persist, reports bool
}

// longestCreate returns how long a create without a record may be in progress.
func (s settings) longestCreate() time.Duration { return creation.Sum(s.timeout, createMargin) }

// external has the calls of a provider. It is safe for concurrent use: the state of one
// reconcile is in the call.
type external interface {
	Connect(ctx context.Context, c *call) error
	Observe(ctx context.Context, c *call) (observeResult, error)
	Create(ctx context.Context, c *call) (createResult, error)
	Update(ctx context.Context, c *call) (upstream.ExternalUpdate, error)
	Delete(ctx context.Context, c *call) (deleteResult, error)
}

// A call is the reconcile that a layer is called in.
type call struct {
	*seam.Session

	mg resource.Managed

	// announced is the announcement of the create that is about to begin, which mg may lack.
	announced string

	// emptied reports whether Observe has emptied the external name of an external resource that
	// does not exist. The API server keeps the name, but Create is called with an empty one.
	emptied bool

	// client is the provider's external client, once it is connected.
	client upstream.ExternalClient
}

// createOf returns the state of the last create of o. The outcome is unknown if the record of
// the create is not valid.
func createOf(o client.Object) creation.State {
	s, _ := creation.Of(o)
	return s
}

// copyOf returns a copy of a managed resource, for a call of the provider whose changes must
// not be stored.
func copyOf(mg resource.Managed) (resource.Managed, error) {
	c, ok := mg.DeepCopyObject().(resource.Managed)
	if !ok {
		return nil, errors.Errorf("cannot copy managed resource: %T has a deep copy of another type", mg)
	}
	return c, nil
}

// Results of calls, with the outcome of the operation.
type (
	observeResult struct {
		upstream.ExternalObservation
		seam.Outcome
	}

	createResult struct {
		upstream.ExternalCreation
		seam.Outcome
	}

	deleteResult struct {
		upstream.ExternalDelete
		seam.Outcome
	}
)

// decorate wraps innermost in the layers. The last layer wraps it first.
func decorate[T any](layers []layer, innermost T, of func(l layer) func(next T) T) T {
	for i := len(layers) - 1; i >= 0; i-- {
		if fn := of(layers[i]); fn != nil {
			innermost = fn(innermost)
		}
	}
	return innermost
}

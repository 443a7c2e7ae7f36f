package managed

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A layer changes what happens around the calls of a provider. Functions that are nil
// change nothing. A layer is built once for a reconciler, and used by all of its
// reconciles at the same time.
//
// Layers don't know each other. What a call led to is returned from layer to layer;
// what a layer has to know between two calls of one reconcile is in a seam.Slot.
type layer struct {
	external    func(next external) external
	initializer func(next Initializer) Initializer
	finalizer   func(next resource.Finalizer) resource.Finalizer
	critical    func(next CriticalAnnotationUpdater) CriticalAnnotationUpdater

	// patch is what the layer does at the client seam.
	patch seam.Patch

	// upstream are options for upstream's reconciler.
	upstream []upstream.ReconcilerOption
}

// parts are what layers are made of. A layer takes what it needs.
type parts struct {
	kind    schema.GroupVersionKind
	managed resource.Managed // an empty one of that kind
	scheme  *runtime.Scheme
	client  client.Client
	live    client.Reader // reads from the API server itself
	log     logging.Logger
	record  event.Recorder

	// runs adds a runnable to the manager. It panics if the manager can't run any.
	runs func(r manager.Runnable) error

	// escape is the deadline of deletions and the way out of them, or nil without either.
	escape seam.Escape

	// settings are those of upstream's reconciler.
	settings settings

	// ownFinalizer is the name of the finalizer that the reconciler adds. It is
	// empty if that is not known.
	ownFinalizer string
}

// settings are what layers have to know of upstream's reconciler.
type settings struct {
	timeout                   time.Duration
	deterministicExternalName bool

	// async says that records of operations are acted on, and resolves that the outcome
	// of an interrupted create is.
	async, resolves bool
}

// A newLayer makes a layer. It panics if the layer can't work with what it is given.
type newLayer func(p parts) layer

// The slots for layers. Upstream calls the first one, and the last one calls the
// provider. A slot is empty if its feature is off.
const (
	slotEscape = iota
	slotPhases
	slotAnnouncement
	slotCreateOutcome
	slotReservation
	slotUsageProtection
	slotRefusal
	slotConfirmation
	slotAnnotations
	slotPreCreate
	slotDeleteRequest
	slotFreshness
	slotFinalizerGuard
	slotCreateResolver
	slotAsync

	slots
)

// external are the calls of a provider, as layers see them. It is safe for concurrent
// use; everything about one reconcile is in the call.
type external interface {
	Connect(ctx context.Context, c *call) error
	Observe(ctx context.Context, c *call) (observation, error)
	Create(ctx context.Context, c *call) (creation, error)
	Update(ctx context.Context, c *call) (ExternalUpdate, error)
	Delete(ctx context.Context, c *call) (deletion, error)
}

// A call is what layers know of the reconcile that they are called in.
type call struct {
	*seam.Session

	mg resource.Managed

	// terms are what mg allowed when the provider was connected to.
	terms terms

	// client is the provider's, once it is connected.
	client ExternalClient
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

// terms are what a managed resource says of what may be done for it, and the resource
// version at which it says so.
type terms struct {
	version  string
	uid      types.UID
	paused   bool
	policies xpv2.ManagementPolicies
	deletion xpv2.DeletionPolicy
}

func termsOf(mg resource.Managed) terms {
	// A client decodes an answer into the memory that the list has.
	policies := slices.Clone(mg.GetManagementPolicies())
	t := terms{version: mg.GetResourceVersion(), uid: mg.GetUID(), paused: meta.IsPaused(mg), policies: policies}
	if legacy, ok := mg.(interface{ GetDeletionPolicy() xpv2.DeletionPolicy }); ok {
		t.deletion = legacy.GetDeletionPolicy()
	}
	return t
}

// changed reports whether a managed resource that was read again, or written, has other
// terms by now. What a provider changes in memory alone is no matter.
func (t terms) changed(mg resource.Managed) bool {
	if mg.GetResourceVersion() == t.version {
		return false
	}
	now := termsOf(mg)
	return now.uid != t.uid || now.paused != t.paused || now.deletion != t.deletion || !slices.Equal(now.policies, t.policies)
}

// What calls return, and what they led to.
type (
	observation struct {
		ExternalObservation
		seam.Outcome
	}

	creation struct {
		ExternalCreation
		seam.Outcome
	}

	deletion struct {
		ExternalDelete
		seam.Outcome
	}
)

// wrap what is innermost with the layers, the last of which comes next to it.
func wrap[T any](layers []layer, innermost T, of func(l layer) func(next T) T) T {
	for i := len(layers) - 1; i >= 0; i-- {
		if decorate := of(layers[i]); decorate != nil {
			innermost = decorate(innermost)
		}
	}
	return innermost
}

// recorded reports whether mg has the record of an operation, which says more of a
// create than upstream's annotations.
func recorded(mg resource.Managed) bool {
	_, ok := mg.GetAnnotations()[asyncstate.AnnotationKeyOperation]
	return ok
}

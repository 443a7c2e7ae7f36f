package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// NewReconciler returns a Reconciler of managed resources of the supplied kind.
// It takes what upstream's NewReconciler takes and, by default, does what that
// does, and also:
//
//   - puts Ready=False/Deleting and the reason why the managed resource still
//     exists on the API server before the external client is connected to, and
//     keeps them true (WithoutDeletionStatus);
//   - stores the external name, and any other annotation that the external
//     client set, as soon as the call that set it returns, whatever the
//     management policies say (WithoutExternalNamePersistence);
//   - adds no finalizer to a managed resource that is paused or being deleted
//     (WithoutFinalizerGuard);
//   - writes status only when it changed (WithUnchangedStatusWrites);
//   - creates, updates and deletes nothing for a managed resource that is known to
//     have changed since it was read, but reads it again.
//
// A manager made for tests needs GetClient, GetScheme and what upstream's NewReconciler calls.
// Without GetAPIReader its client is used for live reads, too. WithAsync needs Add.
//
// NewReconciler panics, with an error that says what to do, if it can't work as
// configured: a manager without a client or a scheme, a kind that the scheme
// doesn't know, a kind that is no managed resource or doesn't keep its
// conditions, a connector that is nil or for another kind, and options that
// exclude each other.
func NewReconciler(m manager.Manager, of resource.ManagedKind, o ...ReconcilerOption) *Reconciler {
	mustBeUsable(m)
	gvk := schema.GroupVersionKind(of)
	mg := mustCreateManaged(gvk, m.GetScheme())

	r := &Reconciler{config: config{
		log:    logging.NewNopLogger(),
		record: event.NewNopRecorder(),
		layers: [slots]newLayer{
			slotPhases:         newPhases,
			slotAnnouncement:   newAnnouncements,
			slotCreateOutcome:  newCreateOutcome,
			slotRefusal:        newRefusal,
			slotAnnotations:    newAnnotations,
			slotDeleteRequest:  newDeleteRequest,
			slotFreshness:      newFreshness,
			slotFinalizerGuard: newFinalizerGuard,
		},
	}}

	for i, ro := range o {
		if ro == nil {
			panic(errors.Errorf("cannot create a managed resource reconciler: option %d is nil; leave it out", i+1))
		}
		ro(r)
	}

	c := &r.config
	c.mustSuit(mg)
	probe := upstream.NewReconciler(m, of, c.upstream...)
	mustWork(probe)
	live, settings := liveReader(m), settingsOf(probe)
	settings.async, settings.resolves = c.tracker != nil, c.layers[slotCreateResolver] != nil

	p := parts{
		kind:         gvk,
		managed:      mg,
		scheme:       m.GetScheme(),
		client:       m.GetClient(),
		live:         live,
		log:          c.log,
		record:       c.record,
		runs:         func(r manager.Runnable) error { return addTo(m, r) },
		settings:     settings,
		ownFinalizer: finalizerName(c.finalizer),
	}
	p.escape = escapeOf(c.escape, p)
	layers := c.build(p)

	// What an earlier reconcile could not store comes first, since everything else
	// depends on it: patches are applied from the provider's end.
	patches := make([]seam.Patch, 0, len(layers))
	for i := len(layers) - 1; i >= 0; i-- {
		patches = append(patches, layers[i].patch)
	}

	build := func(cl client.Client) reconcile.Reconciler {
		return upstream.NewReconciler(&seamManager{Manager: m, client: cl}, of, c.upstreamOptions(cl, layers)...)
	}
	c.seams.Live = live
	r.seam = seam.NewReconciler(m.GetClient(), seam.NewKind(gvk, m.GetScheme()), build, c.seams, patches...)
	return r
}

// Reconcile a managed resource with an external resource.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

// build the layers that are in the slots, in their order.
func (c *config) build(p parts) []layer {
	var out []layer
	for _, l := range c.layers {
		if l != nil {
			out = append(out, l(p))
		}
	}
	return out
}

// upstreamOptions returns what upstream's reconciler is created with. The order
// matters: what wraps the user's own comes last.
func (c *config) upstreamOptions(cl client.Client, layers []layer) []upstream.ReconcilerOption {
	out := append([]upstream.ReconcilerOption(nil), c.upstream...)
	for _, l := range layers {
		out = append(out, l.upstream...)
	}

	if c.connector != nil {
		//nolint:staticcheck // Deprecated for providers. It is the one that takes all they can give.
		out = append(out, upstream.WithExternalConnectDisconnector(newConnector(c.connector.connector(c.tracker), layers)))
	}

	initializer := c.initializer
	if initializer == nil {
		initializer = upstream.NewNameAsExternalName(cl)
	}
	var finalizer resource.Finalizer = resource.NewAPIFinalizer(cl, FinalizerName)
	if c.finalizer != nil {
		finalizer = &pastFinalizer{Finalizer: c.finalizer}
	}
	return append(out,
		upstream.WithInitializers(wrap(layers, initializer, func(l layer) func(Initializer) Initializer { return l.initializer })),
		upstream.WithFinalizer(wrap(layers, finalizer, func(l layer) func(resource.Finalizer) resource.Finalizer { return l.finalizer })),
		upstream.WithCriticalAnnotationUpdater(wrap(layers, c.criticalAnnotations(cl), func(l layer) func(CriticalAnnotationUpdater) CriticalAnnotationUpdater { return l.critical })),
	)
}

// criticalAnnotations returns how the result of a create is stored.
func (c *config) criticalAnnotations(cl client.Client) CriticalAnnotationUpdater {
	whole := upstream.NewRetryingCriticalAnnotationUpdater(cl)

	// A create that has a result has no use for the record of an operation.
	forget := ""
	if c.tracker != nil {
		forget = asyncstate.AnnotationKeyOperation
	}

	switch {
	case c.criticalAnnotation != nil:
		return keepsStatus(c.criticalAnnotation, forget)
	case c.layers[slotAnnotations] == nil:
		return whole
	default:
		return &criticalAnnotations{client: cl, whole: whole, log: c.log, record: c.record, forget: forget}
	}
}

// mustSuit panics if this can't be the configuration of a reconciler of mg.
func (c *config) mustSuit(mg resource.Managed) {
	if c.connector != nil && !c.connector.accepts(mg) {
		panic(errors.Errorf("the external connector is one for %s, but the reconciler is one of %T: pass the connector of this kind", c.connector.of, mg))
	}
	if len(c.escape) > 0 && c.layers[slotPhases] == nil {
		panic(errors.New("managed.WithoutDeletionStatus excludes managed.WithDeletionDeadline and managed.WithForceOrphan, which report in the Deleting condition: leave one of them out"))
	}
	switch {
	case c.tracker == nil:
	case c.layers[slotAnnotations] == nil:
		panic(errors.New("managed.WithAsync and managed.WithoutExternalNamePersistence exclude each other: what an operation learns has to be stored; leave one of them out"))
	case c.connector == nil:
		panic(errors.New("managed.WithAsync was given without an external connector: pass the one whose operations are to be asynchronous, with WithExternalConnector"))
	case c.connector.disconnects:
		panic(errors.New("managed.WithAsync can't wait for operations before it calls a connector's own Disconnect: pass the connector with WithExternalConnector, and disconnect in the external client's Disconnect"))
	}
}

// A seamManager is a manager whose client is the client seam. Upstream builds
// all its defaults with the manager's client.
type seamManager struct {
	manager.Manager

	client client.Client
}

func (m *seamManager) GetClient() client.Client { return m.client }

func mustBeUsable(m manager.Manager) {
	switch {
	case is.Nil(m):
		panic(errors.New("cannot create a managed resource reconciler without a manager: pass the one that the controller is added to"))
	case is.Nil(m.GetClient()):
		panic(errors.New("cannot create a managed resource reconciler: the manager has no client; create it with ctrl.NewManager, or give the test's manager a client"))
	case m.GetScheme() == nil:
		panic(errors.New("cannot create a managed resource reconciler: the manager has no scheme; create it with ctrl.NewManager, or give the test's manager a scheme"))
	}
}

// mustCreateManaged returns a new managed resource of the supplied kind.
func mustCreateManaged(of schema.GroupVersionKind, s *runtime.Scheme) resource.Managed {
	o, err := s.New(of)
	if err != nil {
		panic(errors.Wrapf(err, "cannot create a reconciler of %s: add its API package to the manager's scheme with AddToScheme", of))
	}
	mg, ok := o.(resource.Managed)
	if !ok {
		panic(errors.Errorf("cannot create a reconciler of %s: %T is not a managed resource; generate its methods with angryjet, or implement resource.Managed", of, o))
	}
	const probe xpv2.ConditionType = "GraftProbe"
	mg.SetConditions(xpv2.Condition{Type: probe, Status: corev1.ConditionTrue})
	if mg.GetCondition(probe).Status != corev1.ConditionTrue {
		panic(errors.Errorf("cannot create a reconciler of %s: %T does not keep the conditions that are set on it; its status must embed ResourceStatus", of, o))
	}
	return mg
}

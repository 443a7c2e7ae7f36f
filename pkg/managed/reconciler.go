package managed

import (
	"context"
	"slices"

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

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// NewReconciler returns a Reconciler of managed resources of the supplied kind.
// It takes the arguments of upstream's NewReconciler and, by default, behaves as
// upstream's Reconciler does, except that it:
//
//   - writes Ready=False/Deleting, and the reason why the managed resource still
//     exists, before it connects to the provider, and keeps both up to date
//     (WithoutDeletionStatus);
//   - stores the external name, and any other annotation that the external
//     client set, as soon as the call that set it returns, under any management
//     policies (WithoutExternalNamePersistence);
//   - adds no finalizer to a managed resource that is paused or being deleted
//     (WithoutFinalizerGuard);
//   - keeps the finalizer of a managed resource whose external resource is kept, while an
//     operation may still run on it, such as the create of another process;
//   - writes status only if it changed (WithUnchangedStatusWrites);
//   - creates, updates and deletes nothing for a managed resource that is known to
//     have changed since it was read, but reads it again;
//   - sets a field that another writer has changed back five times once a minute
//     only, and says so in the ConflictingWrites condition;
//   - does not wait for the creation grace period after its own Delete succeeded;
//   - reconciles a managed resource whose create has no outcome at each poll interval;
//   - starts no create in the second in which the last create ended, because
//     upstream's annotations would not distinguish them after a crash.
//
// A manager made for tests needs GetClient, GetScheme and the methods that upstream's
// NewReconciler calls. Without GetAPIReader, live reads use its client. WithAsync needs Add.
//
// NewReconciler panics, with an error that has the fix, if the configuration can't work: a
// manager without a client or a scheme, a kind that is not in the scheme, a kind that is not a
// managed resource or does not keep its conditions, a connector that is nil or for another
// kind, or options that exclude each other.
func NewReconciler(m manager.Manager, of resource.ManagedKind, o ...ReconcilerOption) *Reconciler {
	mustBeUsable(m)
	gvk := schema.GroupVersionKind(of)
	mg := mustCreateManaged(gvk, m.GetScheme())

	r := &Reconciler{config: config{
		log:            logging.NewNopLogger(),
		recorder:       event.NewNopRecorder(),
		phases:         newPhases,
		deleteRequest:  newDeleteRequest,
		annotations:    newAnnotations,
		finalizerGuard: newFinalizerGuard,
	}}

	mustHaveNoNil(o, "NewReconciler", 3)
	for _, ro := range o {
		ro(r)
	}

	c := &r.config
	c.mustSuit(mg)
	sm := &seamManager{Manager: m, client: seam.NewClient(m.GetClient())}
	up := upstream.NewReconciler(sm, of, c.upstream...)
	mustWork(up)

	known := &store.Store{}
	c.dropped.store = known
	p := parts{
		kind:     gvk,
		managed:  mg,
		scheme:   m.GetScheme(),
		client:   m.GetClient(),
		seam:     sm.client,
		live:     liveReader(m),
		log:      c.log,
		recorder: c.recorder,
		store:    known,
		ready:    &readyConditions{store: known},
		dropped:  &c.dropped,
		run:      func(r manager.Runnable) error { return addTo(m, r) },
		settings: c.settingsOf(up),
	}
	p.runs = &runs{settings: p.settings}
	p.escape = c.escapeOf(p)
	first, layers := c.build(p)

	for _, uo := range c.upstreamOptions(p, first, layers) {
		uo(up)
	}

	// Patches are applied from the last layer to the first, so that annotations that an
	// earlier reconcile could not store are stored before other patches read the object.
	var patches []seam.Patch
	for i := len(layers) - 1; i >= 0; i-- {
		patches = append(patches, layers[i].patch)
	}

	c.seams.Live, c.seams.Store, c.seams.BoundContested = p.live, known, true
	r.seam = seam.NewReconciler(m.GetClient(), seam.NewKind(gvk, m.GetScheme()), up, c.seams, patches...)
	return r
}

// Reconcile a managed resource with an external resource.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

// order returns the layers from upstream to the provider: the first is called by upstream,
// the last calls the provider.
func (c *config) order() []newLayer {
	metered := newMetered
	if c.tracker != nil {
		metered = nil // The tracker charges the calls of operations that outlive the reconcile.
	}
	return []newLayer{
		c.admission,          // starts no reconcile without a token
		c.callErrors,         // reports errors of all other layers
		c.escapes(),          // reports through the next layer
		c.phases,             // reports the results of all other layers
		newEvents,            // drops upstream's events about calls that other layers skipped
		newCreateOutcome,     // stores the outcome, which the reservation may change
		c.reservation,        // changes no external resource without a lease
		c.usageProtection,    // protects the usage only if the provider was connected
		newRefusal,           // hides a refused external resource from the layers before
		c.confirmation,       // counts absences that the next layer reports
		newAbsence,           // reports absences after annotations are stored
		c.annotations,        // stores annotations that any layer below sets
		c.preCreate,          // observes a copy, whose annotations are not stored
		c.deleteRequest,      // reports a Delete right before it is called
		newFreshness,         // is the last check before the provider is called
		c.finalizerGuard,     // decorates no calls
		newRunGuard,          // decorates no calls but Observe, which it only notes
		newConflictingWrites, // reports in status only
		c.createResolver,     // reads the provider's own errors
		c.async,              // replaces the provider's connector
		metered,              // charges each call of the provider
	}
}

// build the layers, each of which calls the next. It also returns the external of the first.
func (c *config) build(p parts) (external, []layer) {
	var next external
	if c.connector != nil {
		next = &providerCalls{connector: c.connector.provider}
	}
	order := c.order()
	var layers []layer

	for i := len(order) - 1; i >= 0; i-- {
		if order[i] == nil {
			continue
		}
		l := order[i](p, next)
		if l.external != nil {
			next = l.external
		}
		layers = append(layers, l)
	}

	slices.Reverse(layers)
	return next, layers
}

// upstreamOptions returns the options that upstream's reconciler gets after the user's
// options. The last ones replace the initializers and the finalizer by decorated ones.
func (c *config) upstreamOptions(p parts, first external, layers []layer) []upstream.ReconcilerOption {
	var out []upstream.ReconcilerOption
	for _, l := range layers {
		out = append(out, l.upstream...)
	}

	if c.connector != nil {
		//nolint:staticcheck // Deprecated for providers, but it takes any connector.
		out = append(out, upstream.WithExternalConnectDisconnector(&connector{
			layers:   first,
			provider: c.connector.provider,
		}))
	}

	initializer := c.initializer
	if initializer == nil {
		initializer = upstream.NewNameAsExternalName(p.seam)
	}
	var finalizer resource.Finalizer = resource.NewAPIFinalizer(p.seam, FinalizerName)
	if c.finalizer != nil {
		finalizer = &userFinalizer{Finalizer: c.finalizer}
	}
	return append(out,
		upstream.WithInitializers(decorate(
			layers, initializer, func(l layer) func(Initializer) Initializer { return l.initializer },
		)),
		upstream.WithFinalizer(decorate(
			layers, finalizer, func(l layer) func(resource.Finalizer) resource.Finalizer { return l.finalizer },
		)),
	)
}

// mustSuit panics if this configuration can't work for a reconciler of mg.
func (c *config) mustSuit(mg resource.Managed) {
	if c.connector != nil && !c.connector.accepts(mg) {
		panic(errors.Errorf(
			"the external connector is for %s, but the reconciler is for %T: pass the connector of this kind",
			c.connector.of, mg,
		))
	}
	if c.escapes() != nil && c.phases == nil {
		panic(errors.New("managed.WithoutDeletionStatus excludes managed.WithDeletionDeadline and managed.WithForceOrphan, which report in the Deleting condition: leave one of them out"))
	}
	if c.resolveAfter != 0 && c.createResolver == nil {
		panic(errors.New(
			"managed.WithResolveAfter was given without managed.WithCreateResolver: pass both, or leave it out",
		))
	}
	if c.reservationKey != nil && c.reservation == nil {
		panic(errors.New("managed.WithReservationKey was given without managed.WithExternalNameReservation: pass both, or leave it out"))
	}
	switch {
	case c.tracker == nil:
	case c.annotations == nil:
		panic(errors.New("managed.WithAsync and managed.WithoutExternalNamePersistence exclude each other: the external name that an operation sets has to be stored; leave one of them out"))
	case c.connector == nil:
		panic(errors.New("managed.WithAsync was given without an external connector: pass the one whose operations are to be asynchronous, with WithExternalConnector"))
	case c.connector.disconnects:
		panic(errors.New("managed.WithAsync can't wait for operations before it calls a connector's own Disconnect: pass the connector with WithExternalConnector, and disconnect in the external client's Disconnect"))
	}
}

// A seamManager is a manager whose client is the client seam, because upstream builds its
// defaults with the manager's client.
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
		panic(errors.Wrapf(
			err, "cannot create a reconciler of %s: add its API package to the manager's scheme with AddToScheme", of,
		))
	}
	mg, ok := o.(resource.Managed)
	if !ok {
		panic(errors.Errorf(
			"cannot create a reconciler of %s: %T is not a managed resource; generate its methods with angryjet, or implement resource.Managed",
			of, o,
		))
	}
	const probe xpv2.ConditionType = "GraftProbe"
	mg.SetConditions(xpv2.Condition{Type: probe, Status: corev1.ConditionTrue})
	if mg.GetCondition(probe).Status != corev1.ConditionTrue {
		panic(errors.Errorf(
			"cannot create a reconciler of %s: %T does not keep the conditions that are set on it; its status must embed ResourceStatus",
			of, o,
		))
	}
	return mg
}

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
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// NewReconciler returns a Reconciler of managed resources of the supplied kind.
// It takes the arguments of upstream's NewReconciler and, by default, behaves as
// upstream's Reconciler does, except that:
//
//   - (a) a deletion is reported before the provider is connected to, as Ready=False/Deleting,
//     and the Deleting condition says in each phase why the managed resource still exists.
//     An error in Synced that is out of date goes (WithoutDeletionStatus);
//   - (b) the external name, and upstream's annotations about creates, are stored right after
//     the call that set them, whether it failed or not, and whatever the management policies
//     are. Other annotations are stored after Create, Update and Delete, and after an Observe
//     that returns ResourceLateInitialized (WithoutExternalNamePersistence);
//   - (c) a status write that would change nothing is not made, and status in memory survives
//     a write of metadata or spec (WithUnchangedStatusWrites);
//   - (d) Create, Update and Delete are not called for a managed resource that is known to have
//     changed since it was read: its resource version, UID, pause, policies or external name.
//     It is read again;
//   - (e) no finalizer is added to a managed resource that is paused or being deleted
//     (WithoutFinalizerGuard);
//   - (f) a create whose outcome is not known is polled, and never repeated, nor forgotten with
//     the finalizer, while it may still be carried out, also with deterministic external names.
//     So the creation grace period counts from when this process knows of the create, if clocks
//     differ, and up to the start of Observe; it ends early when a Delete of this process has
//     succeeded, and the reconcile runs again when it ends. No create starts in the second in
//     which the last one ended, because upstream's annotations would not tell them apart.
//
// A manager made for tests needs GetClient, GetScheme and the methods that upstream's
// NewReconciler calls. Without GetAPIReader, live reads use its client. asyncstate.With needs Add.
//
// NewReconciler panics, with an error that has the fix, if the configuration can't work: a
// manager without a client or a scheme, a kind that is not in the scheme, a kind that is not a
// managed resource or does not keep its conditions, a connector that is nil or for another
// kind, or options that exclude each other.
func NewReconciler(m manager.Manager, of resource.ManagedKind, o ...ReconcilerOption) *Reconciler {
	layer.MustBeUsable(m)
	gvk := schema.GroupVersionKind(of)
	mg := mustCreateManaged(gvk, m.GetScheme())

	r := &Reconciler{config: config{
		log:             logging.NewNopLogger(),
		recorder:        event.NewNopRecorder(),
		reports:         true,
		persists:        true,
		guardsFinalizer: true,
	}}

	is.MustHaveNoNil(o, "managed.NewReconciler", 3)
	for _, ro := range o {
		ro(r)
	}

	c := &r.config
	sm := &seamManager{Manager: m, client: seam.NewClient(m.GetClient())}
	up := upstream.NewReconciler(sm, of, c.upstream...)
	mustWork(up)

	s := c.settingsOf(up)
	c.mustSuit(mg, s)
	p := layer.Parts{
		Kind:     gvk,
		Managed:  mg,
		Scheme:   m.GetScheme(),
		Client:   m.GetClient(),
		Seam:     sm.client,
		Live:     layer.LiveReader(m),
		Log:      c.log,
		Recorder: c.recorder,
		Store:    &store.Store{},
		Run:      func(r manager.Runnable) error { return layer.AddTo(m, r) },
		Runs:     &layer.Runs{Settings: s},
		Settings: s,
	}
	first, layers := c.build(p)

	for _, uo := range c.upstreamOptions(p, first, layers) {
		uo(up)
	}

	// Patches are applied from the last layer to the first, so that annotations that an
	// earlier reconcile could not store are stored before other patches read the object.
	var patches []seam.Patch
	for _, l := range slices.Backward(layers) {
		patches = append(patches, l.Patch)
	}

	c.seams.Live, c.seams.Store = p.Live, p.Store
	for _, o := range c.options {
		if o.Seam != nil {
			o.Seam(&c.seams)
		}
	}
	r.seam = seam.NewReconciler(m.GetClient(), seam.NewKind(gvk, m.GetScheme()), up, c.seams, patches...)
	return r
}

// Reconcile a managed resource with an external resource.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

// build the layers, each of which calls the next. It also returns the external of the first.
func (c *config) build(p layer.Parts) (layer.External, []layer.Layer) {
	report := &reports{}
	staged := []layer.Staged{
		{Stage: layer.Outcome, New: newCreateOutcome},
		{Stage: layer.Absence, New: newAbsence},
		{Stage: layer.Guard, New: newFreshness},
	}
	if c.reports {
		staged = append(
			staged,
			layer.Staged{Stage: layer.Reporting, New: report.newPhases},
			layer.Staged{Stage: layer.Last, New: newDeleteRequest},
		)
	}
	if c.persists {
		staged = append(staged, layer.Staged{Stage: layer.Names, New: newAnnotations})
	}
	if c.guardsFinalizer {
		staged = append(staged, layer.Staged{Stage: layer.Guard, New: newFinalizerGuard})
	}
	for _, o := range c.options {
		staged = append(staged, o.Layers...)
	}

	var innermost layer.External
	if c.connector != nil {
		innermost = &providerCalls{connector: c.connector.provider}
	}
	first, layers := layer.Build(p, staged, innermost)
	for _, l := range layers {
		if l.Report != nil {
			report.layers = append(report.layers, l)
		}
	}
	return first, layers
}

// upstreamOptions returns the options that upstream's reconciler gets after the user's
// options. The last ones replace the initializers and the finalizer by decorated ones.
func (c *config) upstreamOptions(
	p layer.Parts, first layer.External, layers []layer.Layer,
) []upstream.ReconcilerOption {
	var out []upstream.ReconcilerOption
	for _, l := range layers {
		out = append(out, l.Upstream...)
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
		initializer = upstream.NewNameAsExternalName(p.Seam)
	}
	var finalizer resource.Finalizer = resource.NewAPIFinalizer(p.Seam, FinalizerName)
	if c.finalizer != nil {
		finalizer = &userFinalizer{Finalizer: c.finalizer}
	}
	return append(out,
		upstream.WithInitializers(layer.Decorate(
			layers, initializer, func(l layer.Layer) func(Initializer) Initializer { return l.Initializer },
		)),
		upstream.WithFinalizer(layer.Decorate(
			layers, finalizer, func(l layer.Layer) func(resource.Finalizer) resource.Finalizer { return l.Finalizer },
		)),
	)
}

// mustSuit panics if this configuration can't work for a reconciler of mg.
func (c *config) mustSuit(mg resource.Managed, s layer.Settings) {
	if c.connector != nil && !c.connector.accepts(mg) {
		panic(errors.Errorf(
			"the external connector is for %s, but the reconciler is for %T: pass the connector of this kind",
			c.connector.of, mg,
		))
	}
	for _, o := range c.options {
		if o.Check == nil {
			continue
		}
		if err := o.Check(s); err != nil {
			panic(err)
		}
	}
}

// A seamManager is a manager whose client is the client seam, because upstream builds its
// defaults with the manager's client.
type seamManager struct {
	manager.Manager

	client client.Client
}

func (m *seamManager) GetClient() client.Client { return m.client }

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

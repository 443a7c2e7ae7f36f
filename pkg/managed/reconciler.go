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

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A Reconciler reconciles managed resources with upstream's reconciler, changed
// at its seams. It is safe for concurrent use.
type Reconciler struct {
	seam   *seam.Reconciler
	config config
}

// NewReconciler returns a Reconciler of managed resources of the supplied kind.
// It takes what upstream's NewReconciler takes and, by default, does what that
// does, and also:
//
//   - puts Ready=False/Deleting and the reason why the managed resource is still
//     there on the API server before the external client is connected to, and
//     keeps them true (WithoutDeletionStatus);
//   - stores the external name, and any other annotation that the external
//     client set, as soon as the call that set it returns, whatever the
//     management policies say (WithoutExternalNamePersistence);
//   - adds no finalizer to a managed resource that is paused or being deleted
//     (WithoutFinalizerGuard);
//   - writes status only when it changed (WithUnchangedStatusWrites).
//
// NewReconciler panics, with an error that says what to do, if it can't work as
// configured: a manager without a client or a scheme, a kind that the scheme
// doesn't know, a kind that is no managed resource or doesn't keep its
// conditions, a connector that is nil or for another kind, and options that
// exclude each other.
func NewReconciler(m manager.Manager, of resource.ManagedKind, o ...ReconcilerOption) *Reconciler {
	mustBeUsable(m)

	mg := mustCreateManaged(schema.GroupVersionKind(of), m.GetScheme())

	r := &Reconciler{config: config{
		log:    logging.NewNopLogger(),
		record: event.NewNopRecorder(),
	}}

	for i, ro := range o {
		if ro == nil {
			panic(errors.Errorf("cannot create a managed resource reconciler: option %d is nil; leave it out", i+1))
		}

		ro(r)
	}

	r.config.mustSuit(mg)

	// The order of the patches is fixed here. What an earlier reconcile could
	// not store comes first: everything else depends on it.
	patches := []seam.Patch{announcements()}

	ext := &external{config: &r.config}

	if !r.config.withoutExternalNamePersistence {
		patches = append(patches, seam.PendingAnnotations(r.config.recordOverwritten))
	}

	if !r.config.withoutDeletionStatus {
		ext.deletion = &deletion{log: r.config.log, record: r.config.record}
		patches = append(patches, ext.deletion.patch())
	}

	if a := r.config.async; a != nil {
		a.join(m)
		patches = append(patches, a.tracker.Patch())
	}

	if c := r.config.confirmation; c != nil {
		patches = append(patches, c.patch())
	}

	if rv := r.config.reservation; rv != nil {
		patches = append(patches, rv.patch(m, schema.GroupVersionKind(of)))
	}

	r.config.protection.join(m, mg)

	if cr := r.config.createResolver; cr != nil {
		cr.learn(upstream.NewReconciler(m, of, r.config.upstream...))
	}

	build := func(c client.Client) reconcile.Reconciler {
		return upstream.NewReconciler(&seamManager{Manager: m, client: c}, of, r.config.upstreamOptions(c, ext)...)
	}

	r.config.seams.Live = liveReader(m)
	r.seam = seam.NewReconciler(m.GetClient(), seam.NewKind(schema.GroupVersionKind(of), m.GetScheme()), build, r.config.seams, patches...)

	return r
}

// Reconcile a managed resource with an external resource.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

// A seamManager is a manager whose client is the client seam. Upstream builds
// all its defaults with the manager's client.
type seamManager struct {
	manager.Manager

	client client.Client
}

func (m *seamManager) GetClient() client.Client { return m.client }

// liveReader returns a reader that asks the API server itself, if the manager
// has one. Managers made for tests often embed a nil interface.
func liveReader(m manager.Manager) (r client.Reader) {
	defer func() {
		if recover() != nil {
			r = m.GetClient()
		}
	}()

	if r = m.GetAPIReader(); r == nil {
		return m.GetClient()
	}

	return r
}

func mustBeUsable(m manager.Manager) {
	switch {
	case seam.IsNil(m):
		panic(errors.New("cannot create a managed resource reconciler without a manager: pass the one that the controller is added to"))
	case seam.IsNil(m.GetClient()):
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

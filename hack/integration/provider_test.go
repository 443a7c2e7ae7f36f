//go:build integration

package integration

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	upstreammanaged "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// grace is shorter than any test: upstream's grace period is always over.
const grace = time.Nanosecond

type flavour struct {
	name string
	// build a reconciler. If that has a Source, its controller watches it.
	build func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler
}

var (
	upstream = flavour{name: "Upstream", build: newUpstream}
	graft    = flavour{name: "Graft", build: func(
		m ctrl.Manager, of resource.ManagedKind, s setup,
	) reconcile.Reconciler {
		return newGraft(m, of, s)
	}}
)

func newUpstream(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
	var connect upstreammanaged.ReconcilerOption
	if of.Kind == v1alpha1.BucketKind && s.connectors.typed != nil {
		connect = upstreammanaged.WithTypedExternalConnector(s.connectors.typed)
	} else {
		connect = upstreammanaged.WithExternalConnector(s.connectors.untyped)
	}
	return upstreammanaged.NewReconciler(m, of,
		upstreammanaged.WithManagementPolicies(),
		upstreammanaged.WithInitializers(),
		upstreammanaged.WithCreationGracePeriod(grace),
		upstreammanaged.WithPollInterval(cmp.Or(s.poll, time.Hour)),
		connect)
}

// newGraft is the same but for the import.
func newGraft(m ctrl.Manager, of resource.ManagedKind, s setup, o ...managed.ReconcilerOption) reconcile.Reconciler {
	var connect managed.ReconcilerOption
	if of.Kind == v1alpha1.BucketKind && s.connectors.typed != nil {
		connect = managed.WithTypedExternalConnector(s.connectors.typed)
	} else {
		connect = managed.WithExternalConnector(s.connectors.untyped)
	}
	return managed.NewReconciler(m, of, append([]managed.ReconcilerOption{
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(grace),
		managed.WithPollInterval(cmp.Or(s.poll, time.Hour)),
		connect,
	}, o...)...)
}

// An asyncReconciler is one whose controller hears of the ends of operations.
type asyncReconciler struct {
	reconcile.Reconciler

	tracker *asyncstate.Tracker
}

func (r asyncReconciler) Source() source.Source { return r.tracker.Source() }

// async is Graft with one option more. Databases are looked for after a crash or a
// hand-over; Buckets are created again with the same token.
func async(o ...asyncstate.TrackerOption) flavour {
	return flavour{name: "Async", build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		o := append([]asyncstate.TrackerOption{
			asyncstate.WithTimeout(10 * time.Second),
			asyncstate.WithBackoff(100*time.Millisecond, time.Second),
		}, o...)
		if of.Kind == v1alpha1.BucketKind {
			o = append(o, asyncstate.WithIdempotentTokens())
		}
		t := asyncstate.NewTracker(o...)
		return asyncReconciler{Reconciler: newGraft(m, of, s, asyncstate.With(t)), tracker: t}
	}}
}

// connectors of one process of the provider: untyped for Databases, typed for
// Buckets, unless it is nil.
type connectors struct {
	untyped managed.ExternalConnector
	typed   managed.TypedExternalConnector[*v1alpha1.Bucket]

	disconnects func() int // How many reconciles that connected have ended.
}

func syncConnectors(world *cloud.Cloud) connectors {
	untyped, typed := sample.NewSync[resource.Managed](world), sample.NewSync[*v1alpha1.Bucket](world)
	return connectors{
		untyped:     untyped,
		typed:       typed,
		disconnects: func() int { return untyped.Disconnects() + typed.Disconnects() },
	}
}

type setup struct {
	connectors connectors
	poll       time.Duration          // An hour, which no test waits for, if it is zero.
	wrap       transport.WrapperFunc  // Between the provider and the API server.
	only       labels.Selector        // The labels of what is in the provider's cache.
	kinds      []resource.ManagedKind // The sample's if they are nil.
}

// start a process of the provider. It is stopped at the test's end at the latest.
func start(t *testing.T, f flavour, s setup) (stop func()) {
	t.Helper()
	m, err := newProvider(plane.Config(), f, s)
	must(t, "newProvider()", err)
	return background(t, m.Start)
}

// newProvider returns a manager, with a cache, and a controller with two workers for each
// kind.
func newProvider(cfg *rest.Config, f flavour, s setup) (ctrl.Manager, error) {
	if s.wrap != nil {
		cfg.Wrap(s.wrap)
	}
	m, err := process.NewManager(
		cfg, ctrl.Options{Scheme: newScheme(), Cache: cache.Options{DefaultLabelSelector: s.only}},
	)
	if err != nil {
		return nil, err
	}
	if s.kinds == nil {
		s.kinds = []resource.ManagedKind{v1alpha1.DatabaseManagedKind(), v1alpha1.BucketManagedKind()}
	}
	for _, k := range s.kinds {
		if err := process.Control(m, k, f.build(m, k, s), quickly(), 2); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func quickly() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
		5*time.Millisecond, 250*time.Millisecond,
	)
}

func background(t *testing.T, start func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

//go:build integration

package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	upstreammanaged "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/labels"
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

// grace stands for the time after the grace period that upstream grants a new
// external resource to show up.
const grace = time.Nanosecond

// A flavour is what the provider is built with.
type flavour struct {
	name string

	// build a reconciler. If that has a Source, its controller watches it.
	build func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler
}

var (
	upstream = flavour{name: "Upstream", build: newUpstream}
	graft    = flavour{name: "Graft", build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
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
		upstreammanaged.WithPollInterval(s.pollInterval()),
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
		managed.WithPollInterval(s.pollInterval()),
		connect,
	}, o...)...)
}

// An asyncReconciler is one whose controller hears of the ends of operations.
type asyncReconciler struct {
	reconcile.Reconciler

	tracker *asyncstate.Tracker
}

func (r asyncReconciler) Source() source.Source { return r.tracker.Source() }

// newAsync is Graft with one option more.
func newAsync(m ctrl.Manager, of resource.ManagedKind, s setup, connect func(t *asyncstate.Tracker) connectors, o ...asyncstate.TrackerOption) asyncReconciler {
	t := asyncstate.NewTracker(m.GetClient(), append([]asyncstate.TrackerOption{asyncstate.WithLiveReader(m.GetAPIReader())}, o...)...)
	s.connectors = connect(t)
	return asyncReconciler{Reconciler: newGraft(m, of, s, managed.WithAsync(t)), tracker: t}
}

// connectors of one process of the provider: untyped for Databases, typed for
// Buckets, unless it is nil.
type connectors struct {
	untyped managed.ExternalConnector
	typed   managed.TypedExternalConnector[*v1alpha1.Bucket]

	// disconnects returns how many reconciles have come to their ends, of those
	// that came as far as to connect.
	disconnects func() int
}

// syncConnectors do everything while they are called.
func syncConnectors(world *cloud.Cloud) connectors {
	untyped, typed := sample.NewSync[resource.Managed](world), sample.NewSync[*v1alpha1.Bucket](world)
	return connectors{
		untyped:     untyped,
		typed:       typed,
		disconnects: func() int { return untyped.Disconnects() + typed.Disconnects() },
	}
}

// A setup is how a provider is set up.
type setup struct {
	connectors connectors

	// poll is an hour, which no test waits for, if it is zero.
	poll time.Duration

	// wrap stands between the provider and the API server, if it isn't nil.
	wrap transport.WrapperFunc

	// only objects with these labels are in the provider's cache, unless it is nil.
	only labels.Selector

	// user of the provider. If it is empty, the provider may do everything.
	user string

	// kinds are the sample's if they are nil.
	kinds []resource.ManagedKind
}

func (s setup) pollInterval() time.Duration {
	if s.poll == 0 {
		return time.Hour
	}
	return s.poll
}

// A provider is a process of the provider. It has a manager, with a cache, and
// a controller with two workers for each kind.
type provider struct{ stop func() }

// start a provider. It is stopped at the test's end at the latest.
func start(t *testing.T, f flavour, s setup) *provider {
	t.Helper()
	cfg := plane.Config()
	cfg.Impersonate.UserName = s.user
	if s.wrap != nil {
		cfg.Wrap(s.wrap)
	}
	if s.kinds == nil {
		s.kinds = sampleKinds()
	}
	m, err := process.NewManager(cfg, ctrl.Options{Scheme: newScheme(t), Cache: cache.Options{DefaultLabelSelector: s.only}})
	must(t, "ctrl.NewManager()", err)
	for _, k := range s.kinds {
		must(t, "cannot add a controller", control(m, k, f.build(m, k, s), 2))
	}
	return &provider{stop: background(t, m.Start)}
}

func sampleKinds() []resource.ManagedKind {
	return []resource.ManagedKind{v1alpha1.DatabaseManagedKind(), v1alpha1.BucketManagedKind()}
}

// control adds a controller of a kind to a manager.
func control(m ctrl.Manager, of resource.ManagedKind, r reconcile.Reconciler, workers int) error {
	return process.Control(m, of, r, quickly(), workers)
}

// quickly is a backoff that makes tests quick.
func quickly() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 250*time.Millisecond)
}

// background runs something until the test's end, or until it is stopped.
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

//go:build integration

package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// A flavour is what the provider is built with.
type flavour struct {
	name  string
	graft bool

	// build a reconciler. If that has a Source, its controller watches it.
	build func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler
}

var (
	upstream = flavour{name: "Upstream", build: newUpstream}
	graft    = flavour{name: "Graft", graft: true, build: newGraft}
)

// connectors of one process of the provider: untyped for Databases, typed for
// Buckets.
type connectors struct {
	untyped managed.ExternalConnector
	typed   managed.TypedExternalConnector[*sample.Bucket]

	// wait for what the connectors have running.
	wait func()

	// disconnects returns how many reconciles have come to their ends, of those
	// that came as far as to connect.
	disconnects func() int
}

// typedFor returns the typed connector if that is the one for a kind.
func (c connectors) typedFor(of resource.ManagedKind) managed.TypedExternalConnector[*sample.Bucket] {
	if of.Kind == sample.BucketKind {
		return c.typed
	}

	return nil
}

// syncConnectors do everything while they are called.
func syncConnectors(world *cloud.Cloud, o ...sample.Option) connectors {
	untyped := sample.NewSync[resource.Managed](world, o...)
	typed := sample.NewSync[*sample.Bucket](world, o...)

	return connectors{
		untyped:     untyped,
		typed:       typed,
		wait:        func() {},
		disconnects: func() int { return untyped.Disconnects() + typed.Disconnects() },
	}
}

// asyncConnectors return connectors that report the result of an operation with the
// next Observe. They keep it in memory only.
func asyncConnectors(world *cloud.Cloud) connectors {
	return asyncConnectorsWith(world)
}

func asyncConnectorsWith(world *cloud.Cloud, o ...sample.Option) connectors {
	o = append(o, sample.WithBackground())
	untyped := sample.NewAsync[resource.Managed](world, o...)
	typed := sample.NewAsync[*sample.Bucket](world, o...)

	return connectors{
		untyped:     untyped,
		typed:       typed,
		wait:        func() { untyped.Wait(); typed.Wait() },
		disconnects: func() int { return untyped.Disconnects() + typed.Disconnects() },
	}
}

// A setup is how a provider is set up.
type setup struct {
	connectors connectors

	// poll is an hour, which no test waits for, if it is zero.
	poll time.Duration

	// finalizer is the default one if it is nil.
	finalizer resource.Finalizer

	// events are those that Crossplane's providers use if it is nil.
	events predicate.Predicate

	// traffic sees the provider's requests, if it isn't nil.
	traffic *traffic

	// wrap stands between the provider and the API server, if it isn't nil.
	wrap transport.WrapperFunc

	// impersonate is the user of the provider. If it is zero, the user may do
	// everything.
	impersonate rest.ImpersonationConfig

	// scheme and kinds are the sample's if they are nil.
	scheme *runtime.Scheme
	kinds  []resource.ManagedKind
}

func (s setup) pollInterval() time.Duration {
	if s.poll == 0 {
		return time.Hour
	}

	return s.poll
}

// grace stands for the time after the grace period that upstream grants a new
// external resource to show up.
func (setup) grace() time.Duration { return time.Nanosecond }

// A provider is a process of the provider. It has a manager, with a cache, and
// a controller with two workers for each kind.
type provider struct {
	client client.Client
	stop   func()
}

// start a provider. It is stopped at the test's end at the latest.
func start(t *testing.T, f flavour, s setup) *provider {
	t.Helper()

	cfg := plane.Config()
	cfg.Impersonate = s.impersonate

	if s.traffic != nil {
		cfg.Wrap(s.traffic.wrap)
	}

	if s.wrap != nil {
		cfg.Wrap(s.wrap)
	}

	if s.scheme == nil {
		s.scheme = newScheme(t)
	}

	if s.kinds == nil {
		s.kinds = []resource.ManagedKind{sample.DatabaseManagedKind(), sample.BucketManagedKind()}
	}

	if s.events == nil {
		s.events = resource.DesiredStateChanged()
	}

	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 s.scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller: config.Controller{
			// Names are unique in a process, and this one runs many providers.
			SkipNameValidation: ptr.To(true),
			// The priority queue of controller-runtime v0.23 can hold a lock for
			// ever when it is shut down with work left, and lets objects that
			// nothing happened to since the start starve when others keep the
			// workers busy.
			UsePriorityQueue: ptr.To(false),
		},
	})
	must(t, "ctrl.NewManager()", err)

	for _, k := range s.kinds {
		b := ctrl.NewControllerManagedBy(m).
			For(newObject(t, s.scheme, k)).
			WithEventFilter(s.events).
			WithOptions(controller.Options{
				MaxConcurrentReconciles: 2,
				RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 250*time.Millisecond),
			})

		r := f.build(m, k, s)
		if w, ok := r.(interface{ Source() source.Source }); ok {
			b.WatchesRawSource(w.Source())
		}

		must(t, "cannot add a controller", b.Complete(r))
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)

	go func() { ended <- m.Start(ctx) }()

	var once sync.Once

	p := &provider{client: m.GetClient(), stop: func() {
		once.Do(func() {
			cancel()

			if err := <-ended; err != nil {
				t.Errorf("the manager ended with: %v", err)
			}

			s.connectors.wait()
		})
	}}

	t.Cleanup(p.stop)

	return p
}

func newObject(t *testing.T, s *runtime.Scheme, of resource.ManagedKind) client.Object {
	t.Helper()

	o, err := s.New(schema.GroupVersionKind(of))
	must(t, "Scheme.New()", err)

	co, ok := o.(client.Object)
	if !ok {
		t.Fatalf("%T is no object", o)
	}

	return co
}

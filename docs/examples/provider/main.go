// Command provider is a Crossplane provider with Graft, to copy. docs/tutorial.md
// goes through it.
package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// namespace is where the provider's Leases are: of its leader, and of external names.
const namespace = "provider-example"

func main() {
	dir := flag.String("cloud", "cloud", "folder that stands in for the cloud")
	slow := flag.Duration("slow", 15*time.Second, "how long the cloud takes to answer a create")
	as := flag.String("as", "", "user to act as, for a run outside the cluster")
	metrics := flag.String("metrics", ":8080", "address to serve metrics at")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	if err := run(ctrl.SetupSignalHandler(), &cloud{dir: *dir, slow: *slow}, *as, *metrics); err != nil {
		ctrl.Log.Error(err, "Cannot run the provider")
		os.Exit(1)
	}
}

func run(ctx context.Context, c *cloud, as, metrics string) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.Impersonate.UserName = as
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: metrics},

		// The next process takes over when this one's operations have ended.
		LeaderElection:                true,
		LeaderElectionID:              "provider-example",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := setup(m, c); err != nil {
		return err
	}
	return m.Start(ctx)
}

// setup adds the controller of Databases.
func setup(m ctrl.Manager, c *cloud) error {
	metrics := asyncstate.NewMetrics()
	if err := ctrlmetrics.Registry.Register(metrics); err != nil {
		return err
	}
	r, operations := newReconciler(m, c, metrics)
	return ctrl.NewControllerManagedBy(m).
		For(&Database{}).
		WithEventFilter(predicate.Or(resource.DesiredStateChanged(), finalizerRemoved())).
		WatchesRawSource(operations).
		WithOptions(controller.Options{RateLimiter: ratelimiter.NewController()}).
		Complete(r)
}

// newReconciler returns the reconciler of Databases, and the source that requeues one when
// its operation has ended.
func newReconciler(m ctrl.Manager, c cloudAPI, metrics *asyncstate.Metrics) (reconcile.Reconciler, source.Source) {
	log := logging.NewLogrLogger(m.GetLogger())
	recorder := event.NewAPIRecorder(m.GetEventRecorderFor("provider-example"))

	tracker := asyncstate.NewTracker(m.GetClient(),
		asyncstate.WithLiveReader(m.GetAPIReader()),
		asyncstate.WithLogger(log),
		asyncstate.WithRecorder(recorder),
		asyncstate.WithMetrics(metrics),
		asyncstate.WithTimeout(10*time.Minute))

	r := managed.NewReconciler(m, resource.ManagedKind(kind()),
		managed.WithLogger(log),
		managed.WithRecorder(recorder),
		managed.WithPollInterval(time.Minute),
		managed.WithManagementPolicies(),
		managed.WithInitializers(), // The cloud assigns names.
		managed.WithExternalConnector(&connector{cloud: c}),
		managed.WithAsync(tracker),
		managed.WithExternalNameReservation(namespace))
	return r, tracker.Source()
}

// finalizerRemoved lets a removed finalizer trigger a reconcile: the external resource is
// deleted when no other controller's finalizer is left.
func finalizerRemoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		return slices.ContainsFunc(e.ObjectOld.GetFinalizers(), func(f string) bool {
			return !slices.Contains(e.ObjectNew.GetFinalizers(), f)
		})
	}}
}

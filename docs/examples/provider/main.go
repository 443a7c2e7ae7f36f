// Command provider is a Crossplane provider with Graft, to copy. docs/tutorial.md
// goes through it.
package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"slices"
	"time"

	v1 "example.org/provider/apis/v1"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/providerconfig"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/statemetrics"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
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
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/usage"
)

// namespace is where the provider's Leases are: of its leader, and of external names.
const namespace = "provider-example"

func main() {
	as := flag.String("as", "", "user to act as, for a run outside the cluster")
	metrics := flag.String("metrics", ":8080", "address to serve metrics at")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	if err := run(ctrl.SetupSignalHandler(), *as, *metrics); err != nil {
		ctrl.Log.Error(err, "Cannot run the provider")
		os.Exit(1)
	}
}

func run(ctx context.Context, as, metrics string) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.Impersonate.UserName = as
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
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

		// Without a cache, because a cache reads the Secrets of all namespaces.
		Client: kube.Options{Cache: &kube.CacheOptions{DisableFor: []kube.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}
	if err := setup(m); err != nil {
		return err
	}
	return m.Start(ctx)
}

// setup adds the controllers: of Databases, of provider configs and of their usages.
func setup(m ctrl.Manager) error {
	s, state := newShared(m), statemetrics.NewMRStateMetrics()
	ctrlmetrics.Registry.MustRegister(s.metrics, s.limits, state)
	log := logging.NewLogrLogger(m.GetLogger())
	r, operations := newReconciler(m, s, http.DefaultTransport)
	used := v1.GroupVersion().WithKind("ProviderConfigUsage")

	err := errors.Join(
		m.Add(statemetrics.NewMRStateRecorder(m.GetClient(), log, state, &v1.DatabaseList{}, time.Minute)),
		ctrl.NewControllerManagedBy(m).
			For(&v1.Database{}).
			WithEventFilter(predicate.Or(resource.DesiredStateChanged(), finalizerRemoved())).
			WatchesRawSource(operations).
			WithOptions(controller.Options{RateLimiter: ratelimiter.NewController()}).
			Complete(r),
		ctrl.NewControllerManagedBy(m).
			For(&v1.ProviderConfigUsage{}).
			Complete(usage.NewReleaser(m, used)))

	pc, cluster := &v1.ProviderConfig{}, &v1.ClusterProviderConfig{}
	for kind, o := range map[string]kube.Object{"ProviderConfig": pc, "ClusterProviderConfig": cluster} {
		err = errors.Join(err, ctrl.NewControllerManagedBy(m).
			For(o).
			Watches(&v1.ProviderConfigUsage{}, &resource.EnqueueRequestForProviderConfig{Kind: kind}).
			Complete(providerconfig.NewReconciler(m, resource.ProviderConfigKinds{
				Config:    v1.GroupVersion().WithKind(kind),
				Usage:     used,
				UsageList: v1.GroupVersion().WithKind("ProviderConfigUsageList"),
			})))
	}
	return err
}

// shared has the parts that controllers of all kinds use.
type shared struct {
	metrics *asyncstate.Metrics
	limits  *ratelimit.Limits
}

func newShared(m ctrl.Manager) shared {
	// Set it a little below the limit of the cloud for one account.
	account := func(ctx context.Context, mg resource.Managed) (string, error) {
		spec, err := configOf(ctx, m.GetClient(), mg)
		return spec.Endpoint + " " + spec.Account, err
	}
	return shared{asyncstate.NewMetrics(), ratelimit.New(20, 20, ratelimit.WithAccountKey(account))}
}

// newReconciler returns the reconciler of Databases, and the source that requeues one when
// its operation has ended.
func newReconciler(m ctrl.Manager, s shared, transport http.RoundTripper) (reconcile.Reconciler, source.Source) {
	log := logging.NewLogrLogger(m.GetLogger())
	recorder := event.NewAPIRecorder(m.GetEventRecorderFor("provider-example"))

	tracker := asyncstate.NewTracker(asyncstate.WithMetrics(s.metrics), asyncstate.WithTimeout(10*time.Minute))

	r := managed.NewReconciler(m, resource.ManagedKind(v1.GroupVersion().WithKind("Database")),
		managed.WithLogger(log),
		managed.WithRecorder(recorder),
		managed.WithManagementPolicies(),
		managed.WithInitializers(), // The cloud assigns names.
		managed.WithTypedExternalConnector(&connector{
			kube:  m.GetClient(),
			usage: usage.NewProviderConfigUsageTracker(m.GetClient(), &v1.ProviderConfigUsage{}),
			http:  &http.Client{Transport: transport},
		}),
		usage.WithProtection(v1.GroupVersion().WithKind("ProviderConfigUsage")),
		ratelimit.With(s.limits),
		asyncstate.With(tracker),

		// Two provider configs of one account share its external names.
		reservation.With(namespace),
		reservation.WithKey(reservation.ProviderConfigKey(
			m.GetClient(), v1.GroupVersion(), "spec.endpoint", "spec.account")))
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

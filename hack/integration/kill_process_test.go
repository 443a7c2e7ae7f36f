//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	upstreammanaged "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	graftmanaged "github.com/crossplane-graft/graft/pkg/managed"
)

// processVariable turns the test binary into a process of the provider, as the
// variable's value describes it.
const processVariable = "GRAFT_TEST_PROVIDER"

const (
	// An operation takes less than a second here, on an idle machine.
	processTimeout = 10 * time.Second

	// processAbsence is how long after the beginning of a create by an earlier
	// process its resource is there, or never will be. That process is dead, and
	// what it has asked for takes no longer than latest.
	processAbsence = 4 * time.Second
)

// A processConfig is what a process of the provider has to know. Like any provider
// it has an API server and a cloud that are somewhere else.
type processConfig struct {
	API   string
	Cloud string
	Graft bool
}

// runProcess runs a provider until it is killed, or until its parent process
// exits.
func runProcess(description string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(description), &c); err != nil {
		return fmt.Errorf("cannot read what %s describes: %w", processVariable, err)
	}

	ctx, cancel := context.WithCancel(context.Background())

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	s := runtime.NewScheme()
	if err := sample.AddToScheme(s); err != nil {
		return err
	}

	m, err := ctrl.NewManager(&rest.Config{Host: c.API, QPS: 1000, Burst: 2000}, ctrl.Options{
		Scheme:                 s,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{UsePriorityQueue: ptr.To(false)},
	})
	if err != nil {
		return err
	}

	if err := errors.Join(c.add(m, sample.DatabaseManagedKind(), &sample.Database{}), c.add(m, sample.BucketManagedKind(), &sample.Bucket{})); err != nil {
		return err
	}

	return m.Start(ctx)
}

func (c processConfig) add(m ctrl.Manager, of resource.ManagedKind, o client.Object) error {
	b := ctrl.NewControllerManagedBy(m).
		For(o).
		WithEventFilter(resource.DesiredStateChanged()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 250*time.Millisecond),
		})

	if !c.Graft {
		return b.Complete(c.newUpstream(m, of))
	}

	r, done := c.newGraft(m, of)

	return b.WatchesRawSource(done).Complete(r)
}

// newUpstream returns a controller of upjet's shape: what is created in the
// background is in memory until it is observed.
func (c processConfig) newUpstream(m ctrl.Manager, of resource.ManagedKind) reconcile.Reconciler {
	o := []upstreammanaged.ReconcilerOption{
		upstreammanaged.WithManagementPolicies(),
		upstreammanaged.WithInitializers(),
		upstreammanaged.WithCreationGracePeriod(setup{}.grace()),
		upstreammanaged.WithPollInterval(time.Second),
	}

	if schema.GroupVersionKind(of).Kind == sample.BucketKind {
		o = append(o, upstreammanaged.WithTypedExternalConnector(sample.NewAsync[*sample.Bucket](nil, sample.WithSessions(c.session), sample.WithBackground())))
	} else {
		o = append(o, upstreammanaged.WithExternalConnector(sample.NewAsync[resource.Managed](nil, sample.WithSessions(c.session), sample.WithBackground())))
	}

	return upstreammanaged.NewReconciler(m, of, o...)
}

// newGraft returns a controller whose clients do everything while they are called,
// made asynchronous by one option. Databases are looked for after a crash; Buckets
// are created again with the same token.
func (c processConfig) newGraft(m ctrl.Manager, of resource.ManagedKind) (reconcile.Reconciler, source.Source) {
	to := []asyncstate.TrackerOption{
		asyncstate.WithLiveReader(m.GetAPIReader()),
		asyncstate.WithTimeout(processTimeout),
		asyncstate.WithAbsenceAfter(processAbsence),
		asyncstate.WithBackoff(100*time.Millisecond, time.Second),
	}

	o := []graftmanaged.ReconcilerOption{
		graftmanaged.WithManagementPolicies(),
		graftmanaged.WithInitializers(),
		graftmanaged.WithCreationGracePeriod(setup{}.grace()),
		graftmanaged.WithPollInterval(time.Second),
	}

	if schema.GroupVersionKind(of).Kind == sample.BucketKind {
		to = append(to, asyncstate.WithIdempotentTokens())
		o = append(o, graftmanaged.WithTypedExternalConnector(sample.NewLasting[*sample.Bucket](nil, sample.WithSessions(c.session), sample.WithCreateTokens())))
	} else {
		o = append(o, graftmanaged.WithExternalConnector(sample.NewLasting[resource.Managed](nil, sample.WithSessions(c.session))))
	}

	t := asyncstate.NewTracker(m.GetClient(), to...)

	return graftmanaged.NewReconciler(m, of, append(o, graftmanaged.WithAsync(t))...), t.Source()
}

func (c processConfig) session(ctx context.Context, token string) (sample.Session, error) {
	return httpapi.NewClient(c.Cloud, http.DefaultClient).NewSession(ctx, token)
}

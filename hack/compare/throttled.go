package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

const (
	throttledResources = 10_000
	throttledAccounts  = 3
	throttledRate      = 50          // requests a second that the cloud answers for each account
	throttledPoll      = time.Minute // for that many

	// throttledUrgent is how many managed resources are created and how many are deleted
	// while the others are polled for the first time.
	throttledUrgent = 50

	externalCallTakes = 50 * time.Millisecond
	statusWriteTakes  = 5 * time.Millisecond
)

// throttledReconcilers are the ways to reconcile that are compared.
func throttledReconcilers() []string { return []string{"upstream", "graft", "graft-limits"} }

// A throttledResult has the calls of the cloud until each managed resource was observed.
type throttledResult struct {
	calls         int
	refused, used float64 // percent of the calls, and of the rate of all accounts
	drained       time.Duration

	// p99 of the times until the first answer for managed resources that were created or
	// deleted meanwhile, of all accounts that the cloud answers.
	p99 time.Duration
}

// throttledRestarts measures restarts with a cloud that throttles, in simulated time.
func (o options) throttledRestarts(t *testing.T, r *results) {
	for _, name := range throttledReconcilers() {
		fmt.Fprintf(os.Stderr, "a restart of %s with a cloud that throttles\n", name)
		got, add := restart(t, name, throttledResources, false), r.adder("throttled/%s/", name)
		add("calls", "", float64(got.calls))
		add("refused", "%", got.refused)
		add("used", "%", got.used)
		add("drained", "s", got.drained.Seconds())
		add("urgent-p99", "s", got.p99.Seconds())
		if name == "graft-limits" {
			denied := restart(t, name, throttledResources, true)
			add("urgent-p99-beside-denied", "s", denied.p99.Seconds())
		}
	}
}

// restart a provider, and wait until each managed resource was observed once. If denied, the
// cloud answers 429 to all calls of the first account.
func restart(t *testing.T, reconciler string, resources int, denied bool) (result throttledResult) {
	synctest.Test(t, func(t *testing.T) { result = simulate(t, reconciler, resources, newThrottlingCloud(denied)) })
	return result
}

func simulate(t *testing.T, name string, resources int, cloud *throttlingCloud) throttledResult {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := newServer(t)
	create := func(kind string, i int) *v1alpha1.Database {
		d := v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", kind, i))
		d.Spec.ProviderConfigReference = &xpv2.Reference{Name: fmt.Sprintf("account-%d", i%throttledAccounts)}
		d.SetFinalizers([]string{graft.FinalizerName})
		must(t, server.Admin().Create(ctx, d))
		return d
	}
	var all []*v1alpha1.Database
	for i := range resources {
		d := create("db", i)
		cloud.exists[d.Name] = true
		synced, ready := xpv2.ReconcileSuccess(), xpv2.Available()
		synced.ObservedGeneration, ready.ObservedGeneration = d.GetGeneration(), d.GetGeneration()
		d.SetConditions(synced, ready)
		must(t, server.Admin().Status().Update(ctx, d))
		all = append(all, d)
	}

	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	enqueue := func(d *v1alpha1.Database) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
	}
	connector := upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
		return cloud, nil
	})
	m := server.ManagerFor(interceptor.NewClient(server.Client(), embedded.Intercept(
		func(_ context.Context, c embedded.Call, serve func() error) error {
			if c.Subresource == "status" && c.Verb == embedded.VerbUpdate {
				time.Sleep(statusWriteTakes)
			}
			return serve()
		})))
	kind, poll := v1alpha1.DatabaseManagedKind(), throttledPoll*time.Duration(resources)/throttledResources
	o := []graft.ReconcilerOption{graft.WithPollInterval(poll), graft.WithExternalConnector(connector)}
	if name == "graft-limits" {
		o = append(o, ratelimit.With(ratelimit.New(throttledRate-0.5, throttledRate/5)))
	}
	var reconciler reconcile.Reconciler = graft.NewReconciler(m, kind, o...)
	if name == upstreamSide {
		reconciler = upstream.NewReconciler(m, kind,
			upstream.WithPollInterval(poll), upstream.WithExternalConnector(connector))
	}
	c, err := controller.NewTypedUnmanaged("throttled", controller.Options{
		Reconciler: reconciler, MaxConcurrentReconciles: workers, SkipNameValidation: ptr.To(true),
		NewQueue: func(string, limiter) queue { return q },
	})
	must(t, err)
	began, ended := time.Now(), make(chan error, 1)
	for _, d := range all {
		enqueue(d)
	}
	go func() { ended <- c.Start(ctx) }()

	// The urgent ones are spread over the time that the others take at least.
	atLeast := time.Duration(float64(resources) / throttledRate / throttledAccounts * float64(time.Second))
	for i := range throttledUrgent {
		time.Sleep(atLeast / throttledUrgent)
		created, deleted := create("new", i), all[len(all)-1-i]
		cloud.expect(created)
		enqueue(created)
		must(t, server.Admin().Delete(ctx, deleted))
		cloud.expect(deleted)
		enqueue(deleted)
	}
	result := cloud.drained(t, began, resources)
	cancel()
	must(t, <-ended)
	return result
}

type (
	limiter = workqueue.TypedRateLimiter[reconcile.Request]
	queue   = workqueue.TypedRateLimitingInterface[reconcile.Request]
)

// A throttlingCloud answers a number of requests a second for each account, and 429 to more.
// It is an external client, too: Update, which nothing calls, and Disconnect do nothing.
type throttlingCloud struct {
	upstream.NopClient

	mu       sync.Mutex
	buckets  map[string]*rate.Limiter // By account. One that is denied has none.
	exists   map[string]bool
	answered map[string]time.Time

	// expected are the managed resources that were created or deleted, and when.
	expected map[*v1alpha1.Database]time.Time

	calls, refused int
}

// newThrottlingCloud returns a cloud that answers 429 to all calls of the first account if
// that is denied.
func newThrottlingCloud(denied bool) *throttlingCloud {
	c := &throttlingCloud{
		buckets: map[string]*rate.Limiter{}, exists: map[string]bool{},
		answered: map[string]time.Time{}, expected: map[*v1alpha1.Database]time.Time{},
	}
	for i := range throttledAccounts {
		if i > 0 || !denied {
			c.buckets[fmt.Sprintf("account-%d", i)] = rate.NewLimiter(throttledRate, throttledRate)
		}
	}
	return c
}

// A throttledError is an answer 429.
type throttledError struct{ Response *http.Response }

func (e *throttledError) Error() string { return "the cloud answers: " + e.Response.Status }

func (c *throttlingCloud) expect(d *v1alpha1.Database) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[d] = time.Now()
	delete(c.answered, d.Name)
}

// call the cloud for a managed resource. It has an effect if it is answered.
func (c *throttlingCloud) call(mg resource.Managed, effect func()) error {
	time.Sleep(externalCallTakes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	d := mg.(*v1alpha1.Database) //nolint:errcheck // There is no other kind.
	if bucket := c.buckets[d.Spec.ProviderConfigReference.Name]; bucket == nil || !bucket.Allow() {
		c.refused++
		return &throttledError{&http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {"1"}},
		}}
	}
	if c.answered[d.Name].IsZero() {
		c.answered[d.Name] = time.Now()
	}
	effect()
	return nil
}

// drained waits until the cloud has answered for each of the n managed resources that were there
// before the restart, except for the denied account.
func (c *throttlingCloud) drained(t *testing.T, began time.Time, n int) throttledResult {
	t.Helper()
	const patience = time.Hour
	n = n * len(c.buckets) / throttledAccounts
	for c.observed() < n && time.Since(began) < patience {
		time.Sleep(time.Second)
	}
	if got := c.observed(); got < n {
		t.Errorf("%d of %d managed resources were not observed within %s", n-got, n, patience)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	took := time.Since(began)
	var delays []time.Duration
	for d, since := range c.expected {
		at := c.answered[d.Name]
		if at.IsZero() {
			at = time.Now()
		}
		if c.buckets[d.Spec.ProviderConfigReference.Name] != nil {
			delays = append(delays, at.Sub(since))
		}
	}
	slices.Sort(delays)
	return throttledResult{
		calls: c.calls, refused: 100 * float64(c.refused) / float64(c.calls),
		used:    100 * float64(c.calls-c.refused) / (throttledRate * throttledAccounts * took.Seconds()),
		drained: took, p99: delays[len(delays)*99/100],
	}
}

func (c *throttlingCloud) observed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.answered {
		if strings.HasPrefix(name, "db-") {
			n++
		}
	}
	return n
}

// Observe the external resource, which is always up to date.
func (c *throttlingCloud) Observe(
	_ context.Context, mg resource.Managed,
) (o upstream.ExternalObservation, err error) {
	err = c.call(mg, func() {
		mg.SetConditions(xpv2.Available())
		o = upstream.ExternalObservation{ResourceExists: c.exists[mg.GetName()], ResourceUpToDate: true}
	})
	return o, err
}

// Create the external resource.
func (c *throttlingCloud) Create(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	return upstream.ExternalCreation{}, c.call(mg, func() {
		c.exists[mg.GetName()] = true
		meta.SetExternalName(mg, mg.GetName())
	})
}

// Delete the external resource.
func (c *throttlingCloud) Delete(_ context.Context, mg resource.Managed) (upstream.ExternalDelete, error) {
	return upstream.ExternalDelete{}, c.call(mg, func() { delete(c.exists, mg.GetName()) })
}

func newServer(t *testing.T) *embedded.Server {
	s := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(s))
	server, err := embedded.New(embedded.Options{Scheme: s, CRDs: v1alpha1.CRDs()})
	must(t, err)
	return server
}

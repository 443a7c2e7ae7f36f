package main

import (
	"context"
	"fmt"
	"net/http"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
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

// A throttledRun is a restart of a provider whose cloud throttles.
type throttledRun struct {
	reconciler string // a name of throttledReconcilers
	resources  int

	// denied lets the cloud answer 429 to all calls of the first account.
	denied bool
}

// throttledReconcilers are the ways to reconcile that are compared.
func throttledReconcilers() []string { return []string{"upstream", "graft", "graft-limits"} }

// A throttledResult has the calls of the cloud until each managed resource was observed.
type throttledResult struct {
	calls, refused int
	drained        time.Duration

	// delays are the times until the first answer for managed resources that were created
	// or deleted meanwhile, of all accounts that the cloud answers.
	delays []time.Duration
}

// percent of the calls that were refused.
func (r throttledResult) refusedPercent() float64 { return 100 * float64(r.refused) / float64(r.calls) }

// usedPercent of the rate of all accounts.
func (r throttledResult) usedPercent() float64 {
	return 100 * float64(r.calls-r.refused) / (throttledRate * throttledAccounts * r.drained.Seconds())
}

func (r throttledResult) p99() time.Duration {
	sorted := slices.Sorted(slices.Values(r.delays))
	return sorted[len(sorted)*99/100]
}

// throttledRestarts measures restarts with a cloud that throttles, in simulated time.
func (o options) throttledRestarts(t *testing.T, r *results) {
	for _, name := range throttledReconcilers() {
		fmt.Fprintf(o.stderr, "a restart of %s with a cloud that throttles\n", name)
		got := throttledRun{reconciler: name, resources: throttledResources}.run(t)
		prefix := "throttled/" + name + "/"
		r.add(prefix+"calls", "", float64(got.calls))
		r.add(prefix+"refused", "%", got.refusedPercent())
		r.add(prefix+"used", "%", got.usedPercent())
		r.add(prefix+"drained", "s", got.drained.Seconds())
		r.add(prefix+"urgent-p99", "s", got.p99().Seconds())
		if name == "graft-limits" {
			denied := throttledRun{reconciler: name, resources: throttledResources, denied: true}.run(t)
			r.add(prefix+"urgent-p99-beside-denied", "s", denied.p99().Seconds())
		}
	}
}

// run the restart until each managed resource was observed once.
func (w throttledRun) run(t *testing.T) throttledResult {
	var result throttledResult
	synctest.Test(t, func(t *testing.T) { result = w.simulate(t) })
	return result
}

func (w throttledRun) simulate(t *testing.T) throttledResult {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.New(embedded.Options{Scheme: s, CRDs: v1alpha1.CRDs()})
	if err != nil {
		t.Fatal(err)
	}

	cloud := newThrottlingCloud(w.denied)
	create := func(kind string, i int, status bool) *v1alpha1.Database {
		d := v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", kind, i))
		d.Spec.ProviderConfigReference = &xpv2.Reference{Name: fmt.Sprintf("account-%d", i%throttledAccounts)}
		d.SetFinalizers([]string{graft.FinalizerName})
		if err := server.Admin().Create(ctx, d); err != nil {
			t.Fatal(err)
		}
		if status {
			cloud.add(d)
			synced, ready := xpv2.ReconcileSuccess(), xpv2.Available()
			synced.ObservedGeneration, ready.ObservedGeneration = d.GetGeneration(), d.GetGeneration()
			d.SetConditions(synced, ready)
			if err := server.Admin().Status().Update(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}

	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	enqueue := func(d *v1alpha1.Database) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
	}
	var all []*v1alpha1.Database
	for i := range w.resources {
		all = append(all, create("db", i, true))
	}

	reconciler := w.newReconciler(server, cloud)
	began := time.Now()
	for _, d := range all {
		enqueue(d)
	}
	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() { work(ctx, q, reconciler) })
	}

	// The urgent ones are spread over the time that the others take at least.
	atLeast := time.Duration(float64(w.resources) / throttledRate / throttledAccounts * float64(time.Second))
	for i := range throttledUrgent {
		time.Sleep(atLeast / throttledUrgent)
		created := create("new", i, false)
		cloud.expect(created)
		enqueue(created)

		deleted := all[len(all)-1-i]
		if err := server.Admin().Delete(ctx, deleted); err != nil {
			t.Fatal(err)
		}
		cloud.expect(deleted)
		enqueue(deleted)
	}
	result := cloud.drained(began, w.resources)
	cancel()
	q.ShutDown()
	workers.Wait()
	return result
}

func (w throttledRun) newReconciler(server *embedded.Server, cloud *throttlingCloud) reconcile.Reconciler {
	m := server.ManagerFor(interceptor.NewClient(server.Client(), interceptor.Funcs{
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			time.Sleep(statusWriteTakes)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}))
	kind, poll := v1alpha1.DatabaseManagedKind(), throttledPoll*time.Duration(w.resources)/throttledResources
	if w.reconciler == "upstream" {
		return upstream.NewReconciler(m, kind,
			upstream.WithPollInterval(poll), upstream.WithExternalConnector(cloud.connector()))
	}
	o := []graft.ReconcilerOption{graft.WithPollInterval(poll), graft.WithExternalConnector(cloud.connector())}
	if w.reconciler == "graft-limits" {
		o = append(o, graft.WithRateLimits(graft.NewRateLimits(throttledRate-0.5, throttledRate/5)))
	}
	return graft.NewReconciler(m, kind, o...)
}

// work as a worker of a controller does.
func work(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], r reconcile.Reconciler) {
	for {
		req, ends := q.Get()
		if ends {
			return
		}
		result, err := r.Reconcile(ctx, req)
		switch {
		case err != nil, result.Requeue: //nolint:staticcheck // Deprecated, but upstream's reconciler returns it.
			q.AddRateLimited(req)
		case result.RequeueAfter > 0:
			q.Forget(req)
			q.AddAfter(req, result.RequeueAfter)
		default:
			q.Forget(req)
		}
		q.Done(req)
	}
}

// A throttlingCloud answers a number of requests a second for each account, and 429 to more.
type throttlingCloud struct {
	mu       sync.Mutex
	buckets  map[string]*rate.Limiter
	exists   map[string]bool
	answered map[string]time.Time
	expected map[string]expectation
	denied   string

	calls, refused int
}

// An expectation is the first answer for a managed resource that was created or deleted.
type expectation struct {
	account string
	since   time.Time
}

func newThrottlingCloud(denied bool) *throttlingCloud {
	c := &throttlingCloud{
		buckets: map[string]*rate.Limiter{}, exists: map[string]bool{},
		answered: map[string]time.Time{}, expected: map[string]expectation{},
	}
	if denied {
		c.denied = "account-0"
	}
	return c
}

// A throttledError is an answer 429.
type throttledError struct{ Response *http.Response }

func (e *throttledError) Error() string { return "the cloud answers: " + e.Response.Status }

func (c *throttlingCloud) add(mg resource.Managed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exists[mg.GetName()] = true
}

func (c *throttlingCloud) expect(mg resource.Managed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[mg.GetName()] = expectation{account: accountOf(mg), since: time.Now()}
	delete(c.answered, mg.GetName())
}

func accountOf(mg resource.Managed) string {
	if d, ok := mg.(*v1alpha1.Database); ok && d.Spec.ProviderConfigReference != nil {
		return d.Spec.ProviderConfigReference.Name
	}
	return ""
}

// call the cloud for a managed resource.
func (c *throttlingCloud) call(mg resource.Managed) error {
	time.Sleep(externalCallTakes)
	c.mu.Lock()
	defer c.mu.Unlock()
	account := accountOf(mg)
	if c.buckets[account] == nil {
		c.buckets[account] = rate.NewLimiter(throttledRate, throttledRate)
	}

	c.calls++
	if account == c.denied || !c.buckets[account].Allow() {
		c.refused++
		return &throttledError{&http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {"1"}},
		}}
	}
	if c.answered[mg.GetName()].IsZero() {
		c.answered[mg.GetName()] = time.Now()
	}
	return nil
}

// drained waits until the cloud has answered for each of n managed resources.
func (c *throttlingCloud) drained(began time.Time, n int) throttledResult {
	const patience = time.Hour
	for {
		c.mu.Lock()
		answered, expected := 0, n
		for name := range c.answered {
			if strings.HasPrefix(name, "db-") {
				answered++
			}
		}
		if c.denied != "" {
			expected = n * (throttledAccounts - 1) / throttledAccounts
		}
		if answered >= expected || time.Since(began) > patience {
			break
		}
		c.mu.Unlock()
		time.Sleep(time.Second)
	}
	defer c.mu.Unlock()

	r := throttledResult{calls: c.calls, refused: c.refused, drained: time.Since(began)}
	for name, e := range c.expected {
		if e.account == c.denied {
			continue
		}
		at := c.answered[name]
		if at.IsZero() {
			at = time.Now()
		}
		r.delays = append(r.delays, at.Sub(e.since))
	}
	return r
}

func (c *throttlingCloud) connector() upstream.ExternalConnector {
	return upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
		return upstream.ExternalClientFns{
			ObserveFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
				if err := c.call(mg); err != nil {
					return upstream.ExternalObservation{}, err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				mg.SetConditions(xpv2.Available())
				return upstream.ExternalObservation{ResourceExists: c.exists[mg.GetName()], ResourceUpToDate: true}, nil
			},
			CreateFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
				if err := c.call(mg); err != nil {
					return upstream.ExternalCreation{}, err
				}
				c.add(mg)
				meta.SetExternalName(mg, mg.GetName())
				return upstream.ExternalCreation{}, nil
			},
			UpdateFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
				return upstream.ExternalUpdate{}, c.call(mg)
			},
			DeleteFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalDelete, error) {
				if err := c.call(mg); err != nil {
					return upstream.ExternalDelete{}, err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.exists, mg.GetName())
				return upstream.ExternalDelete{}, nil
			},
			DisconnectFn: func(context.Context) error { return nil },
		}, nil
	})
}

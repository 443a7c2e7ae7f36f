package crashtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
)

// A rightProvider must have no finding.
type rightProvider struct {
	name     string
	provider func(t testing.TB) Provider[*vmCloud]
}

// graftAsync starts a provider whose operations take some time, and outlive a reconcile.
func graftAsync(takes time.Duration) func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
	return func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		tracker := asyncstate.NewTracker(asyncstate.WithTimeout(10 * time.Minute))
		if err := p.Manager().Add(tracker); err != nil {
			return nil, errors.Wrap(err, "cannot add the tracker")
		}
		c := newChanged(p, a, false)
		c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			e, err := c.vmClient.Create(ctx, mg)
			if err != nil {
				return e, err
			}
			if err := asyncstate.SetExternalName(ctx, meta.GetExternalName(mg)); err != nil {
				return e, err
			}
			select {
			case <-time.After(takes):
				return e, nil
			case <-ctx.Done():
				return e, ctx.Err()
			}
		}
		return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(),
			managed.WithManagementPolicies(), managed.WithInitializers(),
			reservation.With("default"),
			managed.WithExternalConnector(connect(c)), asyncstate.With(tracker)), p.Watch(tracker.Source())
	}
}

// sdk returns a provider whose calls are steps, or whose connector is wrapped.
func sdk(wraps bool) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		p := vmProvider(t, nil)
		p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
			client := &sdkClient{cloud: c, named: true, step: p.Step}
			if wraps {
				client.step = nil
			}
			connector := sdkConnector(client)
			if wraps {
				connector = Connector(p, connector)
			}
			return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(), append(chosenNames(p),
				managed.WithTypedExternalConnector(connector), reservation.With("default"),
				confirm.With(3, 5*time.Second))...), nil
		}
		return p
	}
}

// ensuring calls first before ensure of a plain reconciler.
func ensuring(r *plain, first func(ctx context.Context, b *v1alpha1.Bucket) error) {
	ensure := r.ensure
	r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
		if err := first(ctx, b); err != nil {
			return err
		}
		return ensure(ctx, b)
	}
}

// concurrently makes some requests at the same time.
func concurrently(_ *Process, r *plain) {
	ensuring(r, func(ctx context.Context, _ *v1alpha1.Bucket) error {
		var all sync.WaitGroup
		errs := make([]error, 3)
		for i, path := range []string{"/vms/x", "/vms/y", "/vms/z"} {
			all.Go(func() { errs[i] = r.api.do(ctx, http.MethodGet, path, nil, &vm{}) })
		}
		all.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, errNotFound) {
				return err
			}
		}
		return nil
	})
}

// announces writes the managed resource before each create: a process that has read it before its deletion gets a
// conflict. Without it, a slow reconcile creates again the resource that another process has deleted.
func announces(r *plain) {
	create := r.create
	r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
		meta.AddAnnotations(b, map[string]string{"example.org/creating": time.Now().String()})
		if err := r.kube.Update(ctx, b); err != nil {
			return err
		}
		return create(ctx, b)
	}
}

// inMapOrder makes requests in the order of a map.
func inMapOrder(_ *Process, r *plain) {
	announces(r)
	tags := map[string]bool{"a": true, "b": true, "c": true, "d": true}
	ensuring(r, func(ctx context.Context, _ *v1alpha1.Bucket) error {
		for tag := range maps.Keys(tags) {
			err := r.api.do(ctx, http.MethodGet, "/vms/"+tag, nil, &vm{})
			if err != nil && !errors.Is(err, errNotFound) {
				return err
			}
		}
		return nil
	})
}

// withChild creates a ConfigMap that the managed resource owns.
func withChild(_ *Process, r *plain) {
	ensuring(r, func(ctx context.Context, b *v1alpha1.Bucket) error {
		cm := &corev1.ConfigMap{}
		cm.SetNamespace(b.GetNamespace())
		cm.SetName("of-" + b.GetName())
		err := r.kube.Get(ctx, client.ObjectKeyFromObject(cm), cm)
		if client.IgnoreNotFound(err) != nil || err == nil {
			return err
		}
		meta.AddOwnerReference(
			cm, meta.AsController(meta.TypedReferenceTo(b, schema.GroupVersionKind(v1alpha1.BucketManagedKind()))),
		)
		return r.kube.Create(ctx, cm)
	})
}

// withSecondFinalizer adds and removes a second finalizer of its own.
func withSecondFinalizer(_ *Process, r *plain) {
	add := r.addFinalizer
	r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
		if controllerutil.AddFinalizer(b, "example.org/second") {
			if err := r.kube.Update(ctx, b); err != nil {
				return err
			}
		}
		return add(ctx, b)
	}
	r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
		if !meta.WasDeleted(b) || !controllerutil.RemoveFinalizer(b, "example.org/second") {
			return false, nil
		}
		return false, r.kube.Update(ctx, b)
	}
}

// A tokenSource holds a lock while it requests a token, as the token source of golang.org/x/oauth2 does.
type tokenSource struct {
	mu    sync.Mutex
	until time.Time
	api   vmAPI
}

func (s *tokenSource) token(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil
	}
	err := s.api.do(ctx, http.MethodGet, "/vms?owner=token", nil, &[]vm{})
	if err == nil {
		s.until = time.Now().Add(time.Hour)
	}
	return err
}

// withToken requests a token before each Observe.
func withToken(c *changed) {
	s := &tokenSource{api: c.api}
	c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
		if err := s.token(ctx); err != nil {
			return managed.ExternalObservation{}, err
		}
		return c.vmClient.Observe(ctx, mg)
	}
}

// rightProviders returns providers that are right, also unusual ones.
func rightProviders() []rightProvider {
	started := func(
		start func(p *Process, a vmAPI) (reconcile.Reconciler, error),
	) func(t testing.TB) Provider[*vmCloud] {
		return func(t testing.TB) Provider[*vmCloud] {
			t.Helper()
			return vmProvider(t, start)
		}
	}
	configMaps := func(of func(t testing.TB) Provider[*vmCloud]) func(t testing.TB) Provider[*vmCloud] {
		return func(t testing.TB) Provider[*vmCloud] {
			t.Helper()
			p := of(t)
			if err := corev1.AddToScheme(p.Scheme); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	serial := func(of func(t testing.TB) Provider[*vmCloud]) func(t testing.TB) Provider[*vmCloud] {
		return func(t testing.TB) Provider[*vmCloud] {
			t.Helper()
			p := of(t)
			p.Serial = true
			p.Scenarios = append(Scenarios(), Scenario{
				Name: "two-restart", Setup: []Act{{Do: Create}, {Do: CreateSecond}}, Acts: []Act{{Do: Restart}},
			})
			return p
		}
	}
	return []rightProvider{
		{"GraftChosenNames", started(graftNamed)},
		{"GraftFinder", started(graftFound)},
		{"Async", started(graftAsync(0))},
		{"AsyncOfThreeMinutes", started(graftAsync(3 * time.Minute))},
		{"UpstreamChosenNames", upstreamWith(true, func(*changed) {})},
		{"Steps", sdk(false)},
		{"Connector", sdk(true)},
		{"Plain", plainWith(func(*Process, *plain) {})},
		{"PollsRarely", plainWith(pollsRarely)},
		{"PollsOften", plainWith(pollsOften)},
		{"LogsInAndOut", plainWith(logsIn("/login", "/session"))},
		{"ConcurrentRequests", plainWith(concurrently)},
		{"MapOrder", plainWith(inMapOrder)},
		{"ChildConfigMap", configMaps(plainWith(withChild))},
		{"SecondFinalizer", plainWith(withSecondFinalizer)},
		{"UpdatesByPost", plainWith(func(_ *Process, r *plain) { posts(r) })},
		{"Pages", plainWith(func(_ *Process, r *plain) {
			announces(r)
			ensuring(r, func(ctx context.Context, _ *v1alpha1.Bucket) error {
				for page := 1; ; page++ {
					path := fmt.Sprintf("/vms/page/%d", page)
					if err := r.api.do(ctx, http.MethodGet, path, nil, &vm{}); errors.Is(err, errNotFound) {
						return nil
					} else if err != nil {
						return err
					}
				}
			})
		})},
		{"ClientTimeout", plainWith(func(_ *Process, r *plain) { r.api.http.Timeout = 10 * time.Second })},
		{"TokenUnderALock", serial(graftWith(true, withToken))},
	}
}

// TestRun_RightProviders proves that a provider that is right has no finding. TestJudgeRight makes many runs.
func TestRun_RightProviders(t *testing.T) {
	for _, r := range rightProviders() {
		t.Run(r.name, func(t *testing.T) { Run(t, r.provider(t), Runs(8)) })
	}
}

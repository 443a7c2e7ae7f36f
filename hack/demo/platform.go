package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

const (
	// reconcileTimeout bounds a reconcile of a composite. Crossplane's is 2 minutes.
	reconcileTimeout = 10 * time.Second

	// lookEvery is how often a user, and a composite's controller, look again.
	lookEvery = 50 * time.Millisecond

	// looks is how often a user looks for what should be there at once: for about a
	// second, and longer on a machine that is busy.
	looks = 20

	// remindEvery is how often the API server is reminded of a CRD that is being
	// deleted: it may forget one after a conflict.
	remindEvery = 5 * time.Second
)

// A platform is Crossplane as far as the stories of watches go: an engine, and
// controllers of composites.
type platform struct {
	engine

	group string
	live  client.Client
	line  *timeline

	// requests are those for each kind, by its plural.
	mu       sync.Mutex
	requests map[string]int

	ended func() error
}

// startPlatform starts one on the API server of a stage.
func (s *scene) startPlatform(ctx context.Context, name string) *platform {
	cfg := s.stage.config()
	p := &platform{
		group: s.side.key + "." + name + ".example.org", line: &s.recorder.timeline, requests: map[string]int{},
	}
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{next: next, platform: p} })
	scheme := runtime.NewScheme()
	check(extv1.AddToScheme(scheme))
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), NewCache: s.side.engines.cache,
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	check(err)
	p.live, err = client.New(cfg, client.Options{Scheme: scheme})
	check(err)
	p.engine = s.side.engines.engine(m, p.live)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	s.started = append(s.started, p)
	p.ended = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	check(p.GarbageCollectCustomResourceInformers(ctx))
	return p
}

func (p *platform) stop() error { return p.ended() }

// A counted transport counts requests by kind.
type counted struct {
	next     http.RoundTripper
	platform *platform
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	_, of, ok := strings.Cut(r.URL.Path, "/apis/"+c.platform.group+"/v1/")
	if ok {
		of = of[strings.LastIndex(of, "/")+1:]
		c.platform.mu.Lock()
		c.platform.requests[of]++
		c.platform.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

func (p *platform) requestsFor(kind string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[strings.ToLower(kind)+"s"]
}

func (p *platform) kind(k string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: p.group, Version: "v1", Kind: k}
}

// define kinds, and return when they are served.
func (p *platform) define(ctx context.Context, kinds ...string) {
	for _, k := range kinds {
		check(p.live.Create(ctx, anyCRD(p.kind(k), extv1.ClusterScoped)))
		p.until(ctx, func(ctx context.Context) bool {
			err := p.live.Get(ctx, client.ObjectKey{Name: "none"}, objectOf(p.kind(k), client.ObjectKey{}))
			return kerrors.IsNotFound(err) && !strings.Contains(err.Error(), "could not find the requested resource")
		})
	}
}

// undefine a kind, and return when it no longer exists, with its objects.
func (p *platform) undefine(ctx context.Context, kind string) {
	crd := anyCRD(p.kind(kind), extv1.ClusterScoped)
	reminded := time.Now()
	p.until(ctx, func(ctx context.Context) bool {
		if time.Since(reminded) > remindEvery {
			reminded = time.Now()
			body := fmt.Sprintf(`{"metadata":{"annotations":{"reminded":%q}}}`, reminded)
			_ = p.live.Patch(ctx, crd.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(body)))
		}
		return kerrors.IsNotFound(p.live.Delete(ctx, crd.DeepCopy()))
	})
}

// until waits for something to become true.
func (p *platform) until(ctx context.Context, done func(ctx context.Context) bool) {
	check(p.poll(ctx, done))
}

func (p *platform) poll(ctx context.Context, done func(ctx context.Context) bool) error {
	return wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		return done(ctx), nil
	})
}

// within reports whether something becomes true in a time.
func (p *platform) within(ctx context.Context, d time.Duration, done func(ctx context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return p.poll(ctx, done) == nil
}

// A compositor is a controller of composites: it reads the composed object, which
// has the composite's name, creates it if it is missing, and watches it.
type compositor struct {
	*platform

	of, composed schema.GroupVersionKind

	// waiting is since when it waits for a read, in nanoseconds; 0 if it doesn't.
	waiting atomic.Int64
}

func (p *platform) compositor(of, composed string) *compositor {
	return &compositor{platform: p, of: p.kind(of), composed: p.kind(composed)}
}

func (c *compositor) name() string { return "composite/" + c.of.Kind + "." + c.group }

func (c *compositor) start(ctx context.Context, used watch.DependenciesFn) {
	check(c.Start(c.name(), c, used))
	check(c.Watch(ctx, c.name(), watch.WatchTypeCompositeResource, c.of))
}

func (c *compositor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	xr := claim.New(claim.WithGroupVersionKind(c.of)) // Of any kind: it has conditions.
	again := reconcile.Result{RequeueAfter: lookEvery}
	timed, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if err := c.Get(timed, req.NamespacedName, xr.GetUnstructured()); err != nil {
		return again, nil
	}
	was := &claim.Unstructured{Unstructured: *xr.GetUnstructured().DeepCopy()}
	xr.SetConditions(xpv2.ReconcileSuccess(), xpv2.Available())
	if err := c.compose(timed, req.NamespacedName); err != nil {
		xr.SetConditions(xpv2.ReconcileError(err))
	}

	if sameConditions(was, xr) {
		return again, nil
	}
	if err := c.live.Status().Update(ctx, xr.GetUnstructured()); err == nil {
		c.line.look(ctx)
	}
	return again, nil
}

func sameConditions(a, b *claim.Unstructured) bool {
	for _, t := range []xpv2.ConditionType{xpv2.TypeReady, xpv2.TypeSynced} {
		if !a.GetCondition(t).Equal(b.GetCondition(t)) {
			return false
		}
	}
	return true
}

func (c *compositor) compose(ctx context.Context, key client.ObjectKey) error {
	c.waiting.Store(time.Now().UnixNano())
	err := c.Get(ctx, key, objectOf(c.composed, key))
	c.waiting.Store(0)
	if kerrors.IsNotFound(err) {
		if err = c.live.Create(ctx, objectOf(c.composed, key)); kerrors.IsNotFound(err) {
			return nil // The kind went since the read. The next read meets that.
		}
	}

	if err != nil {
		return err
	}
	return c.Watch(ctx, c.name(), watch.WatchTypeDependency, c.composed)
}

// create lets a user create a composite.
func (c *compositor) create(ctx context.Context, name string) {
	c.line.add(byUser, "creates "+c.of.Kind+" "+name)
	c.line.watch(c.live, c.of, client.ObjectKey{Name: name})
	defer c.line.look(ctx)
	check(c.live.Create(ctx, objectOf(c.of, client.ObjectKey{Name: name})))
}

func (c *compositor) condition(ctx context.Context, name string, t xpv2.ConditionType) xpv2.Condition {
	xr := claim.New(claim.WithGroupVersionKind(c.of))
	_ = c.live.Get(ctx, client.ObjectKey{Name: name}, xr.GetUnstructured())
	return xr.GetCondition(t)
}

// isReady looks at a composite for a while, and finds its Ready condition.
func (c *compositor) isReady(ctx context.Context, where, name string) finding {
	var r xpv2.Condition
	n := 0
	c.until(ctx, func(ctx context.Context) bool {
		r, n = c.condition(ctx, name, xpv2.TypeReady), n+1
		return r.Status == corev1.ConditionTrue || n > looks
	})

	f := finding{Where: where, Seen: fmt.Sprintf("%s (%s)", r.Status, r.Reason), Good: r.Status == corev1.ConditionTrue}
	if r.Reason == "" {
		f.Seen = "not set"
	}
	return f
}

// becomesReady waits for a composite as long as it takes.
func (c *compositor) becomesReady(ctx context.Context, name string) {
	c.until(ctx, func(ctx context.Context) bool {
		return c.condition(ctx, name, xpv2.TypeReady).Status == corev1.ConditionTrue
	})
}

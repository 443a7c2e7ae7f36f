package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/hack/internal/apicalls"
	controller "github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/watch"
)

// reconcileTimeout bounds a reconcile of a composite. Crossplane's is 2 minutes.
const reconcileTimeout = 10 * time.Second

// A platform is Crossplane as far as the stories of watches go: an engine, and
// controllers of composites.
type platform struct {
	*scene
	engine

	group    string
	cached   client.Reader
	live     client.Client
	requests apicalls.Counter
}

// startPlatform starts one on the API server of a stage. It serves kinds, each in a definition of its own.
func (s *scene) startPlatform(name string, kinds ...string) *platform {
	cfg := s.config()
	cfg.QPS = -1
	p := &platform{scene: s, group: s.side.key + "." + name + ".example.org"}
	cfg.Wrap(p.requests.Wrap)
	scheme := runtime.NewScheme()
	check(extv1.AddToScheme(scheme))
	m := must(controller.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), NewCache: s.side.newCache,
	}))
	p.cached, p.live = m.GetCache(), must(client.New(cfg, client.Options{Scheme: scheme}))
	p.engine = s.side.newEngine(m, p.live)
	s.stops = append(s.stops, run(s.ctx, m))
	check(p.GarbageCollectCustomResourceInformers(s.ctx))
	for _, k := range kinds {
		check(p.live.Create(s.ctx, anyCRD(p.kind(k), extv1.ClusterScoped)))
		p.until(func() bool {
			err := p.live.Get(s.ctx, client.ObjectKey{Name: "none"}, objectOf(p.kind(k), client.ObjectKey{}))
			return kerrors.IsNotFound(err) && !strings.Contains(err.Error(), "could not find the requested resource")
		})
	}
	return p
}

func (p *platform) kind(k string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: p.group, Version: "v1", Kind: k}
}

// requestsFor returns how many requests there were for a kind.
func (p *platform) requestsFor(kind string) int {
	return p.requests.Counted().Sum(func(c apicalls.Call) bool { return c.Resource == strings.ToLower(kind)+"s" })
}

// undefine a kind, and return when it no longer exists, with its objects.
func (p *platform) undefine(kind string) {
	p.until(func() bool {
		return kerrors.IsNotFound(p.live.Delete(p.ctx, anyCRD(p.kind(kind), extv1.ClusterScoped)))
	})
}

// run a manager until it is stopped.
func run(ctx context.Context, m manager.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// A compositor is a controller of composites: it reads the composed object, which
// has the composite's name, creates it if it is missing, and watches it.
type compositor struct {
	*platform

	name         string
	of, composed schema.GroupVersionKind
	waiting      atomic.Int64 // Since when it waits for a read, in nanoseconds; 0 if it doesn't.
}

func (p *platform) compositor(of, composed string) *compositor {
	return &compositor{platform: p, name: "composite/" + of + "." + p.group, of: p.kind(of), composed: p.kind(composed)}
}

func (c *compositor) start(used watch.DependenciesFn) {
	check(c.run(c.name, c, used))
	check(c.follow(c.ctx, c.name, watch.WatchTypeCompositeResource, objectOf(c.of, client.ObjectKey{})))
}

func (c *compositor) stop() { check(c.Stop(c.ctx, c.name)) }

func (c *compositor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: lookEvery}
	timed, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	v, err := see(timed, c.cached, c.of, req.NamespacedName)
	if err != nil || !v.found {
		return again, nil
	}
	was := v.shown(req.Name)
	v.SetConditions(xpv2.ReconcileSuccess(), xpv2.Available())
	if err := c.compose(timed, req.NamespacedName); err != nil {
		v.SetConditions(xpv2.ReconcileError(err))
	}
	if v.shown(req.Name) != was && c.live.Status().Update(ctx, v.GetUnstructured()) == nil {
		c.refresh(ctx)
	}
	return again, nil
}

func (c *compositor) compose(ctx context.Context, key client.ObjectKey) error {
	c.waiting.Store(time.Now().UnixNano())
	err := c.cached.Get(ctx, key, objectOf(c.composed, key))
	c.waiting.Store(0)
	if kerrors.IsNotFound(err) {
		if err = c.live.Create(ctx, objectOf(c.composed, key)); kerrors.IsNotFound(err) {
			return nil // The kind went since the read. The next read meets that.
		}
	}
	if err != nil {
		return err
	}
	return c.follow(ctx, c.name, watch.WatchTypeDependency, objectOf(c.composed, key))
}

// create lets a user create a composite.
func (c *compositor) create(name string) {
	key := client.ObjectKey{Name: name}
	c.add(byUser, "creates "+c.of.Kind+" "+name)
	c.watch(c.live, c.of, key)
	defer c.refresh(c.ctx)
	check(c.live.Create(c.ctx, objectOf(c.of, key)))
}

// view of a composite.
func (c *compositor) view(name string) view {
	v, _ := see(c.ctx, c.live, c.of, client.ObjectKey{Name: name}) // Looked at again if it can't be read.
	return v
}

// becomesReady waits for a composite, and looks at it at most n times.
func (c *compositor) becomesReady(name string, n int) (v view) {
	c.until(func() bool {
		v, n = c.view(name), n-1
		return v.GetCondition(xpv2.TypeReady).Status == corev1.ConditionTrue || n < 0
	})
	return v
}

// isReady finds the Ready condition of a composite that should be there at once. A user looks for about a second, and
// longer on a machine that is busy.
func (c *compositor) isReady(where, name string) finding {
	return available(where, c.becomesReady(name, 20))
}

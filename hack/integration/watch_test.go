//go:build integration && churn

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/watch"
)

const (
	watchGroup = "watched.example.org"

	// busy is how long a call may take that has nothing to wait for, on a machine
	// that is busy with much else.
	busy = 5 * time.Second
)

var crds = extv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// A served is how the API server serves a kind, or would.
type served struct {
	kind       string
	plural     string
	namespaced bool
}

func (s served) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: watchGroup, Version: "v1", Kind: s.kind}
}

func (s served) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: watchGroup, Version: "v1", Resource: s.plural}
}

func (s served) definition() *extv1.CustomResourceDefinition {
	scope := extv1.ClusterScoped
	if s.namespaced {
		scope = extv1.NamespaceScoped
	}
	anything := true
	return &extv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: extv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: s.plural + "." + watchGroup},
		Spec: extv1.CustomResourceDefinitionSpec{
			Group: watchGroup,
			Names: extv1.CustomResourceDefinitionNames{Plural: s.plural, Kind: s.kind},
			Scope: scope,
			Versions: []extv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &extv1.CustomResourceValidation{OpenAPIV3Schema: &extv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}},
			}},
		},
	}
}

// empty returns an object of the kind to watch it with.
func (s served) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(s.gvk())
	return u
}

func (s served) object(name string) *unstructured.Unstructured {
	u := s.empty()
	u.SetName(name)
	if s.namespaced {
		u.SetNamespace(namespace)
	}
	return u
}

// An operator has the API server without any cache or mapper, so that what it
// sees can't be out of date.
type operator struct{ *dynamic.DynamicClient }

func (o operator) of(s served) dynamic.ResourceInterface {
	if s.namespaced {
		return o.Resource(s.gvr()).Namespace(namespace)
	}
	return o.Resource(s.gvr())
}

// define creates the definition, and returns when the kind is served.
func (o operator) define(ctx context.Context, s served) error {
	content, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(s.definition())
	if err != nil {
		return err
	}
	return o.poll(ctx, func(ctx context.Context) (bool, error) {
		_, err := o.Resource(crds).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		if err != nil && !kerrors.IsAlreadyExists(err) {
			return false, err
		}

		// What an earlier test left may still be going.
		got, err := o.Resource(crds).Get(ctx, s.definition().GetName(), metav1.GetOptions{})
		if err != nil || got.GetDeletionTimestamp() != nil {
			return false, err
		}
		_, err = o.of(s).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, err
	})
}

// undefine deletes the definition, and returns when it is gone, with all objects
// of the kind.
//
// What deletes the objects in the API server forgets a definition whose status it
// couldn't write because of a conflict, and isn't reminded by a change of what it
// wrote itself, but in five minutes by a resync. Any other change reminds it.
func (o operator) undefine(ctx context.Context, s served) error {
	const remindEvery = 5 * time.Second
	name := s.definition().GetName()
	reminded := time.Now()
	return o.poll(ctx, func(ctx context.Context) (bool, error) {
		err := o.Resource(crds).Delete(ctx, name, metav1.DeleteOptions{})
		if kerrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil && time.Since(reminded) > remindEvery {
			reminded = time.Now()
			_, err = o.Resource(crds).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"reminded":%q}}}`, reminded.Format(time.RFC3339)), metav1.PatchOptions{})
		}
		return false, client.IgnoreNotFound(err)
	})
}

// poll until done or the context ends. A try that fails, or isn't answered in
// five seconds, is made again.
func (o operator) poll(ctx context.Context, done func(ctx context.Context) (bool, error)) error {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok, err := done(try)
		cancel()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-t.C:
		}
	}
}

// objects that there are, by UID.
func (o operator) objects(ctx context.Context, s served) (map[types.UID]string, error) {
	l, err := o.of(s).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[types.UID]string{}
	for _, i := range l.Items {
		out[i.GetUID()] = i.GetResourceVersion()
	}
	return out, nil
}

// A listener is the handler of one watch. It knows what it was told, and says so
// if it is told anything after its watch was stopped.
type listener struct {
	name    string
	events  *atomic.Int64
	late    *atomic.Int64
	stopped atomic.Bool

	mu      sync.Mutex
	known   map[types.UID]string
	strange []string
}

var _ handler.EventHandler = &listener{}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (l *listener) tell(what string, o client.Object, q requests) {
	l.events.Add(1)
	if l.stopped.Load() {
		l.late.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if what == "delete" {
		if _, ok := l.known[o.GetUID()]; !ok {
			l.strange = append(l.strange, fmt.Sprintf("%s: %s %s, of which it never heard", l.name, what, o.GetName()))
		}
		delete(l.known, o.GetUID())
	} else {
		l.known[o.GetUID()] = o.GetResourceVersion()
	}
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if l.stopped.Load() {
		l.late.Add(1)
	}
}

func (l *listener) Create(_ context.Context, e event.CreateEvent, q requests) {
	l.tell("create", e.Object, q)
}

func (l *listener) Update(_ context.Context, e event.UpdateEvent, q requests) {
	l.tell("update", e.ObjectNew, q)
}

func (l *listener) Delete(_ context.Context, e event.DeleteEvent, q requests) {
	l.tell("delete", e.Object, q)
}

func (l *listener) Generic(context.Context, event.GenericEvent, requests) {}

func (l *listener) heard() map[types.UID]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.known)
}

// An engineRig is an engine in a manager of its own.
type engineRig struct {
	*watch.ControllerEngine

	operator operator
	tally    *tally
	lines    *lines
	http     *http.Client

	stop func() error
}

// newEngineRig starts a manager and an engine on the shared control plane.
// Stopping it leaves nothing.
func newEngineRig(t *testing.T) *engineRig {
	t.Helper()
	r := &engineRig{tally: &tally{}, lines: &lines{by: map[string]int{}}}
	s := kruntime.NewScheme()
	must(t, "AddToScheme()", extv1.AddToScheme(s))
	cfg := plane.Config()
	var err error
	r.http, err = rest.HTTPClientFor(cfg)
	must(t, "HTTPClientFor()", err)

	// Reflectors log here, whatever the cache is told.
	klog.SetLogger(r.lines.logger())
	t.Cleanup(klog.ClearLogger)
	var tracking *watch.InformerTrackingCache
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  s,
		Logger:  r.lines.logger(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			var err error
			tracking, err = watch.NewCache(cfg, o, watch.WithLinger(time.Second), watch.WithReadLinger(time.Second))
			return tracking, err
		},
	})
	must(t, "NewManager()", err)
	live, err := client.New(cfg, client.Options{HTTPClient: r.http, Scheme: s})
	must(t, "client.New()", err)
	cached, err := client.New(cfg, client.Options{
		HTTPClient: r.http, Scheme: s, Mapper: live.RESTMapper(),
		Cache: &client.CacheOptions{Reader: tracking, Unstructured: true},
	})
	must(t, "client.New()", err)
	d, err := dynamic.NewForConfigAndClient(cfg, r.http)
	must(t, "dynamic.NewForConfig()", err)
	r.operator = operator{d}
	r.ControllerEngine = watch.New(mgr, tracking, cached, live, watch.WithMetrics(r.tally), watch.WithLogger(r.lines.crossplane()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	var stopped error
	r.stop = func() error {
		once.Do(func() {
			stopped = r.stopAll(context.WithoutCancel(t.Context()))
			cancel()
			stopped = errors.Join(stopped, <-done)
			r.http.CloseIdleConnections()
		})
		return stopped
	}
	t.Cleanup(func() { must(t, "cannot stop the engine", r.stop()) })
	must(t, "GarbageCollectCustomResourceInformers()", r.GarbageCollectCustomResourceInformers(ctx))
	return r
}

// stopAll stops all controllers, at once.
func (r *engineRig) stopAll(ctx context.Context) error {
	cs := r.Snapshot().Controllers
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() { errs[i] = r.Stop(ctx, c.Name) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A tally is of what an engine says it runs.
type tally struct{ controllers, watches atomic.Int64 }

var _ watch.Metrics = &tally{}

func (n *tally) ControllerStarted(string)             { n.controllers.Add(1) }
func (n *tally) ControllerStopped(string)             { n.controllers.Add(-1) }
func (n *tally) WatchStarted(string, watch.WatchType) { n.watches.Add(1) }
func (n *tally) WatchStopped(string, watch.WatchType) { n.watches.Add(-1) }

// lines counts log lines, by message.
type lines struct {
	mu sync.Mutex
	by map[string]int
}

// logger returns a logger that writes everything up to the level that client-go
// has for what operators see by default.
func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) { l.add(args) }, funcr.Options{})
}

func (l *lines) crossplane() logging.Logger { return logging.NewLogrLogger(l.logger()) }

func (l *lines) add(args string) {
	msg := args
	if i := strings.Index(args, `"msg"="`); i >= 0 {
		msg, _, _ = strings.Cut(args[i+len(`"msg"="`):], `"`)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[msg]++
}

func (l *lines) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.by {
		n += c
	}
	return n
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, msg := range slices.Sorted(maps.Keys(l.by)) {
		fmt.Fprintf(&b, "\n\t%5d %.120s", l.by[msg], msg)
	}
	return b.String()
}

// footprint returns the bytes of live objects, and how many goroutines there are.
func footprint() (heap uint64, goroutines int) {
	// What the first collection finalizes the second one frees.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}

// reconciling returns an option to reconcile with a function.
func reconciling(fn reconcile.Func) watch.ControllerOption {
	return watch.WithRuntimeOptions(controller.Options{Reconciler: fn})
}

package watchtest_test

import (
	"context"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	kcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)

	// These remember when they were called last, in whichever bubble, and wait.
	utilruntime.ErrorHandlers = nil //nolint:reassign // It's what it is there for.
	goleak.VerifyTestMain(m)
}

// clients of an API, as a program has them.
type clients struct {
	http   *http.Client
	mapper meta.RESTMapper
	cache  cache.Cache
	live   client.Client
}

func newClients(t *testing.T, cfg *rest.Config) clients {
	t.Helper()
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	m, err := apiutil.NewDynamicRESTMapper(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	ca, err := cache.New(cfg, cache.Options{HTTPClient: h, Scheme: s, Mapper: m})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(cfg, client.Options{HTTPClient: h, Scheme: s, Mapper: m})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- ca.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !ca.WaitForCacheSync(ctx) {
		t.Fatal("the cache doesn't start")
	}
	return clients{http: h, mapper: m, cache: ca, live: live}
}

// life follows a kind from its definition to its end, with a real cache.
func life(t *testing.T, api *watchtest.API, cfg *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := newClients(t, cfg)
	k := watchtest.NewKind("Widget")
	if _, err := c.mapper.RESTMapping(k.GVK.GroupKind(), k.GVK.Version); err == nil {
		t.Error("RESTMapping(...): found a kind before it was defined")
	}
	api.Define(k)
	api.Put(k.Object("one"), k)
	if err := c.cache.Get(ctx, k.Key("one"), k.New()); err != nil {
		t.Errorf("Get(...) of a cached object: %v", err)
	}
	inf, err := c.cache.GetInformer(ctx, k.New())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 10)
	object := func(o any) client.Object {
		c, ok := o.(client.Object)
		if !ok {
			t.Errorf("an informer delivered a %T", o)
			return k.New()
		}
		return c
	}
	name := func(o any) string {
		if u, ok := o.(kcache.DeletedFinalStateUnknown); ok {
			o = u.Obj
		}
		return object(o).GetName()
	}
	version := func(o any) string { return object(o).GetResourceVersion() }
	_, err = inf.AddEventHandler(kcache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { seen <- "add " + name(o) },
		UpdateFunc: func(old, o any) {
			// A new list tells of all objects again.
			if version(old) != version(o) {
				seen <- "update " + name(o)
			}
		},
		DeleteFunc: func(o any) { seen <- "delete " + name(o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(events ...string) {
		t.Helper()
		for _, w := range events {
			select {
			case got := <-seen:
				if got != w {
					t.Errorf("event: got %q, want %q", got, w)
				}
			case <-ctx.Done():
				t.Fatalf("event %q: %v", w, ctx.Err())
			}
		}
	}
	want("add one")
	api.Put(k.Object("one"), k)
	want("update one")
	if err := c.live.Create(ctx, k.Object("two")); err != nil {
		t.Errorf("Create(...): %v", err)
	}
	want("add two")

	// What happens while the watch is cut is seen by the next one.
	lift := api.Inject(watchtest.Of(k), watchtest.Hang())
	api.Disconnect(watchtest.Of(k))
	api.Remove(k, k.Key("two"))
	lift()
	want("delete two")

	// Expired versions mean a new list.
	lift = api.Inject(watchtest.Of(k), watchtest.Status(http.StatusInternalServerError))
	api.Disconnect(watchtest.Of(k))
	api.Put(k.Object("three"), k)
	api.Compact(k)
	lift()
	want("add three")

	// The end of a kind is the end of its objects, and then of its watches.
	api.Undefine(k)
	want("delete one", "delete three")
	if err := api.Await(ctx, func() bool { return api.Open(watchtest.Of(k).Only(watchtest.Watch)) == 0 }); err != nil {
		t.Errorf("Watches of a kind that's gone are open: %v", err)
	}
	if err := c.live.Get(ctx, k.Key("one"), k.New()); !apierrors.IsNotFound(err) {
		t.Errorf("Get(...) of a kind that's gone: got %v, want not found", err)
	}
}

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := watchtest.NewAPI()
		life(t, api, api.Config())
	})
}

func TestLifeOnLoopback(t *testing.T) {
	api := watchtest.NewAPI()
	life(t, api, api.Serve(t))
}

func TestMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget").ClusterScoped()
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)
		c := newClients(t, api.Config())
		p := &metav1.PartialObjectMetadata{}
		p.SetGroupVersionKind(k.GVK)

		// Not through the cache: a metadata watch of client-go may leave a goroutine
		// behind when its context ends before it is stopped.
		if err := c.live.Get(t.Context(), k.Key("one"), p); err != nil {
			t.Fatal(err)
		}
		if p.GetUID() == "" {
			t.Error("Get(...) of metadata: no UID")
		}
	})
}

func TestFaults(t *testing.T) {
	k := watchtest.NewKind("Widget")
	cases := map[string]struct {
		reason string
		fault  watchtest.Fault
		check  func(err error, took time.Duration) bool
	}{
		"Refuse": {
			reason: "Connections are refused: the error is the one of a socket.",
			fault:  watchtest.Refuse(),
			check:  func(err error, _ time.Duration) bool { return errors.Is(err, syscall.ECONNREFUSED) },
		},
		"NotFound": {
			reason: "The kind isn't served.",
			fault:  watchtest.Status(http.StatusNotFound),
			check:  func(err error, _ time.Duration) bool { return apierrors.IsNotFound(err) },
		},
		"Forbidden": {
			reason: "RBAC doesn't let us.",
			fault:  watchtest.Status(http.StatusForbidden),
			check:  func(err error, _ time.Duration) bool { return apierrors.IsForbidden(err) },
		},
		"Delay": {
			reason: "A slow answer is an answer.",
			fault:  watchtest.Delay(3 * time.Second),
			check:  func(err error, took time.Duration) bool { return err == nil && took == 3*time.Second },
		},
		"Hang": {
			reason: "Only the caller's context ends a request that hangs.",
			fault:  watchtest.Hang(),
			check: func(err error, took time.Duration) bool {
				return errors.Is(err, context.DeadlineExceeded) && took == 10*time.Second
			},
		},
		"TooManyRequests": {
			reason: "Clients wait as they are told, and ask again until their context ends.",
			fault:  watchtest.TooManyRequests(1),
			check:  func(err error, took time.Duration) bool { return err != nil && took >= time.Second },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := watchtest.NewAPI(k)
				api.Put(k.Object("one"), k)
				c := newClients(t, api.Config())
				if _, err := c.mapper.RESTMapping(k.GVK.GroupKind(), k.GVK.Version); err != nil {
					t.Fatal(err)
				}
				lift := api.Inject(watchtest.Of(k), tc.fault)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				err := c.live.Get(ctx, k.Key("one"), k.New())
				if took := time.Since(start); !tc.check(err, took) {
					t.Errorf("\n%s\nGet(...): %v after %s", tc.reason, err, took)
				}
				lift()
				if err := c.live.Get(t.Context(), k.Key("one"), k.New()); err != nil {
					t.Errorf("Get(...) after the fault was lifted: %v", err)
				}
			})
		})
	}
}

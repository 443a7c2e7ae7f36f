package watch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/watch"
	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Options of a cache mean what they mean to controller-runtime's.
func TestCacheOptions(t *testing.T) {
	namespaced, cluster := watchtest.NewKind("Widget"), watchtest.NewKind("Gadget").ClusterScoped()
	red := labels.SelectorFromSet(labels.Set{"colour": "red"})

	cases := map[string]struct {
		reason string
		opts   cache.Options
		kind   watchtest.Kind
		want   []string
	}{
		"None": {
			reason: "All objects of all namespaces are cached.",
			kind:   namespaced,
			want:   []string{"elsewhere", "plain", "red"},
		},
		"DefaultNamespaces": {
			reason: "Namespaces restrict what is cached.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
			kind:   namespaced,
			want:   []string{"plain", "red"},
		},
		"DefaultNamespacesOfAClusterScopedKind": {
			reason: "They don't restrict kinds that have none.",
			opts:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
			kind:   cluster,
			want:   []string{"plain", "red"},
		},
		"Transform": {
			reason: "Objects are transformed before they are cached.",
			opts: cache.Options{DefaultTransform: func(obj any) (any, error) {
				if u, ok := obj.(*unstructured.Unstructured); ok {
					u.SetLabels(map[string]string{"colour": "blue"})
				}

				return obj, nil
			}},
			kind: cluster,
			want: []string{"plain", "red"},
		},
		"ByObjectNamespacesOfAClusterScopedKind": {
			reason: "The kind may have had a namespace when they were given.",
			opts:   cache.Options{ByObject: map[client.Object]cache.ByObject{cluster.New(): {Namespaces: map[string]cache.Config{"default": {}}}}},
			kind:   cluster,
			want:   []string{"plain", "red"},
		},
		"ByObject": {
			reason: "Options for an object go for its kind, and options for other kinds are no trouble.",
			opts: cache.Options{ByObject: map[client.Object]cache.ByObject{
				namespaced.New():                  {Namespaces: map[string]cache.Config{"elsewhere": {}}},
				watchtest.NewKind("Absent").New(): {Label: red},
			}},
			kind: namespaced,
			want: []string{"elsewhere"},
		},
	}

	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(namespaced, cluster)

			for _, k := range []watchtest.Kind{namespaced, cluster} {
				o := k.Object("red")
				o.SetLabels(map[string]string{"colour": "red"})
				api.Put(o, k)
				api.Put(k.Object("plain"), k)
			}

			elsewhere := namespaced.Object("elsewhere")
			elsewhere.SetNamespace("elsewhere")
			api.Put(elsewhere, namespaced)

			tc.opts.Scheme = scheme()

			ca, err := watch.NewCache(api.Config(), tc.opts)
			if err != nil {
				t.Fatal(err)
			}

			startCache(t, ca)

			if !ca.WaitForCacheSync(t.Context()) {
				t.Fatal("the cache doesn't start")
			}

			l := tc.kind.NewList()
			if err := ca.List(t.Context(), l); err != nil {
				t.Fatalf("\n%s\nList(...): %v", tc.reason, err)
			}

			var got []string

			for _, o := range l.Items {
				got = append(got, o.GetName())

				if tc.opts.DefaultTransform != nil && o.GetLabels()["colour"] != "blue" {
					t.Errorf("\n%s\n%s isn't transformed", tc.reason, o.GetName())
				}
			}

			slices.Sort(got)

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nList(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// With ReaderFailOnMissingInformer a read doesn't make an informer.
func TestReadsThatMakeNoInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		api := watchtest.NewAPI(k)
		api.Put(k.Object("one"), k)

		ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme(), ReaderFailOnMissingInformer: true})
		if err != nil {
			t.Fatal(err)
		}

		startCache(t, ca)
		ca.WaitForCacheSync(t.Context())

		missing := &cache.ErrResourceNotCached{}
		if err := ca.Get(t.Context(), k.Key("one"), k.New()); !errors.As(err, &missing) {
			t.Errorf("Get(...) of what isn't cached: %v", err)
		}

		if n := len(api.Requests(watchtest.Everything())); n != 0 {
			t.Errorf("%d requests", n)
		}

		if _, err := ca.GetInformer(t.Context(), k.New()); err != nil {
			t.Fatal(err)
		}

		if err := ca.Get(t.Context(), k.Key("one"), k.New()); err != nil {
			t.Errorf("Get(...) of what is: %v", err)
		}
	})
}

// A lingeringInformer takes a while to end.
type lingeringInformer struct {
	kcache.SharedIndexInformer

	end <-chan struct{}
}

func (i lingeringInformer) Run(stop <-chan struct{}) {
	i.SharedIndexInformer.Run(stop)
	<-i.end
}

func (i lingeringInformer) RunWithContext(ctx context.Context) {
	i.SharedIndexInformer.RunWithContext(ctx)
	<-i.end
}

// When a cache's Start returns its informers have ended, also those for single
// namespaces, which controller-runtime's cache doesn't wait for.
func TestStartWaitsForInformers(t *testing.T) {
	for name, namespaces := range map[string]map[string]cache.Config{
		"AllNamespaces": nil, "TwoNamespaces": {"default": {}, "other": {}},
	} {
		inBubble(t, name, func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			api := watchtest.NewAPI(k)
			end := make(chan struct{})

			ca, err := watch.NewCache(api.Config(), cache.Options{
				Scheme: scheme(), DefaultNamespaces: namespaces,
				NewInformer: func(lw kcache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers kcache.Indexers) kcache.SharedIndexInformer {
					return lingeringInformer{SharedIndexInformer: kcache.NewSharedIndexInformer(lw, obj, resync, indexers), end: end}
				},
			})
			if err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			done := background(func() error { return ca.Start(ctx) })

			ca.WaitForCacheSync(ctx)

			if _, err := ca.GetInformer(ctx, k.New()); err != nil {
				t.Fatal(err)
			}

			cancel()
			pass(time.Hour)

			select {
			case err := <-done:
				t.Errorf("Start(...) returned while an informer runs: %v", err)
			default:
			}

			close(end)

			if err := <-done; err != nil {
				t.Errorf("Start(...): %v", err)
			}
		})
	}
}

package watch

import (
	"context"
	"encoding/json"
	stderrors "errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

func TestDiscoveryResolver(t *testing.T) {
	type resources = []metav1.APIResource
	const group, core = "/apis/example.org/v1", "/api/v1"
	widget := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	of := func(name, kind string, namespaced bool) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: metav1.Verbs{"list", "watch"}}
	}
	only := func(name, verb string) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: "Widget", Verbs: metav1.Verbs{verb}}
	}
	notWatchable := func(err error) bool { return errors.Is(err, ErrNotWatchable) }
	cases := map[string]struct {
		reason string
		gvk    schema.GroupVersionKind
		path   string // Of what is served.
		served resources
		want   string // The resource.
		scope  meta.RESTScope
		err    func(error) bool
	}{
		"Namespaced": {
			"What is served in namespaces is found so.", widget, group,
			resources{of("gadgets", "Gadget", true), of("widgets", "Widget", true)},
			"widgets", meta.RESTScopeNamespace, nil,
		},
		"ClusterScoped": {"And what isn't, so.", widget, group, resources{of("widgetry", "Widget", false)}, "widgetry", meta.RESTScopeRoot, nil},
		"Core": {
			"The group without a name is served elsewhere.",
			schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			core,
			resources{of("configmaps", "ConfigMap", true)},
			"configmaps", meta.RESTScopeNamespace, nil,
		},
		"TwoResources": {
			"Of two resources of one kind, that which can be watched is meant.", widget, group,
			resources{only("widgetreviews", "create"), of("widgets", "Widget", true)},
			"widgets", meta.RESTScopeNamespace, nil,
		},
		"Subresource":  {"Subresources have kinds, and aren't what is watched.", widget, group, resources{of("gadgets/widget", "Widget", false)}, "", nil, meta.IsNoMatchError},
		"NotWatchable": {"Some are only created.", widget, group, resources{only("widgets", "create")}, "", nil, notWatchable},
		"OnlyListable": {"What can be listed and not watched can't be kept up to date.", widget, group, resources{only("widgets", "list")}, "", nil, notWatchable},
		"NoSuchKind":   {"The group is there, the kind isn't.", widget, group, resources{of("gadgets", "Gadget", false)}, "", nil, meta.IsNoMatchError},
		"NoSuchGroup":  {"Nothing of the group is there.", widget, core, nil, "", nil, kerrors.IsNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != tc.path {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(metav1.APIResourceList{APIResources: tc.served}); err != nil {
					t.Error(err)
				}
			}))
			defer s.Close()
			r, err := newDiscoveryResolver(&rest.Config{Host: s.URL}, s.Client())
			if err != nil {
				t.Fatal(err)
			}
			m, err := r.resolve(t.Context(), tc.gvk)
			if tc.err != nil {
				if !tc.err(err) {
					t.Errorf("\n%s\nresolve(...): %v, %v", tc.reason, m, err)
				}
				return
			}
			want := &meta.RESTMapping{Resource: tc.gvk.GroupVersion().WithResource(tc.want), GroupVersionKind: tc.gvk, Scope: tc.scope}
			if diff := cmp.Diff(want, m, cmp.Comparer(func(a, b meta.RESTScope) bool { return a.Name() == b.Name() })); diff != "" {
				t.Errorf("\n%s\nresolve(...): %v, -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

// A look-up isn't answered from before it was asked for.
func TestLookUps_AreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := watchtest.NewKind("First"), watchtest.NewKind("Second")
		second.GVK.Group = first.GVK.Group
		api := watchtest.NewAPI(first)
		hc, err := rest.HTTPClientFor(api.Config())
		if err != nil {
			t.Fatal(err)
		}
		res, err := newDiscoveryResolver(api.Config(), hc)
		if err != nil {
			t.Fatal(err)
		}
		resolve := func(ctx context.Context, gvk schema.GroupVersionKind) <-chan error {
			ch := make(chan error, 1)
			go func() {
				_, err := res.resolve(ctx, gvk)
				ch <- err
			}()
			return ch
		}
		lift := api.Inject(watchtest.DiscoveryOf(first), watchtest.Delay(time.Second))
		early := resolve(t.Context(), first.GVK)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		lift()

		// One that gives up takes none of those with it that wait for the same answer.
		gone, cancel := context.WithCancel(t.Context())
		given := resolve(gone, second.GVK)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		api.Define(second)
		late := resolve(t.Context(), second.GVK)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("resolve(...) with a context that ended: %v", err)
		}
		if err := stderrors.Join(<-early, <-late); err != nil {
			t.Errorf("resolve(...) of kinds that are served: %v", err)
		}
	})
}

// Callers go on using the object that they asked with.
func TestExampleIsACopy(t *testing.T) {
	o := &corev1.ConfigMap{}
	if exampleOf(kindID{as: typed}, o) == client.Object(o) {
		t.Error("a kind keeps the object that it was asked for with")
	}
}

package watch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func cacheOptions() cache.Options { return cache.Options{Scheme: scheme()} }

// resourceList returns a discovery document that serves a kind.
func resourceList(groupVersion string, ks ...watchtest.Kind) string {
	var resources []metav1.APIResource
	for _, k := range ks {
		resources = append(resources, metav1.APIResource{
			Name: k.Plural, Kind: k.GVK.Kind, Namespaced: !k.Cluster, Verbs: metav1.Verbs{"get", "list", "watch"},
		})
	}
	return listOf(groupVersion, resources...)
}

// listOf returns a discovery document with resources.
func listOf(groupVersion string, resources ...metav1.APIResource) string {
	b, err := json.Marshal(metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion,
		APIResources: resources,
	})
	try(err)
	return string(b)
}

// Discovery says which resource of a kind can be listed and watched.
func TestDiscovery_ChoosesTheResource(t *testing.T) {
	resource := func(name string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: widget.GVK.Kind, Namespaced: true, Verbs: verbs}
	}
	cases := map[string]struct {
		reason string
		served []metav1.APIResource
		want   error
	}{
		"TwoResources": {
			reason: "The resource that can be watched should be taken if a kind has two.",
			served: []metav1.APIResource{resource("widgetreviews", "create"), resource(widget.Plural, "list", "watch")},
		},
		"Subresource": {
			reason: "A subresource has a kind, but can't be watched.",
			served: []metav1.APIResource{resource("gadgets/widget", "list", "watch")},
			want:   watch.ErrNoSuchKind,
		},
		"NotListable": {
			reason: "A kind that can be watched but not listed would be incomplete.",
			served: []metav1.APIResource{resource(widget.Plural, "watch")},
			want:   watch.ErrNotWatchable,
		},
		"OnlyListable": {
			reason: "A kind that can be listed but not watched would become stale.",
			served: []metav1.APIResource{resource(widget.Plural, "list")},
			want:   watch.ErrNotWatchable,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, newAPIWithObject())
			r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(
				http.StatusOK, listOf(widget.GVK.GroupVersion().String(), tc.served...),
			))
			expectEqual(t, tc.reason, "Get(...)", tc.want, r.readFor(time.Second, widget, "one"))
		})
	}
}

// An answer of discovery that isn't one must not delete objects that can be listed.
func TestJunkDiscovery(t *testing.T) {
	gv := widget.GVK.GroupVersion().String()
	other := watchtest.NewKind("Gadget")
	cases := map[string]struct {
		reason string
		code   int
		body   string
		want   error // Of calls for a kind that was never seen.
	}{
		"HTML": {
			reason: "A proxy's page is no discovery document.",
			code:   http.StatusOK,
			body:   `<html><body>Please log in</body></html>`,
			want:   watch.ErrUnreachable,
		},
		"AnotherKind": {
			reason: "A list of groups says nothing about the group.",
			code:   http.StatusOK,
			body:   `{"kind":"APIGroupList","apiVersion":"v1","groupVersion":"` + gv + `"}`,
			want:   watch.ErrUnreachable,
		},
		"AnotherGroup": {
			reason: "Another group's resources say nothing about this one.",
			code:   http.StatusOK,
			body:   resourceList(other.GVK.GroupVersion().String(), other),
			want:   watch.ErrUnreachable,
		},
		"NoResources": {
			reason: "A list that works outweighs a group without the kind.",
			code:   http.StatusOK,
			body:   resourceList(gv),
			want:   watch.ErrNoSuchKind,
		},
		"NotFound": {
			reason: "A list that works outweighs a group that isn't found.",
			code:   http.StatusNotFound,
			body:   `404 page not found`,
			want:   watch.ErrNoSuchKind,
		},
		"Unavailable": {
			reason: "An error says nothing about the kind.",
			code:   http.StatusServiceUnavailable,
			body:   `no backend`,
			want:   watch.ErrUnreachable,
		},
	}
	looks := map[string]struct {
		crds bool
		look func(r *testEnv)
	}{
		"CRDEvent": {crds: true, look: func(r *testEnv) { r.api.Define(widget) }},
		"Periodic": {crds: false, look: func(*testEnv) { advance(time.Hour) }},
		"Removed":  {crds: false, look: func(r *testEnv) { r.remove(widget) }},
		"Relisted": {crds: false, look: func(r *testEnv) {
			r.api.Put(widget.Object("two"), widget)
			r.api.Compact(widget)
			r.api.Disconnect(watchtest.Of(widget))
		}},
	}
	for name, tc := range cases {
		for how, l := range looks {
			inBubble(t, name+"/"+how, func(t *testing.T) {
				r, rec := newWatchingEnv(t, l.crds)
				lift := r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(tc.code, tc.body))
				l.look(r)
				advance(10 * time.Minute)
				expectEqual(t, tc.reason, "deletions", 0, rec.count("delete", "one"))
				if how != "Removed" || tc.want != watch.ErrUnreachable { //nolint:errorlint // It is what the table has.
					expectState(t, r, tc.reason, "with junk", watch.StateActive)
					expectEqual(t, tc.reason, "Get(...)", nil, r.read(t.Context(), widget, "one"))
				}

				// Objects that are deleted are delivered as such meanwhile.
				lift()
				advance(2 * time.Minute)
				expectState(t, r, tc.reason, "afterwards", watch.StateActive)
				r.api.Remove(widget, widget.Key("one"))
				advance(time.Second)
				expectEqual(t, tc.reason, "deletions of an object that was deleted", 1, rec.count("delete", "one"))
			})
		}
		inBubble(t, name+"/NeverSeen", func(t *testing.T) {
			r := newRunningEnv(t, newAPIWithObject())
			defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(tc.code, tc.body))()
			expectEqual(t, tc.reason, "Get(...)", tc.want, r.readFor(time.Second, widget, "one"))
		})
	}
}

// A kind is gone when discovery says so and its list doesn't work.
func TestGone_ListsDecide(t *testing.T) {
	cases := map[string]struct {
		reason string
		list   watchtest.Fault
		want   watch.State
		dels   int
	}{
		"NotFound": {
			reason: "A list that isn't found agrees with discovery.",
			list:   watchtest.Status(http.StatusNotFound),
			want:   watch.StateDormant,
			dels:   1,
		},
		"Forbidden": {
			reason: "A list that is forbidden says nothing against discovery: access may have gone with the CRD.",
			list:   watchtest.Status(http.StatusForbidden),
			want:   watch.StateDormant,
			dels:   1,
		},
		"Broken": {
			reason: "A list that fails says nothing: the API server may be in trouble.",
			list:   watchtest.Status(http.StatusInternalServerError),
			want:   watch.StateDegraded,
			dels:   0,
		},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := newWatchingEnv(t, true)
			defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Status(http.StatusNotFound))()
			defer r.api.Inject(watchtest.Of(widget), tc.list)()
			r.api.Disconnect(watchtest.Of(widget))
			r.api.Define(widget)
			advance(10 * time.Minute)
			expectState(t, r, tc.reason, "after ten minutes", tc.want)
			expectEqual(t, tc.reason, "deletions", tc.dels, rec.count("delete", "one"))
		})
	}
}

// Lists that answer 404 while discovery serves the kind are trouble, not proof: calls and
// handlers must say the same.
func TestListNotFound_OneAnswer(t *testing.T) {
	for name, synced := range map[string]bool{"Synced": true, "NeverSynced": false} {
		inBubble(t, name, func(t *testing.T) {
			r := newRunningEnv(t, newAPIWithObject())
			first, second := &recorder{}, &recorder{}
			if synced {
				r.watch("c", newWatch(widget, first))
			}
			lift := r.api.Inject(watchtest.Of(widget), watchtest.Status(http.StatusNotFound))
			r.api.Disconnect(watchtest.Of(widget))
			_ = r.watchFor(time.Second, "c", newWatch(widget, first))
			advance(time.Minute)
			r.start("late", idleOptions())
			err := r.watchFor(time.Second, "late", newWatch(widget, second))
			advance(time.Minute)
			expectEqual(t, "Discovery serves the kind.", "StartWatches(...)", watch.ErrUnreachable, err)
			expectState(t, r, "", "while lists aren't found", watch.StateDegraded)
			want := map[bool]int{true: 1, false: 0}[synced]
			expectEqual(t, "Both know what was listed.", "created, deleted", []int{want, want, 0, 0}, []int{
				first.count("create", "one"), second.count("create", "one"), first.count("delete", "one"),
				second.count("delete", "one"),
			})
			lift()
			advance(2 * time.Minute)
			expectState(t, r, "", "afterwards", watch.StateActive)
		})
	}
}

// Discovery may lag behind: a kind that comes back in another scope is looked up again
// until its objects agree with it.
func TestStaleDiscovery_AfterAKindCameBack(t *testing.T) {
	namespaced, cluster := widget, widget.ClusterScoped()
	cases := map[string]struct {
		reason  string
		was, is watchtest.Kind
	}{
		"ToCluster": {
			reason: "Objects without a namespace prove that the kind isn't namespaced.",
			was:    namespaced,
			is:     cluster,
		},
		"ToNamespaced": {
			reason: "Objects with a namespace prove that the kind is namespaced.",
			was:    cluster,
			is:     namespaced,
		},
	}
	for name, tc := range cases {
		for _, late := range []bool{false, true} {
			for _, stale := range []time.Duration{time.Second, 20 * time.Second, 5 * time.Minute} {
				inBubble(t, fmt.Sprintf("%s/ObjectIsLate=%t/%s", name, late, stale), func(t *testing.T) {
					api := watchtest.NewAPI(tc.was)
					api.Put(tc.was.Object("one"), tc.was)
					r := newRunningEnv(t, api)
					rec := &recorder{}
					r.watch("c", newWatch(tc.was, rec))
					advance(time.Second)
					api.Undefine(tc.was)
					advance(10 * time.Second)
					expectState(t, r, tc.reason, "while it is gone", watch.StateDormant)
					old := resourceList(widget.GVK.GroupVersion().String(), tc.was)
					lift := api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(http.StatusOK, old))
					api.Define(tc.is)
					if !late {
						api.Put(tc.is.Object("two"), tc.is)
					}
					advance(stale)
					if err := r.readFor(time.Second, tc.is, "two"); !late && err != nil && stale > 20*time.Second {
						expectEqual(t, tc.reason, "Get(...) of an object that exists", watch.ErrUnreachable, err)
					}
					lift()
					advance(time.Duration(0))
					api.Put(tc.is.Object("two"), tc.is)
					began := time.Now()
					if !within(2*time.Minute, func() bool { return r.readFor(time.Second, tc.is, "two") == nil }) {
						t.Errorf("\n%s\nGet(...) fails %s after discovery is right", tc.reason, time.Since(began))
					}
					advance(2 * time.Minute)
					expectState(t, r, tc.reason, "afterwards", watch.StateActive)
					expectEqual(t, tc.reason, "events", "", rec.wrong(api.Objects(tc.is)))
					k := r.ours.Snapshot().Kinds[0]
					expectEqual(t, tc.reason, "namespaced", !tc.is.Cluster, k.Namespaced)
				})
			}
		}
	}
}

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
	l := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, k := range ks {
		l.APIResources = append(l.APIResources, metav1.APIResource{
			Name: k.Plural, Kind: k.GVK.Kind, Namespaced: !k.Cluster, Verbs: metav1.Verbs{"get", "list", "watch"},
		})
	}
	b, err := json.Marshal(l)
	try(err)
	return string(b)
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
		"EmptyObject":  {"An object without a kind says nothing about the group.", http.StatusOK, `{}`, watch.ErrUnreachable},
		"Null":         {"Null says nothing about the group.", http.StatusOK, `null`, watch.ErrUnreachable},
		"Array":        {"An array is no discovery document.", http.StatusOK, `[]`, watch.ErrUnreachable},
		"Space":        {"An empty answer is no discovery document.", http.StatusOK, ` `, watch.ErrUnreachable},
		"HTML":         {"A proxy's page is no discovery document.", http.StatusOK, `<html><body>Please log in</body></html>`, watch.ErrUnreachable},
		"AnotherKind":  {"A list of groups says nothing about the group.", http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`, watch.ErrUnreachable},
		"Status":       {"A status is no discovery document, whatever its code.", http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, watch.ErrUnreachable},
		"AnotherGroup": {"Another group's resources say nothing about this one.", http.StatusOK, resourceList(other.GVK.GroupVersion().String(), other), watch.ErrUnreachable},
		"AnotherVersion": {
			"Another version's resources say nothing about this one.", http.StatusOK,
			resourceList(widget.GVK.Group+"/v2", widget), watch.ErrUnreachable,
		},
		"NoGroupVersion": {"Resources of no group say nothing about this one.", http.StatusOK, resourceList(""), watch.ErrUnreachable},
		"NoResources":    {"A list that works outweighs a group without the kind.", http.StatusOK, resourceList(gv), watch.ErrNoSuchKind},
		"OthersOnly":     {"A list that works outweighs a group that has other kinds.", http.StatusOK, resourceList(gv, other), watch.ErrNoSuchKind},
		"NotFound":       {"A list that works outweighs a group that isn't found.", http.StatusNotFound, `404 page not found`, watch.ErrNoSuchKind},
		"Unavailable":    {"An error says nothing about the kind.", http.StatusServiceUnavailable, `no backend`, watch.ErrUnreachable},
	}
	looks := map[string]struct {
		crds bool
		look func(r *rig)
	}{
		"CRDEvent": {true, func(r *rig) { r.api.Define(widget) }},
		"Periodic": {false, func(*rig) { pass(time.Hour) }},
		"Removed":  {false, func(r *rig) { r.remove(widget) }},
		"Relisted": {false, func(r *rig) {
			r.api.Put(widget.Object("two"), widget)
			r.api.Compact(widget)
			r.api.Disconnect(watchtest.Of(widget))
		}},
	}
	for name, tc := range cases {
		for how, l := range looks {
			inBubble(t, name+"/"+how, func(t *testing.T) {
				r, rec := watching(t, l.crds)
				lift := r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(tc.code, tc.body))
				l.look(r)
				pass(10 * time.Minute)
				wants(t, tc.reason, "deletions", 0, rec.count("delete", "one"))
				if how != "Removed" || tc.want != watch.ErrUnreachable { //nolint:errorlint // It is what the table has.
					wantsState(t, r, tc.reason, "with junk", watch.StateActive)
					wants(t, tc.reason, "Get(...)", nil, r.read(t.Context(), widget, "one"))
				}

				// Objects that are deleted are delivered as such meanwhile.
				lift()
				pass(2 * time.Minute)
				wantsState(t, r, tc.reason, "afterwards", watch.StateActive)
				r.api.Remove(widget, widget.Key("one"))
				pass(time.Second)
				wants(t, tc.reason, "deletions of an object that was deleted", 1, rec.count("delete", "one"))
			})
		}
		inBubble(t, name+"/NeverSeen", func(t *testing.T) {
			r := running(t, withOne())
			defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(tc.code, tc.body))()
			wants(t, tc.reason, "Get(...)", tc.want, r.readFor(time.Second, widget, "one"))
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
		"NotFound":  {"A list that isn't found agrees with discovery.", watchtest.Status(http.StatusNotFound), watch.StateDormant, 1},
		"Forbidden": {"A list that is forbidden says nothing against discovery: access may have gone with the CRD.", watchtest.Status(http.StatusForbidden), watch.StateDormant, 1},
		"Broken":    {"A list that fails says nothing: the API server may be in trouble.", watchtest.Status(http.StatusInternalServerError), watch.StateDegraded, 0},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			r, rec := watching(t, true)
			defer r.api.Inject(watchtest.DiscoveryOf(widget), watchtest.Status(http.StatusNotFound))()
			defer r.api.Inject(watchtest.Of(widget), tc.list)()
			r.api.Disconnect(watchtest.Of(widget))
			r.api.Define(widget)
			pass(10 * time.Minute)
			wantsState(t, r, tc.reason, "after ten minutes", tc.want)
			wants(t, tc.reason, "deletions", tc.dels, rec.count("delete", "one"))
		})
	}
}

// Lists that answer 404 while discovery serves the kind are trouble, not proof: calls and
// handlers must say the same.
func TestListNotFound_OneAnswer(t *testing.T) {
	for name, synced := range map[string]bool{"Synced": true, "NeverSynced": false} {
		inBubble(t, name, func(t *testing.T) {
			r := running(t, withOne())
			first, second := &recorder{}, &recorder{}
			if synced {
				r.watch("c", watchOf(widget, first))
			}
			lift := r.api.Inject(watchtest.Of(widget), watchtest.Status(http.StatusNotFound))
			r.api.Disconnect(watchtest.Of(widget))
			_ = r.watchFor(time.Second, "c", watchOf(widget, first))
			pass(time.Minute)
			r.start("late", idle())
			err := r.watchFor(time.Second, "late", watchOf(widget, second))
			pass(time.Minute)
			wants(t, "Discovery serves the kind.", "StartWatches(...)", watch.ErrUnreachable, err)
			wantsState(t, r, "", "while lists aren't found", watch.StateDegraded)
			want := map[bool]int{true: 1, false: 0}[synced]
			wants(t, "Both know what was listed.", "created, deleted", []int{want, want, 0, 0}, []int{
				first.count("create", "one"), second.count("create", "one"), first.count("delete", "one"), second.count("delete", "one"),
			})
			lift()
			pass(2 * time.Minute)
			wantsState(t, r, "", "afterwards", watch.StateActive)
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
		"ToCluster":    {"Objects without a namespace prove that the kind isn't namespaced.", namespaced, cluster},
		"ToNamespaced": {"Objects with a namespace prove that the kind is namespaced.", cluster, namespaced},
	}
	for name, tc := range cases {
		for _, late := range []bool{false, true} {
			for _, stale := range []time.Duration{time.Second, 20 * time.Second, 5 * time.Minute} {
				inBubble(t, fmt.Sprintf("%s/ObjectIsLate=%t/%s", name, late, stale), func(t *testing.T) {
					api := watchtest.NewAPI(tc.was)
					api.Put(tc.was.Object("one"), tc.was)
					r := running(t, api)
					rec := &recorder{}
					r.watch("c", watchOf(tc.was, rec))
					pass(time.Second)
					api.Undefine(tc.was)
					pass(10 * time.Second)
					wantsState(t, r, tc.reason, "while it is gone", watch.StateDormant)
					old := resourceList(widget.GVK.GroupVersion().String(), tc.was)
					lift := api.Inject(watchtest.DiscoveryOf(widget), watchtest.Answer(http.StatusOK, old))
					api.Define(tc.is)
					if !late {
						api.Put(tc.is.Object("two"), tc.is)
					}
					pass(stale)
					if err := r.readFor(time.Second, tc.is, "two"); !late && err != nil && stale > 20*time.Second {
						wants(t, tc.reason, "Get(...) of an object that exists", watch.ErrUnreachable, err)
					}
					lift()
					pass(time.Duration(0))
					api.Put(tc.is.Object("two"), tc.is)
					began := time.Now()
					if !within(2*time.Minute, func() bool { return r.readFor(time.Second, tc.is, "two") == nil }) {
						t.Errorf("\n%s\nGet(...) fails %s after discovery is right", tc.reason, time.Since(began))
					}
					pass(2 * time.Minute)
					wantsState(t, r, tc.reason, "afterwards", watch.StateActive)
					wants(t, tc.reason, "events", "", rec.wrong(api.Objects(tc.is)))
					k := r.ours.Snapshot().Kinds[0]
					wants(t, tc.reason, "namespaced", !tc.is.Cluster, k.Namespaced)
				})
			}
		}
	}
}

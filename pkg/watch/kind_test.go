package watch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What a kind is told of its CRD while it is busy with something else. When it hears
// of what is chance, so this looks at what it is told to do before it does it.
func TestTold(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.org", Version: "v1"}
	was := sighting{uid: "old", resource: "widgets", scope: meta.RESTScopeNameNamespace}
	is := sighting{uid: "new", resource: "widgets", scope: meta.RESTScopeNameNamespace}
	moved := sighting{uid: "old", resource: "widgets", scope: meta.RESTScopeNameRoot}

	type want struct {
		Now, After order
	}

	cases := map[string]struct {
		reason string
		tell   func(k *kind)

		// resource that its informer asks for, if it has one.
		resource string
		want     want
	}{
		"Same": {
			reason:   "What is no news changes nothing.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(was); k.sighted(was) },
		},
		"Gone": {
			reason:   "An informer goes with its CRD.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(was); k.vanished(was) },
			want:     want{Now: sleep},
		},
		"BackBeforeItSlept": {
			reason:   "One that is to sleep would sleep through the CRD that came meanwhile.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(was); k.vanished(was); k.sighted(is) },
			want:     want{Now: reopen},
		},
		"Replaced": {
			reason:   "Another CRD is another kind, though it is served at the same place.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(was); k.sighted(is) },
			want:     want{Now: reopen},
		},
		"AnotherScope": {
			reason:   "Nothing is where the informer asks.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(was); k.sighted(moved) },
			want:     want{Now: reopen},
		},
		"OldOneGone": {
			reason:   "That the CRD is gone that was replaced is old news.",
			resource: "widgets",
			tell:     func(k *kind) { k.sighted(is); k.vanished(was) },
		},
		"ElsewhereAlready": {
			reason:   "The kind was found elsewhere before it was told that it left.",
			resource: "widgetry",
			tell:     func(k *kind) { k.vanished(was) },
		},
		"SightedWhileBusy": {
			reason: "What is being looked up may be what was there before.",
			tell: func(k *kind) {
				k.begin()
				k.sighted(was)
			},
			want: want{After: reopen},
		},
		"GoneWhileBusy": {
			reason: "So may what is found.",
			tell: func(k *kind) {
				k.begin()
				k.sighted(was)
				k.vanished(was)
			},
			want: want{After: sleep},
		},
		"BackWhileBusy": {
			reason: "The last word counts.",
			tell: func(k *kind) {
				k.begin()
				k.sighted(was)
				k.vanished(was)
				k.sighted(is)
			},
			want: want{After: reopen},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newKindSet(nil)
			defer s.cancel()

			k := newKind(s, kindID{GroupVersionKind: gv.WithKind("Widget"), as: metadata}, &metav1.PartialObjectMetadata{})
			if tc.resource != "" {
				k.mapping = &meta.RESTMapping{Resource: gv.WithResource(tc.resource), Scope: meta.RESTScopeNamespace}
				k.state = StateActive
				k.current.Store(&opened{})
			}

			tc.tell(k)

			if diff := cmp.Diff(tc.want, want{Now: k.order, After: k.after}); diff != "" {
				t.Errorf("\n%s\norders: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Callers go on using the object that they asked with.
func TestExampleIsACopy(t *testing.T) {
	o := &corev1.ConfigMap{}
	if exampleOf(kindID{as: typed}, o) == client.Object(o) {
		t.Error("a kind keeps the object that it was asked for with")
	}
}

package asyncstate

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestBasis_Changed(t *testing.T) {
	annotate := func(k string) func(b *v1alpha1.Bucket) {
		return func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{k: "true"}) }
	}
	type want struct{ Changed, CreateChanged bool }
	cases := map[string]struct {
		reason string
		name   string // the external name before
		stored string // the external name on the API server
		change func(b *v1alpha1.Bucket)
		want   want
	}{
		"WrittenByTheProvider": {
			reason: "A write that changes nothing that decisions are based on should be ignored.",
			change: annotate("example.org/seen"),
		},
		"Learned": {
			reason: "A name that Observe has learned should be ignored.",
			change: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "learned") },
		},
		"Renamed": {
			reason: "Another external name should be noticed before a create is repeated.",
			name:   "one",
			change: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "another") },
			want:   want{CreateChanged: true},
		},
		"NameInMemory": {
			reason: "The stored name, which the answer to a write has put in place of a name in memory, should be ignored.",
			name:   "set",
			stored: "stored",
			change: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "stored") },
		},
		"Settled": {
			reason: "A create that a person has settled should be noticed before it is repeated.",
			change: func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, AnnotationKeyOperation) },
			want:   want{CreateChanged: true},
		},
		"Paused": {
			reason: "A pause should be noticed.",
			change: annotate(meta.AnnotationKeyReconciliationPaused),
			want:   want{true, true},
		},
		"Deleted": {
			reason: "A deletion should be noticed.",
			change: func(b *v1alpha1.Bucket) { b.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) },
			want:   want{true, true},
		},
		"Policies": {
			reason: "Other management policies should be noticed, although they were decoded into the same memory.",
			change: func(b *v1alpha1.Bucket) { b.Spec.ManagementPolicies[0] = xpv2.ManagementActionObserve },
			want:   want{true, true},
		},
	}
	for name, tc := range cases {
		for version, want := range map[string]want{"2": tc.want, "1": {}} {
			t.Run(name+"/"+version, func(t *testing.T) {
				b := &v1alpha1.Bucket{}
				b.SetResourceVersion("1")
				b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
				annotate(AnnotationKeyOperation)(b)
				if tc.name != "" {
					meta.SetExternalName(b, tc.name)
				}
				was := basisOf(t.Context(), b)
				was.stored = tc.stored
				tc.change(b)

				// With the same version, the change is only in memory.
				b.SetResourceVersion(version)
				got := []bool{was.changed(b), was.createChanged(b)}
				if diff := cmp.Diff([]bool{want.Changed, want.CreateChanged}, got); diff != "" {
					t.Errorf("\n%s\nchanged, createChanged: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

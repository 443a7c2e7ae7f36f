package contested

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

func TestManagerOf(t *testing.T) {
	at := func(sec int64) *metav1.Time { return &metav1.Time{Time: time.Unix(sec, 0)} }
	fields := func(json string) *metav1.FieldsV1 { return &metav1.FieldsV1{Raw: []byte(json)} }
	size, region := `{"f:spec":{"f:forProvider":{"f:size":{}}}}`, `{"f:spec":{"f:forProvider":{"f:region":{}}}}`
	ours := metav1.ManagedFieldsEntry{
		Manager:   "provider",
		Operation: metav1.ManagedFieldsOperationUpdate,
		Time:      at(10),
		FieldsV1:  fields(size),
	}

	cases := map[string]struct {
		reason  string
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"NoManagedFields": {reason: "The other writer should be unknown without managed fields."},
		"OnlyOurs": {
			reason:  "The controller itself should never be the other writer.",
			entries: []metav1.ManagedFieldsEntry{ours},
		},
		"SameManager": {
			reason: "A writer with the controller's own field manager should not be taken for the one that wrote last.",
			entries: []metav1.ManagedFieldsEntry{
				ours,
				{
					Manager:   "kubectl",
					Operation: metav1.ManagedFieldsOperationUpdate,
					Time:      at(30),
					FieldsV1:  fields(region),
				},
			},
		},
		"Owner": {
			reason: "The field manager that owns the field should be the other writer, although another one wrote later.",
			entries: []metav1.ManagedFieldsEntry{
				ours,
				{
					Manager:   "argocd",
					Operation: metav1.ManagedFieldsOperationApply,
					Time:      at(20),
					FieldsV1:  fields(size),
				},
				{
					Manager:   "kubectl",
					Operation: metav1.ManagedFieldsOperationUpdate,
					Time:      at(30),
					FieldsV1:  fields(region),
				},
			},
			want: "argocd",
		},
		"Removed": {
			reason: "The field manager that wrote last should be the other writer if none owns the field.",
			entries: []metav1.ManagedFieldsEntry{
				{
					Manager:   "kubectl",
					Operation: metav1.ManagedFieldsOperationUpdate,
					Time:      at(30),
					FieldsV1:  fields(region),
				},
				{
					Manager:   "argocd",
					Operation: metav1.ManagedFieldsOperationApply,
					Time:      at(20),
					FieldsV1:  fields(region),
				},
			},
			want: "kubectl",
		},
		"Status": {
			reason: "A field manager that wrote only the status should not be the other writer.",
			entries: []metav1.ManagedFieldsEntry{
				{
					Manager:   "argocd",
					Operation: metav1.ManagedFieldsOperationApply,
					Time:      at(20),
					FieldsV1:  fields(region),
				},
				{
					Manager:     "health",
					Operation:   metav1.ManagedFieldsOperationUpdate,
					Time:        at(30),
					Subresource: "status",
					FieldsV1:    fields(`{"f:status":{}}`),
				},
			},
			want: "argocd",
		},
		"SameNameApplies": {
			reason: "A field manager of the same name that applies should be another writer.",
			entries: []metav1.ManagedFieldsEntry{
				ours,
				{
					Manager:   "provider",
					Operation: metav1.ManagedFieldsOperationApply,
					Time:      at(20),
					FieldsV1:  fields(size),
				},
			},
			want: "provider",
		},
		"Junk": {
			reason: "Managed fields of another form should be ignored.",
			entries: []metav1.ManagedFieldsEntry{{
				Manager:  "argocd",
				Time:     at(20),
				FieldsV1: fields(`[]`),
			}, {Manager: "old"}},
			want: "argocd",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := v1alpha1.NewBucket("default", "b")
			o.SetManagedFields(tc.entries)
			segments := []string{"spec", "forProvider", "size"}
			if diff := cmp.Diff(
				tc.want, managerOf(o, segments, fieldManager{name: ours.Manager, operation: ours.Operation}).name,
			); diff != "" {
				t.Errorf("\n%s\nmanagerOf(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestChangedFields(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(b *v1alpha1.Bucket)
		want   map[string]bool
	}{
		"Nothing": {
			reason: "Equal objects should differ in nothing.",
			change: func(*v1alpha1.Bucket) {},
			want:   map[string]bool{},
		},
		"Spec": {
			reason: "A field of spec may be contested.",
			change: func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Size = 7 },
			want:   map[string]bool{"spec.forProvider.size": true},
		},
		"Removed": {
			reason: "A field that was removed may be contested.",
			change: func(b *v1alpha1.Bucket) { b.Labels = nil },
			want:   map[string]bool{"metadata.labels[example.org/a.b]": true},
		},
		"Annotation": {
			reason: "An annotation may be contested.",
			change: func(b *v1alpha1.Bucket) { b.Annotations = map[string]string{"example.org/x": ""} },
			want:   map[string]bool{"metadata.annotations[example.org/x]": true},
		},
		"ExternalName": {
			reason: "The external name must never wait.",
			change: func(b *v1alpha1.Bucket) {
				b.Annotations = map[string]string{
					"crossplane.io/external-name": "id-1",
				}
			},
			want: map[string]bool{"metadata.annotations[crossplane.io/external-name]": false},
		},
		"Record": {
			reason: "The record of an operation must never wait.",
			change: func(b *v1alpha1.Bucket) { b.Annotations = map[string]string{seam.AnnotationKeyRecord: "{}"} },
			want:   map[string]bool{"metadata.annotations[" + seam.AnnotationKeyRecord + "]": false},
		},
		"Finalizer": {
			reason: "A finalizer must never wait.",
			change: func(b *v1alpha1.Bucket) { b.Finalizers = []string{"x"} },
			want:   map[string]bool{"metadata.finalizers": false},
		},
		"Owner": {
			reason: "An owner must never wait.",
			change: func(b *v1alpha1.Bucket) { b.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} },
			want:   map[string]bool{"metadata.ownerReferences": false},
		},
		"List": {
			reason: "A list should be one field.",
			change: func(b *v1alpha1.Bucket) { b.Spec.ManagementPolicies = nil },
			want:   map[string]bool{"spec.managementPolicies": true},
		},
		"Status": {
			reason: "Status is not part of the write.",
			change: func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "x" },
			want:   map[string]bool{},
		},
		"Bookkeeping": {
			reason: "Fields that the API server sets are not part of the write.",
			change: func(b *v1alpha1.Bucket) { b.ResourceVersion, b.Generation = "9", 9 },
			want:   map[string]bool{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from := v1alpha1.NewBucket("default", "b")
			from.Labels = map[string]string{"example.org/a.b": "c"}
			to := v1alpha1.NewBucket("default", "b")
			to.Labels = map[string]string{"example.org/a.b": "c"}
			tc.change(to)
			got := map[string]bool{}
			for _, f := range changedFields(from, to) {
				got[f.path()] = f.mayContest()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nchangedFields(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

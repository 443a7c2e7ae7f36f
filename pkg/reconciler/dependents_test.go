package reconciler_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestListDependents(t *testing.T) {
	dep := func(k schema.GroupVersionKind, namespace, name string, owner types.UID) reconciler.Dependent {
		return reconciler.Dependent{GroupVersionKind: k, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, Owner: owner}
	}

	a, b := of(things, "", "a"), of(things, "other", "b")
	xr := func(namespace string, mod ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		return of(composites, namespace, "x", append(mod, func(*unstructured.Unstructured) {})...)
	}
	owner := xr("default")

	v2, legacy := at("spec", "crossplane", "resourceRefs"), at("spec", "resourceRefs")

	type want struct {
		Dependents []reconciler.Dependent
		Failed     bool
	}

	cases := map[string]struct {
		reason string
		lister reconciler.DependentLister
		object client.Object
		server []*unstructured.Unstructured
		fail   func(verb string, o client.Object, after bool) error
		want   want
	}{
		"V2": {
			reason: "References of a namespaced composite are to its own namespace, whatever they say.",
			lister: reconciler.ComposedResources(), object: xr("default", with(v2, []any{ref(a), ref(b)})),
			want: want{Dependents: []reconciler.Dependent{dep(things, "default", "a", "uid-of-x"), dep(things, "default", "b", "uid-of-x")}},
		},
		"V2ClusterScoped": {
			reason: "References of a cluster-scoped composite are to the cluster, unless they say otherwise.",
			lister: reconciler.ComposedResources(), object: xr("", with(v2, []any{ref(a), ref(b)})),
			want: want{Dependents: []reconciler.Dependent{dep(things, "", "a", "uid-of-x"), dep(things, "other", "b", "uid-of-x")}},
		},
		"Legacy": {
			reason: "References of a legacy composite are elsewhere.",
			lister: reconciler.ComposedResources(), object: xr("", with(legacy, []any{ref(a)})), want: want{Dependents: []reconciler.Dependent{dep(things, "", "a", "uid-of-x")}},
		},
		"WithoutName": {
			reason: "A reference without a name is to nothing that exists yet.",
			lister: reconciler.ComposedResources(), object: xr("", with(legacy, []any{map[string]any{"apiVersion": "v1", "kind": "Secret"}, ref(a)})),
			want: want{Dependents: []reconciler.Dependent{dep(things, "", "a", "uid-of-x")}},
		},
		"NoReferences": {reason: "A composite without references waits for nothing.", lister: reconciler.ComposedResources(), object: xr("")},
		"NotAList":     {reason: "What can't be read is an error.", lister: reconciler.ComposedResources(), object: xr("", with(v2, "none")), want: want{Failed: true}},
		"NoObjects":    {reason: "Neither can references that are no objects.", lister: reconciler.ComposedResources(), object: xr("", with(legacy, []any{"a"})), want: want{Failed: true}},
		"Typed":        {reason: "Objects of a Go type have no references there, which is no error.", lister: reconciler.ComposedResources(), object: &v1alpha1.Bucket{}},
		"Claim": {
			reason: "A claim waits for its composite, which has no namespace.",
			lister: reconciler.CompositeOfClaim(), object: of(claims, "default", "c", with(at("spec", "resourceRef"), ref(of(composites, "", "x")))),
			want: want{Dependents: []reconciler.Dependent{dep(composites, "", "x", "")}},
		},
		"ClaimConfigured": {
			reason: "The composite is of the configured kind, in the version that the program reads.",
			lister: reconciler.CompositeOfClaim(things, composites),
			object: of(claims, "default", "c", with(at("spec", "resourceRef"), map[string]any{"apiVersion": "example.org/v1alpha1", "kind": "XApp", "name": "x"})),
			want:   want{Dependents: []reconciler.Dependent{dep(composites, "", "x", "")}},
		},
		"ClaimOfAnotherGroup": {
			reason: "Kinds of the same name are not the same.",
			lister: reconciler.CompositeOfClaim(composites),
			object: of(claims, "default", "c", with(at("spec", "resourceRef"), map[string]any{"apiVersion": "example.com/v1", "kind": "XApp", "name": "x"})), want: want{Failed: true},
		},
		"ClaimWithoutComposite": {reason: "A claim that never had one waits for nothing.", lister: reconciler.CompositeOfClaim(), object: of(claims, "default", "c")},
		"ClaimWithoutName": {
			reason: "A claim whose composite has no name yet waits for nothing.",
			lister: reconciler.CompositeOfClaim(), object: of(claims, "default", "c", with(at("spec", "resourceRef"), map[string]any{"kind": "XApp"})),
		},
		"ClaimOdd": {
			reason: "What can't be read is an error.",
			lister: reconciler.CompositeOfClaim(), object: of(claims, "default", "c", with(at("spec", "resourceRef"), "x")), want: want{Failed: true},
		},
		"Owned": {
			reason: "Only what has an owner reference to the object counts, also if it has other owners, and only in its namespace.",
			lister: reconciler.OwnedObjects(things, secrets),
			object: owner,
			server: []*unstructured.Unstructured{
				of(things, "default", "mine", ownedBy(owner)),
				of(things, "default", "ours", func(u *unstructured.Unstructured) {
					u.SetOwnerReferences([]metav1.OwnerReference{{UID: "another"}, {UID: owner.GetUID()}, {UID: owner.GetUID()}})
				}),
				of(things, "default", "theirs", ownedBy(of(composites, "", "y", func(*unstructured.Unstructured) {}))),
				of(things, "elsewhere", "far", ownedBy(owner)),
				of(secrets, "default", "secret", ownedBy(owner)),
			},
			want: want{Dependents: []reconciler.Dependent{dep(things, "default", "mine", ""), dep(things, "default", "ours", ""), dep(secrets, "default", "secret", "")}},
		},
		"OwnedByClusterScoped": {
			reason: "What a cluster-scoped object owns may be anywhere.",
			lister: reconciler.OwnedObjects(things), object: xr(""),
			server: []*unstructured.Unstructured{of(things, "default", "mine", ownedBy(owner)), of(things, "", "yours", ownedBy(owner))},
			want:   want{Dependents: []reconciler.Dependent{dep(things, "", "yours", ""), dep(things, "default", "mine", "")}},
		},
		"OwnedForbidden": {
			reason: "A kind that can't be listed doesn't hide the others.",
			lister: reconciler.OwnedObjects(secrets, things),
			object: owner,
			server: []*unstructured.Unstructured{of(things, "default", "mine", ownedBy(owner))},
			fail: func(_ string, o client.Object, _ bool) error {
				if o.GetObjectKind().GroupVersionKind().Kind == "SecretList" {
					return kerrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
				}

				return nil
			},
			want: want{Dependents: []reconciler.Dependent{dep(things, "default", "mine", "")}, Failed: true},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(tc.server...)
			c.fail = tc.fail

			got, err := tc.lister.ListDependents(context.Background(), c, tc.object)
			if diff := cmp.Diff(tc.want, want{Dependents: got, Failed: err != nil}); diff != "" {
				t.Errorf("\n%s\nListDependents(...): -want, +got:\n%s\nerror: %v", tc.reason, diff, err)
			}
		})
	}
}

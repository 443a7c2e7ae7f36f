package reconciler_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestListDependents(t *testing.T) {
	dep := func(k schema.GroupVersionKind, namespace, name string, owner types.UID) reconciler.Dependent {
		return reconciler.Dependent{
			GroupVersionKind: k,
			NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
			Owner:            owner,
		}
	}
	a, b := newObject(things, "", "a"), newObject(things, "other", "b")
	newInNamespace := func(namespace string, mod ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		return newObject(composites, namespace, "x", append(mod, func(*unstructured.Unstructured) {})...)
	}
	owner := newInNamespace("default")
	v2, legacy := fieldPath("spec", "crossplane", "resourceRefs"), fieldPath("spec", "resourceRefs")
	type want struct {
		Dependents []reconciler.Dependent
		Failed     bool
	}
	cases := map[string]struct {
		reason string
		lister reconciler.DependentLister
		object client.Object
		server []*unstructured.Unstructured
		want   want
	}{
		"V2": {
			reason: "References of a namespaced composite should be read in its own namespace, even if they name another.",
			lister: reconciler.ComposedResources(),
			object: newInNamespace("default", withField(v2, []any{referenceTo(a), referenceTo(b)})),
			want: want{
				Dependents: []reconciler.Dependent{
					dep(things, "default", "a", "uid-of-x"), dep(things, "default", "b", "uid-of-x"),
				},
			},
		},
		"V2ClusterScoped": {
			reason: "References of a cluster-scoped composite are to the cluster, unless they say otherwise.",
			lister: reconciler.ComposedResources(),
			object: newInNamespace("", withField(v2, []any{referenceTo(a), referenceTo(b)})),
			want: want{
				Dependents: []reconciler.Dependent{
					dep(things, "", "a", "uid-of-x"), dep(things, "other", "b", "uid-of-x"),
				},
			},
		},
		"WithoutName": {
			reason: "References of a legacy composite are elsewhere. One without a name is to nothing that exists yet.",
			lister: reconciler.ComposedResources(),
			object: newInNamespace("", withField(legacy, []any{map[string]any{
				"apiVersion": "v1",
				"kind":       "Secret",
			}, referenceTo(a)})),
			want: want{Dependents: []reconciler.Dependent{dep(things, "", "a", "uid-of-x")}},
		},
		"NotAList": {
			reason: "References that can't be decoded should be an error.",
			lister: reconciler.ComposedResources(),
			object: newInNamespace("", withField(v2, "none")),
			want:   want{Failed: true},
		},
		"ClaimConfigured": {
			reason: "The composite is of the configured kind, in the version that the program reads.",
			lister: reconciler.CompositeOfClaim(things, composites),
			object: newObject(claims, "default", "c", withField(fieldPath("spec", "resourceRef"), map[string]any{
				"apiVersion": "example.org/v1alpha1",
				"kind":       "XApp",
				"name":       "x",
			})),
			want: want{Dependents: []reconciler.Dependent{dep(composites, "", "x", "")}},
		},
		"ClaimOfAnotherGroup": {
			reason: "Kinds of the same name are not the same.", lister: reconciler.CompositeOfClaim(composites),
			object: newObject(claims, "default", "c", withField(fieldPath("spec", "resourceRef"), map[string]any{
				"apiVersion": "example.com/v1",
				"kind":       "XApp",
				"name":       "x",
			})),
			want: want{Failed: true},
		},
		"Typed": {
			reason: "Objects of a Go type have no references there, which is no error.",
			lister: reconciler.ComposedResources(),
			object: &v1alpha1.Bucket{},
		},
		"ClaimWithoutComposite": {
			reason: "A claim that never had one waits for nothing.",
			lister: reconciler.CompositeOfClaim(composites),
			object: newObject(claims, "default", "c"),
		},
		"ClaimWithoutName": {
			reason: "A claim whose composite has no name yet waits for nothing.",
			lister: reconciler.CompositeOfClaim(composites),
			object: newObject(
				claims, "default", "c", withField(fieldPath("spec", "resourceRef"), map[string]any{"kind": "XApp"}),
			),
		},
		"ClaimOdd": {
			reason: "A reference that can't be decoded should be an error.",
			lister: reconciler.CompositeOfClaim(composites),
			object: newObject(claims, "default", "c", withField(fieldPath("spec", "resourceRef"), "x")),
			want:   want{Failed: true},
		},
		"Owned": {
			reason: "Objects should count if they have an owner reference to the object, and are in its namespace.",
			lister: reconciler.OwnedObjects(things, secrets),
			object: owner,
			server: []*unstructured.Unstructured{
				newObject(things, "default", "mine", withController(owner)),
				newObject(things, "default", "ours", func(u *unstructured.Unstructured) {
					u.SetOwnerReferences([]metav1.OwnerReference{
						{UID: "another"}, {UID: owner.GetUID()}, {UID: owner.GetUID()},
					})
				}),
				newObject(
					things, "default", "theirs",
					withController(newObject(composites, "", "y", func(*unstructured.Unstructured) {})),
				),
				newObject(things, "elsewhere", "far", withController(owner)),
				newObject(secrets, "default", "secret", withController(owner)),
			},
			want: want{
				Dependents: []reconciler.Dependent{
					dep(things, "default", "mine", ""), dep(things, "default", "ours", ""),
					dep(secrets, "default", "secret", ""),
				},
			},
		},
		"OwnedByClusterScoped": {
			reason: "A cluster-scoped object may own objects in any namespace.",
			lister: reconciler.OwnedObjects(things), object: newInNamespace(""),
			server: []*unstructured.Unstructured{
				newObject(things, "default", "mine", withController(owner)),
				newObject(things, "", "yours", withController(owner)),
			},
			want: want{
				Dependents: []reconciler.Dependent{dep(things, "", "yours", ""), dep(things, "default", "mine", "")},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.lister.ListDependents(context.Background(), newCluster(tc.server...), tc.object)
			if diff := cmp.Diff(tc.want, want{Dependents: got, Failed: err != nil}); diff != "" {
				t.Errorf("\n%s\nListDependents(...): -want, +got:\n%s\nerror: %v", tc.reason, diff, err)
			}
		})
	}
}

// secret is in all that an object has to say that the tenant may not read.
const secret = "hunter2"

// newSecretObject returns an object with the secret in its finalizers, conditions, labels
// and annotations.
func newSecretObject(
	k schema.GroupVersionKind, namespace, name string, mod ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	return newObject(k, namespace, name, append([]func(*unstructured.Unstructured){
		withDeletionTimestamp, withFinalizers("example.org/" + secret), withAnnotation("crossplane.io/paused", "true"),
		withInUseLabel,
		withConditions(reconciler.Deleting(metav1.Now().Time, "BlockedByProtection", secret)...),
		withConditions(xpv2.ReconcileError(errors.New(secret))),
	}, mod...)...)
}

func newDeletedObject(
	k schema.GroupVersionKind, namespace, name string, path []string, v any,
) *unstructured.Unstructured {
	return newObject(
		k, namespace, name, withField(path, v), withFinalizers("example.org/f"), withDeletionTimestamp,
		withConditions(xpv2.Available()),
	)
}

func newUnstructuredReconciler(k schema.GroupVersionKind) func(c client.Client) reconcile.Reconciler {
	return newReadingReconciler(func() *unstructured.Unstructured { return newObject(k, "", "") }, nil)
}

// A tenantCase is an object whose report may not show the victim.
type tenantCase struct {
	reason string
	lister reconciler.DependentLister
	object *unstructured.Unstructured
	victim *unstructured.Unstructured
	want   conditionText
}

// A report does not show the objects of other tenants that a user's reference names.
func TestReferencesShowNoOtherTenant(t *testing.T) {
	v2 := fieldPath("spec", "crossplane", "resourceRefs")
	requested := conditionText{"True", "DeletionRequested", "1 of 1 dependents deleted, 100%. Deletion was requested."}
	attacker := func(path []string, v any) *unstructured.Unstructured {
		return newDeletedObject(composites, "attacker", "a", path, v)
	}
	composed := reconciler.ComposedResources()
	runTenantCases(t, map[string]tenantCase{
		"AnotherNamespace": {
			reason: "An object in another namespace should not be mentioned.",
			lister: composed,
			object: attacker(v2, []any{referenceTo(newObject(things, "victim", "v"))}),
			victim: newSecretObject(things, "victim", "v"), want: requested,
		},
		"OwnNamespace": {
			reason: "Nor of one in the same namespace that the composite does not control.",
			lister: composed,
			object: attacker(v2, []any{referenceTo(newObject(secrets, "attacker", "v"))}),
			victim: newSecretObject(secrets, "attacker", "v"), want: requested,
		},
		"AnotherController": {
			reason: "Nor of one that another object controls.",
			lister: composed,
			object: attacker(v2, []any{referenceTo(newObject(things, "attacker", "v"))}),
			victim: newSecretObject(
				things, "attacker", "v", withController(newObject(composites, "attacker", "b", withFinalizers())),
			),
			want: requested,
		},
		"ClusterScopedComposite": {
			reason: "Nor of one that a reference of a cluster-scoped composite names.",
			lister: composed,
			object: newDeletedObject(composites, "", "a", v2, []any{referenceTo(newObject(things, "victim", "v"))}),
			victim: newSecretObject(things, "victim", "v"), want: requested,
		},
		"NoController": {
			reason: "Of an object that has the object as an owner but not as its controller only the name is said.",
			lister: reconciler.OwnedObjects(things),
			object: attacker(v2, []any{}),
			victim: newSecretObject(things, "attacker", "v", func(u *unstructured.Unstructured) {
				u.SetOwnerReferences([]metav1.OwnerReference{{
					APIVersion: "example.org/v1",
					Kind:       "XApp",
					Name:       "a",
					UID:        "uid-of-a",
				}})
			}),
			want: waitsFor("0 of 1 dependents deleted, 0%. Thing/v in attacker: it still exists."),
		},
		"ListerOfTheProgram": {
			reason: "The same of one that a program's own lister names.",
			lister: reconciler.DependentListerFn(
				func(context.Context, client.Reader, client.Object) ([]reconciler.Dependent, error) {
					return []reconciler.Dependent{{
						GroupVersionKind: things,
						NamespacedName:   client.ObjectKey{Namespace: "victim", Name: "v"},
					}}, nil
				},
			),
			object: attacker(v2, []any{}),
			victim: newSecretObject(things, "victim", "v"),
			want:   waitsFor("0 of 1 dependents deleted, 0%. Thing/v in victim: it still exists."),
		},
	})
}

// A report quotes only the composite resource that is bound to the claim.
func TestClaimsShowNoOtherTenant(t *testing.T) {
	unbound := waitsFor("0 of 1 dependents deleted, 0%. XApp/x: not bound to this claim.")
	cm := func(to *unstructured.Unstructured) *unstructured.Unstructured {
		return newDeletedObject(claims, "attacker", "c", fieldPath("spec", "resourceRef"), referenceTo(to))
	}
	boundTo := func(fields map[string]any) func(*unstructured.Unstructured) {
		all := referenceTo(newObject(claims, "attacker", "c"))
		for k, v := range fields {
			all[k] = v
		}
		return withField(fieldPath("spec", "claimRef"), all)
	}
	own := func(fields map[string]any) *unstructured.Unstructured {
		return newObject(composites, "", "x", withDeletionTimestamp, withFinalizers("f"), boundTo(fields))
	}
	quoted := waitsFor("0 of 1 dependents deleted, 0%. XApp/x since T: held by f.")
	claim := reconciler.CompositeOfClaim(composites)
	cases := map[string]tenantCase{
		"Bound": {
			reason: "A claim's own composite resource is quoted.",
			lister: claim,
			object: cm(newObject(composites, "", "x")),
			victim: own(nil),
			want:   quoted,
		},
		"BoundOtherVersion": {
			reason: "The version does not matter.",
			lister: claim,
			object: cm(newObject(composites, "", "x")),
			victim: own(map[string]any{"apiVersion": "example.org/v1alpha1"}),
			want:   quoted,
		},
		"BoundWithUID": {
			reason: "Its reference may have a UID.",
			lister: reconciler.CompositeOfClaim(composites),
			object: cm(newObject(composites, "", "x")),
			victim: own(map[string]any{"uid": "uid-of-c"}),
			want:   quoted,
		},
		"ClaimNotNamed": {
			reason: "A composite that names no claim is not bound.",
			lister: claim,
			object: cm(newObject(composites, "", "x")),
			victim: newSecretObject(composites, "", "x"),
			want:   unbound,
		},
		"CompositeOfAnotherKind": {
			reason: "An object of another kind than the configured one should not be read.",
			lister: claim,
			object: cm(newObject(things, "", "x")), victim: newSecretObject(things, "", "x", boundTo(nil)),
			want: waitsFor("Some dependents may be unknown: not bound to this claim."),
		},
		"ListerWithClaim": {
			reason: "A program's own lister that calls this one may name a composite, and quotes nothing.",
			lister: reconciler.DependentListerFn(claim.ListDependents),
			object: cm(newObject(composites, "", "x")), victim: newSecretObject(composites, "", "x"),
			want: waitsFor("0 of 1 dependents deleted, 0%. XApp/x: it still exists."),
		},
	}
	for name, fields := range map[string]map[string]any{
		"ClaimOfAnotherNamespace": {"namespace": "victim"},
		"ClaimOfAnotherName":      {"name": "v"},
		"ClaimOfAnotherKind":      {"kind": "Database"},
		"ClaimOfAnotherGroup":     {"apiVersion": "example.com/v1"},
		"ClaimBefore":             {"uid": "uid-of-b"},
		"ClaimRefOdd":             {"uid": int64(5)},
	} {
		tc := cases["ClaimNotNamed"]
		tc.reason = "Nor is one that names another claim, or one that had the name before, or whose reference can't be read."
		tc.victim = newSecretObject(composites, "", "x", boundTo(fields))
		cases[name] = tc
	}
	runTenantCases(t, cases)
}

func runTenantCases(t *testing.T, cases map[string]tenantCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := tc.object.GroupVersionKind()
			c := newCluster(tc.object, tc.victim)
			r := reconciler.New(c, k, newUnstructuredReconciler(k), reconciler.WithDependents(tc.lister))
			mustReconcile(t, r, tc.object)
			expectEqual(t, tc.reason, "", tc.want, c.condition(t, tc.object, reconciler.TypeDeleting))
			expectEqual(
				t, tc.reason, "Ready tells the secret", false,
				strings.Contains(c.condition(t, tc.object, xpv2.TypeReady).Message, secret),
			)
		})
	}
}

// The cache is asked only for kinds that it watches, or that the program named.
func TestReferencesStartNoInformer(t *testing.T) {
	watches := func(kinds ...schema.GroupVersionKind) []reconciler.Option {
		return []reconciler.Option{
			reconciler.WithWatchedKinds(func(k schema.GroupVersionKind) bool { return slices.Contains(kinds, k) }),
		}
	}
	x := newDeletedObject(composites, "default", "a", fieldPath("spec", "crossplane", "resourceRefs"), []any{
		referenceTo(newObject(things, "", "x")),
	})
	odd := newDeletedObject(
		claims, "default", "a", fieldPath("spec", "resourceRef"), referenceTo(newObject(secrets, "", "x")),
	)
	cases := map[string]struct {
		reason string
		lister reconciler.DependentLister
		object *unstructured.Unstructured
		opts   []reconciler.Option
		verb   string

		// cached and live are the reads of the dependent from either.
		cached, live int
	}{
		"ComposedNotWatched": {
			reason: "Or only others are.",
			lister: reconciler.ComposedResources(),
			object: x,
			opts:   watches(secrets),
			verb:   "get Thing",
			live:   1,
		},
		"ComposedWatched": {
			reason: "It is read from the cache if its kind is watched.",
			lister: reconciler.ComposedResources(),
			object: x, opts: watches(secrets, things), verb: "get Thing", cached: 1,
		},
		"Composite": {
			reason: "The composite of a claim should be read from the cache if the program names its kind.",
			lister: reconciler.CompositeOfClaim(composites),
			object: newDeletedObject(
				claims, "default", "a", fieldPath("spec", "resourceRef"), referenceTo(newObject(composites, "", "x")),
			),
			verb:   "get XApp",
			cached: 1,
		},
		"CompositeOfAnotherKind": {
			reason: "One of another kind is not read at all.",
			lister: reconciler.CompositeOfClaim(composites),
			object: odd,
			verb:   "get Secret",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cache, live := newCluster(tc.object), newCluster(tc.object)
			k := tc.object.GroupVersionKind()
			r := reconciler.New(
				cache, k, newUnstructuredReconciler(k),
				append(tc.opts, reconciler.WithDependents(tc.lister), reconciler.WithLiveReader(live))...,
			)
			mustReconcile(t, r, tc.object)
			expectEqual(t, tc.reason, "reads from the cache, live", []int{tc.cached, tc.live}, []int{
				cache.count(tc.verb), live.count(tc.verb),
			})
		})
	}
}

func TestWithDependents_ReturnedToCache(t *testing.T) {
	dependent := newHeldThing("a")
	o := newComposite(dependent)
	r := newTestReconciler(t, newCluster(o, dependent), o)
	r.opts, r.cached = []reconciler.Option{withComposed}, true
	r.restart()
	mustReconcile(t, r, o)
	r.c.fail = refuseVerb("get", kerrors.NewNotFound(schema.GroupResource{}, o.GetName()))
	mustReconcile(t, r, o)
	r.c.fail = nil
	expectEqual(
		t, "The dependents of an object that a cache lacked for a while should be looked at again.", "requeue after",
		10*time.Second, mustReconcile(t, r, o).RequeueAfter,
	)
}

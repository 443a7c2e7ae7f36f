package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const leaseNamespace = "provider"

// A shared is an external system of which all managed resources mean the same
// external resource. It records which managed resource acts on it, and reports an
// error if two do at the same time.
type shared struct {
	// slow is how many calls of Delete it takes to delete.
	slow int
	// during is called while an Update, Create or Delete is on its way.
	during func()
	// assigns is the name that Create comes up with.
	assigns string

	mu       sync.Mutex
	there    bool
	owner    types.UID
	inside   types.UID
	acts     []string
	observes int
	crimes   []string
}

// act by a managed resource.
func (c *shared) act(what string, mg resource.Managed, fn func()) {
	uid := mg.GetUID()

	c.mu.Lock()
	if c.inside != "" && c.inside != uid || c.owner != "" && c.owner != uid {
		c.crimes = append(c.crimes, fmt.Sprintf("%s by %s while %s has it and %s is at it", what, uid, c.owner, c.inside))
	}

	c.inside = uid
	c.acts = append(c.acts, what+" "+mg.GetName())
	c.mu.Unlock()

	if c.during != nil {
		c.during()
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.inside = ""
	fn()
}

func (c *shared) client() upstream.ExternalClientFns {
	return upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			c.mu.Lock()
			defer c.mu.Unlock()

			c.observes++

			return ExternalObservation{ResourceExists: c.there, ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			c.act("create", mg, func() {
				c.there, c.owner = true, mg.GetUID()
				if c.assigns != "" {
					meta.SetExternalName(mg, c.assigns)
				}
			})

			return ExternalCreation{}, nil
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
			c.act("update", mg, func() {})
			return ExternalUpdate{}, nil
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
			c.act("delete", mg, func() {
				if c.slow--; c.slow < 0 {
					c.there, c.owner = false, ""
				}
			})

			return ExternalDelete{}, nil
		},
	}
}

func (c *shared) did() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.acts)
}

func (c *shared) mustBeInnocent(t *testing.T) {
	t.Helper()

	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.crimes) > 0 {
		t.Errorf("two acted on one external resource:\n%s", strings.Join(c.crimes, "\n"))
	}
}

func called(name string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.Name = name }
}

// of returns a managed resource of that name, all of which have one external name.
func of(name string, mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	return bucket(append([]func(b *v1alpha1.Bucket){called(name), named("shared"), uses("config")}, mod...)...)
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func reserving(a *testkit.API, c *shared, o ...ReconcilerOption) *Reconciler {
	return newBucketReconciler(a, append([]ReconcilerOption{WithExternalNameReservation(leaseNamespace), connects(c.client())}, o...)...)
}

func run(t *testing.T, r reconcile.Reconciler, names ...string) {
	t.Helper()

	for _, n := range names {
		if _, err := r.Reconcile(context.Background(), requestFor(n)); err != nil {
			t.Fatalf("Reconcile %s: %v", n, err)
		}
	}
}

func bucketNamed(t *testing.T, a *testkit.API, name string) *v1alpha1.Bucket {
	t.Helper()

	b := &v1alpha1.Bucket{}
	if err := a.Server().Get(context.Background(), requestFor(name).NamespacedName, b); err != nil && !kerrors.IsNotFound(err) {
		t.Fatal(err)
	}

	return b
}

func remove(t *testing.T, a *testkit.API, name string) {
	t.Helper()

	must(t, a.Server().Delete(context.Background(), bucketNamed(t, a, name)))
}

// kill removes an object without a deletion that its reconciler sees.
func kill(t *testing.T, a *testkit.API, name string) {
	t.Helper()

	if b := edit(t, a, name, finalizers()); b.DeletionTimestamp == nil {
		remove(t, a, name)
	}
}

func leasesIn(t *testing.T, a *testkit.API) map[string]unstructured.Unstructured {
	t.Helper()

	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(emptyLease("", "").GroupVersionKind())

	if err := a.Server().List(context.Background(), l, client.InNamespace(leaseNamespace)); err != nil && !apimeta.IsNoMatchError(err) {
		t.Fatal(err)
	}

	out := map[string]unstructured.Unstructured{}
	for _, i := range l.Items {
		out[i.GetAnnotations()[annotationKeyReserves]] = i
	}

	return out
}

// holders returns the names of the managed resources that hold leases.
func holders(t *testing.T, a *testkit.API) map[string]string {
	t.Helper()

	out := map[string]string{}

	for k, l := range leasesIn(t, a) {
		h := holder{}
		if err := json.Unmarshal([]byte(l.GetAnnotations()[annotationKeyHolder]), &h); err != nil {
			h.Name = "unknown"
		}

		out[k] = h.Name
	}

	return out
}

const sharedKey = `Bucket.sample.graft.crossplane.io ClusterProviderConfig/config "shared"`

func isLease(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "Lease" }

func isHolderCheck(o client.Object) bool {
	_, ok := o.(*metav1.PartialObjectMetadata)
	return ok
}

// One managed resource alone: what is kept for it, and what that costs.
func TestReservationOfOne(t *testing.T) {
	a, c := testkit.NewAPI(of("b")), &shared{}
	r := reserving(a, c)

	costs := func(name string, want int) {
		t.Helper()

		n := 0

		for _, q := range a.Requests() {
			if isLease(q.Object) || isHolderCheck(q.Object) {
				n++
			}
		}

		if n != want {
			t.Errorf("requests for leases, %s: want %d, got %d", name, want, n)
		}

		a.Forget()
	}

	run(t, r, "b")
	costs("create", 3)
	run(t, r, "b")
	run(t, r, "b")
	costs("nothing changes", 0)

	if diff := cmp.Diff(map[string]string{sharedKey: "b"}, holders(t, a)); diff != "" {
		t.Errorf("leases: -want, +got:\n%s", diff)
	}

	l := leasesIn(t, a)[sharedKey]
	if owners := l.GetOwnerReferences(); l.GetName() != leaseName(sharedKey) || len(owners) != 0 {
		t.Errorf("lease: got name %q, owners %v, which are in another namespace", l.GetName(), owners)
	}

	if s := get(t, a).GetCondition(TypeExternalNameReserved).Status; s != corev1.ConditionUnknown {
		t.Errorf("condition: want none, got %s", s)
	}

	// A new process.
	var known *reservation

	r = reserving(a, c, spies(slotReservation, &known))

	run(t, r, "b")
	costs("restart", 1)
	remove(t, a, "b")
	run(t, r, "b")
	costs("delete", 1)
	run(t, r, "b")
	costs("finalize", 1)
	run(t, r, "b")

	if diff := cmp.Diff(map[string]string{}, holders(t, a)); diff != "" {
		t.Errorf("leases: -want, +got:\n%s", diff)
	}

	if n := known.held.len(); n != 0 {
		t.Errorf("remembered: want 0, got %d", n)
	}
}

// The old one deletes slowly while a new one wants the same name.
func TestReservationHandsOver(t *testing.T) {
	a, c := testkit.NewAPI(of("old"), of("new")), &shared{slow: 2}
	r := reserving(a, c)

	run(t, r, "old", "new", "old")
	remove(t, a, "old")
	run(t, r, "old", "new", "old", "new")

	b := bucketNamed(t, a, "new")
	synced, reserved := b.GetCondition(xpv2.TypeSynced), b.GetCondition(TypeExternalNameReserved)

	for _, m := range []string{synced.Message, reserved.Message} {
		if !strings.Contains(m, "reserved by Bucket default/old (uid uid-1)") {
			t.Errorf("message: want one that names the first, got %q", m)
		}
	}

	if diff := cmp.Diff([]any{corev1.ConditionFalse, corev1.ConditionFalse, ReasonReservedByOther, 0}, []any{synced.Status, reserved.Status, reserved.Reason, len(b.GetFinalizers())}); diff != "" {
		t.Errorf("Synced, reserved, reason, finalizers: -want, +got:\n%s", diff)
	}

	// Nothing changes, so nothing is written.
	a.Forget()
	run(t, r, "new", "new")

	if n := a.Writes(); n != 0 {
		t.Errorf("writes while waiting: want 0, got %d", n)
	}

	run(t, r, "old", "old", "new", "new")
	c.mustBeInnocent(t)

	if diff := cmp.Diff([]string{"create old", "delete old", "delete old", "delete old", "create new"}, c.did()); diff != "" {
		t.Errorf("calls: -want, +got:\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{sharedKey: "new"}, holders(t, a)); diff != "" {
		t.Errorf("leases: -want, +got:\n%s", diff)
	}

	b = bucketNamed(t, a, "new")
	if got := b.GetCondition(TypeExternalNameReserved); got.Status != corev1.ConditionTrue || got.Reason != ReasonReserved {
		t.Errorf("condition: want True, Reserved, got %s, %s", got.Status, got.Reason)
	}
}

// Two kinds share an external resource.
func TestReservationAcrossKinds(t *testing.T) {
	a, c := testkit.NewAPI(of("bucket"), &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Name: "database", Annotations: map[string]string{meta.AnnotationKeyExternalName: "shared"}},
		Spec:       v1alpha1.DatabaseSpec{ClusterManagedResourceSpec: xpv2.ClusterManagedResourceSpec{ManagementPolicies: xpv2.ManagementPolicies{xpv2.ManagementActionAll}}},
	}), &shared{}

	reserve := WithExternalNameReservation(leaseNamespace, WithReservationKey(func(mg resource.Managed) string { return meta.GetExternalName(mg) }))
	buckets := reserving(a, c, reserve)
	databases := NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()), WithManagementPolicies(), WithCreationGracePeriod(0), WithInitializers(), waits(noWait), reserve, connects(c.client()))

	database := reconcile.Request{NamespacedName: types.NamespacedName{Name: "database"}}

	both := func() {
		t.Helper()
		run(t, buckets, "bucket")

		if _, err := databases.Reconcile(context.Background(), database); err != nil {
			t.Fatal(err)
		}
	}

	both()
	both()

	if diff := cmp.Diff(map[string]string{"shared": "bucket"}, holders(t, a)); diff != "" {
		t.Errorf("leases: -want, +got:\n%s", diff)
	}

	remove(t, a, "bucket")
	both()
	both()
	both()
	c.mustBeInnocent(t)

	if diff := cmp.Diff([]string{"create bucket", "delete bucket", "create database"}, c.did()); diff != "" {
		t.Errorf("calls: -want, +got:\n%s", diff)
	}

	l := leasesIn(t, a)["shared"]

	owners := l.GetOwnerReferences()
	if len(owners) != 1 || owners[0].Kind != "Database" || owners[0].Name != "database" {
		t.Errorf("owners of a cluster-scoped managed resource's lease: got %v", owners)
	}
}

// An owner in the leases' namespace is one that the garbage collector finds.
func TestReservationOwnedInItsNamespace(t *testing.T) {
	a := testkit.NewAPI(of("b", func(b *v1alpha1.Bucket) { b.Namespace = leaseNamespace }))
	r := reserving(a, &shared{})

	runIn(t, r, leaseNamespace, "b")

	l := leasesIn(t, a)[sharedKey]

	want := []metav1.OwnerReference{{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: "Bucket", Name: "b", UID: "uid-1"}}
	if diff := cmp.Diff(want, l.GetOwnerReferences()); diff != "" {
		t.Errorf("owners: -want, +got:\n%s", diff)
	}
}

// A second holder is only as good as what is known of the first.
func TestReservationOfDoubtfulHolders(t *testing.T) {
	check := func(err error) func(a *testkit.API) {
		return func(a *testkit.API) {
			a.Before = failing(func(q testkit.Request) bool { return isHolderCheck(q.Object) }, err)
		}
	}

	change := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, a *testkit.API) {
		return func(t *testing.T, a *testkit.API) {
			t.Helper()

			l := leasesIn(t, a)[sharedKey]
			fn(&l)

			must(t, a.Server().Update(context.Background(), &l))
		}
	}

	cases := map[string]struct {
		reason string
		then   func(t *testing.T, a *testkit.API)
		faults func(a *testkit.API)
		takes  bool
		says   string
	}{
		"Alive": {
			reason: "A lease whose holder exists is not taken over.",
			says:   "reserved by Bucket default/first",
		},
		"Killed": {
			reason: "A lease whose holder no longer exists is taken over.",
			then:   func(t *testing.T, a *testkit.API) { kill(t, a, "first") },
			takes:  true,
		},
		"AnotherOfTheName": {
			reason: "An object that has the name of the deleted holder is not the holder.",
			then: func(t *testing.T, a *testkit.API) {
				kill(t, a, "first")

				must(t, a.Server().Create(context.Background(), of("first")))
			},
			takes: true,
		},
		"Forbidden": {
			reason: "Without permission to read the holder it is unknown whether it exists.",
			faults: check(kerrors.NewForbidden(schema.GroupResource{}, "first", errors.New("no"))),
			says:   "cannot find out whether Bucket default/first",
		},
		"NotFoundOfAnother": {
			reason: "That something else is not found says nothing of the holder.",
			faults: check(kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")),
			says:   "if it doesn't, delete the lease",
		},
		"Broken": {
			reason: "An API server that doesn't answer is no answer.",
			faults: check(kerrors.NewInternalError(errors.New("boom"))),
			says:   "boom",
		},
		"NoHolder": {
			reason: "A lease without a holder is free.",
			then: change(func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "holderIdentity")
			}),
			takes: true,
		},
		"Unknown": {
			reason: "A lease that doesn't name its holder is not free.",
			then:   change(func(u *unstructured.Unstructured) { meta.RemoveAnnotations(u, annotationKeyHolder) }),
			says:   "if none needs it, delete it",
		},
		"Mismatch": {
			reason: "A lease that names two different holders is not free.",
			then: change(func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "another", "spec", "holderIdentity")
			}),
			says: "if none needs it, delete it",
		},
		"Deleted": {
			reason: "A lease that was deleted is free.",
			then: func(t *testing.T, a *testkit.API) {
				l := leasesIn(t, a)[sharedKey]
				must(t, a.Server().Delete(context.Background(), &l))
			},
			takes: true,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, c := testkit.NewAPI(of("first"), of("second")), &shared{}
			r := reserving(a, c)

			run(t, r, "first")

			if tc.then != nil {
				tc.then(t, a)
			}

			if tc.faults != nil {
				tc.faults(a)
			}

			run(t, r, "second")

			b := bucketNamed(t, a, "second")
			if got := holders(t, a)[sharedKey] == "second"; got != tc.takes {
				t.Errorf("\n%s\ntaken over: want %t, got %t", tc.reason, tc.takes, got)
			}

			if m := b.GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, tc.says) || (m == "") != (tc.says == "") {
				t.Errorf("\n%s\nSynced: want %q, got %q", tc.reason, tc.says, m)
			}

			// The bucket that doesn't hold the lease does nothing any more.
			c.mu.Lock()
			c.owner = ""
			c.mu.Unlock()

			before := len(c.did())

			if tc.takes && bucketNamed(t, a, "first").GetUID() == "uid-1" {
				remove(t, a, "first")
				run(t, r, "first")

				if did := c.did(); len(did) != before {
					t.Errorf("\n%s\nthe first acts on what it lost: %v", tc.reason, did)
				}
			}
		})
	}
}

// A name that the external system assigns is reserved once it is known.
func TestReservationOfAssignedNames(t *testing.T) {
	unnamed := of("b")
	unnamed.SetAnnotations(nil)

	a, c := testkit.NewAPI(unnamed, of("other", named("id-1"))), &shared{assigns: "id-1"}
	r := reserving(a, c)

	run(t, r, "b")

	want := map[string]string{strings.Replace(sharedKey, "shared", "id-1", 1): "b"}
	if diff := cmp.Diff(want, holders(t, a)); diff != "" {
		t.Errorf("holders: -want, +got:\n%s", diff)
	}

	run(t, r, "other", "b")
	c.mustBeInnocent(t)

	// Another name is another reservation, and the old one is released.
	edit(t, a, "b", named("id-2"))

	run(t, r, "b")

	if diff := cmp.Diff(map[string]string{strings.Replace(sharedKey, "shared", "id-2", 1): "b"}, holders(t, a)); diff != "" {
		t.Errorf("holders: -want, +got:\n%s", diff)
	}
}

// A name that Observe learns is reserved before anything is made of it.
func TestReservationOfLearnedNames(t *testing.T) {
	unnamed := of("late")
	unnamed.SetAnnotations(nil)

	a, c := testkit.NewAPI(unnamed, of("first")), &shared{}
	fns := c.client()
	observe := fns.ObserveFn
	fns.ObserveFn = func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		meta.SetExternalName(mg, "shared")
		return observe(ctx, mg)
	}

	r := reserving(a, c, connects(fns))
	run(t, r, "first", "late")

	late := bucketNamed(t, a, "late")
	if diff := cmp.Diff([]any{[]string{"create first"}, "shared", ReasonReservedByOther, corev1.ConditionFalse}, []any{c.did(), meta.GetExternalName(late), late.GetCondition(TypeExternalNameReserved).Reason, late.GetCondition(xpv2.TypeSynced).Status}); diff != "" {
		t.Errorf("calls, name, reason, Synced: -want, +got:\n%s", diff)
	}
}

// Only its holder releases a lease, whatever the holder had in memory about it.
func TestReleaseOnlyByHolder(t *testing.T) {
	ctx := context.Background()
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	now := newClock().now

	cases := map[string]struct {
		reason string
		then   func(t *testing.T, l *leases)
		forget bool
		want   map[string]string
	}{
		"Mine":        {reason: "The holder releases its lease.", want: map[string]string{}},
		"MineUnknown": {reason: "The holder releases its lease if nothing is in memory.", forget: true, want: map[string]string{}},
		"Rewritten": {
			reason: "The holder releases its lease if another writer has changed it since.",
			then: func(t *testing.T, l *leases) {
				u, err := l.get(ctx, leaseName("key"))
				if err != nil {
					t.Fatal(err)
				}

				u.SetLabels(map[string]string{"a": "b"})

				must(t, l.client.Update(ctx, u))
			},
			want: map[string]string{},
		},
		"TakenOver": {
			reason: "A lease that another holder has taken over since stays.",
			then: func(t *testing.T, l *leases) {
				u, err := l.get(ctx, leaseName("key"))
				if err != nil {
					t.Fatal(err)
				}

				l.fill(u, "key", holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}, now)

				must(t, l.client.Update(ctx, u))
			},
			want: map[string]string{"key": "theirs"},
		},
		"Gone": {
			reason: "What isn't there needs nothing.",
			then: func(t *testing.T, l *leases) {
				must(t, l.client.Delete(ctx, emptyLease(leaseNamespace, leaseName("key"))))
			},
			want: map[string]string{},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI()
			l := &leases{client: a.Client(), live: a.Live(), namespace: leaseNamespace}

			known, err := l.hold(ctx, "key", mine, now)
			if err != nil {
				t.Fatal(err)
			}

			if tc.then != nil {
				tc.then(t, l)
			}

			if tc.forget {
				known = lease{name: leaseName("key")}
			}

			if err := l.release(ctx, known, mine); err != nil {
				t.Errorf("\n%s\nrelease: %v", tc.reason, err)
			}

			if diff := cmp.Diff(tc.want, holders(t, a)); diff != "" {
				t.Errorf("\n%s\nholders: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A lease that can't be released is reported, and the managed resource is deleted
// anyway.
func TestReleaseFailureDoesNotBlockDeletion(t *testing.T) {
	a, c, rec := testkit.NewAPI(of("b")), &shared{}, &recorder{}
	r := reserving(a, c, WithRecorder(rec))

	run(t, r, "b")
	remove(t, a, "b")
	run(t, r, "b")

	a.Before = failing(func(q testkit.Request) bool { return isLease(q.Object) && q.Verb == testkit.Delete }, serverError())

	run(t, r, "b")

	if diff := cmp.Diff([]any{"", map[string]string{sharedKey: "b"}, 1}, []any{get(t, a).GetName(), holders(t, a), len(rec.of(reasonCannotRelease))}); diff != "" {
		t.Errorf("object, holders, events: -want, +got:\n%s", diff)
	}
}

// A cache that still shows what is gone doesn't make it act again.
func TestReservationOfStaleReads(t *testing.T) {
	a, c := testkit.NewAPI(of("old"), of("new")), &shared{}
	var known *reservation

	r := reserving(a, c, spies(slotReservation, &known))

	run(t, r, "old", "old")
	remove(t, a, "old")
	run(t, r, "old")

	must(t, a.Freeze(context.Background(), bucketNamed(t, a, "old")))

	run(t, r, "old")

	if bucketNamed(t, a, "old").GetName() != "" {
		t.Fatal("the old one is still there")
	}

	observed := c.observes

	for range 3 {
		run(t, r, "old")
	}

	if c.observes != observed || len(holders(t, a)) != 0 {
		t.Errorf("what is gone observes (%d times) or has reservations (%v)", c.observes-observed, holders(t, a))
	}

	run(t, r, "new")
	run(t, r, "old")
	a.Thaw()
	run(t, r, "old")
	c.mustBeInnocent(t)

	if diff := cmp.Diff([]any{[]string{"create old", "delete old", "create new"}, 1}, []any{c.did(), known.held.len()}); diff != "" {
		t.Errorf("calls, remembered: -want, +got:\n%s", diff)
	}
}

// Requests for leases fail in several ways. Two managed resources never act at the
// same time. Once the failures stop, the remaining one holds the lease.
func TestReservationWhenRequestsFail(t *testing.T) {
	broken := kerrors.NewInternalError(errors.New("boom"))

	faults := map[string]struct {
		before, after error
		lasting       int
	}{
		"Conflict":   {before: kerrors.NewConflict(schema.GroupResource{Resource: "leases"}, "l", errors.New("another writer was first")), lasting: 2 * leaseAttempts},
		"Broken":     {before: broken, lasting: 1},
		"LostAnswer": {after: broken, lasting: 1},
	}

	// life of two managed resources of one name: the first comes, is deleted,
	// and the second has it then.
	life := func(t *testing.T, a *testkit.API, c *shared) {
		t.Helper()

		r := reserving(a, c)

		rounds := func(n int) {
			for i := range n {
				run(t, r, "first", "second")

				if i == n/2 {
					r = reserving(a, c)
				}
			}
		}

		rounds(3)
		remove(t, a, "first")
		rounds(5)
	}

	// failing returns an API of which inject says how the n-th request about
	// leases fails.
	failing := func(inject func(n int) (before, after error)) *testkit.API {
		a, n := testkit.NewAPI(of("first"), of("second")), 0

		a.Before = func(_ context.Context, q testkit.Request) error {
			if !isLease(q.Object) && !isHolderCheck(q.Object) {
				return nil
			}

			n++
			before, _ := inject(n)

			return before
		}
		a.After = func(_ context.Context, q testkit.Request) error {
			if !isLease(q.Object) && !isHolderCheck(q.Object) {
				return nil
			}

			_, after := inject(n)

			return after
		}

		return a
	}

	total := 0
	life(t, failing(func(n int) (error, error) { total = n; return nil, nil }), &shared{})

	if total < 10 {
		t.Fatalf("requests about leases: want some, got %d", total)
	}

	for name, f := range faults {
		for k := 1; k <= total; k++ {
			t.Run(fmt.Sprintf("%s/%d", name, k), func(t *testing.T) {
				a := failing(func(n int) (error, error) {
					if n < k || n >= k+f.lasting {
						return nil, nil
					}

					return f.before, f.after
				})
				c := &shared{}

				life(t, a, c)

				// The API is well again.
				a.Before, a.After = nil, nil

				r := reserving(a, c)
				for range 5 {
					run(t, r, "first", "second")
				}

				c.mustBeInnocent(t)

				if diff := cmp.Diff(map[string]string{sharedKey: "second"}, holders(t, a)); diff != "" {
					t.Errorf("holders: -want, +got:\n%s", diff)
				}
			})
		}
	}

	c := &shared{}
	life(t, failing(func(int) (error, error) { return broken, nil }), c)

	if did := c.did(); len(did) != 0 || c.observes != 0 {
		t.Errorf("Without leases want no calls, got %v and %d observations", did, c.observes)
	}
}

// What another has reserved is left alone by each call, whatever Observe found.
func TestReservation_EachCall(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, e external, c *call) error{
		"Create": func(ctx context.Context, e external, c *call) error { _, err := e.Create(ctx, c); return err },
		"Update": func(ctx context.Context, e external, c *call) error { _, err := e.Update(ctx, c); return err },
		"Delete": func(ctx context.Context, e external, c *call) error { _, err := e.Delete(ctx, c); return err },
	} {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(of("first"), of("b"))
			run(t, reserving(a, &shared{}), "first")

			r := &Reconciler{}
			WithExternalNameReservation(leaseNamespace)(r)

			alone(t, a, r.config.layers[slotReservation], &recorder{}, calls{}, func(ctx context.Context, e external, c *call) {
				var held *heldError
				if err := do(ctx, e, c); !errors.As(err, &held) {
					t.Errorf("want the error of a reserved name, got %v", err)
				}
			})
		})
	}
}

// A lease is released after a create that failed for certain, and kept while its outcome
// is open.
func TestReservation_AfterCreate(t *testing.T) {
	boom := errors.New("boom")

	cases := map[string]struct {
		reason  string
		created creation
		err     error
		want    map[string]string
	}{
		"Failed": {
			reason:  "Nothing was created.",
			created: creation{Outcome: seam.Outcome{State: seam.Done}},
			err:     boom,
			want:    map[string]string{},
		},
		"Untried": {
			reason:  "The provider was not called.",
			created: creation{Outcome: seam.Outcome{State: seam.Untried}},
			err:     boom,
			want:    map[string]string{},
		},
		"Unknown": {
			reason:  "It may have created the external resource, which Observe doesn't show yet.",
			created: creation{Outcome: seam.Outcome{State: seam.Unknown}},
			err:     boom,
			want:    map[string]string{sharedKey: "b"},
		},
		"TimedOut": {
			reason:  "So may a call that had no answer.",
			created: creation{Outcome: seam.Outcome{State: seam.Done}},
			err:     context.DeadlineExceeded,
			want:    map[string]string{sharedKey: "b"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(of("b", annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")))

			r := &Reconciler{}
			WithExternalNameReservation(leaseNamespace)(r)

			provider := calls{create: func(*call) (creation, error) { return tc.created, tc.err }}

			alone(t, a, r.config.layers[slotReservation], &recorder{}, provider, func(ctx context.Context, e external, c *call) {
				if _, err := e.Create(ctx, c); !errors.Is(err, tc.err) {
					t.Errorf("Create(...): want %v, got %v", tc.err, err)
				}

				if diff := cmp.Diff(tc.want, holders(t, a)); diff != "" {
					t.Errorf("\n%s\nholders: -want, +got:\n%s", tc.reason, diff)
				}

				// As long as no result is stored, an external resource that is not
				// found yet may exist.
				if _, err := e.Observe(ctx, c); err != nil {
					t.Errorf("Observe(...): %v", err)
				}

				if diff := cmp.Diff(map[string]string{sharedKey: "b"}, holders(t, a)); diff != "" {
					t.Errorf("holders after Observe: -want, +got:\n%s", diff)
				}
			})
		})
	}
}

// A lease that gets lost on the way is noticed before anything is changed.
func TestReservationLostMeanwhile(t *testing.T) {
	a, c := testkit.NewAPI(of("b")), &shared{}
	fns := c.client()
	fns.ObserveFn = func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		// Another holder takes it, for example after a restored backup.
		l := leasesIn(t, a)[sharedKey]
		write := a.Server().Update

		if l.Object == nil {
			l, write = *emptyLease(leaseNamespace, leaseName(sharedKey)), func(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
				return a.Server().Create(ctx, o)
			}
		}

		h, _ := json.Marshal(holder{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: "Bucket", Namespace: "default", Name: "thief", UID: "uid-2"}) //nolint:errchkjson // Strings.
		meta.AddAnnotations(&l, map[string]string{annotationKeyHolder: string(h)})
		_ = unstructured.SetNestedField(l.Object, "uid-2", "spec", "holderIdentity")

		must(t, write(context.Background(), &l))

		return ExternalObservation{ResourceExists: c.there}, nil
	}

	for name, there := range map[string]bool{"Create": false, "Update": true} {
		t.Run(name, func(t *testing.T) {
			a = testkit.NewAPI(of("b"), of("thief"))
			c.there = there

			run(t, reserving(a, c, connects(fns)), "b")

			if did := c.did(); len(did) != 0 {
				t.Errorf("want no calls, got %v", did)
			}

			if m := get(t, a).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, "reserved by Bucket default/thief") {
				t.Errorf("Synced: got %q", m)
			}
		})
	}
}

func TestReservationKeys(t *testing.T) {
	r := &reservation{kind: testkit.BucketKind()}

	cases := map[string]struct {
		reason string
		mg     resource.Managed
		want   string
	}{
		"Unnamed":   {reason: "What has no name has nothing to reserve.", mg: bucket(uses("c"))},
		"NoConfig":  {reason: "Without a provider config there is none in the key.", mg: bucket(named("n")), want: `Bucket.sample.graft.crossplane.io - "n"`},
		"OfCluster": {reason: "A cluster's provider config is the same for all namespaces.", mg: bucket(named("n"), uses("c")), want: `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "n"`},
		"OfNamespace": {reason: "A namespace's is not.", mg: bucket(named("n"), func(b *v1alpha1.Bucket) {
			b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ProviderConfig", Name: "c"}
		}), want: `Bucket.sample.graft.crossplane.io ProviderConfig/default/c "n"`},
		"Quoted": {reason: "No name can look like another key.", mg: bucket(named("a\" \"b"), uses("c")), want: `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "a\" \"b"`},
		"Legacy": {reason: "A legacy provider config has no kind.", mg: func() resource.Managed {
			d := &v1alpha1.Database{}
			meta.SetExternalName(d, "n")
			d.Spec.ProviderConfigReference = &xpv2.Reference{Name: "c"}

			return d
		}(), want: `Bucket.sample.graft.crossplane.io /c "n"`},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, r.defaultKey(tc.mg)); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// in puts a managed resource into another namespace.
func in(namespace string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.Namespace = namespace }
}

// A tenancy is an external system in which creates of one namespace fail.
type tenancy struct {
	exists  bool
	fails   string
	creates []string
	err     error
}

func (c *tenancy) client() upstream.ExternalClientFns {
	return upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: c.exists, ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			c.creates = append(c.creates, mg.GetNamespace())
			if mg.GetNamespace() == c.fails {
				return ExternalCreation{}, c.err
			}

			c.exists = true

			return ExternalCreation{}, nil
		},
	}
}

// A name that no create has confirmed keeps no other namespace from it, and a message
// names nothing of another namespace.
func TestReservationBetweenNamespaces(t *testing.T) {
	boom := errors.New("quota exceeded")

	cases := map[string]struct {
		reason string
		err    error
		want   []string
		holder string
		says   string
	}{
		"CreateFails": {
			reason: "A create that failed reserves nothing, however often it is tried.",
			err:    boom,
			want:   []string{"attacker", "attacker", "victim"},
			holder: "theirs",
		},
		"OutcomeUnknown": {
			reason: "What may exist stays reserved.",
			err:    errors.Wrap(asyncstate.ErrOutcomeUnknown, "timeout"),
			want:   []string{"attacker"},
			holder: "mine",
			says:   "it is reserved by a managed resource in another namespace",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(of("mine", in("attacker")), of("theirs", in("victim")))
			c := &tenancy{fails: "attacker", err: tc.err}
			r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(c.client()))

			runIn(t, r, "attacker", "mine")
			runIn(t, r, "attacker", "mine")
			runIn(t, r, "victim", "theirs")

			if diff := cmp.Diff([]any{tc.want, map[string]string{sharedKey: tc.holder}}, []any{c.creates, holders(t, a)}); diff != "" {
				t.Errorf("\n%s\ncreates, holders: -want, +got:\n%s", tc.reason, diff)
			}

			b := &v1alpha1.Bucket{}
			must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "victim", Name: "theirs"}, b))

			for _, ct := range []xpv2.ConditionType{xpv2.TypeSynced, TypeExternalNameReserved} {
				if m := b.GetCondition(ct).Message; !strings.Contains(m, tc.says) || strings.Contains(m, "attacker") || strings.Contains(m, "mine") {
					t.Errorf("\n%s\n%s: want %q and no name, got %q", tc.reason, ct, tc.says, m)
				}
			}

			// The first one is told no more of the second.
			runIn(t, r, "attacker", "mine")

			must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "attacker", Name: "mine"}, b))

			if m := b.GetCondition(TypeExternalNameReserved).Message; strings.Contains(m, "victim") || strings.Contains(m, "theirs") {
				t.Errorf("\n%s\nthe first one learns of the second: %q", tc.reason, m)
			}
		})
	}
}

// A lease that an earlier process took for a create that then failed is released.
func TestReservationOfFailedCreateIsReleased(t *testing.T) {
	a, c := testkit.NewAPI(of("b"), of("other")), &shared{}

	boom := errors.New("boom")
	fns := c.client()
	fns.CreateFn = func(context.Context, resource.Managed) (ExternalCreation, error) { return ExternalCreation{}, boom }

	dies := true
	a.Before = func(_ context.Context, r testkit.Request) error {
		if dies && r.Verb == testkit.Delete && isLease(r.Object) {
			return errors.New("the process died")
		}

		return nil
	}

	run(t, reserving(a, c, connects(fns)), "b")

	if diff := cmp.Diff(map[string]string{sharedKey: "b"}, holders(t, a)); diff != "" {
		t.Fatalf("holders: -want, +got:\n%s", diff)
	}

	// A new process, in which the create is postponed.
	dies = false

	var known *reservation

	r := reserving(a, c, connects(fns), spies(slotReservation, &known))
	run(t, r, "b")

	if diff := cmp.Diff([]any{map[string]string{}, ""}, []any{holders(t, a), known.held.get(bucketNamed(t, a, "b")).key}); diff != "" {
		t.Errorf("holders, held: -want, +got:\n%s", diff)
	}
}

// A managed resource that may change nothing holds nothing.
func TestReservationNeedsAnAction(t *testing.T) {
	cases := map[string]struct {
		reason   string
		policies []xpv2.ManagementAction
		holds    bool
	}{
		"Observe":     {reason: "It only looks.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve}},
		"Import":      {reason: "It writes only to itself.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize}},
		"Delete":      {reason: "It may delete.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete}, holds: true},
		"Update":      {reason: "It may update.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}, holds: true},
		"Unspecified": {reason: "It may do everything.", policies: []xpv2.ManagementAction{xpv2.ManagementActionAll}, holds: true},
	}

	for name, tc := range cases {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarted=%t", name, restarted), func(t *testing.T) {
				a, c := testkit.NewAPI(of("owner"), of("next")), &shared{}
				r := reserving(a, c)
				run(t, r, "owner", "owner", "next")

				if s := bucketNamed(t, a, "next").GetCondition(TypeExternalNameReserved).Status; s != corev1.ConditionFalse {
					t.Fatalf("the second one is not blocked: %s", s)
				}

				// A hand-over: the first one is only to look from now on.
				edit(t, a, "owner", policies(tc.policies...))

				if restarted {
					r = reserving(a, c)
				}

				run(t, r, "owner")
				c.owner = ""
				run(t, r, "next")

				want := "next"
				if tc.holds {
					want = "owner"
				}

				if diff := cmp.Diff(map[string]string{sharedKey: want}, holders(t, a)); diff != "" {
					t.Errorf("\n%s\nholders: -want, +got:\n%s", tc.reason, diff)
				}

				a.Forget()
				run(t, r, "owner")

				if n := len(a.Requests()); n != 0 {
					t.Errorf("\n%s\nrequests of a steady state: want none but cached reads, got %v", tc.reason, a.Requests())
				}
			})
		}
	}
}

// One that was blocked, and then only observes, says neither that it is blocked nor
// that it has the name.
func TestReservationOfBlockedThatOnlyObserves(t *testing.T) {
	for _, hadIt := range []bool{false, true} {
		t.Run(fmt.Sprintf("hadIt=%t", hadIt), func(t *testing.T) {
			a, c := testkit.NewAPI(of("owner"), of("blocked")), &shared{}
			r := reserving(a, c)
			run(t, r, "owner", "blocked")

			if hadIt {
				kill(t, a, "owner")
				c.owner = ""
				run(t, r, "blocked")
			}

			edit(t, a, "blocked", policies(xpv2.ManagementActionObserve))
			run(t, r, "blocked")

			got := bucketNamed(t, a, "blocked").GetCondition(TypeExternalNameReserved)
			if diff := cmp.Diff([]any{corev1.ConditionUnknown, ReasonReservationNotNeeded}, []any{got.Status, got.Reason}); diff != "" {
				t.Errorf("condition: -want, +got:\n%s", diff)
			}
		})
	}
}

// A second one that is deleted goes, and leaves the external resource alone, unless it
// may have one of its own, that only has the same key.
func TestReservationOfWhatIsDeleted(t *testing.T) {
	at := time.Now().Add(-time.Hour).UTC()

	stamped := func(key string, d time.Duration) func(b *v1alpha1.Bucket) {
		return annotated(key, at.Add(d).Format(time.RFC3339))
	}

	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		gone   bool
	}{
		"NeverCreated": {reason: "There is nothing of its own.", gone: true},
		"AllFailed": {
			reason: "Nor is there if its creates failed.",
			mods:   []func(b *v1alpha1.Bucket){stamped(meta.AnnotationKeyExternalCreatePending, 0), stamped(meta.AnnotationKeyExternalCreateFailed, time.Second)},
			gone:   true,
		},
		"FailedAtOnce": {
			reason: "In the second in which they were announced, too.",
			mods:   []func(b *v1alpha1.Bucket){stamped(meta.AnnotationKeyExternalCreatePending, 0), stamped(meta.AnnotationKeyExternalCreateFailed, 0)},
			gone:   true,
		},
		"Succeeded": {
			reason: "What it created must not be forgotten.",
			mods:   []func(b *v1alpha1.Bucket){stamped(meta.AnnotationKeyExternalCreatePending, 0), stamped(meta.AnnotationKeyExternalCreateSucceeded, time.Second)},
		},
		"SucceededOnce": {
			reason: "Also if a later create failed.",
			mods: []func(b *v1alpha1.Bucket){
				stamped(meta.AnnotationKeyExternalCreateSucceeded, 0),
				stamped(meta.AnnotationKeyExternalCreatePending, time.Minute), stamped(meta.AnnotationKeyExternalCreateFailed, 2*time.Minute),
			},
		},
		"Unknown": {
			reason: "Nor what it may have created.",
			mods: []func(b *v1alpha1.Bucket){
				stamped(meta.AnnotationKeyExternalCreateFailed, 0), stamped(meta.AnnotationKeyExternalCreatePending, time.Minute),
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, c := testkit.NewAPI(of("owner"), of("blocked", append(tc.mods, deleting, finalizers(FinalizerName))...)), &shared{}
			r := reserving(a, c, WithDeterministicExternalName(true), WithDeletionConfirmation(5, interval))
			run(t, r, "owner", "blocked")

			says := reconciler.ReasonObserveFailed
			if tc.gone {
				says = ""
			}

			b := bucketNamed(t, a, "blocked")
			if diff := cmp.Diff([]any{tc.gone, says, []string{"create owner"}, map[string]string{sharedKey: "owner"}}, []any{b.GetName() == "", b.GetCondition(reconciler.TypeDeleting).Reason, c.did(), holders(t, a)}); diff != "" {
				t.Errorf("\n%s\ngone, reason, calls, holders: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A name that is learned only while the managed resource is deleted may be another's.
func TestReservationOfNameLearnedWhileDeleting(t *testing.T) {
	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		gone   bool
	}{
		"NeverCreated": {
			reason: "It is removed without the external resource of the other.",
			gone:   true,
		},
		"Created": {
			reason: "It may be what it created itself, so it stays.",
			mods:   []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339))},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, c := testkit.NewAPI(of("owner"), of("unnamed", append(tc.mods, named(""), deleting, finalizers(FinalizerName))...)), &shared{}
			fns := c.client()
			observe := fns.ObserveFn
			fns.ObserveFn = func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				if mg.GetName() == "unnamed" {
					meta.SetExternalName(mg, "shared")
				}

				return observe(ctx, mg)
			}

			r := reserving(a, c, connects(fns))
			run(t, r, "owner", "unnamed")

			if got := bucketNamed(t, a, "unnamed").GetName() == ""; got != tc.gone {
				t.Errorf("\n%s\ngone: want %t, got %t", tc.reason, tc.gone, got)
			}

			if diff := cmp.Diff([]any{[]string{"create owner"}, map[string]string{sharedKey: "owner"}}, []any{c.did(), holders(t, a)}); diff != "" {
				t.Errorf("\n%s\ncalls, holders: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

package reservation

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// newReservingReconciler returns a reconciler with With.
func newReservingReconciler(
	api *testkit.API, ext *kit.ExternalResource, o ...managed.ReconcilerOption,
) *managed.Reconciler {
	return kit.NewBucketReconciler(api, append([]managed.ReconcilerOption{
		With(leaseNamespace), kit.WithClient(ext.Client()),
	}, o...)...)
}

// takeOverLease gives the lease to another holder, as a restored backup does.
func takeOverLease(t *testing.T, api *testkit.API) {
	t.Helper()
	u := emptyLease(leaseNamespace, leaseName(sharedKey))
	_ = api.Server().Delete(context.Background(), u)
	fill(u, sharedKey, holder{
		APIVersion: testkit.BucketKind().GroupVersion().String(),
		Kind:       "Bucket",
		Namespace:  "default",
		Name:       "thief",
		UID:        "uid-2",
	}, claim{now: time.Now()})
	kit.Must(t, api.Server().Create(context.Background(), u))
}

// leasesByKey returns the leases by the reservation key in their annotation.
func leasesByKey(t *testing.T, api *testkit.API) map[string]unstructured.Unstructured {
	t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(emptyLease("", "").GroupVersionKind())
	if err := api.Server().List(context.Background(), l, client.InNamespace(leaseNamespace)); err != nil &&
		!apimeta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	out := map[string]unstructured.Unstructured{}
	for _, i := range l.Items {
		out[i.GetAnnotations()[annotationKeyReserves]] = i
	}
	return out
}

// holdersByKey returns the names of the managed resources that hold leases.
func holdersByKey(t *testing.T, api *testkit.API) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, l := range leasesByKey(t, api) {
		h := holder{}
		if err := json.Unmarshal([]byte(l.GetAnnotations()[annotationKeyHolder]), &h); err != nil {
			h.Name = "unknown"
		}
		out[k] = h.Name
	}
	return out
}

// expectHolder fails the test unless the managed resource of that name holds the only lease. An
// empty name means that there is no lease.
func expectHolder(t *testing.T, reason string, api *testkit.API, name string) {
	t.Helper()
	want := map[string]string{}
	if name != "" {
		want[sharedKey] = name
	}
	kit.ExpectEqual(t, reason, "holders", want, holdersByKey(t, api))
}

func isLease(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "Lease" }

// isHolderCheck reports whether a request reads the holder of a lease.
func isHolderCheck(o client.Object) bool {
	_, ok := o.(*metav1.PartialObjectMetadata)
	return ok
}

// bucketWithSharedName returns a Bucket whose external name is "shared", so that all of them
// refer to one external resource.
func bucketWithSharedName(name string, mod ...kit.BucketModifier) *v1alpha1.Bucket {
	return kit.NewBucket(append([]kit.BucketModifier{
		kit.WithName(name), kit.WithExternalName("shared"), kit.WithProviderConfig("config"),
	}, mod...)...)
}

// sharedKey is the reservation key of the Buckets of bucketWithSharedName.
const sharedKey = `Bucket.sample.graft.crossplane.io ClusterProviderConfig/config "shared"`

const leaseNamespace = "provider"

func TestReservation_TakeOver(t *testing.T) {
	holderCheckFails := func(err error) func(t *testing.T, api *testkit.API) {
		return func(_ *testing.T, api *testkit.API) {
			api.Before = kit.FailRequests(func(q testkit.Request) bool { return isHolderCheck(q.Object) }, err)
		}
	}
	updateLease := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, api *testkit.API) {
		return func(t *testing.T, api *testkit.API) {
			t.Helper()
			l := leasesByKey(t, api)[sharedKey]
			fn(&l)
			kit.Must(t, api.Server().Update(context.Background(), &l))
		}
	}
	cases := map[string]struct {
		reason        string
		change        func(t *testing.T, api *testkit.API)
		wantTakenOver bool
		wantSynced    string
	}{
		"Alive": {
			reason:     "The lease should be kept when its holder exists.",
			change:     func(*testing.T, *testkit.API) {},
			wantSynced: "reserved by Bucket default/first",
		},
		"Killed": {
			reason:        "The lease should be taken over when its holder no longer exists.",
			change:        func(t *testing.T, api *testkit.API) { kit.RemoveBucket(t, api, "first") },
			wantTakenOver: true,
		},
		"AnotherOfTheName": {
			reason: "The lease should be taken over when another object has the name of its holder.",
			change: func(t *testing.T, api *testkit.API) {
				kit.RemoveBucket(t, api, "first")
				kit.Must(t, api.Server().Create(context.Background(), bucketWithSharedName("first")))
			},
			wantTakenOver: true,
		},
		"KilledInAnotherVersion": {
			reason: "The holder should be looked up in the version that is reconciled, because its own may not be served any more.",
			change: func(t *testing.T, api *testkit.API) {
				t.Helper()
				kit.RemoveBucket(t, api, "first")
				updateLease(func(u *unstructured.Unstructured) {
					text := strings.ReplaceAll(
						u.GetAnnotations()[annotationKeyHolder], v1alpha1.GroupVersion().String(),
						v1alpha1.GroupVersion().Group+"/v9",
					)
					meta.AddAnnotations(u, map[string]string{annotationKeyHolder: text})
				})(t, api)
				api.Before = kit.FailRequests(func(q testkit.Request) bool {
					return isHolderCheck(q.Object) && q.Object.GetObjectKind().GroupVersionKind().Version == "v9"
				}, &apimeta.NoKindMatchError{})
			},
			wantTakenOver: true,
		},
		"Forbidden": {
			reason:     "The lease should be kept when we have no permission to read its holder.",
			change:     holderCheckFails(kerrors.NewForbidden(schema.GroupResource{}, "first", errors.New("no"))),
			wantSynced: "cannot check whether Bucket default/first",
		},
		"NotFoundOfAnother": {
			reason:     "The lease should be kept when the API server says that another object was not found.",
			change:     holderCheckFails(kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")),
			wantSynced: "if it doesn't, delete the lease",
		},
		"NoDetails": {
			reason: "The lease should be kept when the API server does not say which object was not found.",
			change: holderCheckFails(&kerrors.StatusError{
				ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404},
			}),
			wantSynced: "if it doesn't, delete the lease",
		},
		"Broken": {
			reason:     "The lease should be kept when the API server returns an error.",
			change:     holderCheckFails(kit.ServerError()),
			wantSynced: "etcd has no leader",
		},
		"Unread": {
			reason: "The lease should be kept when it can't be read.",
			change: func(_ *testing.T, api *testkit.API) {
				api.Before = kit.FailRequests(
					func(q testkit.Request) bool { return isLease(q.Object) }, kit.ServerError(),
				)
			},
			wantSynced: "cannot read lease",
		},
		"NoHolder": {
			reason: "A lease without a holder should be taken over.",
			change: updateLease(func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "holderIdentity")
			}),
			wantTakenOver: true,
		},
		"Unknown": {
			reason: "A lease that does not name its holder should be kept.",
			change: updateLease(func(u *unstructured.Unstructured) {
				meta.RemoveAnnotations(u, annotationKeyHolder)
			}),
			wantSynced: "delete the lease if no managed resource needs it",
		},
		"Mismatch": {
			reason: "A lease that names two different holders should be kept.",
			change: updateLease(func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "another", "spec", "holderIdentity")
			}),
			wantSynced: "delete the lease if no managed resource needs it",
		},
		"Deleted": {
			reason: "A lease that was deleted should be created again for the new holder.",
			change: func(t *testing.T, api *testkit.API) {
				l := leasesByKey(t, api)[sharedKey]
				kit.Must(t, api.Server().Delete(context.Background(), &l))
			},
			wantTakenOver: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("first"), bucketWithSharedName("second"))
			ext := &kit.ExternalResource{}
			r := newReservingReconciler(api, ext)
			kit.MustReconcile(t, r, "first")
			tc.change(t, api)
			kit.MustReconcile(t, r, "second")
			kit.ExpectEqual(t, tc.reason, "taken over", tc.wantTakenOver, holdersByKey(t, api)[sharedKey] == "second")
			if m := kit.GetBucketNamed(
				t, api, "second",
			).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, tc.wantSynced) ||
				(m == "") != (tc.wantSynced == "") {
				t.Errorf("\n%s\nSynced: want %q, got %q", tc.reason, tc.wantSynced, m)
			}

			calls := len(ext.Calls)
			if tc.wantTakenOver && kit.GetBucketNamed(t, api, "first").GetUID() == "uid-1" {
				kit.DeleteBucket(t, api, "first")
				kit.MustReconcile(t, r, "first")
				kit.ExpectEqual(
					t, "A managed resource that has lost its lease should make no more calls.", "calls", []string{},
					ext.Calls[calls:],
				)
			}
		})
	}
}

func TestLeases(t *testing.T) {
	gr := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mine := holder{APIVersion: "v1", Kind: "Bucket", Namespace: leaseNamespace, Name: "mine", UID: "uid-mine"}
	theirs := holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}
	now := kit.NewClock().Now
	withoutHolder := func(t *testing.T, api *testkit.API) {
		t.Helper()
		u := emptyLease(leaseNamespace, leaseName("key"))
		fill(u, "key", holder{}, claim{now: now})
		kit.Must(t, api.Server().Create(t.Context(), u))
	}
	deleteLease := func(t *testing.T, api *testkit.API) {
		t.Helper()
		kit.Must(t, api.Server().Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
	}
	updateLease := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, api *testkit.API) {
		return func(t *testing.T, api *testkit.API) {
			t.Helper()
			u := leasesByKey(t, api)["key"]
			fn(&u)
			kit.Must(t, api.Server().Update(t.Context(), &u))
		}
	}
	type want struct {
		Holders map[string]string
		Writes  int
		Err     string
	}
	heldByMine, noLeases := map[string]string{"key": "mine"}, map[string]string{}
	cases := map[string]struct {
		reason           string
		existing         func(t *testing.T, api *testkit.API)
		held             bool // mine holds the lease already
		release          bool // release the held lease
		readsFail        bool
		beforeFirstWrite func(t *testing.T, api *testkit.API)
		writeErr         error // returned by the first failedWrites writes
		failedWrites     int
		want             want
	}{
		"New": {
			reason: "A lease that does not exist should be created.",
			want:   want{Holders: heldByMine, Writes: 1},
		},
		"Free": {
			reason:   "A lease that has no holder should be updated.",
			existing: withoutHolder,
			want:     want{Holders: heldByMine, Writes: 1},
		},
		"Held": {
			reason: "A lease of the holder should not be written again.",
			held:   true,
			want:   want{Holders: heldByMine},
		},
		"CreatedMeanwhile": {
			reason:           "A lease that was created meanwhile should be read again.",
			beforeFirstWrite: withoutHolder,
			want:             want{Holders: heldByMine, Writes: 2},
		},
		"DeletedMeanwhile": {
			reason:           "A lease that was deleted meanwhile should be created again.",
			existing:         withoutHolder,
			beforeFirstWrite: deleteLease,
			want:             want{Holders: heldByMine, Writes: 2},
		},
		"Conflicts": {
			reason:       "We should return an error after five conflicts.",
			existing:     withoutHolder,
			writeErr:     kerrors.NewConflict(gr, "x", nil),
			failedWrites: 9,
			want: want{
				Holders: map[string]string{"key": ""}, Writes: 5, Err: "too many conflicting writes (5 attempts)",
			},
		},
		"NoNamespace": {
			reason:       "The error should say that the namespace of the leases may not exist.",
			writeErr:     kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, leaseNamespace),
			failedWrites: 9,
			want:         want{Holders: noLeases, Writes: 1, Err: "does the namespace exist?"},
		},
		"Forbidden": {
			reason:       "We should return another error at once.",
			writeErr:     kerrors.NewForbidden(gr, "x", nil),
			failedWrites: 9,
			want:         want{Holders: noLeases, Writes: 1, Err: "cannot write lease"},
		},
		"Unread": {
			reason:    "We should return an error if the lease can't be read.",
			readsFail: true,
			want:      want{Holders: noLeases, Err: "cannot read lease"},
		},
		"Release": {
			reason:  "The holder should release its lease.",
			release: true,
			want:    want{Holders: noLeases, Writes: 1},
		},
		"ReleaseForbidden": {
			reason:       "We should return an error if the lease can't be deleted.",
			release:      true,
			writeErr:     kerrors.NewForbidden(gr, "x", nil),
			failedWrites: 9,
			want:         want{Holders: heldByMine, Writes: 1, Err: "cannot delete lease"},
		},
		"ReleaseConflicts": {
			reason:       "We should return an error after five conflicts, and keep the lease.",
			release:      true,
			writeErr:     kerrors.NewConflict(gr, "x", nil),
			failedWrites: 9,
			want:         want{Holders: heldByMine, Writes: 5, Err: "too many conflicting writes (5 attempts)"},
		},
		"ReleaseUnread": {
			reason:    "We should return an error if the lease can't be read before it is released.",
			release:   true,
			readsFail: true,
			want:      want{Holders: heldByMine, Err: "cannot read lease"},
		},
		"TakenOver": {
			reason:  "A lease that another holder has taken over should be kept.",
			release: true,
			beforeFirstWrite: updateLease(
				func(u *unstructured.Unstructured) { fill(u, "key", theirs, claim{now: now}) },
			),
			want: want{Holders: map[string]string{"key": "theirs"}, Writes: 1},
		},
		"Gone": {
			reason:           "A lease that no longer exists should need no release.",
			release:          true,
			beforeFirstWrite: deleteLease,
			want:             want{Holders: noLeases, Writes: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI()
			if tc.existing != nil {
				tc.existing(t, api)
			}
			l := &leases{client: api.Client(), live: api.Live(), namespace: leaseNamespace}
			hold := func() error {
				held, err := l.hold(t.Context(), "key", mine, claim{take: true, now: now})
				kit.ExpectEqual(t, tc.reason, "held", err == nil, held)
				return err
			}
			if tc.release || tc.held {
				kit.Must(t, hold())
				u := leasesByKey(t, api)["key"]
				kit.ExpectEqual(
					t, "The garbage collector should not delete the lease before its holder in a foreground deletion.",
					"owners", 0, len(u.GetOwnerReferences()),
				)
			}
			var got want
			api.Before = func(_ context.Context, r testkit.Request) error {
				switch {
				case !kit.IsWrite(r) && tc.readsFail:
					return kit.ServerError()
				case !kit.IsWrite(r):
					return nil
				}
				if got.Writes++; got.Writes == 1 && tc.beforeFirstWrite != nil {
					tc.beforeFirstWrite(t, api)
				}
				if got.Writes <= tc.failedWrites {
					return tc.writeErr
				}
				return nil
			}
			do := hold
			if tc.release {
				do = func() error { return l.release(t.Context(), leaseName("key"), mine) }
			}
			if err := do(); err != nil {
				got.Err = tc.want.Err
				if tc.want.Err == "" || !strings.Contains(err.Error(), tc.want.Err) {
					got.Err = err.Error()
				}
			}
			got.Holders = holdersByKey(t, api)
			kit.ExpectEqual(t, tc.reason, "holders, writes, error", tc.want, got)
		})
	}
}

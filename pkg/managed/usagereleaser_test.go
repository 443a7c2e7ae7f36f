package managed

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func TestUsageReleaser(t *testing.T) {
	boom := errors.New("boom")
	held := &usageState{Finalizers: []string{UsageFinalizerName, "example.org/holds"}}
	let := &usageState{Finalizers: []string{"example.org/holds"}}

	of := testkit.BucketKind()
	unserved := kerrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Group: of.Group, Resource: "buckets"}, "b", "404 page not found", 0, true)
	noMatch := &kmeta.NoKindMatchError{GroupKind: of.GroupKind(), SearchedVersions: []string{of.Version}}

	is := func(mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
		return bucket(append([]func(b *v1alpha1.Bucket){used, finalizers(FinalizerName)}, mod...)...)
	}

	fails := func(verb string, err error) func(string) error {
		return func(v string) error {
			if v == verb {
				return err
			}

			return nil
		}
	}

	// ownedBy gives a usage another controller.
	ownedBy := func(fn func(r *metav1.OwnerReference)) func(u *v1alpha1.ProviderConfigUsage) {
		return func(u *v1alpha1.ProviderConfigUsage) { fn(&u.OwnerReferences[0]) }
	}

	cases := map[string]struct {
		reason string
		user   *v1alpha1.Bucket
		usage  *v1alpha1.ProviderConfigUsage
		opts   []UsageReleaserOption
		// before is called with each read of the managed resource, and with what
		// the verb is.
		before func(verb string) error
		// conflicts is whether another writer changes the usage in the meantime.
		conflicts bool

		want  *usageState
		again time.Duration
		err   error
	}{
		"UserGone":         {reason: "A usage whose user no longer exists is released.", usage: usageOf(protected, removed), want: let},
		"LastFinalizer":    {reason: "With its last finalizer it goes.", usage: usageOf(removed, protected)},
		"UserAnother":      {reason: "One of the user's name is not the user.", user: is(func(b *v1alpha1.Bucket) { b.UID = "another" }), usage: usageOf(protected, removed), want: let},
		"User":             {reason: "What is used stays, also if the user is not being deleted.", user: is(), usage: usageOf(protected, removed), want: held, again: usageInterval},
		"UserDeleted":      {reason: "What is being deleted uses it until its finalizer is gone.", user: is(deleting), usage: usageOf(protected, removed), want: held, again: usageInterval},
		"UserHeldByOthers": {reason: "So does what a custom finalizer holds.", user: is(deleting, finalizers("example.org/f")), usage: usageOf(protected, removed), want: held, again: usageInterval},
		"UserLeft": {
			reason: "What only the garbage collector holds uses nothing any more.",
			user:   is(deleting, finalizers(metav1.FinalizerDeleteDependents)), usage: usageOf(protected, removed), want: let,
		},
		"UserOrphans": {reason: "Whatever that does with its dependents.", user: is(deleting, finalizers(metav1.FinalizerOrphanDependents)), usage: usageOf(protected, removed), want: let},
		"UserNotLeft": {
			reason: "What the provider holds as well needs it.",
			user:   is(deleting, finalizers(metav1.FinalizerOrphanDependents, FinalizerName)), usage: usageOf(protected, removed), want: held, again: usageInterval,
		},
		"CacheIsOld": {
			reason: "A user that the cache doesn't have, but the API server has, is one.",
			user:   is(), usage: usageOf(protected, removed),
			before: fails(testkit.Get, &kmeta.NoKindMatchError{}),
			want:   held, again: usageInterval,
		},
		"Unreadable": {reason: "A usage is not released if it is unknown whether its user exists.", usage: usageOf(protected, removed), before: fails(testkit.LiveGet, boom), want: held, err: boom},
		"Unserved": {
			reason: "A user whose version is not served any more may exist in another one.",
			usage:  usageOf(protected, removed), before: fails(testkit.LiveGet, unserved), want: held, err: unserved,
		},
		"UnservedUnmapped": {reason: "Also if the client knows no version.", usage: usageOf(protected, removed), before: fails(testkit.LiveGet, noMatch), want: held, err: noMatch},
		"KindGone":         {reason: "Of a kind that isn't served any more, nothing is left.", usage: usageOf(protected, removed), before: func(string) error { return &kmeta.NoKindMatchError{} }, want: let},
		"OtherVersion": {
			reason: "A user is looked for in the version that the provider knows.",
			user:   is(), usage: usageOf(protected, removed, ownedBy(func(r *metav1.OwnerReference) { r.APIVersion = "sample.graft.crossplane.io/v9" })),
			want: held, again: usageInterval,
		},
		"OthersUser": {reason: "The user of another provider is for that to look after.", usage: usageOf(protected, removed, ownedBy(func(r *metav1.OwnerReference) { r.Kind = "Unknown" })), want: held},
		"NoController": {
			reason: "A usage without a controller is released. It is created again if it is needed.",
			user:   is(), usage: usageOf(protected, removed, func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences = nil }),
			want: let,
		},
		"NotDeleted":  {reason: "What isn't being deleted is for its user's reconciler.", usage: usageOf(protected), want: &usageState{Finalizers: []string{UsageFinalizerName}}},
		"Unprotected": {reason: "What isn't protected isn't ours.", usage: usageOf(removed), want: &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true}},
		"NoUsage":     {reason: "A usage that no longer exists needs nothing."},
		"All":         {reason: "With WithReleaseAll a usage whose user exists is released, too.", user: is(), usage: usageOf(protected), opts: []UsageReleaserOption{WithReleaseAll()}, want: &usageState{}},
		"AllDeleted":  {reason: "So is one that is being deleted.", user: is(), usage: usageOf(protected, removed), opts: []UsageReleaserOption{WithReleaseAll()}, want: let},
		"AllOfOthers": {
			reason: "Also those of managed resources that the scheme doesn't know, or the finalizer would stay for ever.",
			usage:  usageOf(protected, ownedBy(func(r *metav1.OwnerReference) { r.Kind = "Unknown" })), opts: []UsageReleaserOption{WithReleaseAll()},
			want: &usageState{},
		},
		"Conflict": {reason: "What was changed meanwhile is looked at again.", usage: usageOf(protected, removed), conflicts: true, want: held, again: time.Second},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()

			var objs []client.Object
			if tc.user != nil {
				objs = append(objs, tc.user)
			}

			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}

			a := testkit.NewAPI(objs...)
			a.Before = func(_ context.Context, r testkit.Request) error {
				if _, is := r.Object.(*v1alpha1.Bucket); is && tc.before != nil {
					return tc.before(r.Verb)
				}

				if r.Verb == testkit.Update && tc.conflicts {
					now := usageOf()
					if err := a.Server().Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
						return err
					}

					now.SetLabels(map[string]string{"k": "v"})

					return a.Server().Update(ctx, now)
				}

				return nil
			}

			r := NewUsageReleaser(a.Manager(), testkit.ProviderConfigUsageKind(), tc.opts...)

			got, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: userUID}})
			wants(t, tc.reason, "Reconcile", tc.err, err, cmpopts.EquateErrors())
			wants(t, tc.reason, "result", reconcile.Result{RequeueAfter: tc.again}, got)
			wants(t, tc.reason, "usage", tc.want, usageIn(t, a), cmpopts.EquateEmpty())
		})
	}
}

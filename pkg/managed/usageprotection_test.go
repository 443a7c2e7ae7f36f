package managed

import (
	"context"
	"slices"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// userUID is the UID of the managed resource in these tests.
const userUID = "the-user"

// used gives a managed resource the UID by which its usage is found.
func used(b *v1alpha1.Bucket) {
	b.UID = userUID
	uses("config")(b)
}

// usageOf returns the usage of the managed resource in these tests, as trackers make
// it.
func usageOf(mod ...func(u *v1alpha1.ProviderConfigUsage)) *v1alpha1.ProviderConfigUsage {
	u := &v1alpha1.ProviderConfigUsage{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "default",
		Name:            userUID,
		OwnerReferences: []metav1.OwnerReference{meta.AsController(&xpv2.TypedReference{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: testkit.BucketKind().Kind, Name: "b", UID: userUID})},
	}}
	u.SetProviderConfigReference(xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "config"})
	u.SetResourceReference(xpv2.TypedReference{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: testkit.BucketKind().Kind, Name: "b"})

	for _, m := range mod {
		m(u)
	}

	return u
}

// protected makes a usage one that was protected.
func protected(u *v1alpha1.ProviderConfigUsage) {
	u.SetFinalizers([]string{UsageFinalizerName})
	u.OwnerReferences[0].BlockOwnerDeletion = nil
}

// removed makes a usage one that is being deleted, and that others hold as well.
func removed(u *v1alpha1.ProviderConfigUsage) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
	u.SetFinalizers(append(u.GetFinalizers(), "example.org/holds"))
}

// A usageState is what matters of a usage.
type usageState struct {
	Finalizers []string
	Blocks     bool
}

func usageIn(t *testing.T, a *testkit.API) *usageState {
	t.Helper()

	u := &v1alpha1.ProviderConfigUsage{}

	err := a.Server().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: userUID}, u)
	if kerrors.IsNotFound(err) {
		return nil
	}

	must(t, err)

	c := metav1.GetControllerOf(u)

	return &usageState{Finalizers: u.GetFinalizers(), Blocks: c != nil && c.BlockOwnerDeletion != nil && *c.BlockOwnerDeletion}
}

func protects() ReconcilerOption { return WithUsageProtection(testkit.ProviderConfigUsageKind()) }

// writesToUsages counts the writes to usages.
func writesToUsages(a *testkit.API) int {
	return len(slices.DeleteFunc(a.Requests(), func(r testkit.Request) bool {
		_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
		return !is || r.Verb == testkit.LiveGet
	}))
}

func TestUsageProtection(t *testing.T) {
	boom := errors.New("boom")
	held := &usageState{Finalizers: []string{UsageFinalizerName}}
	open := &usageState{Blocks: true}
	ends := []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}

	cases := map[string]struct {
		reason string
		object []func(b *v1alpha1.Bucket)
		absent bool // The external resource is.
		usage  *v1alpha1.ProviderConfigUsage
		opts   []ReconcilerOption
		// lags is whether the cache has the usage as it was before it was changed.
		lags func(u *v1alpha1.ProviderConfigUsage)
		fail error

		want   *usageState
		writes int
		warns  bool
		gone   bool // The managed resource is.
	}{
		"Gone":            {reason: "A usage is released with the finalizer of its managed resource.", object: ends, absent: true, usage: usageOf(protected, removed), want: &usageState{Finalizers: []string{"example.org/holds"}}, writes: 1, gone: true},
		"NotDeletedYet":   {reason: "One that wasn't deleted is left for the garbage collector.", object: ends, absent: true, usage: usageOf(protected), want: &usageState{}, writes: 1, gone: true},
		"There":           {reason: "As long as the external resource exists, the usage is not released.", object: ends, usage: usageOf(protected), want: held},
		"GoneUnprotected": {reason: "One that isn't protected is not written.", object: ends, absent: true, usage: usageOf(), want: open, gone: true},
		"GoneNoUsage":     {reason: "Without one there is nothing to do.", object: ends, absent: true, gone: true},
		"GoneRefused":     {reason: "A failed release of the usage does not block the managed resource.", object: ends, absent: true, usage: usageOf(protected), fail: boom, want: held, writes: 1, gone: true},

		"Tracked":   {reason: "A usage is protected as soon as the provider was connected to, and does not hold up a foreground deletion.", usage: usageOf(), want: held, writes: 1},
		"Protected": {reason: "One that is protected is not written.", usage: usageOf(protected), want: held},
		"ProtectedByUpstream": {
			reason: "One that a later version of upstream protects is left to it.",
			usage: usageOf(func(u *v1alpha1.ProviderConfigUsage) {
				u.SetFinalizers([]string{upstreamUsageFinalizer})
			}), want: &usageState{Finalizers: []string{upstreamUsageFinalizer}, Blocks: true},
		},
		"HalfProtected": {
			reason: "A usage with the finalizer, whose owner reference still blocks a foreground deletion, is protected again.",
			usage: usageOf(func(u *v1alpha1.ProviderConfigUsage) {
				u.SetFinalizers([]string{UsageFinalizerName})
			}), want: held, writes: 1,
		},
		"Unblocking": {
			reason: "A usage without the finalizer is not protected, whatever its owner reference says.",
			usage:  usageOf(func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = nil }), want: held, writes: 1,
		},
		"ProtectedWithFalse": {
			reason: "An owner reference that says that it doesn't block is as good as one that says nothing.",
			usage:  usageOf(protected, func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = new(bool) }), want: held,
		},
		"OthersKeep": {
			reason: "Finalizers and owners of others stay.",
			usage: usageOf(func(u *v1alpha1.ProviderConfigUsage) {
				u.SetFinalizers([]string{"example.org/f"})
				u.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "s"}}, u.OwnerReferences...)
			}),
			want: &usageState{Finalizers: []string{"example.org/f", UsageFinalizerName}}, writes: 1,
		},
		"CacheLags": {
			reason: "A usage that was changed since it was cached is protected as it is.",
			usage:  usageOf(), lags: func(u *v1alpha1.ProviderConfigUsage) { u.SetLabels(map[string]string{"k": "v"}) },
			want: held, writes: 2,
		},
		"Deleted": {reason: "A usage that is being deleted takes no finalizer.", usage: usageOf(removed), want: &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true}},
		"UserDeleted": {
			reason: "The usage of what is being deleted is left alone: it may be on its way.",
			object: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName, "example.org/f")},
			usage:  usageOf(), want: open,
		},
		"Paused": {reason: "So is that of what is paused.", object: []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyReconciliationPaused, "true")}, usage: usageOf(), want: open},
		"NotConnected": {
			reason: "So is that of what can't connect: its provider config may have been missing all along.",
			opts: []ReconcilerOption{WithExternalConnector(ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
				return nil, boom
			}))},
			usage: usageOf(), want: open,
		},
		"NobodyTracks": {reason: "Without a usage there is nothing to protect, which is said.", warns: true},
		"Another": {
			reason: "A usage that another object controls is not written.",
			usage:  usageOf(func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].UID = "another" }),
			want:   open, warns: true,
		},
		"Refused": {reason: "A usage that can't be written does not block the reconcile.", usage: usageOf(), fail: boom, want: open, writes: 1, warns: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objs := []client.Object{bucket(append([]func(b *v1alpha1.Bucket){used}, tc.object...)...)}
			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}

			a := testkit.NewAPI(objs...)
			ctx := context.Background()

			if tc.lags != nil {
				must(t, a.Freeze(ctx, tc.usage))

				now := &v1alpha1.ProviderConfigUsage{}
				must(t, a.Server().Get(ctx, client.ObjectKeyFromObject(tc.usage), now))

				tc.lags(now)

				must(t, a.Server().Update(ctx, now))
			}

			a.Before = failing(func(r testkit.Request) bool {
				_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
				return is && (r.Verb == testkit.Patch || r.Verb == testkit.Update)
			}, tc.fail)

			x, rec := &outside{there: !tc.absent}, &testkit.Said{}
			run(t, newBucketReconciler(a, append([]ReconcilerOption{WithRecorder(rec), protects(), connects(x.client())}, tc.opts...)...), "b")

			wants(t, tc.reason, "usage", tc.want, usageIn(t, a), cmpopts.EquateEmpty())
			wants(t, tc.reason, "writes of usages, gone", []any{tc.writes, tc.gone}, []any{writesToUsages(a), get(t, a).GetName() == ""})
			wants(t, tc.reason, "warns, and reconciles", []bool{tc.warns, tc.warns}, []bool{len(rec.Events(reasonCannotProtectUsage)) > 0, tc.warns && x.observes > 0})
		})
	}
}

// The usage of a legacy managed resource is where its tracker creates it. It is
// released with the finalizer of the managed resource.
func TestLegacyUsageProtection(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	a, there := testkit.NewAPI(d), true
	tracker := NewLegacyProviderConfigUsageTracker(a.Client(), &testkit.LegacyProviderConfigUsage{})

	r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		WithUsageProtection(testkit.LegacyProviderConfigUsageKind()), WithInitializers(), waits(noWait),
		WithTypedExternalConnector(TypedExternalConnectorFn[*v1alpha1.Database](func(ctx context.Context, d *v1alpha1.Database) (TypedExternalClient[*v1alpha1.Database], error) {
			return connected[*v1alpha1.Database](provider{client: ExternalClientFns{ObserveFn: sees(&there)}}), tracker.Track(ctx, d)
		})))

	has := func(finalizers ...string) {
		t.Helper()
		run(t, r, "/d")

		u := &testkit.LegacyProviderConfigUsage{}
		must(t, a.Server().Get(t.Context(), client.ObjectKey{Name: string(d.GetUID())}, u))
		wants(t, "", "finalizers", finalizers, u.GetFinalizers(), cmpopts.EquateEmpty())
	}

	has(UsageFinalizerName)

	there = false

	must(t, a.Server().Delete(t.Context(), d))
	has()
}

// A usage that is pointed to another provider config stays protected.
func TestUsageTrackersKeepProtection(t *testing.T) {
	boom := errors.New("boom")

	cases := map[string]struct {
		reason  string
		usage   *v1alpha1.ProviderConfigUsage
		tracker func(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker
		// failing is the read of the usage that fails.
		failing int
		want    *usageState
		config  string
		err     error
	}{
		"Graft": {
			reason: "With Graft's tracker it stays protected.",
			usage:  usageOf(protected), tracker: NewProviderConfigUsageTracker,
			want: &usageState{Finalizers: []string{UsageFinalizerName}}, config: "other",
		},
		"Unprotected": {
			reason: "What isn't protected is replaced as upstream does it.",
			usage:  usageOf(func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = nil }), tracker: NewProviderConfigUsageTracker,
			want: &usageState{Blocks: true}, config: "other",
		},
		"Unreadable": {
			reason: "A usage isn't replaced if it is unknown whether it is protected.",
			usage:  usageOf(protected), tracker: NewProviderConfigUsageTracker, failing: 2,
			want: &usageState{Finalizers: []string{UsageFinalizerName}}, config: "config", err: boom,
		},
		"Upstream": {
			reason: "With upstream's it does not, until the next connect.",
			usage:  usageOf(protected), tracker: resource.NewProviderConfigUsageTracker,
			want: &usageState{Blocks: true}, config: "other",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(used)
			a := testkit.NewAPI(b, tc.usage)
			a.Before = on(tc.failing, verb(testkit.Get), func(testkit.Request) error { return boom })

			b.SetGroupVersionKind(testkit.BucketKind())
			b.SetProviderConfigReference(&xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "other"})

			err := tc.tracker(a.Client(), &v1alpha1.ProviderConfigUsage{}).Track(context.Background(), b)
			wants(t, tc.reason, "Track", tc.err, err, cmpopts.EquateErrors())
			wants(t, tc.reason, "usage", tc.want, usageIn(t, a), cmpopts.EquateEmpty())

			u := usageOf()
			must(t, a.Server().Get(context.Background(), client.ObjectKeyFromObject(u), u))

			wants(t, tc.reason, "provider config", tc.config, u.GetProviderConfigReference().Name)
		})
	}
}

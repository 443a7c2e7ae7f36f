package managed

import (
	stdcmp "cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

type untypedClient struct{ client.Client }

func (untypedClient) Scheme() *runtime.Scheme { return runtime.NewScheme() }

func refusedFor(cause metav1.CauseType) error {
	err := kerrors.NewForbidden(schema.GroupResource{Resource: "providerconfigusages"}, "u", errors.New("unable to create new content in namespace default because it is being terminated"))
	if cause != "" {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

func terminating() error { return refusedFor(corev1.NamespaceTerminatingCause) }

func uses(config string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) {
		b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: config}
	}
}

// A tracker creates a usage, or points the one that is there to another provider config.
func TestUsageTrackers(t *testing.T) {
	boom, invalid := errors.New("boom"), kerrors.NewInvalid(schema.GroupKind{}, "u", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	open, held := &usageState{Blocks: true}, &usageState{Finalizers: []string{UsageFinalizerName}}
	cases := map[string]struct {
		reason  string
		tracker func(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker // Graft's, if it is nil.
		usage   *v1alpha1.ProviderConfigUsage                                                                    // The one that is there.

		// another says that another one is in memory, untyped that the scheme knows no type.
		alive, another, untyped bool

		// create is the API's error, and unread the read that fails, from 1.
		create error
		unread int

		fails  bool
		want   *usageState
		config string
	}{
		"Created":                {reason: "A usage that can be created is.", want: open, config: "other"},
		"Terminating":            {reason: "A managed resource that is being deleted connects although the namespace is being deleted too.", create: terminating()},
		"TerminatingUnknownType": {reason: "It does if the client's scheme knows no type for its kind.", create: terminating(), untyped: true},
		"NotDeleted":             {reason: "A managed resource that is not being deleted does not connect. It might create an external resource that is never deleted.", alive: true, create: terminating(), fails: true},
		"Another":                {reason: "Nor does one because another of its name is being deleted.", another: true, create: terminating(), fails: true},
		"Unread":                 {reason: "Nor one of which that isn't known.", create: terminating(), unread: 2, fails: true},
		"Forbidden":              {reason: "Missing permissions are an error whatever happens to the managed resource.", create: refusedFor(""), fails: true},
		"ForbiddenOtherwise":     {reason: "So is a refusal for another cause.", create: refusedFor("QuotaExceeded"), fails: true},
		"Invalid":                {reason: "So is another refusal with that cause.", create: invalid, fails: true},
		"Broken":                 {reason: "So is any other error.", create: boom, fails: true},
		"Protected":              {reason: "With Graft's tracker a usage stays protected.", usage: usageOf(protected), want: held, config: "other"},
		"ProtectedByUpstream":    {reason: "With upstream's it does not, until the next connect.", usage: usageOf(protected), tracker: resource.NewProviderConfigUsageTracker, want: open, config: "other"},
		"Unprotected":            {reason: "What isn't protected is replaced as upstream does it.", usage: usageOf(unblocking), want: open, config: "other"},
		"HeldByAnother":          {reason: "Nor does it lose another's finalizer.", usage: usageOf(func(u *v1alpha1.ProviderConfigUsage) { u.Finalizers = []string{"example.org/holds"} }), want: &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true}, config: "other"},
		"Unreadable":             {reason: "A usage isn't replaced if it is unknown whether it is protected.", usage: usageOf(protected), unread: 2, fails: true, want: held, config: "config"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(used, deleting, finalizers(FinalizerName))
			if tc.alive {
				b.SetDeletionTimestamp(nil)
			}
			objs := []client.Object{b}
			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}
			a := testkit.NewAPI(objs...)
			unread := on(tc.unread, verb(testkit.Get), func(testkit.Request) error { return boom })
			a.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.Create {
					return tc.create
				}
				return unread(ctx, r)
			}
			b.SetGroupVersionKind(testkit.BucketKind())
			uses("other")(b)
			if tc.another {
				b.SetUID("another")
			}
			c := a.Client()
			if tc.untyped {
				c = untypedClient{c}
			}
			if tc.tracker == nil {
				tc.tracker = NewProviderConfigUsageTracker
			}
			var want error
			if tc.fails {
				want = stdcmp.Or(tc.create, boom)
			}
			wants(t, tc.reason, "Track", want, tc.tracker(c, &v1alpha1.ProviderConfigUsage{}).Track(t.Context(), b), cmpopts.EquateErrors())
			wants(t, tc.reason, "usage", tc.want, usageIn(t, a), cmpopts.EquateEmpty())
			if tc.want != nil {
				u := usageOf()
				must(t, a.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
				wants(t, tc.reason, "provider config", tc.config, u.GetProviderConfigReference().Name)
			}
		})
	}
}

func TestUsageTrackers_CacheLacksUsage(t *testing.T) {
	another := func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].UID = "another" }
	unowned := func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences = nil }
	cases := map[string]struct {
		reason string
		usage  *v1alpha1.ProviderConfigUsage
		config string // That of the managed resource.
		patch  error
		gone   bool // The usage is removed after the create was refused.

		err    string
		want   *usageState
		stored string // The config of the usage.
		writes int    // Writes that change the usage.
	}{
		"SameConfig":  {reason: "A usage that exists is all that is needed.", usage: usageOf(), config: "config", want: &usageState{Blocks: true}, stored: "config"},
		"OtherConfig": {reason: "The usage should be for the provider config that is used now.", usage: usageOf(), config: "other", want: &usageState{Blocks: true}, stored: "other", writes: 1},
		"Protected":   {reason: "The usage should stay protected.", usage: usageOf(protected), config: "other", want: &usageState{Finalizers: []string{UsageFinalizerName}}, stored: "other", writes: 1},
		"Unowned":     {reason: "We should take over a usage without a controller, as upstream does.", usage: usageOf(unowned), config: "other", want: &usageState{Blocks: true}, stored: "other", writes: 1},
		"Another":     {reason: "We should return an error if another object controls the usage.", usage: usageOf(another), config: "other", err: "is not controlled by", want: &usageState{Blocks: true}, stored: "config"},
		"Unread":      {reason: "We should return an error if the usage can't be read.", usage: usageOf(), config: "other", patch: errors.New("boom"), err: "boom", want: &usageState{Blocks: true}, stored: "config"},
		"Gone":        {reason: "We should return the error of the create if the usage no longer exists, so that it is created next time.", usage: usageOf(), config: "other", gone: true, err: "already exists"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(used)
			a := testkit.NewAPI(b, tc.usage)
			b.SetGroupVersionKind(testkit.BucketKind())
			uses(tc.config)(b)
			a.Before = func(ctx context.Context, r testkit.Request) error {
				_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
				switch {
				case is && r.Verb == testkit.Get:
					return kerrors.NewNotFound(schema.GroupResource{Resource: "providerconfigusages"}, userUID)
				case is && r.Verb == testkit.Patch && tc.gone:
					return client.IgnoreNotFound(a.Server().Delete(ctx, usageOf()))
				case is && r.Verb == testkit.Patch:
					return tc.patch
				}
				return nil
			}
			before := usageVersion(t, a)
			err := NewProviderConfigUsageTracker(a.Client(), &v1alpha1.ProviderConfigUsage{}).Track(t.Context(), b)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("\n%s\nTrack(...): want error %q, got %v", tc.reason, tc.err, err)
			}
			wants(t, tc.reason, "usage", tc.want, usageIn(t, a), cmpopts.EquateEmpty())
			if tc.want != nil {
				u := usageOf()
				must(t, a.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
				wants(t, tc.reason, "provider config", tc.stored, u.GetProviderConfigReference().Name)
				wants(t, tc.reason, "changed", tc.writes > 0, before != usageVersion(t, a))
			}
		})
	}
}

func usageVersion(t *testing.T, a *testkit.API) string {
	t.Helper()
	u := usageOf()
	must(t, client.IgnoreNotFound(a.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u)))
	return u.GetResourceVersion()
}

// Without a controller a usage is deleted with nothing.
func TestUsageWithoutController(t *testing.T) {
	a := testkit.NewAPI()
	a.Before = failing(verb(testkit.Create), terminating())
	err := (&usageClient{Client: a.Client()}).Create(context.Background(), &unstructured.Unstructured{})
	wants(t, "", "fails", true, err != nil)
}

const userUID = "the-user"

func used(b *v1alpha1.Bucket) {
	b.UID = userUID
	uses("config")(b)
}

// usageOf returns the usage of these tests' managed resource, as trackers make it.
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

func protected(u *v1alpha1.ProviderConfigUsage) {
	usageFinalizers(UsageFinalizerName)(u)
	unblocking(u)
}

func usageFinalizers(f ...string) func(u *v1alpha1.ProviderConfigUsage) {
	return func(u *v1alpha1.ProviderConfigUsage) { u.SetFinalizers(f) }
}

// unblocking lets a foreground deletion go on although there is a usage.
func unblocking(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = nil }

// removed makes a usage one that is being deleted, and that others hold as well.
func removed(u *v1alpha1.ProviderConfigUsage) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
	u.SetFinalizers(append(u.GetFinalizers(), "example.org/holds"))
}

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

func labelUsage(t *testing.T, a *testkit.API) {
	t.Helper()
	u := usageOf()
	must(t, a.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
	u.SetLabels(map[string]string{"k": "v"})
	must(t, a.Server().Update(t.Context(), u))
}

func protects() ReconcilerOption { return WithUsageProtection(testkit.ProviderConfigUsageKind()) }

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
		lags   bool // The cache has the usage as it was before it was changed.
		fail   error
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
		"FinalizerStays": {
			reason: "As long as the finalizer of its managed resource stays, a usage is not released.", object: ends, absent: true, usage: usageOf(protected), want: held,
			opts: []ReconcilerOption{WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return boom },
			})},
		},
		"Tracked":             {reason: "A usage is protected as soon as the provider was connected to, and does not hold up a foreground deletion.", usage: usageOf(), want: held, writes: 1},
		"Protected":           {reason: "One that is protected is not written.", usage: usageOf(protected), want: held},
		"ProtectedByUpstream": {reason: "One that a later version of upstream protects is left to it.", usage: usageOf(usageFinalizers(upstreamUsageFinalizer)), want: &usageState{Finalizers: []string{upstreamUsageFinalizer}, Blocks: true}},
		"HalfProtected":       {reason: "A usage with the finalizer, whose owner reference still blocks a foreground deletion, is protected again.", usage: usageOf(usageFinalizers(UsageFinalizerName)), want: held, writes: 1},
		"Unblocking":          {reason: "A usage without the finalizer is not protected, whatever its owner reference says.", usage: usageOf(unblocking), want: held, writes: 1},
		"ProtectedWithFalse": {
			reason: "An owner reference that says that it doesn't block is as good as one that says nothing.",
			usage:  usageOf(protected, func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = new(bool) }), want: held,
		},
		"OthersKeep": {
			reason: "Finalizers and owners of others stay.",
			usage: usageOf(usageFinalizers("example.org/f"), func(u *v1alpha1.ProviderConfigUsage) {
				u.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "s"}}, u.OwnerReferences...)
			}),
			want: &usageState{Finalizers: []string{"example.org/f", UsageFinalizerName}}, writes: 1,
		},
		"CacheLags": {reason: "A usage that was changed since it was cached is protected as it is.", usage: usageOf(), lags: true, want: held, writes: 2},
		"Deleted":   {reason: "A usage that is being deleted takes no finalizer.", usage: usageOf(removed), want: &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true}},
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
			if tc.lags {
				must(t, a.Freeze(ctx, tc.usage))
				labelUsage(t, a)
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

// The usage of a legacy managed resource is where its tracker creates it.
func TestLegacyUsageProtection(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	a, x := testkit.NewAPI(d), &outside{there: true}
	tracker := NewLegacyProviderConfigUsageTracker(a.Client(), &testkit.LegacyProviderConfigUsage{})
	r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		WithUsageProtection(testkit.LegacyProviderConfigUsageKind()), WithInitializers(), waits(noWait),
		WithTypedExternalConnector(TypedExternalConnectorFn[*v1alpha1.Database](func(ctx context.Context, d *v1alpha1.Database) (TypedExternalClient[*v1alpha1.Database], error) {
			return connected[*v1alpha1.Database](provider{client: x.client()}), tracker.Track(ctx, d)
		})))
	has := func(finalizers ...string) {
		t.Helper()
		run(t, r, "/d")
		u := &testkit.LegacyProviderConfigUsage{}
		must(t, a.Server().Get(t.Context(), client.ObjectKey{Name: string(d.GetUID())}, u))
		wants(t, "", "finalizers", finalizers, u.GetFinalizers(), cmpopts.EquateEmpty())
	}
	has(UsageFinalizerName)
	x.there = false
	must(t, a.Server().Delete(t.Context(), d))
	has()
}

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
		reason    string
		user      *v1alpha1.Bucket
		usage     *v1alpha1.ProviderConfigUsage
		opts      []UsageReleaserOption
		before    func(verb string) error // Called with the verb of each read of the managed resource.
		conflicts bool                    // Another writer changes the usage in the meantime.
		want      *usageState
		again     time.Duration
		err       error
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
		"NoManagedResource": {
			reason: "Nor is another kind read, or watched, since a usage names it.",
			usage:  usageOf(protected, removed, ownedBy(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "v1", "Secret" })), want: held,
		},
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
					labelUsage(t, a)
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

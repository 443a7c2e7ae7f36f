package usage

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

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

type untypedClient struct{ client.Client }

func (untypedClient) Scheme() *runtime.Scheme { return runtime.NewScheme() }

// TestUsageTrackers tracks a Bucket that refers to the provider config "other". A usage that exists
// is for the provider config "config".
func TestUsageTrackers(t *testing.T) {
	boom, invalid := errors.New("boom"), kerrors.NewInvalid(schema.GroupKind{}, "u", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	unprotectedUsage := &usageState{Blocks: true}
	protectedUsage := &usageState{Finalizers: []string{FinalizerName}}
	cases := map[string]struct {
		reason string
		// tracker is Graft's by default.
		tracker func(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker
		usage   *v1alpha1.ProviderConfigUsage

		notDeleted  bool // the managed resource is not being deleted
		otherUID    bool // the managed resource has another UID than on the API server
		unknownType bool // the scheme has no type for the kind
		createErr   error
		failedRead  int // the number of the read that fails

		wantErr    bool
		want       *usageState
		wantConfig string
	}{
		"Created": {reason: "The usage should be created.", want: unprotectedUsage, wantConfig: "other"},
		"Terminating": {
			reason:    "Track should succeed for a managed resource that is being deleted while its namespace is terminating.",
			createErr: kit.NamespaceTerminating(),
		},
		"TerminatingUnknownType": {
			reason:      "Track should succeed in a terminating namespace although the scheme has no type for the kind.",
			createErr:   kit.NamespaceTerminating(),
			unknownType: true,
		},
		"NotDeleted": {
			reason:     "Track should fail in a terminating namespace for a managed resource that is not being deleted, because it could create an external resource.",
			notDeleted: true,
			createErr:  kit.NamespaceTerminating(),
			wantErr:    true,
		},
		"Another": {
			reason:    "Track should fail in a terminating namespace when another managed resource of the same name is being deleted.",
			otherUID:  true,
			createErr: kit.NamespaceTerminating(),
			wantErr:   true,
		},
		"Unread": {
			reason:     "Track should fail in a terminating namespace when the managed resource can't be read.",
			createErr:  kit.NamespaceTerminating(),
			failedRead: 2,
			wantErr:    true,
		},
		"Forbidden": {
			reason:    "Track should fail without permission to create usages.",
			createErr: kit.ForbiddenBecause(""),
			wantErr:   true,
		},
		"ForbiddenOtherwise": {
			reason:    "Track should fail when the create is forbidden for another cause.",
			createErr: kit.ForbiddenBecause("QuotaExceeded"),
			wantErr:   true,
		},
		"Invalid": {
			reason:    "Track should fail when the usage is invalid.",
			createErr: invalid,
			wantErr:   true,
		},
		"Broken": {reason: "Track should fail with any other error.", createErr: boom, wantErr: true},
		"Protected": {
			reason:     "Graft's tracker should keep the protection of a usage.",
			usage:      newUsage(withProtectedUsage),
			want:       protectedUsage,
			wantConfig: "other",
		},
		"ProtectedByUpstream": {
			reason:     "Upstream's tracker should remove the protection of a usage until the next Connect.",
			usage:      newUsage(withProtectedUsage),
			tracker:    resource.NewProviderConfigUsageTracker,
			want:       unprotectedUsage,
			wantConfig: "other",
		},
		"Unprotected": {
			reason:     "A usage without protection should be updated, as upstream does.",
			usage:      newUsage(withoutBlockOwnerDeletion),
			want:       unprotectedUsage,
			wantConfig: "other",
		},
		"HeldByAnother": {
			reason: "The finalizer of another controller should be kept.",
			usage: newUsage(
				func(u *v1alpha1.ProviderConfigUsage) { u.Finalizers = []string{"example.org/holds"} },
			),
			want:       &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true},
			wantConfig: "other",
		},
		"Unreadable": {
			reason:     "The usage should not be updated when it is unknown whether it is protected.",
			usage:      newUsage(withProtectedUsage),
			failedRead: 2,
			wantErr:    true,
			want:       protectedUsage,
			wantConfig: "config",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := kit.NewBucket(withUsage, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName))
			if tc.notDeleted {
				b.SetDeletionTimestamp(nil)
			}
			objs := []client.Object{b}
			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}
			api := testkit.NewAPI(objs...)
			unread := kit.OnNthRequest(
				tc.failedRead, kit.IsVerb(testkit.Get), func(testkit.Request) error { return boom },
			)
			api.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.Create {
					return tc.createErr
				}
				return unread(ctx, r)
			}
			b.SetGroupVersionKind(testkit.BucketKind())
			kit.WithProviderConfig("other")(b)
			if tc.otherUID {
				b.SetUID("another")
			}
			c := api.Client()
			if tc.unknownType {
				c = untypedClient{c}
			}
			if tc.tracker == nil {
				tc.tracker = NewProviderConfigUsageTracker
			}
			var want error
			if tc.wantErr {
				want = stdcmp.Or(tc.createErr, boom)
			}
			kit.ExpectEqual(
				t, tc.reason, "Track", want, tc.tracker(c, &v1alpha1.ProviderConfigUsage{}).Track(t.Context(), b),
				cmpopts.EquateErrors(),
			)
			kit.ExpectEqual(t, tc.reason, "usage", tc.want, getUsage(t, api), cmpopts.EquateEmpty())
			if tc.want != nil {
				u := newUsage()
				kit.Must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
				kit.ExpectEqual(t, tc.reason, "provider config", tc.wantConfig, u.GetProviderConfigReference().Name)
			}
		})
	}
}

func TestUsageTrackers_CacheLacksUsage(t *testing.T) {
	ownedByAnother := func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].UID = "another" }
	unowned := func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences = nil }
	cases := map[string]struct {
		reason           string
		usage            *v1alpha1.ProviderConfigUsage
		config           string // to which the managed resource refers
		patchErr         error
		deletedMeanwhile bool // the usage is deleted after the create has failed

		wantErr    string
		want       *usageState
		wantConfig string // of the usage
		writes     int    // that change the usage
	}{
		"SameConfig": {
			reason:     "A usage of the same provider config should not be updated.",
			usage:      newUsage(),
			config:     "config",
			want:       &usageState{Blocks: true},
			wantConfig: "config",
		},
		"OtherConfig": {
			reason:     "The usage should be for the provider config that is used now.",
			usage:      newUsage(),
			config:     "other",
			want:       &usageState{Blocks: true},
			wantConfig: "other",
			writes:     1,
		},
		"Protected": {
			reason:     "The usage should stay protected.",
			usage:      newUsage(withProtectedUsage),
			config:     "other",
			want:       &usageState{Finalizers: []string{FinalizerName}},
			wantConfig: "other",
			writes:     1,
		},
		"Unowned": {
			reason:     "We should take over a usage without a controller, as upstream does.",
			usage:      newUsage(unowned),
			config:     "other",
			want:       &usageState{Blocks: true},
			wantConfig: "other",
			writes:     1,
		},
		"Another": {
			reason:     "We should return an error if another object controls the usage.",
			usage:      newUsage(ownedByAnother),
			config:     "other",
			wantErr:    "is not controlled by",
			want:       &usageState{Blocks: true},
			wantConfig: "config",
		},
		"Unread": {
			reason:     "We should return an error if the usage can't be read.",
			usage:      newUsage(),
			config:     "other",
			patchErr:   errors.New("boom"),
			wantErr:    "boom",
			want:       &usageState{Blocks: true},
			wantConfig: "config",
		},
		"Gone": {
			reason:           "We should return the error of the create if the usage no longer exists, so that it is created next time.",
			usage:            newUsage(),
			config:           "other",
			deletedMeanwhile: true,
			wantErr:          "already exists",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := kit.NewBucket(withUsage)
			api := testkit.NewAPI(b, tc.usage)
			b.SetGroupVersionKind(testkit.BucketKind())
			kit.WithProviderConfig(tc.config)(b)
			api.Before = func(ctx context.Context, r testkit.Request) error {
				_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
				switch {
				case is && r.Verb == testkit.Get:
					return kerrors.NewNotFound(schema.GroupResource{Resource: "providerconfigusages"}, userUID)
				case is && r.Verb == testkit.Patch && tc.deletedMeanwhile:
					return client.IgnoreNotFound(api.Server().Delete(ctx, newUsage()))
				case is && r.Verb == testkit.Patch:
					return tc.patchErr
				}
				return nil
			}
			before := usageResourceVersion(t, api)
			err := NewProviderConfigUsageTracker(api.Client(), &v1alpha1.ProviderConfigUsage{}).Track(t.Context(), b)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("\n%s\nTrack(...): want error %q, got %v", tc.reason, tc.wantErr, err)
			}
			kit.ExpectEqual(t, tc.reason, "usage", tc.want, getUsage(t, api), cmpopts.EquateEmpty())
			if tc.want != nil {
				u := newUsage()
				kit.Must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
				kit.ExpectEqual(t, tc.reason, "provider config", tc.wantConfig, u.GetProviderConfigReference().Name)
				kit.ExpectEqual(t, tc.reason, "changed", tc.writes > 0, before != usageResourceVersion(t, api))
			}
		})
	}
}

func usageResourceVersion(t *testing.T, api *testkit.API) string {
	t.Helper()
	u := newUsage()
	kit.Must(t, client.IgnoreNotFound(api.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u)))
	return u.GetResourceVersion()
}

func TestUsageTrackers_NamespaceTerminatesWithoutController(t *testing.T) {
	api := testkit.NewAPI()
	api.Before = kit.FailRequests(kit.IsVerb(testkit.Create), kit.NamespaceTerminating())
	err := (&usageClient{Client: api.Client()}).Create(context.Background(), &unstructured.Unstructured{})
	kit.ExpectEqual(
		t, "We should return the error of the create for a usage without a controller.", "has an error", true,
		err != nil,
	)
}

const userUID = "the-user"

func withUsage(b *v1alpha1.Bucket) {
	b.UID = userUID
	kit.WithProviderConfig("config")(b)
}

// newUsage returns the usage of a Bucket with withUsage, as trackers create it.
func newUsage(mod ...func(u *v1alpha1.ProviderConfigUsage)) *v1alpha1.ProviderConfigUsage {
	u := &v1alpha1.ProviderConfigUsage{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      userUID,
		OwnerReferences: []metav1.OwnerReference{meta.AsController(&xpv2.TypedReference{
			APIVersion: testkit.BucketKind().GroupVersion().String(),
			Kind:       testkit.BucketKind().Kind,
			Name:       "b",
			UID:        userUID,
		})},
	}}
	u.SetProviderConfigReference(xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "config"})
	u.SetResourceReference(xpv2.TypedReference{
		APIVersion: testkit.BucketKind().GroupVersion().String(),
		Kind:       testkit.BucketKind().Kind,
		Name:       "b",
	})
	for _, m := range mod {
		m(u)
	}
	return u
}

func withProtectedUsage(u *v1alpha1.ProviderConfigUsage) {
	withUsageFinalizers(FinalizerName)(u)
	withoutBlockOwnerDeletion(u)
}

func withUsageFinalizers(f ...string) func(u *v1alpha1.ProviderConfigUsage) {
	return func(u *v1alpha1.ProviderConfigUsage) { u.SetFinalizers(f) }
}

// withoutBlockOwnerDeletion sets an owner reference that does not block foreground deletions.
func withoutBlockOwnerDeletion(u *v1alpha1.ProviderConfigUsage) {
	u.OwnerReferences[0].BlockOwnerDeletion = nil
}

// withUsageDeletion sets a deletion timestamp, and a foreign finalizer without which the usage could
// not exist.
func withUsageDeletion(u *v1alpha1.ProviderConfigUsage) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
	u.SetFinalizers(append(u.GetFinalizers(), "example.org/holds"))
}

type usageState struct {
	Finalizers []string
	Blocks     bool
}

func getUsage(t *testing.T, api *testkit.API) *usageState {
	t.Helper()
	u := &v1alpha1.ProviderConfigUsage{}
	err := api.Server().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: userUID}, u)
	if kerrors.IsNotFound(err) {
		return nil
	}
	kit.Must(t, err)
	c := metav1.GetControllerOf(u)
	return &usageState{
		Finalizers: u.GetFinalizers(),
		Blocks:     c != nil && c.BlockOwnerDeletion != nil && *c.BlockOwnerDeletion,
	}
}

func updateUsage(t *testing.T, api *testkit.API) {
	t.Helper()
	u := newUsage()
	kit.Must(t, api.Server().Get(t.Context(), client.ObjectKeyFromObject(u), u))
	u.SetLabels(map[string]string{"k": "v"})
	kit.Must(t, api.Server().Update(t.Context(), u))
}

func withUsageProtection() managed.ReconcilerOption {
	return WithProtection(testkit.ProviderConfigUsageKind())
}

func countUsageWrites(api *testkit.API) int {
	return len(slices.DeleteFunc(api.Requests(), func(r testkit.Request) bool {
		_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
		return !is || r.Verb == testkit.LiveGet
	}))
}

func TestUsageProtection(t *testing.T) {
	boom := errors.New("boom")
	protectedUsage := &usageState{Finalizers: []string{FinalizerName}}
	unprotectedUsage := &usageState{Blocks: true}
	deletedBucket := []kit.BucketModifier{kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName)}
	cases := map[string]struct {
		reason      string
		bucket      []kit.BucketModifier
		notFound    bool // the external resource does not exist
		usage       *v1alpha1.ProviderConfigUsage
		opts        []managed.ReconcilerOption
		cacheStale  bool // the cache has an older version of the usage
		writeErr    error
		want        *usageState
		wantWrites  int
		wantWarning bool
		wantDeleted bool // the managed resource
	}{
		"Gone": {
			reason:      "The usage should be released when the finalizer of its managed resource is removed.",
			bucket:      deletedBucket,
			notFound:    true,
			usage:       newUsage(withProtectedUsage, withUsageDeletion),
			want:        &usageState{Finalizers: []string{"example.org/holds"}},
			wantWrites:  1,
			wantDeleted: true,
		},
		"NotDeletedYet": {
			reason:      "A usage that is not being deleted should be left for the garbage collector.",
			bucket:      deletedBucket,
			notFound:    true,
			usage:       newUsage(withProtectedUsage),
			want:        &usageState{},
			wantWrites:  1,
			wantDeleted: true,
		},
		"There": {
			reason: "The usage should be protected while the external resource exists.",
			bucket: deletedBucket,
			usage:  newUsage(withProtectedUsage),
			want:   protectedUsage,
		},
		"GoneUnprotected": {
			reason:      "A usage without protection should not be updated.",
			bucket:      deletedBucket,
			notFound:    true,
			usage:       newUsage(),
			want:        unprotectedUsage,
			wantDeleted: true,
		},
		"GoneNoUsage": {
			reason:      "The managed resource should be deleted although it has no usage.",
			bucket:      deletedBucket,
			notFound:    true,
			wantDeleted: true,
		},
		"GoneRefused": {
			reason:      "The managed resource should be deleted although its usage can't be released.",
			bucket:      deletedBucket,
			notFound:    true,
			usage:       newUsage(withProtectedUsage),
			writeErr:    boom,
			want:        protectedUsage,
			wantWrites:  1,
			wantDeleted: true,
		},
		"FinalizerStays": {
			reason: "The usage should be protected while the finalizer of its managed resource can't be removed.",
			bucket: deletedBucket, notFound: true, usage: newUsage(withProtectedUsage), want: protectedUsage,
			opts: []managed.ReconcilerOption{managed.WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return boom },
			})},
		},
		"Tracked": {
			reason:     "The usage should be protected after Connect, and not block a foreground deletion.",
			usage:      newUsage(),
			want:       protectedUsage,
			wantWrites: 1,
		},
		"Protected": {
			reason: "A usage with protection should not be updated.",
			usage:  newUsage(withProtectedUsage),
			want:   protectedUsage,
		},
		"ProtectedByUpstream": {
			reason: "A usage that a later version of upstream protects should not be updated.",
			usage:  newUsage(withUsageFinalizers(upstreamUsageFinalizer)),
			want:   &usageState{Finalizers: []string{upstreamUsageFinalizer}, Blocks: true},
		},
		"HalfProtected": {
			reason:     "A usage with our finalizer that blocks a foreground deletion should be protected again.",
			usage:      newUsage(withUsageFinalizers(FinalizerName)),
			want:       protectedUsage,
			wantWrites: 1,
		},
		"Unblocking": {
			reason:     "A usage without our finalizer should be protected although it does not block a foreground deletion.",
			usage:      newUsage(withoutBlockOwnerDeletion),
			want:       protectedUsage,
			wantWrites: 1,
		},
		"ProtectedWithFalse": {
			reason: "A usage whose owner reference has blockOwnerDeletion=false should not be updated.",
			usage: newUsage(
				withProtectedUsage,
				func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].BlockOwnerDeletion = new(bool) },
			),
			want: protectedUsage,
		},
		"OthersKeep": {
			reason: "Finalizers and owners of other controllers should be kept.",
			usage: newUsage(withUsageFinalizers("example.org/f"), func(u *v1alpha1.ProviderConfigUsage) {
				u.OwnerReferences = append([]metav1.OwnerReference{{
					APIVersion: "v1",
					Kind:       "Secret",
					Name:       "s",
					UID:        "s",
				}}, u.OwnerReferences...)
			}),
			want: &usageState{Finalizers: []string{"example.org/f", FinalizerName}}, wantWrites: 1,
		},
		"CacheLags": {
			reason:     "The usage should be protected although the cache is stale.",
			usage:      newUsage(),
			cacheStale: true,
			want:       protectedUsage,
			wantWrites: 2,
		},
		"Deleted": {
			reason: "A usage that is being deleted should get no finalizer.",
			usage:  newUsage(withUsageDeletion),
			want:   &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true},
		},
		"UserDeleted": {
			reason: "A usage should get no finalizer when its managed resource is being deleted.",
			bucket: []kit.BucketModifier{
				kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName, "example.org/f"),
			},
			usage: newUsage(), want: unprotectedUsage,
		},
		"Paused": {
			reason: "A usage should get no finalizer when its managed resource is paused.",
			bucket: []kit.BucketModifier{kit.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true")},
			usage:  newUsage(),
			want:   unprotectedUsage,
		},
		"NotConnected": {
			reason: "A usage should get no finalizer when Connect fails.",
			opts: []managed.ReconcilerOption{
				managed.WithExternalConnector(
					managed.ExternalConnectorFn(func(
						context.Context, resource.Managed,
					) (managed.ExternalClient, error) {
						return nil, boom
					}),
				),
			},
			usage: newUsage(), want: unprotectedUsage,
		},
		"NobodyTracks": {reason: "An event should say that there is no usage to protect.", wantWarning: true},
		"Another": {
			reason: "A usage that another object controls should not be updated, and an event should say so.",
			usage:  newUsage(func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences[0].UID = "another" }),
			want:   unprotectedUsage, wantWarning: true,
		},
		"Refused": {
			reason:      "The reconcile should succeed when the usage can't be updated, and an event should say so.",
			usage:       newUsage(),
			writeErr:    boom,
			want:        unprotectedUsage,
			wantWrites:  1,
			wantWarning: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objs := []client.Object{kit.NewBucket(append([]kit.BucketModifier{withUsage}, tc.bucket...)...)}
			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}
			api := testkit.NewAPI(objs...)
			ctx := context.Background()
			if tc.cacheStale {
				kit.Must(t, api.Freeze(ctx, tc.usage))
				updateUsage(t, api)
			}
			api.Before = kit.FailRequests(func(r testkit.Request) bool {
				_, is := r.Object.(*v1alpha1.ProviderConfigUsage)
				return is && (r.Verb == testkit.Patch || r.Verb == testkit.Update)
			}, tc.writeErr)
			ext, recorder := &kit.ExternalResource{Exists: !tc.notFound}, &testkit.Said{}
			kit.MustReconcile(t, kit.NewBucketReconciler(api, append([]managed.ReconcilerOption{
				managed.WithRecorder(recorder), withUsageProtection(), kit.WithClient(ext.Client()),
			}, tc.opts...)...), "b")
			kit.ExpectEqual(t, tc.reason, "usage", tc.want, getUsage(t, api), cmpopts.EquateEmpty())
			kit.ExpectEqual(t, tc.reason, "writes of usages", tc.wantWrites, countUsageWrites(api))
			kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, kit.GetBucket(t, api).GetName() == "")
			kit.ExpectEqual(
				t, tc.reason, "has a warning", tc.wantWarning, len(recorder.Events("CannotProtectUsage")) > 0,
			)
			if tc.wantWarning {
				kit.ExpectEqual(
					t, "The external resource should be observed although its usage is not protected.", "is observed",
					true, ext.Observes > 0,
				)
			}
		})
	}
}

func TestUsageProtection_Legacy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	api := testkit.NewAPI(d)
	ext := &kit.ExternalResource{Exists: true}
	tracker := NewLegacyProviderConfigUsageTracker(api.Client(), &testkit.LegacyProviderConfigUsage{})
	r := managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.DatabaseKind()),
		WithProtection(testkit.LegacyProviderConfigUsageKind()), managed.WithInitializers(), kit.WithWait(kit.NoWait),
		managed.WithTypedExternalConnector(
			managed.TypedExternalConnectorFn[*v1alpha1.Database](
				func(
					ctx context.Context, d *v1alpha1.Database,
				) (managed.TypedExternalClient[*v1alpha1.Database], error) {
					return kit.NewTypedClient[*v1alpha1.Database](
						kit.FakeProvider{Client: ext.Client()},
					), tracker.Track(ctx, d)
				},
			),
		))
	expectFinalizers := func(finalizers ...string) {
		t.Helper()
		kit.MustReconcile(t, r, "/d")
		u := &testkit.LegacyProviderConfigUsage{}
		kit.Must(t, api.Server().Get(t.Context(), client.ObjectKey{Name: string(d.GetUID())}, u))
		kit.ExpectEqual(
			t, "The usage of a legacy managed resource should be protected until its external resource is deleted.",
			"finalizers", finalizers, u.GetFinalizers(), cmpopts.EquateEmpty(),
		)
	}
	expectFinalizers(FinalizerName)
	ext.Exists = false
	kit.Must(t, api.Server().Delete(t.Context(), d))
	expectFinalizers()
}

func TestUsageReleaser(t *testing.T) {
	boom := errors.New("boom")
	protectedUsage := &usageState{Finalizers: []string{FinalizerName, "example.org/holds"}}
	releasedUsage := &usageState{Finalizers: []string{"example.org/holds"}}
	kind := testkit.BucketKind()
	unserved := kerrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{
		Group:    kind.Group,
		Resource: "buckets",
	}, "b", "404 page not found", 0, true)
	noMatch := &kmeta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	bucketWithUsage := func(mod ...kit.BucketModifier) *v1alpha1.Bucket {
		return kit.NewBucket(
			append([]kit.BucketModifier{withUsage, kit.WithFinalizers(managed.FinalizerName)}, mod...)...,
		)
	}
	failsRead := func(verb string, err error) func(string) error {
		return func(v string) error {
			if v == verb {
				return err
			}
			return nil
		}
	}

	// ownedBy changes the controller of a usage.
	ownedBy := func(fn func(r *metav1.OwnerReference)) func(u *v1alpha1.ProviderConfigUsage) {
		return func(u *v1alpha1.ProviderConfigUsage) { fn(&u.OwnerReferences[0]) }
	}
	cases := map[string]struct {
		reason           string
		bucket           *v1alpha1.Bucket
		usage            *v1alpha1.ProviderConfigUsage
		unconditional    bool
		onRead           func(verb string) error // called for each read of the managed resource
		conflict         bool                    // another writer changes the usage before the update
		want             *usageState
		wantRequeueAfter time.Duration
		wantErr          error
	}{
		"UserGone": {
			reason: "The usage should be released when its managed resource no longer exists.",
			usage:  newUsage(withProtectedUsage, withUsageDeletion),
			want:   releasedUsage,
		},
		"LastFinalizer": {
			reason: "The usage should be deleted with its last finalizer.",
			usage:  newUsage(withUsageDeletion, withProtectedUsage),
		},
		"UserAnother": {
			reason: "The usage should be released when another managed resource has the name.",
			bucket: bucketWithUsage(func(b *v1alpha1.Bucket) { b.UID = "another" }),
			usage:  newUsage(withProtectedUsage, withUsageDeletion),
			want:   releasedUsage,
		},
		"User": {
			reason:           "The usage should be protected while its managed resource exists.",
			bucket:           bucketWithUsage(),
			usage:            newUsage(withProtectedUsage, withUsageDeletion),
			want:             protectedUsage,
			wantRequeueAfter: usageInterval,
		},
		"UserDeleted": {
			reason:           "The usage should be protected while its managed resource is being deleted.",
			bucket:           bucketWithUsage(kit.WithDeletionTimestamp),
			usage:            newUsage(withProtectedUsage, withUsageDeletion),
			want:             protectedUsage,
			wantRequeueAfter: usageInterval,
		},
		"UserHeldByOthers": {
			reason:           "The usage should be protected while a custom finalizer holds its managed resource.",
			bucket:           bucketWithUsage(kit.WithDeletionTimestamp, kit.WithFinalizers("example.org/f")),
			usage:            newUsage(withProtectedUsage, withUsageDeletion),
			want:             protectedUsage,
			wantRequeueAfter: usageInterval,
		},
		"UserLeft": {
			reason: "The usage should be released when only a foreground deletion holds its managed resource.",
			bucket: bucketWithUsage(kit.WithDeletionTimestamp, kit.WithFinalizers(metav1.FinalizerDeleteDependents)),
			usage:  newUsage(withProtectedUsage, withUsageDeletion), want: releasedUsage,
		},
		"UserOrphans": {
			reason: "The usage should be released when only an orphaning deletion holds its managed resource.",
			bucket: bucketWithUsage(kit.WithDeletionTimestamp, kit.WithFinalizers(metav1.FinalizerOrphanDependents)),
			usage:  newUsage(withProtectedUsage, withUsageDeletion),
			want:   releasedUsage,
		},
		"UserNotLeft": {
			reason: "The usage should be protected while the provider's finalizer holds its managed resource, too.",
			bucket: bucketWithUsage(
				kit.WithDeletionTimestamp, kit.WithFinalizers(metav1.FinalizerOrphanDependents, managed.FinalizerName),
			),
			usage: newUsage(withProtectedUsage, withUsageDeletion),
			want:  protectedUsage, wantRequeueAfter: usageInterval,
		},
		"CacheIsOld": {
			reason: "The usage should be protected when the API server has its managed resource and the cache doesn't.",
			bucket: bucketWithUsage(), usage: newUsage(withProtectedUsage, withUsageDeletion),
			onRead: failsRead(testkit.Get, &kmeta.NoKindMatchError{}),
			want:   protectedUsage, wantRequeueAfter: usageInterval,
		},
		"Unreadable": {
			reason:  "The usage should be protected when its managed resource can't be read.",
			usage:   newUsage(withProtectedUsage, withUsageDeletion),
			onRead:  failsRead(testkit.LiveGet, boom),
			want:    protectedUsage,
			wantErr: boom,
		},
		"Unserved": {
			reason: "The usage should be protected when the version of its managed resource is not served.",
			usage:  newUsage(withProtectedUsage, withUsageDeletion),
			onRead: failsRead(testkit.LiveGet, unserved), want: protectedUsage, wantErr: unserved,
		},
		"UnservedUnmapped": {
			reason:  "The usage should be protected when the client knows no version of its managed resource.",
			usage:   newUsage(withProtectedUsage, withUsageDeletion),
			onRead:  failsRead(testkit.LiveGet, noMatch),
			want:    protectedUsage,
			wantErr: noMatch,
		},
		"KindGone": {
			reason: "The usage should be released when the kind of its managed resource no longer exists.",
			usage:  newUsage(withProtectedUsage, withUsageDeletion),
			onRead: func(string) error { return &kmeta.NoKindMatchError{} },
			want:   releasedUsage,
		},
		"OtherVersion": {
			reason: "The managed resource should be read in the version that is in the scheme.",
			bucket: bucketWithUsage(),
			usage: newUsage(
				withProtectedUsage, withUsageDeletion,
				ownedBy(func(r *metav1.OwnerReference) { r.APIVersion = "sample.graft.crossplane.io/v9" }),
			),
			want: protectedUsage, wantRequeueAfter: usageInterval,
		},
		"OthersUser": {
			reason: "The usage of another provider's managed resource should be left alone.",
			usage: newUsage(
				withProtectedUsage, withUsageDeletion, ownedBy(func(r *metav1.OwnerReference) { r.Kind = "Unknown" }),
			),
			want: protectedUsage,
		},
		"NoManagedResource": {
			reason: "An owner that is not a managed resource should not be read.",
			usage: newUsage(
				withProtectedUsage, withUsageDeletion,
				ownedBy(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "v1", "Secret" }),
			),
			want: protectedUsage,
		},
		"NoController": {
			reason: "A usage without a controller should be released.",
			bucket: bucketWithUsage(),
			usage: newUsage(
				withProtectedUsage, withUsageDeletion,
				func(u *v1alpha1.ProviderConfigUsage) { u.OwnerReferences = nil },
			),
			want: releasedUsage,
		},
		"NotDeleted": {
			reason: "A usage that is not being deleted should be left alone.",
			usage:  newUsage(withProtectedUsage),
			want:   &usageState{Finalizers: []string{FinalizerName}},
		},
		"Unprotected": {
			reason: "A usage without our finalizer should be left alone.",
			usage:  newUsage(withUsageDeletion),
			want:   &usageState{Finalizers: []string{"example.org/holds"}, Blocks: true},
		},
		"NoUsage": {reason: "A usage that no longer exists should cause no error."},
		"All": {
			reason:        "The unconditional releaser should release a usage whose managed resource exists.",
			bucket:        bucketWithUsage(),
			usage:         newUsage(withProtectedUsage),
			unconditional: true,
			want:          &usageState{},
		},
		"AllDeleted": {
			reason:        "The unconditional releaser should release a usage that is being deleted.",
			bucket:        bucketWithUsage(),
			usage:         newUsage(withProtectedUsage, withUsageDeletion),
			unconditional: true,
			want:          releasedUsage,
		},
		"AllOfOthers": {
			reason:        "The unconditional releaser should release a usage of a kind that is not in the scheme, because its finalizer would stay for ever.",
			usage:         newUsage(withProtectedUsage, ownedBy(func(r *metav1.OwnerReference) { r.Kind = "Unknown" })),
			unconditional: true,
			want:          &usageState{},
		},
		"Conflict": {
			reason:           "We should retry after a conflict.",
			usage:            newUsage(withProtectedUsage, withUsageDeletion),
			conflict:         true,
			want:             protectedUsage,
			wantRequeueAfter: time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			var objs []client.Object
			if tc.bucket != nil {
				objs = append(objs, tc.bucket)
			}
			if tc.usage != nil {
				objs = append(objs, tc.usage)
			}
			api := testkit.NewAPI(objs...)
			api.Before = func(_ context.Context, r testkit.Request) error {
				if _, bucketWithUsage := r.Object.(*v1alpha1.Bucket); bucketWithUsage && tc.onRead != nil {
					return tc.onRead(r.Verb)
				}
				if r.Verb == testkit.Update && tc.conflict {
					updateUsage(t, api)
				}
				return nil
			}
			newReleaser := NewReleaser
			if tc.unconditional {
				newReleaser = NewUnconditionalReleaser
			}
			r := newReleaser(api.Manager(), testkit.ProviderConfigUsageKind())
			got, err := r.Reconcile(ctx, reconcile.Request{
				NamespacedName: client.ObjectKey{Namespace: "default", Name: userUID},
			})
			kit.ExpectEqual(t, tc.reason, "Reconcile", tc.wantErr, err, cmpopts.EquateErrors())
			kit.ExpectEqual(t, tc.reason, "result", reconcile.Result{RequeueAfter: tc.wantRequeueAfter}, got)
			kit.ExpectEqual(t, tc.reason, "usage", tc.want, getUsage(t, api), cmpopts.EquateEmpty())
		})
	}
}

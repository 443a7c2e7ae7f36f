package reservation

import (
	"context"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// withNamespacedProviderConfig refers to the provider config of the managed resource's namespace.
func withNamespacedProviderConfig(b *v1alpha1.Bucket) {
	b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ProviderConfig", Name: "c"}
}

func providerConfig(namespace, account string) *v1alpha1.ProviderConfig {
	return &v1alpha1.ProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"},
		Spec:       v1alpha1.ProviderConfigSpec{Account: account},
	}
}

func legacyDatabase() *v1alpha1.Database {
	d := &v1alpha1.Database{}
	meta.SetExternalName(d, "n")
	d.Spec.ProviderConfigReference = &xpv2.Reference{Name: "c"}
	return d
}

func TestDefaultReservationKey(t *testing.T) {
	cases := map[string]struct {
		reason string
		mg     resource.Managed
		want   string
	}{
		"Unnamed": {
			reason: "Nothing should be reserved while the external name is unknown.",
			mg:     kit.NewBucket(kit.WithProviderConfig("c")),
		},
		"NoConfig": {
			reason: "A managed resource without a provider config should have a key.",
			mg:     kit.NewBucket(kit.WithExternalName("n")),
			want:   `Bucket.sample.graft.crossplane.io - "n"`,
		},
		"OfCluster": {
			reason: "A cluster-scoped provider config should give one key for all namespaces.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), kit.WithProviderConfig("c")),
			want:   `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "n"`,
		},
		"OfNamespace": {
			reason: "A namespaced provider config should give a key for its namespace.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			want:   `Bucket.sample.graft.crossplane.io ProviderConfig/default/c "n"`,
		},
		"Quoted": {
			reason: "A name with quotes should not look like another key.",
			mg:     kit.NewBucket(kit.WithExternalName("a\" \"b"), kit.WithProviderConfig("c")),
			want:   `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "a\" \"b"`,
		},
		"Legacy": {
			reason: "A legacy managed resource should have a key without the kind of its provider config.",
			mg:     legacyDatabase(),
			want:   `Bucket.sample.graft.crossplane.io /c "n"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := defaultKey(testkit.BucketKind().GroupKind(), logging.NewNopLogger())(t.Context(), tc.mg)
			kit.Must(t, err)
			kit.ExpectEqual(t, tc.reason, "key", tc.want, got)
		})
	}
}

func TestDefaultReservationKey_Log(t *testing.T) {
	cases := map[string]struct {
		reason    string
		namespace string
		options   []managed.ReconcilerOption
		want      int
	}{
		"Namespaced": {
			reason:    "The log should say once that the default key does not protect accounts that namespaces share.",
			namespace: "default",
			want:      1,
		},
		"WithKey": {
			reason:    "The log should say nothing about a key function of the provider's.",
			namespace: "default",
			options: []managed.ReconcilerOption{
				WithKey(func(context.Context, resource.Managed) (string, error) { return "key", nil }),
			},
		},
		"ClusterScoped": {reason: "The log should say nothing about cluster-scoped managed resources."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(bucketWithSharedName("b", kit.WithNamespace(tc.namespace)))
			log := &testkit.Said{}
			ext := &kit.ExternalResource{}
			r := kit.NewBucketReconciler(
				api,
				append(
					tc.options, kit.WithClient(ext.Client()), With(leaseNamespace), managed.WithLogger(log),
				)...,
			)
			for range 3 {
				_, _ = r.Reconcile(t.Context(), kit.RequestFor(tc.namespace+"/b"))
			}
			kit.ExpectEqual(
				t, tc.reason, "lines", tc.want, strings.Count(strings.Join(log.Lines(), ""), "WithKey"),
			)
		})
	}
}

func TestProviderConfigKey(t *testing.T) {
	legacy := legacyDatabase()
	cases := map[string]struct {
		reason  string
		mg      resource.Managed
		fields  []string
		want    string
		wantErr string
	}{
		"Account": {
			reason: "The key should have the field in place of the provider config's name.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			want:   `Bucket.sample.graft.crossplane.io ["one"] "n"`,
		},
		"OtherNamespace": {
			reason: "Provider configs of one account should have one key.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), kit.WithNamespace("b"), withNamespacedProviderConfig),
			want:   `Bucket.sample.graft.crossplane.io ["one"] "n"`,
		},
		"OtherAccount": {
			reason: "Provider configs of two accounts should have two keys.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), kit.WithNamespace("c"), withNamespacedProviderConfig),
			want:   `Bucket.sample.graft.crossplane.io ["two"] "n"`,
		},
		"OfCluster": {
			reason: "A cluster-scoped provider config should have the key of its account.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), kit.WithProviderConfig("c")),
			want:   `Bucket.sample.graft.crossplane.io ["one"] "n"`,
		},
		"Fields": {
			reason: "The key should have all fields.",
			mg:     kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			fields: []string{"metadata.name", "spec.account"},
			want:   `Bucket.sample.graft.crossplane.io ["c" "one"] "n"`,
		},
		"Unnamed": {
			reason: "Nothing should be reserved while the external name is unknown.",
			mg:     kit.NewBucket(kit.WithNamespace("missing"), withNamespacedProviderConfig),
		},
		"Missing": {
			reason: "We should return an error if there is no provider config.",
			mg: kit.NewBucket(
				kit.WithExternalName("n"), kit.WithNamespace("missing"), withNamespacedProviderConfig,
			),
			wantErr: "cannot get provider config",
		},
		"NoReference": {
			reason:  "We should return an error if the managed resource has no provider config.",
			mg:      kit.NewBucket(kit.WithExternalName("n")),
			wantErr: "no reference to a provider config",
		},
		"NotSet": {
			reason:  "We should return an error if the field is not set.",
			mg:      kit.NewBucket(kit.WithExternalName("n"), kit.WithNamespace("empty"), withNamespacedProviderConfig),
			wantErr: `ProviderConfig "c" has no spec.account`,
		},
		"NoField": {
			reason:  "We should return an error if there is no such field.",
			mg:      kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			fields:  []string{"spec.acount"},
			wantErr: "has no spec.acount",
		},
		"NoValue": {
			reason:  "We should return an error if the field is an object.",
			mg:      kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			fields:  []string{"spec"},
			wantErr: "not a string, number or boolean",
		},
		"InValue": {
			reason:  "We should return an error if a part of the path is a value.",
			mg:      kit.NewBucket(kit.WithExternalName("n"), withNamespacedProviderConfig),
			fields:  []string{"spec.account.id"},
			wantErr: "cannot read a field",
		},
		"Legacy": {
			reason:  "The provider config of a legacy managed resource should be a cluster-scoped ProviderConfig.",
			mg:      legacy,
			wantErr: `cannot get provider config`,
		},
		"UnknownKind": {
			reason:  "The error should say to add the provider config to the manager's scheme.",
			wantErr: "add them to the manager's scheme",
			mg: kit.NewBucket(kit.WithExternalName("n"), func(b *v1alpha1.Bucket) {
				b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "Account", Name: "c"}
			}),
		},
	}
	cluster := &v1alpha1.ClusterProviderConfig{ProviderConfig: *providerConfig("", "one")}
	api := testkit.NewAPI(
		providerConfig("default", "one"), providerConfig("b", "one"), providerConfig("c", "two"),
		providerConfig("empty", ""), cluster,
	)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields := tc.fields
			if fields == nil {
				fields = []string{"spec.account"}
			}
			got, err := ProviderConfigKey(api.Client(), v1alpha1.GroupVersion(), fields...)(t.Context(), tc.mg)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("\n%s\nProviderConfigKey(...): want error %q, got %v", tc.reason, tc.wantErr, err)
			}
			kit.ExpectEqual(t, tc.reason, "key", tc.want, got)
		})
	}
}

func TestReservation_AccountOfTwoNamespaces(t *testing.T) {
	const reason = "One managed resource at a time should act on an external resource, also if two namespaces share an account."
	api := testkit.NewAPI(
		bucketWithSharedName("a", kit.WithNamespace("a"), withNamespacedProviderConfig),
		bucketWithSharedName("b", kit.WithNamespace("b"), withNamespacedProviderConfig), providerConfig("a", "one"),
		providerConfig("b", "one"),
	)
	ext := &kit.ExternalResource{}
	r := kit.NewBucketReconciler(
		api, kit.WithClient(ext.Client()), With(leaseNamespace),
		WithKey(ProviderConfigKey(api.Client(), v1alpha1.GroupVersion(), "spec.account")),
	)
	_, _ = r.Reconcile(t.Context(), kit.RequestFor("a/a"))
	_, _ = r.Reconcile(t.Context(), kit.RequestFor("b/b"))
	kit.ExpectEqual(t, reason, "calls", []string{"create a"}, ext.Calls)
}

func TestReservation_KeyFails(t *testing.T) {
	always := func(int) bool { return true }
	cases := map[string]struct {
		reason     string
		bucket     *v1alpha1.Bucket
		exists     bool
		keyFails   func(call int) bool
		wantCalls  []string
		wantLeases int
		wantEvents int
		wantSynced string
	}{
		"Create": {
			reason:     "Nothing should be created without a key.",
			bucket:     bucketWithSharedName("b"),
			keyFails:   always,
			wantSynced: "boom",
		},
		"Update": {
			reason:     "Nothing should be updated without a key.",
			bucket:     bucketWithSharedName("b", kit.WithFinalizers(managed.FinalizerName)),
			exists:     true,
			keyFails:   always,
			wantSynced: "boom",
		},
		"Delete": {
			reason:     "Nothing should be deleted without a key.",
			bucket:     bucketWithSharedName("b", kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp),
			exists:     true,
			keyFails:   always,
			wantSynced: "boom",
		},
		"Once": {
			reason:     "A key function that works again should let the create go on.",
			bucket:     bucketWithSharedName("b"),
			keyFails:   func(call int) bool { return call == 1 },
			wantCalls:  []string{"create b"},
			wantLeases: 1,
		},
		"Release": {
			reason:     "An event should say that a lease can't be released when the managed resource goes.",
			bucket:     bucketWithSharedName("b", kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp),
			keyFails:   func(call int) bool { return call > 1 },
			wantEvents: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(tc.bucket)
			ext := &kit.ExternalResource{Exists: tc.exists, Outdated: true}
			recorder := &testkit.Said{}
			calls := 0
			key := func(context.Context, resource.Managed) (string, error) {
				if calls++; tc.keyFails(calls) {
					return "", errors.New("boom")
				}
				return "key", nil
			}
			r := kit.NewBucketReconciler(
				api, kit.WithClient(ext.Client()), managed.WithRecorder(recorder), With(leaseNamespace),
				WithKey(key),
			)
			for range 2 {
				_, _ = r.Reconcile(t.Context(), kit.Request())
			}
			kit.ExpectEqual(t, tc.reason, "calls", tc.wantCalls, ext.Calls)
			kit.ExpectEqual(t, tc.reason, "leases", tc.wantLeases, len(leasesByKey(t, api)))
			kit.ExpectEqual(t, tc.reason, "events", tc.wantEvents, len(recorder.Events("CannotReleaseReservation")))
			if tc.wantSynced != "" {
				kit.ExpectEqual(
					t, tc.reason, "Synced",
					"observe failed: cannot determine which external resource to reserve: "+tc.wantSynced,
					kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Message,
				)
			}
		})
	}
}

func TestProviderConfigKey_CannotWork(t *testing.T) {
	c, sample := testkit.NewAPI().Client(), v1alpha1.GroupVersion()
	cases := map[string]struct {
		reason string
		key    func()
		want   string
	}{
		"NoClient": {
			"We should refuse a nil client.", func() { ProviderConfigKey(nil, sample, "spec.account") },
			"without a client",
		},
		"NoField": {"We should refuse a key of no field.", func() { ProviderConfigKey(c, sample) }, "or a field"},
		"EmptyField": {
			"We should refuse an empty field.", func() { ProviderConfigKey(c, sample, "") }, "pass a path",
		},
		"EmptySegment": {
			"We should refuse a path that leads to nothing.", func() { ProviderConfigKey(c, sample, "spec..account") },
			"pass a path",
		},
		"UnknownGroup": {
			"We should refuse a group that is not in the scheme.",
			func() { ProviderConfigKey(c, schema.GroupVersion{Group: "example.org", Version: "v1"}, "spec.account") },
			"add its API package to the manager's scheme",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("\n%s\nProviderConfigKey(...): want panic %q, got %v", tc.reason, tc.want, err)
				}
			}()
			tc.key()
		})
	}
}

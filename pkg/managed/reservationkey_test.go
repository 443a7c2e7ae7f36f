package managed

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

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// usesNamespaced refers to the provider config of the managed resource's namespace.
func usesNamespaced(b *v1alpha1.Bucket) {
	b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ProviderConfig", Name: "c"}
}

func providerConfig(namespace, account string) *v1alpha1.ProviderConfig {
	return &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}, Spec: v1alpha1.ProviderConfigSpec{Account: account}}
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
		"Unnamed":     {reason: "Nothing should be reserved while the external name is unknown.", mg: bucket(uses("c"))},
		"NoConfig":    {reason: "The provider config is optional.", mg: bucket(named("n")), want: `Bucket.sample.graft.crossplane.io - "n"`},
		"OfCluster":   {reason: "A cluster-scoped provider config should be the same for all namespaces.", mg: bucket(named("n"), uses("c")), want: `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "n"`},
		"OfNamespace": {reason: "A namespaced provider config should be one of its namespace.", mg: bucket(named("n"), usesNamespaced), want: `Bucket.sample.graft.crossplane.io ProviderConfig/default/c "n"`},
		"Quoted":      {reason: "No name should look like another key.", mg: bucket(named("a\" \"b"), uses("c")), want: `Bucket.sample.graft.crossplane.io ClusterProviderConfig/c "a\" \"b"`},
		"Legacy":      {reason: "A legacy provider config has no kind.", mg: legacyDatabase(), want: `Bucket.sample.graft.crossplane.io /c "n"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := defaultKey(testkit.BucketKind().GroupKind(), logging.NewNopLogger())(t.Context(), tc.mg)
			must(t, err)
			wants(t, tc.reason, "key", tc.want, got)
		})
	}
}

func TestDefaultReservationKey_Log(t *testing.T) {
	cases := map[string]struct {
		reason    string
		namespace string
		options   []ReservationOption
		want      int
	}{
		"Namespaced":    {reason: "The log should say once that the default key does not protect accounts that namespaces share.", namespace: "default", want: 1},
		"WithKey":       {reason: "The log should say nothing about a key function of the provider's.", namespace: "default", options: []ReservationOption{WithReservationKey(func(context.Context, resource.Managed) (string, error) { return "key", nil })}},
		"ClusterScoped": {reason: "The log should say nothing about cluster-scoped managed resources."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, log := testkit.NewAPI(of("b", in(tc.namespace))), &testkit.Said{}
			x := &outside{}
			r := newBucketReconciler(a, connects(x.client()), WithExternalNameReservation(leaseNamespace, tc.options...), WithLogger(log))
			for range 3 {
				_, _ = r.Reconcile(t.Context(), requestFor(tc.namespace+"/b"))
			}
			wants(t, tc.reason, "lines", tc.want, strings.Count(strings.Join(log.Lines(), ""), "WithReservationKey"))
		})
	}
}

func TestProviderConfigKey(t *testing.T) {
	legacy := legacyDatabase()
	cases := map[string]struct {
		reason string
		mg     resource.Managed
		fields []string
		want   string
		err    string
	}{
		"Account":        {reason: "The key should have the field in place of the provider config's name.", mg: bucket(named("n"), usesNamespaced), want: `Bucket.sample.graft.crossplane.io ["one"] "n"`},
		"OtherNamespace": {reason: "Provider configs of one account should have one key.", mg: bucket(named("n"), in("b"), usesNamespaced), want: `Bucket.sample.graft.crossplane.io ["one"] "n"`},
		"OtherAccount":   {reason: "Provider configs of two accounts should have two keys.", mg: bucket(named("n"), in("c"), usesNamespaced), want: `Bucket.sample.graft.crossplane.io ["two"] "n"`},
		"OfCluster":      {reason: "A cluster-scoped provider config should have the key of its account.", mg: bucket(named("n"), uses("c")), want: `Bucket.sample.graft.crossplane.io ["one"] "n"`},
		"Fields":         {reason: "The key should have all fields.", mg: bucket(named("n"), usesNamespaced), fields: []string{"metadata.name", "spec.account"}, want: `Bucket.sample.graft.crossplane.io ["c" "one"] "n"`},
		"Unnamed":        {reason: "Nothing should be reserved while the external name is unknown.", mg: bucket(in("missing"), usesNamespaced)},
		"Missing":        {reason: "We should return an error if there is no provider config.", mg: bucket(named("n"), in("missing"), usesNamespaced), err: "cannot get provider config"},
		"NoReference":    {reason: "We should return an error if the managed resource has no provider config.", mg: bucket(named("n")), err: "no reference to a provider config"},
		"NotSet":         {reason: "We should return an error if the field is not set.", mg: bucket(named("n"), in("empty"), usesNamespaced), err: `ProviderConfig "c" has no spec.account`},
		"NoField":        {reason: "We should return an error if there is no such field.", mg: bucket(named("n"), usesNamespaced), fields: []string{"spec.acount"}, err: "has no spec.acount"},
		"NoValue":        {reason: "We should return an error if the field is an object.", mg: bucket(named("n"), usesNamespaced), fields: []string{"spec"}, err: "no string, number or boolean"},
		"InValue":        {reason: "We should return an error if a part of the path is a value.", mg: bucket(named("n"), usesNamespaced), fields: []string{"spec.account.id"}, err: "cannot read a field"},
		"Legacy":         {reason: "A legacy managed resource refers to a cluster-scoped ProviderConfig.", mg: legacy, err: `cannot get provider config`},
		"UnknownKind": {
			reason: "We should return an error that says what to do if the scheme does not have the provider config.", err: "add them to the manager's scheme",
			mg: bucket(named("n"), func(b *v1alpha1.Bucket) {
				b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "Account", Name: "c"}
			}),
		},
	}
	cluster := &v1alpha1.ClusterProviderConfig{ProviderConfig: *providerConfig("", "one")}
	a := testkit.NewAPI(providerConfig("default", "one"), providerConfig("b", "one"), providerConfig("c", "two"), providerConfig("empty", ""), cluster)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields := tc.fields
			if fields == nil {
				fields = []string{"spec.account"}
			}
			got, err := ProviderConfigKey(a.Client(), v1alpha1.GroupVersion(), fields...)(t.Context(), tc.mg)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("\n%s\nProviderConfigKey(...): want error %q, got %v", tc.reason, tc.err, err)
			}
			wants(t, tc.reason, "key", tc.want, got)
		})
	}
}

func TestReservation_AccountOfTwoNamespaces(t *testing.T) {
	const reason = "One managed resource at a time should act on an external resource, also if two namespaces share an account."
	a := testkit.NewAPI(of("a", in("a"), usesNamespaced), of("b", in("b"), usesNamespaced), providerConfig("a", "one"), providerConfig("b", "one"))
	x := &outside{}
	r := newBucketReconciler(a, connects(x.client()), WithExternalNameReservation(leaseNamespace, WithReservationKey(ProviderConfigKey(a.Client(), v1alpha1.GroupVersion(), "spec.account"))))
	_, _ = r.Reconcile(t.Context(), requestFor("a/a"))
	_, _ = r.Reconcile(t.Context(), requestFor("b/b"))
	wants(t, reason, "calls", []string{"create a"}, x.acts)
}

func TestReservation_KeyFails(t *testing.T) {
	always := func(int) bool { return true }
	cases := map[string]struct {
		reason string
		b      *v1alpha1.Bucket
		exists bool
		fails  func(call int) bool
		want   []string
		leases int
		events int
		synced string
	}{
		"Create":  {reason: "Nothing should be created without a key.", b: of("b"), fails: always, synced: "boom"},
		"Update":  {reason: "Nothing should be updated without a key.", b: of("b", finalizers(FinalizerName)), exists: true, fails: always, synced: "boom"},
		"Delete":  {reason: "Nothing should be deleted without a key.", b: of("b", finalizers(FinalizerName), deleting), exists: true, fails: always, synced: "boom"},
		"Observe": {reason: "Synced should say why the lease of a managed resource that only observes can't be released.", b: of("b", policies(xpv2.ManagementActionObserve)), exists: true, fails: always, synced: "boom"},
		"Once":    {reason: "A key function that works again should let the create go on.", b: of("b"), fails: func(call int) bool { return call == 1 }, want: []string{"create b"}, leases: 1},
		"Release": {reason: "An event should say that a lease can't be released when the managed resource goes.", b: of("b", finalizers(FinalizerName), deleting), fails: func(call int) bool { return call > 2 }, events: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x, said, calls := testkit.NewAPI(tc.b), &outside{there: tc.exists, outdated: true}, &testkit.Said{}, 0
			key := func(context.Context, resource.Managed) (string, error) {
				if calls++; tc.fails(calls) {
					return "", errors.New("boom")
				}
				return "key", nil
			}
			r := newBucketReconciler(a, connects(x.client()), WithRecorder(said), WithExternalNameReservation(leaseNamespace, WithReservationKey(key)))
			for range 2 {
				_, _ = r.Reconcile(t.Context(), request())
			}
			wants(t, tc.reason, "calls", tc.want, x.acts)
			wants(t, tc.reason, "leases", tc.leases, len(leasesIn(t, a)))
			wants(t, tc.reason, "events", tc.events, len(said.Events(reasonCannotRelease)))
			if tc.synced != "" {
				wants(t, tc.reason, "Synced", "observe failed: cannot determine which external resource to reserve: "+tc.synced, get(t, a).GetCondition(xpv2.TypeSynced).Message)
			}
		})
	}
}

func TestProviderConfigKey_UnknownManagedKind(t *testing.T) {
	mg := bucket(named("n"), usesNamespaced)
	_, err := ProviderConfigKey(testkit.NewAPI().Client(), schema.GroupVersion{Group: "example.org", Version: "v1"}, "spec.account")(t.Context(), mg)
	if err == nil || !strings.Contains(err.Error(), "pass the group and version of provider configs") {
		t.Errorf("We should return an error that says what to do about a wrong group, got %v", err)
	}
}

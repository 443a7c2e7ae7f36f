package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// An untypedClient is a client whose scheme knows no kind.
type untypedClient struct{ client.Client }

func (untypedClient) Scheme() *runtime.Scheme { return runtime.NewScheme() }

// refusedFor is what the API server says to a create, for a cause.
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

func TestUsageTrackers(t *testing.T) {
	boom := errors.New("boom")

	invalid := kerrors.NewInvalid(schema.GroupKind{}, "u", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	cases := map[string]struct {
		reason string
		alive  bool

		// another says that the managed resource in memory is another one than that
		// in the API, and untyped that the client's scheme knows no type of its kind.
		another, untyped bool

		// create is the API's error, get that of reads after it, and fails whether
		// the first is returned.
		create, get error
		fails       bool
	}{
		"Created":                {reason: "A usage that can be created is."},
		"Terminating":            {reason: "A managed resource that is being deleted connects although the namespace is being deleted too.", create: terminating()},
		"TerminatingUnknownType": {reason: "It does if the client's scheme knows no type for its kind.", create: terminating(), untyped: true},
		"NotDeleted":             {reason: "A managed resource that is not being deleted does not connect. It might create an external resource that is never deleted.", alive: true, create: terminating(), fails: true},
		"Another":                {reason: "Nor does one because another of its name is being deleted.", another: true, create: terminating(), fails: true},
		"Unreadable":             {reason: "Nor one of which that isn't known.", create: terminating(), get: boom, fails: true},
		"Forbidden":              {reason: "Missing permissions are an error whatever happens to the managed resource.", create: refusedFor(""), fails: true},
		"ForbiddenOtherwise":     {reason: "So is a refusal for another cause.", create: refusedFor("QuotaExceeded"), fails: true},
		"Invalid":                {reason: "So is another refusal with that cause.", create: invalid, fails: true},
		"Broken":                 {reason: "So is any other error.", create: boom, fails: true},
	}

	for name, tc := range cases {
		for _, fname := range []string{"NamespacedTyped", "ClusterTyped"} {
			t.Run(name+"/"+fname, func(t *testing.T) {
				f := flavours()[fname]
				mg := f.object(func(mg resource.Managed) {
					if tc.alive {
						mg.SetDeletionTimestamp(nil)
					}
				})
				a := testkit.NewAPI(mg)
				a.Before = func(_ context.Context, r testkit.Request) error {
					switch {
					case r.Verb == testkit.Create:
						return tc.create
					case r.Verb == testkit.Get && a.Count(testkit.Create) > 0:
						return tc.get
					default:
						return nil
					}
				}

				mg.GetObjectKind().SetGroupVersionKind(f.kind)

				if tc.another {
					mg.SetUID("another")
				}

				c := a.Client()
				if tc.untyped {
					c = untypedClient{c}
				}

				var err error

				switch mg := mg.(type) {
				case *v1alpha1.Bucket:
					uses("config")(mg)
					err = NewProviderConfigUsageTracker(c, &v1alpha1.ProviderConfigUsage{}).Track(context.Background(), mg)
				case *v1alpha1.Database:
					// It is the same in all other respects.
					mg.Spec.ProviderConfigReference = &xpv2.Reference{Name: "config"}
					err = NewLegacyProviderConfigUsageTracker(c, &testkit.LegacyProviderConfigUsage{}).Track(context.Background(), mg)
				}

				var want error
				if tc.fails {
					want = tc.create
				}

				wants(t, tc.reason, "Track", want, err, cmpopts.EquateErrors())
				wants(t, tc.reason, "creates", 1, a.Count(testkit.Create))
			})
		}
	}
}

// No owner's deletion would delete a usage without a controller. In a terminating
// namespace Create of such a usage returns an error.
func TestUsageWithoutController(t *testing.T) {
	a := testkit.NewAPI()
	a.Before = failing(verb(testkit.Create), terminating())

	if err := (&usageClient{Client: a.Client()}).Create(context.Background(), &unstructured.Unstructured{}); err == nil {
		t.Error("Create: want an error, got none")
	}
}

// In a namespace that is being deleted, a managed resource goes, and its external
// resource before it. With upstream's tracker it stays for ever.
func TestDeletionInTerminatingNamespace(t *testing.T) {
	cases := map[string]struct {
		reason  string
		tracker func(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker
		name    string
		deletes int
		says    xpv2.ConditionReason
	}{
		"Graft":    {reason: "With Graft's tracker both go.", tracker: NewProviderConfigUsageTracker, deletes: 1},
		"Upstream": {reason: "With upstream's, neither does, but it is said why.", tracker: resource.NewProviderConfigUsageTracker, name: "b", says: reconciler.ReasonNamespaceTerminating},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket(uses("config"), deleting, finalizers(FinalizerName))), &outside{there: true}
			a.Before = failing(verb(testkit.Create), terminating())
			usage := tc.tracker(a.Client(), &v1alpha1.ProviderConfigUsage{})

			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				c := x.client()
				c.DisconnectFn = func(context.Context) error { return nil }

				return &c, usage.Track(ctx, bucketOf(mg))
			})))

			repeat(t, r, 3)

			left := get(t, a)
			wants(t, tc.reason, "object, deletes, reason", []any{tc.name, tc.deletes, tc.says}, []any{left.GetName(), x.did("delete"), left.GetCondition(reconciler.TypeDeleting).Reason})
		})
	}
}

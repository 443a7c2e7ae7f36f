package managed

import (
	"context"
	"testing"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
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

// A usageAPI has no usages, and creates none but in its own way.
type usageAPI struct {
	client.Client

	get    error
	create error
	scheme *runtime.Scheme

	creates int
}

func (c *usageAPI) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if isUsage(o) {
		return kerrors.NewNotFound(schema.GroupResource{Resource: "providerconfigusages"}, key.Name)
	}

	if c.get != nil {
		return c.get
	}

	return c.Client.Get(ctx, key, o, opts...)
}

func (c *usageAPI) Create(context.Context, client.Object, ...client.CreateOption) error {
	c.creates++
	return c.create
}

func (c *usageAPI) Scheme() *runtime.Scheme {
	if c.scheme != nil {
		return c.scheme
	}

	return c.Client.Scheme()
}

func isUsage(o client.Object) bool {
	switch o.(type) {
	case *xpfake.ProviderConfigUsage, *xpfake.LegacyProviderConfigUsage:
		return true
	default:
		return false
	}
}

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
	gone := []func(b *v1alpha1.Bucket){uses("config"), deleting, finalizers(FinalizerName)}
	alive := []func(b *v1alpha1.Bucket){uses("config"), finalizers(FinalizerName)}

	invalid := kerrors.NewInvalid(schema.GroupKind{}, "u", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	cases := map[string]struct {
		reason string
		object []func(b *v1alpha1.Bucket)
		// read is what the managed resource in memory differs in from the one
		// in the API.
		read func(b *v1alpha1.Bucket)
		api  usageAPI

		// fails is whether the API's error is returned.
		fails bool
	}{
		"Created": {
			reason: "A usage that can be created is.",
			object: gone,
		},
		"Terminating": {
			reason: "A managed resource that is being deleted connects although the namespace is being deleted too.",
			object: gone,
			api:    usageAPI{create: terminating()},
		},
		"TerminatingUnknownType": {
			reason: "It does if the client's scheme knows no type for its kind.",
			object: gone,
			api:    usageAPI{create: terminating(), scheme: runtime.NewScheme()},
		},
		"NotDeleted": {
			reason: "A managed resource that is not being deleted does not connect. It might create an external resource that is never deleted.",
			object: alive,
			api:    usageAPI{create: terminating()},
			fails:  true,
		},
		"Another": {
			reason: "Nor does one because another of its name is being deleted.",
			object: gone,
			read:   func(b *v1alpha1.Bucket) { b.UID = "another" },
			api:    usageAPI{create: terminating()},
			fails:  true,
		},
		"Unreadable": {
			reason: "Nor one of which that isn't known.",
			object: gone,
			api:    usageAPI{create: terminating(), get: boom},
			fails:  true,
		},
		"Forbidden": {
			reason: "Missing permissions are an error whatever happens to the managed resource.",
			object: gone,
			api:    usageAPI{create: refusedFor("")},
			fails:  true,
		},
		"ForbiddenOtherwise": {
			reason: "So is a refusal for another cause.",
			object: gone,
			api:    usageAPI{create: refusedFor("QuotaExceeded")},
			fails:  true,
		},
		"Invalid": {
			reason: "So is another refusal with that cause.",
			object: gone,
			api:    usageAPI{create: invalid},
			fails:  true,
		},
		"Broken": {
			reason: "So is any other error.",
			object: gone,
			api:    usageAPI{create: boom},
			fails:  true,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(tc.object...))
			tc.api.Client = a.Client()

			b := &v1alpha1.Bucket{}
			must(t, a.Client().Get(context.Background(), request().NamespacedName, b))

			if tc.read != nil {
				tc.read(b)
			}

			var want error
			if tc.fails {
				want = tc.api.create
			}

			err := NewProviderConfigUsageTracker(&tc.api, &xpfake.ProviderConfigUsage{}).Track(context.Background(), b)
			if diff := cmp.Diff(want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("\n%s\nTrack: -want, +got:\n%s", tc.reason, diff)
			}

			if tc.api.creates != 1 {
				t.Errorf("\n%s\ncreates: want 1, got %d", tc.reason, tc.api.creates)
			}

			// A legacy managed resource has no namespace. Its tracker is the
			// same in all other respects.
			d := &v1alpha1.Database{
				TypeMeta:   metav1.TypeMeta{APIVersion: testkit.DatabaseKind().GroupVersion().String(), Kind: testkit.DatabaseKind().Kind},
				ObjectMeta: *b.ObjectMeta.DeepCopy(),
			}
			d.Namespace = ""
			d.Spec.ProviderConfigReference = &xpv2.Reference{Name: "config"}

			l := testkit.NewAPI(d)
			tc.api.Client, tc.api.creates = l.Client(), 0

			if tc.read != nil {
				d = &v1alpha1.Database{TypeMeta: d.TypeMeta, ObjectMeta: d.ObjectMeta, Spec: d.Spec}
				d.UID = "yet another"
			}

			err = NewLegacyProviderConfigUsageTracker(&tc.api, &xpfake.LegacyProviderConfigUsage{}).Track(context.Background(), d)
			if diff := cmp.Diff(want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("\n%s\nTrack (legacy): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// No owner's deletion would delete a usage without a controller. In a terminating
// namespace Create of such a usage returns an error.
func TestUsageWithoutController(t *testing.T) {
	c := &usageClient{Client: &usageAPI{Client: testkit.NewAPI().Client(), create: terminating()}}

	if err := c.Create(context.Background(), &unstructured.Unstructured{}); err == nil {
		t.Error("Create: want an error, got none")
	}
}

// In a namespace that is being deleted, a managed resource goes, and its external
// resource before it. With upstream's tracker it stays for ever.
func TestDeletionInTerminatingNamespace(t *testing.T) {
	cases := map[string]struct {
		reason  string
		tracker func(c client.Client) *resource.ProviderConfigUsageTracker
		gone    bool
		deletes int
		says    xpv2.ConditionReason
	}{
		"Graft": {
			reason: "With Graft's tracker both go.",
			tracker: func(c client.Client) *resource.ProviderConfigUsageTracker {
				return NewProviderConfigUsageTracker(c, &xpfake.ProviderConfigUsage{})
			},
			gone:    true,
			deletes: 1,
		},
		"Upstream": {
			reason: "With upstream's, neither does, but it is said why.",
			tracker: func(c client.Client) *resource.ProviderConfigUsageTracker {
				return resource.NewProviderConfigUsageTracker(c, &xpfake.ProviderConfigUsage{})
			},
			says: reconciler.ReasonNamespaceTerminating,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(uses("config"), deleting, finalizers(FinalizerName)))
			usage := tc.tracker(&usageAPI{Client: a.Client(), create: terminating()})
			deletes := 0

			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				b, _ := mg.(*v1alpha1.Bucket)
				if err := usage.Track(ctx, b); err != nil {
					return nil, err
				}

				c := clientOf(upstream.ExternalClientFns{
					ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
						return ExternalObservation{ResourceExists: deletes == 0}, nil
					},
					DeleteFn: counts[ExternalDelete](&deletes),
				})

				return &c, nil
			})))

			for range 3 {
				run(t, r, "b")
			}

			left := get(t, a)
			if diff := cmp.Diff([]any{tc.gone, tc.deletes, tc.says}, []any{left.GetName() == "", deletes, left.GetCondition(reconciler.TypeDeleting).Reason}); diff != "" {
				t.Errorf("\n%s\ngone, deletes, reason: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

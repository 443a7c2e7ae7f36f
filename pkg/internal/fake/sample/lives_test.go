package sample_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// options of a controller as a provider of upjet's shape sets them up for resources
// whose ids the cloud assigns. A tiny grace period stands for the time after it.
func options(o ...managed.ReconcilerOption) []managed.ReconcilerOption {
	return append([]managed.ReconcilerOption{
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(time.Nanosecond),
		managed.WithPollInterval(time.Minute),
	}, o...)
}

func databases(s *embedded.Server, c managed.ExternalConnector, o ...managed.ReconcilerOption) reconcile.Reconciler {
	return managed.NewReconciler(s.Manager(), v1alpha1.DatabaseManagedKind(), options(append(o, managed.WithExternalConnector(c))...)...)
}

func serve(t *testing.T) *embedded.Server {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatalf("AddToScheme(): %v", err)
	}

	s, err := embedded.New(embedded.Options{Scheme: scheme, CRDs: v1alpha1.CRDs()})
	if err != nil {
		t.Fatalf("embedded.New(): %v", err)
	}

	return s
}

func must(t *testing.T, what string, err error) {
	t.Helper()

	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func settle(ctx context.Context, t *testing.T, s *embedded.Server, r reconcile.Reconciler, mg client.Object) {
	t.Helper()

	trace, err := s.Settle(ctx, r, mg, 20)
	must(t, "Settle()", errors.Join(err, trace.Err()))
}

// read returns the object as it is stored.
func read[O client.Object](t *testing.T, s *embedded.Server, o O) O {
	t.Helper()

	out, ok := o.DeepCopyObject().(O)
	if !ok {
		t.Fatalf("a copy of %T is of another type", o)
	}

	must(t, "Get()", s.Admin().Get(t.Context(), client.ObjectKeyFromObject(o), out))

	return out
}

func request(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

func ready(mg resource.Conditioned) string {
	c := mg.GetCondition(xpv2.TypeReady)

	return string(c.Status) + "/" + string(c.Reason)
}

// TestLives leads both kinds through their lives, with both styles of connectors.
func TestLives(t *testing.T) {
	// A process is a reconciler and what ends the operations it started.
	type process struct {
		r      reconcile.Reconciler
		finish func(context.Context) error
		calls  *sample.Calls
	}

	nothing := func(context.Context) error { return nil }
	bucketKind := v1alpha1.BucketManagedKind()

	cases := map[string]struct {
		reason string
		mg     sample.Instance
		start  func(s *embedded.Server, world *cloud.Cloud) process
	}{
		"Sync": {
			reason: "A legacy resource with an untyped synchronous connector.",
			mg:     v1alpha1.NewDatabase("one"),
			start: func(s *embedded.Server, world *cloud.Cloud) process {
				c := sample.NewSync[resource.Managed](world)
				return process{r: databases(s, c), finish: nothing, calls: &c.Calls}
			},
		},
		"SyncNameAsExternalName": {
			reason: "The name that upstream's default initializer sets gives way to the cloud's.",
			mg:     v1alpha1.NewDatabase("one"),
			start: func(s *embedded.Server, world *cloud.Cloud) process {
				c := sample.NewSync[resource.Managed](world)
				return process{
					r:      databases(s, c, managed.WithInitializers(managed.NewNameAsExternalName(s.Client()))),
					finish: nothing,
					calls:  &c.Calls,
				}
			},
		},
		"SyncTyped": {
			reason: "A modern resource with a typed synchronous connector.",
			mg:     v1alpha1.NewBucket("default", "one"),
			start: func(s *embedded.Server, world *cloud.Cloud) process {
				c := sample.NewSync[*v1alpha1.Bucket](world)
				return process{
					r:      managed.NewReconciler(s.Manager(), bucketKind, options(managed.WithTypedExternalConnector(c))...),
					finish: nothing,
					calls:  &c.Calls,
				}
			},
		},
		"Async": {
			reason: "A legacy resource with an untyped asynchronous connector.",
			mg:     v1alpha1.NewDatabase("one"),
			start: func(s *embedded.Server, world *cloud.Cloud) process {
				c := sample.NewAsync[resource.Managed](world)
				return process{r: databases(s, c), finish: c.Finish, calls: &c.Calls}
			},
		},
		"AsyncTypedBackground": {
			reason: "A modern resource with a typed asynchronous connector whose operations run in goroutines.",
			mg:     v1alpha1.NewBucket("default", "one"),
			start: func(s *embedded.Server, world *cloud.Cloud) process {
				c := sample.NewAsync[*v1alpha1.Bucket](world, sample.WithBackground())
				return process{
					r:      managed.NewReconciler(s.Manager(), bucketKind, options(managed.WithTypedExternalConnector(c))...),
					finish: func(context.Context) error { c.Wait(); return nil },
					calls:  &c.Calls,
				}
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := serve(t)
			clock := cloud.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			world := cloud.New(cloud.Options{
				Clock:      clock,
				Defaults:   map[string]string{"region": "north"},
				ReadyAfter: time.Minute,
				GoneAfter:  time.Minute,
			})
			p := tc.start(s, world)

			rest := func() {
				t.Helper()
				settle(ctx, t, s, p.r, tc.mg)
				must(t, tc.reason, p.finish(ctx))
				settle(ctx, t, s, p.r, tc.mg)
			}

			must(t, "Create()", s.Admin().Create(ctx, tc.mg))
			rest()

			got := read(t, s, tc.mg)
			if ready(got) != "False/Creating" || got.GetForProvider().Region != "north" {
				t.Errorf("\n%s\ncreated: want Creating and a late initialized region, got %s and %+v", tc.reason, ready(got), got.GetForProvider())
			}

			clock.Advance(time.Minute)
			rest()

			got = read(t, s, tc.mg)
			id := world.Inventory()[0].ID

			want := v1alpha1.Observation{ID: id, Endpoint: id + ".cloud.example.org", State: "available"}
			if diff := cmp.Diff(want, *got.GetAtProvider()); diff != "" || ready(got) != "True/Available" || meta.GetExternalName(got) != id {
				t.Errorf("\n%s\navailable: got %s, external name %q, -want, +got:\n%s", tc.reason, ready(got), meta.GetExternalName(got), diff)
			}

			got.GetForProvider().Size = 5
			must(t, "Update()", s.Admin().Update(ctx, got))
			rest()

			if size := world.Inventory()[0].Properties["size"]; size != "5" {
				t.Errorf("\n%s\nupdated: want size 5, got %s", tc.reason, size)
			}

			must(t, "Delete()", s.Admin().Delete(ctx, got))
			embedded.Drive(ctx, p.r, request(tc.mg), 2, nil)
			must(t, tc.reason, p.finish(ctx))
			embedded.Drive(ctx, p.r, request(tc.mg), 2, nil)

			if got = read(t, s, tc.mg); ready(got) != "False/Deleting" {
				t.Errorf("\n%s\ndeleting: want False/Deleting, got %s", tc.reason, ready(got))
			}

			must(t, tc.reason, p.finish(ctx))
			clock.Advance(time.Minute)
			rest()

			if err := s.Admin().Get(ctx, client.ObjectKeyFromObject(tc.mg), tc.mg); !kerrors.IsNotFound(err) || len(world.Inventory()) != 0 {
				t.Errorf("\n%s\ndeleted: want nothing left, got error %v and %v", tc.reason, err, world.Inventory())
			}

			if stats := world.Stats(string(got.GetUID())); stats.Created != 1 {
				t.Errorf("\n%s\nwant one resource ever created, got %+v", tc.reason, stats)
			}

			if p.calls.Connects() == 0 || p.calls.Connects() != p.calls.Disconnects() {
				t.Errorf("\n%s\nwant every client disconnected, got %d of %d", tc.reason, p.calls.Disconnects(), p.calls.Connects())
			}
		})
	}
}

package managed

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A provider is provider code, whatever kind and connector it is for.
type provider struct {
	connectErr error
	nilClient  bool
	client     upstream.ExternalClientFns
}

// connected returns the provider's client.
func connected[M resource.Managed](p provider) TypedExternalClient[M] {
	if p.nilClient {
		return nil
	}

	c := clientOf(p.client)

	return &TypedExternalClientFns[M]{
		ObserveFn:    func(ctx context.Context, mg M) (ExternalObservation, error) { return c.ObserveFn(ctx, mg) },
		CreateFn:     func(ctx context.Context, mg M) (ExternalCreation, error) { return c.CreateFn(ctx, mg) },
		UpdateFn:     func(ctx context.Context, mg M) (ExternalUpdate, error) { return c.UpdateFn(ctx, mg) },
		DeleteFn:     func(ctx context.Context, mg M) (ExternalDelete, error) { return c.DeleteFn(ctx, mg) },
		DisconnectFn: func(ctx context.Context) error { return c.DisconnectFn(ctx) },
	}
}

// connect to the provider, which is seen by see first.
func connect[M resource.Managed](p provider, see func(resource.Managed)) TypedExternalConnectorFn[M] {
	return func(_ context.Context, mg M) (TypedExternalClient[M], error) {
		see(mg)

		if p.connectErr != nil {
			return nil, p.connectErr
		}

		return connected[M](p), nil
	}
}

// A flavour is a kind of managed resource and a way to connect to its provider.
type flavour struct {
	kind      schema.GroupVersionKind
	namespace string
	empty     func() resource.Managed
	connector func(p provider, see func(resource.Managed)) ReconcilerOption
}

func flavours() map[string]flavour {
	bucket := flavour{kind: testkit.BucketKind(), namespace: "default", empty: func() resource.Managed { return &v1alpha1.Bucket{} }}
	database := flavour{kind: testkit.DatabaseKind(), empty: func() resource.Managed { return &v1alpha1.Database{} }}

	untyped := func(p provider, see func(resource.Managed)) ReconcilerOption {
		return WithExternalConnector(connect[resource.Managed](p, see))
	}

	fs := map[string]flavour{"NamespacedTyped": bucket, "ClusterTyped": database}

	f := fs["NamespacedTyped"]
	f.connector = func(p provider, see func(resource.Managed)) ReconcilerOption {
		return WithTypedExternalConnector(connect[*v1alpha1.Bucket](p, see))
	}
	fs["NamespacedTyped"] = f

	f = fs["ClusterTyped"]
	f.connector = func(p provider, see func(resource.Managed)) ReconcilerOption {
		return WithTypedExternalConnector(connect[*v1alpha1.Database](p, see))
	}
	fs["ClusterTyped"] = f

	bucket.connector, database.connector = untyped, untyped
	fs["NamespacedUntyped"], fs["ClusterUntyped"] = bucket, database

	return fs
}

// object returns a managed resource of generation 3 that was deleted, and has
// the finalizer of its reconciler.
func (f flavour) object(mod ...func(mg resource.Managed)) resource.Managed {
	mg := f.empty()
	mg.SetName("b")
	mg.SetNamespace(f.namespace)
	mg.SetGeneration(3)
	mg.SetFinalizers([]string{FinalizerName})
	mg.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	mg.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})

	if b, ok := mg.(*v1alpha1.Bucket); ok {
		// As exists observes it.
		b.Status.AtProvider.ID = "id-1"
	}

	if l, ok := mg.(resource.LegacyManaged); ok { //nolint:staticcheck // Deprecated, and what most providers have.
		// As the API server defaults it.
		l.SetDeletionPolicy(xpv2.DeletionDelete)
	}

	for _, m := range mod {
		m(mg)
	}

	return mg
}

func (f flavour) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: f.namespace, Name: "b"}}
}

// get what the server has, or nil.
func (f flavour) get(ctx context.Context, t *testing.T, a *testkit.API) resource.Managed {
	t.Helper()

	mg := f.empty()
	if err := a.Server().Get(ctx, f.request().NamespacedName, mg); err != nil {
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}

		return nil
	}

	return mg
}

func (f flavour) reconciler(a *testkit.API, o ...ReconcilerOption) *Reconciler {
	return NewReconciler(a.Manager(), resource.ManagedKind(f.kind), append([]ReconcilerOption{
		WithManagementPolicies(),
		WithInitializers(),
		waits(noWait),
		ticks(),
	}, o...)...)
}

// ticks returns an option for a clock of which no two readings are within the
// same minute.
func ticks() ReconcilerOption {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

	return func(r *Reconciler) {
		r.config.seams.Now = func() time.Time {
			now = now.Add(time.Minute)
			return now
		}
	}
}

// A recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []event.Event
}

func (r *recorder) Event(_ runtime.Object, e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.events = append(r.events, e)
}

func (r *recorder) WithAnnotations(...string) event.Recorder { return r }

func (r *recorder) of(reason event.Reason) []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()

	var out []event.Event

	for _, e := range r.events {
		if e.Reason == reason {
			out = append(out, e)
		}
	}

	return out
}

// withUnpublisher returns an option for what upstream lets only its own tests
// set: how connection details are unpublished.
func withUnpublisher(err func() error) ReconcilerOption {
	return Upstream(func(r *upstream.Reconciler) {
		set := func(field string, v any) {
			f := reflect.ValueOf(r).Elem().FieldByName("managed").FieldByName(field)
			reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(v)) //nolint:gosec // The field is not exported.
		}

		set("ConnectionPublisher", upstream.ConnectionPublisherFns{
			UnpublishConnectionFn: func(context.Context, resource.ConnectionSecretOwner, ConnectionDetails) error { return err() },
		})
		set("LocalConnectionPublisher", upstream.LocalConnectionPublisherFns{
			UnpublishConnectionFn: func(context.Context, resource.LocalConnectionSecretOwner, ConnectionDetails) error { return err() },
		})
	})
}

// statusWrite reports whether r writes status.
func statusWrite(r testkit.Request) bool {
	return strings.HasPrefix(r.Verb, "status ")
}

// messages of the events of a reason.
func (r *recorder) messages(reason event.Reason) []string {
	var ms []string
	for _, e := range r.of(reason) {
		ms = append(ms, e.Message)
	}

	return ms
}

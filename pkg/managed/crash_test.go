package managed_test

import (
	"context"
	"slices"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// A regionBucket is a bucket of the external system.
type regionBucket struct{ ID, Owner, Region string }

// A regionCloud has the buckets. It chooses the names.
type regionCloud struct {
	crashtest.Resources[regionBucket]
}

// A regionClient is an external client of a regionCloud.
type regionClient struct {
	managed.ExternalClientFns

	cloud *regionCloud
}

// Find looks for a bucket of the managed resource.
func (c *regionClient) Find(
	_ context.Context, mg resource.Managed, _ asyncstate.Attempt,
) (asyncstate.Finding, error) {
	for _, b := range c.cloud.List() {
		if b.Owner == string(mg.GetUID()) {
			return asyncstate.Found(b.ID), nil
		}
	}
	return asyncstate.Absent(), nil
}

// connect returns a connector whose calls are steps of the process.
func (c *regionCloud) connect(p *crashtest.Process) managed.ExternalConnector {
	bucket := func(mg resource.Managed) regionBucket {
		b, _ := mg.(*v1alpha1.Bucket)
		return regionBucket{ID: meta.GetExternalName(b), Owner: string(b.GetUID()), Region: b.Spec.ForProvider.Region}
	}
	client := &regionClient{cloud: c, ExternalClientFns: managed.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			was, exists := c.Get(meta.GetExternalName(mg))
			if exists {
				mg.SetConditions(xpv2.Available())
			}
			return managed.ExternalObservation{ResourceExists: exists, ResourceUpToDate: was == bucket(mg)}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			meta.SetExternalName(mg, c.NewName("id"))
			c.Create(meta.GetExternalName(mg), bucket(mg))
			return managed.ExternalCreation{}, nil
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
			c.Update(meta.GetExternalName(mg), bucket(mg))
			return managed.ExternalUpdate{}, nil
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
			c.Delete(meta.GetExternalName(mg))
			return managed.ExternalDelete{}, nil
		},
		DisconnectFn: func(context.Context) error { return nil },
	}}
	return crashtest.Connector(p, managed.ExternalConnectorFn(func(
		context.Context, resource.Managed,
	) (managed.ExternalClient, error) {
		return client, nil
	}))
}

// patchFinalizers returns a function that patches finalizers without a resource version.
func patchFinalizers(c client.Client, finalizers string) func(context.Context, resource.Object) error {
	return func(ctx context.Context, o resource.Object) error {
		patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		return client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))
	}
}

// newProvider returns a provider of buckets with one more option of its reconciler.
func newProvider(
	t *testing.T, option func(c client.Client) managed.ReconcilerOption,
) crashtest.Provider[*regionCloud] {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return crashtest.Provider[*regionCloud]{
		Scheme: s,
		Object: v1alpha1.NewBucket("default", "one"),
		Cloud:  func() *regionCloud { return &regionCloud{} },
		Start: func(p *crashtest.Process, c *regionCloud) (reconcile.Reconciler, error) {
			m, connector := p.Manager(), c.connect(p)
			return managed.NewReconciler(m, v1alpha1.BucketManagedKind(),
				managed.WithManagementPolicies(),
				managed.WithInitializers(),
				managed.WithExternalConnector(connector),
				resolve.With(resolve.FindWithConnector(connector)),
				option(m.GetClient()),
			), nil
		},
		Change: func(o client.Object) {
			b, _ := o.(*v1alpha1.Bucket)
			b.Spec.ForProvider.Region = "eu"
		},
	}
}

// TestCrashes crashes reconcilers with finalizers and annotation updaters that are not Graft's.
func TestCrashes(t *testing.T) {
	for name, option := range map[string]func(c client.Client) managed.ReconcilerOption{
		"CustomFinalizer": func(c client.Client) managed.ReconcilerOption {
			return managed.WithFinalizer(resource.NewAPIFinalizer(c, managed.FinalizerName))
		},
		"UnguardedFinalizer": func(c client.Client) managed.ReconcilerOption {
			return managed.WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    patchFinalizers(c, `["`+managed.FinalizerName+`"]`),
				RemoveFinalizerFn: patchFinalizers(c, "null"),
			})
		},
		"UpstreamCriticalAnnotations": func(c client.Client) managed.ReconcilerOption {
			return managed.WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, option)
			p.Scenarios = crashtest.Scenarios()[:5]
			p.Invariant = func(o client.Object, _ *regionCloud, _ client.Reader) error {
				if o != nil && !slices.Equal(o.GetFinalizers(), []string{managed.FinalizerName}) {
					return errors.Errorf("the finalizers are %v", o.GetFinalizers())
				}
				return nil
			}
			crashtest.Run(t, p, crashtest.Runs(300))
		})
	}
}

// TestCrashes_AnotherWriter changes an annotation in the middle of calls to the external system.
// The other writer's last change should be kept.
func TestCrashes_AnotherWriter(t *testing.T) {
	annotate := func(value string) crashtest.Act {
		return crashtest.Act{DuringCall: true, Do: func(u *crashtest.User) error {
			return u.Edit(func(o client.Object) { meta.AddAnnotations(o, map[string]string{"another": value}) })
		}}
	}
	p := newProvider(t, func(client.Client) managed.ReconcilerOption { return managed.WithInitializers() })
	p.Scenarios = []crashtest.Scenario{{Name: "another-writer", Acts: []crashtest.Act{
		{Do: crashtest.Create}, annotate("first"), {Do: crashtest.Change}, annotate("second"),
	}}}
	p.Invariant = func(o client.Object, _ *regionCloud, _ client.Reader) error {
		if got := o.GetAnnotations()["another"]; got != "second" {
			return errors.Errorf("the annotation of another writer is %q", got)
		}
		return nil
	}
	crashtest.Run(t, p, crashtest.Runs(300))
}

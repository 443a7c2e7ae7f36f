package managed_test

import (
	"context"
	"slices"
	"testing"
	"time"

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
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/contested"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/managed/usage"
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

// connect returns a connector whose calls are steps of the process. Buckets have the external name that the managed
// resource has if named is set, and the external system names them otherwise.
func (c *regionCloud) connect(p *crashtest.Process, named bool) managed.ExternalConnector {
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
			if !named {
				meta.SetExternalName(mg, c.NewName("id"))
			}
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

// newProvider returns a provider of buckets with one more option of its reconciler. If named is not set, the external
// system names them, and a Finder looks them up.
func newProvider(
	t *testing.T, named bool, option func(c client.Client) managed.ReconcilerOption,
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
			m, connector := p.Manager(), c.connect(p, named)
			outcome, initializers := resolve.With(resolve.FindWithConnector(connector)), []managed.Initializer(nil)
			if named {
				outcome = managed.WithDeterministicExternalName(true)
				initializers = append(initializers, managed.NewNameAsExternalName(m.GetClient()))
			}
			return managed.NewReconciler(m, v1alpha1.BucketManagedKind(),
				managed.WithManagementPolicies(),
				managed.WithInitializers(initializers...),
				managed.WithExternalConnector(connector),
				outcome,
				option(m.GetClient()),
			), nil
		},
		Change: func(o client.Object) {
			b, _ := o.(*v1alpha1.Bucket)
			b.Spec.ForProvider.Region = "eu"
		},
	}
}

// TestCrashes_Options crashes the core alone, and with each option. Names that are known before the create, or a Finder,
// lead to the outcome of each create.
func TestCrashes_Options(t *testing.T) {
	type option = managed.ReconcilerOption
	none := func() option { return managed.WithPollJitterHook(0) }
	for name, tc := range map[string]struct {
		named  bool
		option func() option
	}{
		"Core":        {named: true, option: none},
		"Resolve":     {option: none},
		"Reservation": {option: func() option { return reservation.With("default") }},
		"RateLimit":   {named: true, option: func() option { return ratelimit.With(ratelimit.New(5, 5)) }},
		"PreCreate":   {named: true, option: precreate.Adopt},
		"Confirm":     {named: true, option: func() option { return confirm.With(3, 10*time.Second) }},
		"Deadline":    {named: true, option: func() option { return escape.WithDeadline(time.Minute, nil) }},
		"ForceOrphan": {named: true, option: func() option { return escape.WithForceOrphan() }},
		"Contested":   {named: true, option: contested.With},
		"Usage": {named: true, option: func() option {
			return usage.WithProtection(v1alpha1.ProviderConfigKinds("ProviderConfig").Usage)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, tc.named, func(client.Client) option { return tc.option() })
			p.Scenarios = crashtest.Scenarios()[:5]
			crashtest.Run(t, p, crashtest.Runs(60))
		})
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
			p := newProvider(t, false, option)
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
	p := newProvider(t, false, func(client.Client) managed.ReconcilerOption { return managed.WithInitializers() })
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

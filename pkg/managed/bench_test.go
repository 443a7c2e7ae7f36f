package managed

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"

	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// BenchmarkSteadyState measures a reconcile in which nothing is to be done, by
// upstream's reconciler and by Graft's, from the same options.
//
//   - free: API calls cost nothing, so that what is left is the reconcilers' own
//     work;
//   - fake: controller-runtime's fake client, where a write costs what it costs
//     to serve it.
func BenchmarkSteadyState(b *testing.B) {
	for _, api := range []struct {
		name string
		new  func() *testkit.API
	}{
		{name: "free", new: nil},
		{name: "fake", new: func() *testkit.API { return testkit.NewAPI(settled()) }},
	} {
		for _, of := range []struct {
			name string
			new  func(m *xpfake.Manager) reconcile.Reconciler
		}{
			{name: "upstream", new: func(m *xpfake.Manager) reconcile.Reconciler {
				return upstream.NewReconciler(m, resource.ManagedKind(testkit.BucketKind()), upstream.WithManagementPolicies(), upstream.WithExternalConnector(connectorTo(steady())))
			}},
			{name: "graft", new: func(m *xpfake.Manager) reconcile.Reconciler {
				return NewReconciler(m, resource.ManagedKind(testkit.BucketKind()), WithManagementPolicies(), WithExternalConnector(connectorTo(steady())))
			}},
		} {
			b.Run(api.name+"/"+of.name, func(b *testing.B) {
				m := &xpfake.Manager{Scheme: testkit.Scheme()}
				requests := newCounter(api.new, m)
				r := of.new(m)
				ctx := context.Background()

				// The first one or two settle what the fake client's object
				// lacks, such as observed generations.
				for range 2 {
					if _, err := r.Reconcile(ctx, request()); err != nil {
						b.Fatal(err)
					}
				}

				before := requests()

				b.ReportAllocs()
				b.ResetTimer()

				for b.Loop() {
					if _, err := r.Reconcile(ctx, request()); err != nil {
						b.Fatal(err)
					}
				}

				b.StopTimer()

				after := requests()
				b.ReportMetric(float64(after.reads-before.reads)/float64(b.N), "reads/op")
				b.ReportMetric(float64(after.writes-before.writes)/float64(b.N), "writes/op")
			})
		}
	}
}

type requests struct{ reads, writes int }

// newCounter gives m a client, and returns what counts its requests.
func newCounter(newAPI func() *testkit.API, m *xpfake.Manager) func() requests {
	if newAPI != nil {
		a := newAPI()
		m.Client = a.Client()

		return func() requests {
			return requests{reads: a.Count(testkit.Get, testkit.LiveGet), writes: a.Writes()}
		}
	}

	n := requests{}
	stored := settled()
	stored.SetUID("uid-1")
	stored.SetResourceVersion("1")

	write := func(o client.Object) {
		n.writes++

		if b, ok := o.(*testkit.Bucket); ok {
			stored, _ = b.DeepCopyObject().(*testkit.Bucket)
		}
	}

	m.Client = &test.MockClient{
		MockScheme: test.NewMockSchemeFn(testkit.Scheme()),
		MockGet: func(_ context.Context, _ client.ObjectKey, o client.Object) error {
			n.reads++

			if b, ok := o.(*testkit.Bucket); ok {
				c, _ := stored.DeepCopyObject().(*testkit.Bucket)
				*b = *c
			}

			return nil
		},
		MockUpdate: func(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
			write(o)
			return nil
		},
		MockStatusUpdate: func(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
			n.writes++
			stored.Status = o.(*testkit.Bucket).Status //nolint:forcetypeassert // There is nothing else.
			return nil
		},
	}

	return func() requests { return n }
}

// settled returns a managed resource of the size of a real one, as it is when
// nothing is left to do.
func settled() *testkit.Bucket {
	b := bucket(named("id-1"), finalizers(FinalizerName), annotated("a", "1"), annotated("b", "2"))
	b.SetLabels(map[string]string{"crossplane.io/composite": "x", "crossplane.io/claim-name": "c", "crossplane.io/claim-namespace": "default"})
	b.SetGeneration(1)
	b.Spec.ForProvider = testkit.Parameters{Region: "eu", Tags: []string{"a", "b", "c", "d"}}
	b.Status.AtProvider = observed10()
	b.SetConditions(xpv2.Available(), xpv2.ReconcileSuccess().WithObservedGeneration(1))

	return b
}

func observed10() testkit.Observation {
	o := testkit.Observation{ID: "id-1", Facts: map[string]string{}}
	for _, k := range []string{"arn", "endpoint", "hostedZone", "owner", "region", "state", "version", "created", "size", "engine"} {
		o.Facts[k] = "some value of " + k
	}

	return o
}

// steady returns an external client that sets what is there already.
func steady() upstream.ExternalClientFns {
	return upstream.ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		if b, ok := mg.(*testkit.Bucket); ok {
			b.Status.AtProvider = observed10()
		}

		mg.SetConditions(xpv2.Available())

		return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
	}}
}

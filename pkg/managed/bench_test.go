package managed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A subject is a reconciler that is measured, on an API of its own.
type subject struct {
	reconcile.Reconciler

	requests func() requests
}

func (s subject) reconcile(tb testing.TB) {
	tb.Helper()
	if _, err := s.Reconcile(context.Background(), request()); err != nil {
		tb.Fatal(err)
	}
}

func (s subject) benchmark(b *testing.B) {
	before := s.requests()
	b.ReportAllocs()
	for b.Loop() {
		s.reconcile(b)
	}
	after := s.requests()
	b.ReportMetric(float64(after.reads-before.reads)/float64(b.N), "reads/op")
	b.ReportMetric(float64(after.writes-before.writes)/float64(b.N), "writes/op")
}

// subjects returns upstream's reconciler and Graft's, each with an API of its own, at rest.
func subjects(tb testing.TB, newAPI func() *testkit.API) (up, graft subject) {
	tb.Helper()
	kind := resource.ManagedKind(testkit.BucketKind())
	m := &xpfake.Manager{Scheme: testkit.Scheme()}
	up.requests = newCounter(newAPI, m)
	up.Reconciler = upstream.NewReconciler(m, kind, upstream.WithManagementPolicies(), upstream.WithExternalConnector(connectorTo(steady())))
	m = &xpfake.Manager{Scheme: testkit.Scheme()}
	graft.requests = newCounter(newAPI, m)
	graft.Reconciler = NewReconciler(m, kind, WithManagementPolicies(), WithExternalConnector(connectorTo(steady())))
	for range 2 {
		up.reconcile(tb)
		graft.reconcile(tb)
	}
	return up, graft
}

// BenchmarkSteadyState measures a reconcile with nothing to do: API calls are free, or those of the fake client.
func BenchmarkSteadyState(b *testing.B) {
	for _, on := range []struct {
		name  string
		start func() *testkit.API
	}{
		{name: "free"},
		{name: "fake", start: func() *testkit.API { return testkit.NewAPI(settled()) }},
	} {
		up, graft := subjects(b, on.start)
		b.Run(on.name+"/upstream", up.benchmark)
		b.Run(on.name+"/graft", graft.benchmark)

		// Both in turn, so that whatever else the machine does slows both.
		b.Run(on.name+"/graft:upstream", func(b *testing.B) {
			var spentUp, spentGraft time.Duration
			for b.Loop() {
				start := time.Now()
				up.reconcile(b)
				half := time.Now()
				graft.reconcile(b)
				spentUp += half.Sub(start)
				spentGraft += time.Since(half)
			}
			b.ReportMetric(float64(spentGraft)/float64(spentUp), "graft:upstream")
			b.ReportMetric(float64((spentGraft-spentUp).Nanoseconds())/float64(b.N), "more-ns/op")
		})
	}
}

// What a steady state may cost more than upstream's where API calls cost nothing.
func TestSteadyStateBudget(t *testing.T) {
	const maxMoreAllocs = 26
	up, graft := subjects(t, nil)
	before := graft.requests()
	more := testing.AllocsPerRun(100, func() { graft.reconcile(t) }) - testing.AllocsPerRun(100, func() { up.reconcile(t) })
	if more > maxMoreAllocs {
		t.Errorf("allocations more than upstream: want at most %d, got %v", maxMoreAllocs, more)
	}
	wants(t, "", "writes", 0, graft.requests().writes-before.writes)
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
		if b, ok := o.(*v1alpha1.Bucket); ok {
			stored, _ = b.DeepCopyObject().(*v1alpha1.Bucket)
		}
	}
	m.Client = &test.MockClient{
		MockScheme: test.NewMockSchemeFn(testkit.Scheme()),
		MockGet: func(_ context.Context, _ client.ObjectKey, o client.Object) error {
			n.reads++
			if b, ok := o.(*v1alpha1.Bucket); ok {
				c, _ := stored.DeepCopyObject().(*v1alpha1.Bucket)
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
			if b, ok := o.(*v1alpha1.Bucket); ok {
				stored.Status = b.Status
			}
			return nil
		},
	}
	return func() requests { return n }
}

// settled returns a managed resource of the size of a real one, at rest.
func settled() *v1alpha1.Bucket {
	b := bucket(named("id-1"), finalizers(FinalizerName), annotated("a", "1"), annotated("b", "2"))
	b.SetLabels(map[string]string{"crossplane.io/composite": "x", "crossplane.io/claim-name": "c", "crossplane.io/claim-namespace": "default"})
	b.SetGeneration(1)
	b.Spec.ForProvider = v1alpha1.Parameters{Region: "eu"}
	b.Status.AtProvider = observed10()
	b.SetConditions(xpv2.Available(), xpv2.ReconcileSuccess().WithObservedGeneration(1))
	return b
}

func observed10() v1alpha1.Observation {
	o := v1alpha1.Observation{ID: "id-1", Facts: map[string]string{}}
	for _, k := range []string{"arn", "endpoint", "hostedZone", "owner", "region", "state", "version", "created", "size", "engine"} {
		o.Facts[k] = "some value of " + k
	}
	return o
}

func steady() ExternalClientFns {
	return ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		if b, ok := mg.(*v1alpha1.Bucket); ok {
			b.Status.AtProvider = observed10()
		}
		mg.SetConditions(xpv2.Available())
		return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
	}}
}

func TestStatusWrites(t *testing.T) {
	const reconciles = 100
	facts := func(of func(n int) map[string]string) func(int, *v1alpha1.Bucket) error {
		return func(n int, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Facts = of(n)
			return nil
		}
	}
	cases := map[string]struct {
		reason  string
		mods    []func(b *v1alpha1.Bucket)
		opts    []ReconcilerOption
		observe func(n int, b *v1alpha1.Bucket) error // Done by the n-th Observe, and between before that.
		between func(n int, b *v1alpha1.Bucket)
		want    int
	}{
		"Unchanged":       {reason: "A status that does not change is not written."},
		"UnchangedWanted": {reason: "It is if that is wanted.", opts: []ReconcilerOption{WithUnchangedStatusWrites()}, want: reconciles},
		"RawNewline": {reason: "Raw JSON is compared as it is stored, without the newline of an encoder.", observe: func(_ int, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Manifest.Raw = []byte("{\"b\": 1,\"a\":[1.0]}\n")
			return nil
		}},
		"Changing":       {reason: "A status that changes each time is written each time.", observe: facts(func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} }), want: reconciles},
		"Failing":        {reason: "The same failure each time is written once.", observe: func(int, *v1alpha1.Bucket) error { return errors.New("boom") }},
		"Paused":         {reason: "What is paused says so once.", mods: []func(b *v1alpha1.Bucket){paused}},
		"PausedByPolicy": {reason: "What is paused by policy says so once.", mods: []func(b *v1alpha1.Bucket){policies()}},
		"ReconcileRequested": {
			reason: "A request to reconcile is acknowledged, though nothing else changed.",
			between: func(n int, b *v1alpha1.Bucket) {
				if n%50 == 0 {
					annotated(meta.AnnotationKeyReconcileRequestedAt, fmt.Sprint("token-", n))(b)
				}
			},
			want: 2,
		},
		"ForeignAnnotations": {reason: "That others write what is not status is no reason to write status.", between: func(n int, b *v1alpha1.Bucket) { annotated("example.org/n", fmt.Sprint(n))(b) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, n := testkit.NewAPI(bucket(append(tc.mods, named("id-1"))...)), 0
			x := (&outside{there: true}).on("observe", func(b *v1alpha1.Bucket) error {
				if tc.observe == nil {
					return nil
				}
				return tc.observe(n, b)
			})
			r := newBucketReconciler(a, append(tc.opts, connects(x.client()))...)
			repeat(t, r, 3)
			a.Forget()
			for n = 1; n <= reconciles; n++ {
				if tc.between != nil {
					edit(t, a, "b", func(b *v1alpha1.Bucket) { tc.between(n, b) })
				}
				run(t, r, "b")
			}
			wants(t, tc.reason, "status updates, writes in 100 reconciles", []int{tc.want, tc.want}, []int{a.Count(testkit.StatusUpdate), a.Writes()})
			b := get(t, a)
			wants(t, tc.reason, "last handled request", b.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt], b.GetLastHandledReconcileAt())
		})
	}
}

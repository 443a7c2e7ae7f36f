package managed_test

import (
	"context"
	"fmt"
	"math"
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

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// A subject is a reconciler that is measured. It has an API server of its own.
type subject struct {
	reconcile.Reconciler

	requests func() requests
}

func (s subject) reconcile(tb testing.TB) {
	tb.Helper()
	if _, err := s.Reconcile(context.Background(), kit.Request()); err != nil {
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

// subjects returns upstream's reconciler and Graft's with more options, both in a steady state.
func subjects(tb testing.TB, newAPI func() *testkit.API, o ...managed.ReconcilerOption) (up, graft subject) {
	tb.Helper()
	kind := resource.ManagedKind(testkit.BucketKind())
	m := &xpfake.Manager{Scheme: testkit.Scheme()}
	up.requests = newCounter(newAPI, m)
	up.Reconciler = upstream.NewReconciler(
		m, kind, upstream.WithManagementPolicies(), upstream.WithExternalConnector(kit.NewConnector(steady())),
	)
	m = &xpfake.Manager{Scheme: testkit.Scheme()}
	graft.requests = newCounter(newAPI, m)
	graft.Reconciler = managed.NewReconciler(
		m, kind, append(
			o, managed.WithManagementPolicies(), managed.WithExternalConnector(kit.NewConnector(steady())),
		)...,
	)
	for range 2 {
		up.reconcile(tb)
		graft.reconcile(tb)
	}
	return up, graft
}

// BenchmarkSteadyState measures a reconcile without changes. Requests are free, or served by the fake
// client.
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

		// Reconcile in turn, so that other load on the machine slows both.
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

// withAndWithoutLimits returns reconcilers whose polls are not spread after the start.
func withAndWithoutLimits(tb testing.TB) (without, with subject) {
	tb.Helper()
	poll := managed.WithPollInterval(time.Nanosecond)
	_, without = subjects(tb, nil, poll)
	_, with = subjects(tb, nil, poll, ratelimit.With(ratelimit.New(1e9, 1e9)))
	return without, with
}

// BenchmarkSteadyStateWithLimits measures a reconcile without changes, with and without limits
// that are not reached.
func BenchmarkSteadyStateWithLimits(b *testing.B) {
	without, with := withAndWithoutLimits(b)
	b.Run("Unlimited", without.benchmark)
	b.Run("Limited", with.benchmark)
}

func TestSteadyStateBudget(t *testing.T) {
	const maxMoreAllocs = 22
	up, graft := subjects(t, nil)
	before := graft.requests()
	// Goroutines that earlier tests have left allocate, too: the least of some runs counts.
	least := func(reconcile func(testing.TB)) float64 {
		n := math.Inf(1)
		for range 5 {
			n = min(n, testing.AllocsPerRun(100, func() { reconcile(t) }))
		}
		return n
	}
	more := least(graft.reconcile) - least(up.reconcile)
	if more > maxMoreAllocs {
		t.Errorf(
			"\nA reconcile without changes should make at most %d allocations more than upstream's.\ngot %v",
			maxMoreAllocs, more,
		)
	}
	kit.ExpectEqual(
		t, "A reconcile without changes should write nothing.", "writes", 0, graft.requests().writes-before.writes,
	)
}

func TestSteadyStateBudget_Limits(t *testing.T) {
	const maxMoreAllocs = 2
	without, with := withAndWithoutLimits(t)
	more := testing.AllocsPerRun(100, func() { with.reconcile(t) }) -
		testing.AllocsPerRun(100, func() { without.reconcile(t) })
	if more > maxMoreAllocs {
		t.Errorf("\nA limit that is not reached should make at most %d allocations more.\ngot %v", maxMoreAllocs, more)
	}
}

type requests struct{ reads, writes int }

// newCounter gives m a client, and returns a function that returns the number of its requests.
func newCounter(newAPI func() *testkit.API, m *xpfake.Manager) func() requests {
	if newAPI != nil {
		api := newAPI()
		m.Client = api.Client()
		return func() requests {
			return requests{reads: api.Count(testkit.Get, testkit.LiveGet), writes: api.Writes()}
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

// settled returns a Bucket in a steady state, of the size of a real managed resource.
func settled() *v1alpha1.Bucket {
	b := kit.NewBucket(
		kit.WithExternalName("id-1"), kit.WithFinalizers(
			managed.FinalizerName,
		), kit.WithAnnotation("a", "1"), kit.WithAnnotation("b", "2"),
	)
	b.SetLabels(map[string]string{
		"crossplane.io/composite":       "x",
		"crossplane.io/claim-name":      "c",
		"crossplane.io/claim-namespace": "default",
	})
	b.SetGeneration(1)
	b.Spec.ForProvider = v1alpha1.Parameters{Region: "eu"}
	b.Status.AtProvider = observed10()
	b.SetConditions(xpv2.Available(), xpv2.ReconcileSuccess().WithObservedGeneration(1))
	return b
}

func observed10() v1alpha1.Observation {
	o := v1alpha1.Observation{ID: "id-1", Facts: map[string]string{}}
	for _, k := range []string{
		"arn", "endpoint", "hostedZone", "owner", "region", "state", "version", "created", "size", "engine",
	} {
		o.Facts[k] = "some value of " + k
	}
	return o
}

func steady() managed.ExternalClientFns {
	return managed.ExternalClientFns{ObserveFn: func(
		_ context.Context, mg resource.Managed,
	) (managed.ExternalObservation, error) {
		if b, ok := mg.(*v1alpha1.Bucket); ok {
			b.Status.AtProvider = observed10()
		}
		mg.SetConditions(xpv2.Available())
		return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
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
		reason          string
		bucket          []kit.BucketModifier
		opts            []managed.ReconcilerOption
		onObserve       func(n int, b *v1alpha1.Bucket) error // called by the n-th Observe
		beforeReconcile func(n int, b *v1alpha1.Bucket)
		wantWrites      int
	}{
		"Unchanged": {reason: "An unchanged status should not be written."},
		"UnchangedWanted": {
			reason:     "An unchanged status should be written with WithUnchangedStatusWrites.",
			opts:       []managed.ReconcilerOption{managed.WithUnchangedStatusWrites()},
			wantWrites: reconciles,
		},
		"RawNewline": {
			reason: "Raw JSON should be compared without the newline of an encoder.",
			onObserve: func(_ int, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Manifest.Raw = []byte("{\"b\": 1,\"a\":[1.0]}\n")
				return nil
			},
		},
		"Changing": {
			reason:     "A status that changes should be written each time.",
			onObserve:  facts(func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} }),
			wantWrites: reconciles,
		},
		"Failing": {
			reason:    "The same error should be written once.",
			onObserve: func(int, *v1alpha1.Bucket) error { return errors.New("boom") },
		},
		"Paused": {reason: "A pause should be written once.", bucket: []kit.BucketModifier{kit.WithPausedAnnotation}},
		"PausedByPolicy": {
			reason: "A pause by policies should be written once.",
			bucket: []kit.BucketModifier{kit.WithPolicies()},
		},
		"ReconcileRequested": {
			reason: "A request to reconcile should be acknowledged although nothing else has changed.",
			beforeReconcile: func(n int, b *v1alpha1.Bucket) {
				if n%50 == 0 {
					kit.WithAnnotation(meta.AnnotationKeyReconcileRequestedAt, fmt.Sprint("token-", n))(b)
				}
			},
			wantWrites: 2,
		},
		"ForeignAnnotations": {
			reason:          "The status should not be written when another writer changes an annotation.",
			beforeReconcile: func(n int, b *v1alpha1.Bucket) { kit.WithAnnotation("example.org/n", fmt.Sprint(n))(b) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(append(tc.bucket, kit.WithExternalName("id-1"))...))
			n := 0
			ext := (&kit.ExternalResource{Exists: true}).OnCall("observe", func(b *v1alpha1.Bucket) error {
				if tc.onObserve == nil {
					return nil
				}
				return tc.onObserve(n, b)
			})
			r := kit.NewBucketReconciler(api, append(tc.opts, kit.WithClient(ext.Client()))...)
			kit.MustReconcileTimes(t, r, 3)
			api.Forget()
			for n = 1; n <= reconciles; n++ {
				if tc.beforeReconcile != nil {
					kit.UpdateBucket(t, api, "b", func(b *v1alpha1.Bucket) { tc.beforeReconcile(n, b) })
				}
				kit.MustReconcile(t, r, "b")
			}
			kit.ExpectEqual(t, tc.reason, "status updates", tc.wantWrites, api.Count(testkit.StatusUpdate))
			kit.ExpectEqual(t, tc.reason, "writes in 100 reconciles", tc.wantWrites, api.Writes())
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(
				t, tc.reason, "last handled request", b.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt],
				b.GetLastHandledReconcileAt(),
			)
		})
	}
}

package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A rig is a reconciler of composite resources, and what it tells.
type rig struct {
	reconcile.Reconciler

	c       *cluster
	now     time.Time
	said    *testkit.Said
	metrics *reconciler.Metrics
	called  int
	passes  int
	opts    []reconciler.Option
}

// newRig returns a rig with an object's server.
func newRig(t *testing.T, c *cluster, o client.Object, opts ...reconciler.Option) *rig {
	t.Helper()

	r := &rig{c: c, now: o.GetDeletionTimestamp().Add(time.Minute), said: &testkit.Said{}, metrics: reconciler.NewMetrics(), opts: opts}
	r.restart()

	return r
}

// restart the process: what it had in memory is lost.
func (r *rig) restart() {
	r.Reconciler = reconciler.New(r.c, composites, reader(&r.passes), append([]reconciler.Option{
		reconciler.WithClock(func() time.Time { return r.now }),
		reconciler.WithoutWait(),
		reconciler.WithRecorder(r.said),
		reconciler.WithLogger(r.said),
		reconciler.WithMetrics(r.metrics),
		reconciler.WithLiveReader(r.c.server),
	}, r.opts...)...)
}

func (r *rig) deadline(d time.Duration) reconciler.Option {
	return reconciler.WithDeletionDeadline(d, func(context.Context, client.Object) { r.called++ })
}

// toldOf counts the events of a reason.
func (r *rig) toldOf(reason event.Reason) int {
	return len(r.said.Events(reason))
}

// reads returns an inner reconciler that reads its object into what empty returns,
// hands it to fn unless that is nil, and returns what fn does.
func reads[O client.Object](empty func() O, fn func(ctx context.Context, c client.Client, o O) (reconcile.Result, error)) func(c client.Client) reconcile.Reconciler {
	return func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := empty()
			if err := c.Get(ctx, req.NamespacedName, o); err != nil || fn == nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}

			return fn(ctx, c, o)
		})
	}
}

// answers is an inner reconciler of composite resources.
func answers(fn func(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error)) func(c client.Client) reconcile.Reconciler {
	return reads(func() *composite.Unstructured { return composite.New(composite.WithGroupVersionKind(composites)) }, fn)
}

// A reader is an inner reconciler that does nothing but read its object.
func reader(read *int) func(c client.Client) reconcile.Reconciler {
	return answers(func(context.Context, client.Client, *composite.Unstructured) (reconcile.Result, error) {
		if read != nil {
			*read++
		}

		return reconcile.Result{}, nil
	})
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// pass reconciles an object once.
func pass(t *testing.T, r reconcile.Reconciler, o client.Object) reconcile.Result {
	t.Helper()

	result, err := r.Reconcile(context.Background(), requestFor(o))
	if err != nil {
		t.Fatalf("Reconcile(%s): %v", o.GetName(), err)
	}

	return result
}

// xr returns a composite resource that is being deleted, and refers to objects.
func xr(refs ...*unstructured.Unstructured) *unstructured.Unstructured {
	list := []any{}
	for _, o := range refs {
		list = append(list, ref(o))
	}

	return of(composites, "", "x", with(at("spec", "crossplane", "resourceRefs"), list), held("example.org/f"), dying, being(xpv2.Available()))
}

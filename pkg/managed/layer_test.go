package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// calls are a provider's, as the last layer sees them. Functions that are nil do
// nothing.
type calls struct {
	connect func(c *call) error
	observe func(c *call) (observation, error)
	create  func(c *call) (creation, error)
	update  func(c *call) (ExternalUpdate, error)
	delete  func(c *call) (deletion, error)
}

func (f calls) Connect(_ context.Context, c *call) error {
	if f.connect == nil {
		return nil
	}

	return f.connect(c)
}

func (f calls) Observe(_ context.Context, c *call) (observation, error) {
	if f.observe == nil {
		return observation{}, nil
	}

	return f.observe(c)
}

func (f calls) Create(_ context.Context, c *call) (creation, error) {
	if f.create == nil {
		return creation{}, nil
	}

	return f.create(c)
}

func (f calls) Update(_ context.Context, c *call) (ExternalUpdate, error) {
	if f.update == nil {
		return ExternalUpdate{}, nil
	}

	return f.update(c)
}

func (f calls) Delete(_ context.Context, c *call) (deletion, error) {
	if f.delete == nil {
		return deletion{}, nil
	}

	return f.delete(c)
}

// alone runs one reconcile with one layer around the calls of a provider, and nothing
// else of Graft or upstream.
func alone(t *testing.T, a *testkit.API, build newLayer, rec *recorder, inner calls, fn func(ctx context.Context, e external, c *call)) reconcile.Result {
	t.Helper()

	l := build(parts{
		kind: testkit.BucketKind(), managed: &testkit.Bucket{}, scheme: testkit.Scheme(),
		client: a.Client(), live: a.Live(), log: logging.NewNopLogger(), record: rec, ownFinalizer: FinalizerName,
	})

	e := external(inner)
	if l.external != nil {
		e = l.external(inner)
	}

	r := seam.NewReconciler(a.Client(), seam.NewKind(testkit.BucketKind(), testkit.Scheme()), func(cl client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			b := &testkit.Bucket{}
			if err := cl.Get(ctx, req.NamespacedName, b); err != nil {
				return reconcile.Result{}, err
			}

			c := &call{Session: seam.From(ctx), mg: resource.Managed(b)}
			c.Connecting(b)
			fn(ctx, e, c)

			return reconcile.Result{}, nil
		})
	}, seam.Options{Live: a.Live(), Wait: noWait}, l.patch)

	result, err := r.Reconcile(context.Background(), request())
	if err != nil {
		t.Fatal(err)
	}

	return result
}

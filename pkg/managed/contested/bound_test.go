package contested

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

func TestContests_Forgotten(t *testing.T) {
	cases := map[string]struct {
		reason string
		ages   []time.Duration // since the last tries to write the fields
		want   int
	}{
		"Old": {
			reason: "Fields that were not written for long should be forgotten by a reconcile that writes nothing.",
			ages:   []time.Duration{contestedFor, 2 * contestedFor},
		},
		"Recent": {
			reason: "Fields should be kept while one of them may still be contested: the next write forgets the others.",
			ages:   []time.Duration{contestedFor / 2, 2 * contestedFor},
			want:   2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := v1alpha1.NewBucket("default", "b")
			b := &contests{store: &store.Store{}}
			b.key.Update(b.store, o, func(v *map[string]contest) {
				*v = map[string]contest{}
				for _, age := range tc.ages {
					(*v)[age.String()] = contest{tried: time.Now().Add(-age)}
				}
			})
			b.forget(o, time.Now())
			testkit.ExpectEqual(t, tc.reason, "contests", tc.want, len(b.key.Get(b.store, o)))
		})
	}
}

func TestContests_UnknownState(t *testing.T) {
	const reason = "After a write past the client seam a write should be compared with the state on the API server."
	api := testkit.NewAPI(v1alpha1.NewBucket("default", "b"))
	kind := seam.NewKind(testkit.BucketKind(), testkit.Scheme())
	b := &contests{live: api.Live(), store: &store.Store{}}
	inner := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		o := &v1alpha1.Bucket{}
		if err := seam.NewClient(api.Client()).Get(ctx, req.NamespacedName, o); err != nil {
			return reconcile.Result{}, err
		}
		o.Spec.ForProvider.Size = 5
		if err := api.Client().Update(ctx, o); err != nil {
			return reconcile.Result{}, err
		}
		seam.From(ctx).NoteDirectWrite(o)
		before, _ := b.before(ctx, seam.From(ctx), o).(*v1alpha1.Bucket)
		testkit.ExpectEqual(t, reason, "size", int64(5), before.Spec.ForProvider.Size)
		return reconcile.Result{}, nil
	})
	r := seam.NewReconciler(api.Client(), kind, inner, seam.Options{Live: api.Live()})
	if _, err := r.Reconcile(t.Context(), reconcile.Request{
		NamespacedName: client.ObjectKey{Namespace: "default", Name: "b"},
	}); err != nil {
		t.Fatal(err)
	}
}

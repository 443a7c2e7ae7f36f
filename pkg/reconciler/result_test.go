package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// answers is an inner reconciler that reads the object, hands it to fn, and
// returns what fn does.
func answers(fn func(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error)) func(c client.Client) reconcile.Reconciler {
	return func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := composite.New(composite.WithGroupVersionKind(composites))
			if err := c.Get(ctx, req.NamespacedName, o); err != nil {
				return reconcile.Result{}, err
			}

			return fn(ctx, c, o)
		})
	}
}

// A report that meets a conflict when the inner reconciler is done has the object
// reconciled again, with backoff, whatever that asked for; but with its priority.
func TestResultOfConflict(t *testing.T) {
	five := 5
	boom := errors.New("boom")
	conflict := kerrors.NewConflict(schema.GroupResource{}, "x", errors.New("the object has been modified"))

	cases := map[string]struct {
		reason string
		inner  reconcile.Result
		err    error
		want   reconcile.Result
	}{
		"Nothing":  {reason: "Nothing was asked for.", want: reconcile.Result{Requeue: true}},
		"Priority": {reason: "The priority is kept.", inner: reconcile.Result{Priority: &five}, want: reconcile.Result{Requeue: true, Priority: &five}},
		"Later":    {reason: "A later time isn't waited for, and the priority is kept.", inner: reconcile.Result{RequeueAfter: time.Hour, Priority: &five}, want: reconcile.Result{Requeue: true, Priority: &five}},
		"Backoff":  {reason: "Backoff is backoff.", inner: reconcile.Result{Requeue: true, Priority: &five}, want: reconcile.Result{Requeue: true, Priority: &five}},
		"Error":    {reason: "An error counts more than a conflict of ours, and leaves the result as it is.", inner: reconcile.Result{Priority: &five}, err: boom, want: reconcile.Result{Priority: &five}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := of(things, "", "a", ownedBy(xr()), dying, held("f"))
			o := xr(dep)
			c := newCluster(o, dep)

			r := reconciler.New(c, composites, answers(func(context.Context, client.Client, *composite.Unstructured) (reconcile.Result, error) {
				// From here on another client always writes first.
				c.fail = func(verb string, _ client.Object, after bool) error {
					if verb == "status" && !after {
						return conflict
					}

					return nil
				}

				return tc.inner, tc.err
			}), reconciler.WithDependents(reconciler.ComposedResources()), reconciler.WithoutWait(), reconciler.WithLiveReader(c.server))

			got, err := r.Reconcile(context.Background(), requestFor(o))
			if !errors.Is(err, tc.err) {
				t.Errorf("\n%s\nerror: want %v, got %v", tc.reason, tc.err, err)
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An object that lost some of its finalizers to an operator's wish, and is held by
// others, goes to the inner reconciler as the API server has it by then: it must
// neither act for a finalizer that is gone, nor meet a conflict.
func TestForceOrphanInPart(t *testing.T) {
	o := xr()
	held(mine, theirs)(o)
	annotated(reconciler.AnnotationKeyForceOrphan, string(o.GetUID()))(o)

	c := newCluster(o)

	var (
		saw   []string
		wrote error
	)

	r := reconciler.New(c, composites, answers(func(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error) {
		saw = o.GetFinalizers()

		o.SetLabels(map[string]string{"example.org/seen": "yes"})
		wrote = c.Update(ctx, o)

		return reconcile.Result{}, nil
	}), reconciler.WithForceOrphan(mine), reconciler.WithLiveReader(c.server))

	// The cache doesn't know of it for long.
	c.stale[client.ObjectKeyFromObject(o)] = c.read(t, o)
	pass(t, r, o)

	if diff := cmp.Diff([]string{theirs, metav1.FinalizerOrphanDependents}, saw); diff != "" {
		t.Errorf("finalizers that the inner reconciler sees: -want, +got:\n%s", diff)
	}

	if wrote != nil {
		t.Errorf("a write of the inner reconciler: %v", wrote)
	}

	got := c.read(t, o)
	if diff := cmp.Diff([]any{[]string{theirs, metav1.FinalizerOrphanDependents}, "yes"}, []any{got.GetFinalizers(), got.GetLabels()["example.org/seen"]}); diff != "" {
		t.Errorf("finalizers, label: -want, +got:\n%s", diff)
	}
}

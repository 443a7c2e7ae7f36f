package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

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

package seam

import (
	"context"
	"testing"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func TestReconcile_BackoffAfterPostponement(t *testing.T) {
	after := func(d time.Duration) reconcile.Result { return reconcile.Result{RequeueAfter: d} }
	backoff, poll, low := reconcile.Result{Requeue: true}, after(time.Hour), -100

	// A step is one reconcile. It is postponed for 3 seconds, or the inner reconciler returns result and err.
	type step struct {
		postponed bool
		requeues  []Requeue
		result    reconcile.Result
		err       error
		want      reconcile.Result
	}
	postponed := step{postponed: true, want: reconcile.Result{RequeueAfter: 3 * time.Second, Priority: new(int)}}
	retried := func(d time.Duration) step { return step{result: backoff, want: after(d)} }
	polled := step{result: poll, want: poll}
	queued := step{result: backoff, want: backoff}

	cases := map[string]struct {
		reason string
		steps  []step
		kept   int // objects in the store
	}{
		"NeverPostponed": {
			reason: "The work queue should back off for an object that was never postponed, and nothing should be kept.",
			steps:  []step{queued, queued, polled, queued},
		},
		"Postponed": {
			reason: "The delay should double up to the limit of upstream's work queue.",
			steps: []step{
				postponed, retried(time.Second), retried(2 * time.Second), retried(4 * time.Second),
				retried(8 * time.Second), retried(16 * time.Second), retried(32 * time.Second),
				retried(time.Minute), retried(time.Minute),
			},
			kept: 1,
		},
		"PostponedAgain": {
			reason: "A postponement should neither end nor lengthen the backoff.",
			steps: []step{
				queued, postponed, postponed, retried(time.Second), postponed, retried(2 * time.Second), postponed,
				retried(4 * time.Second),
			},
			kept: 1,
		},
		"Polled": {
			reason: "A delay of the inner reconciler should end the backoff, and nothing should be kept.",
			steps:  []step{postponed, retried(time.Second), retried(2 * time.Second), polled, queued},
		},
		"Succeeded": {
			reason: "A success should end the backoff.",
			steps:  []step{postponed, retried(time.Second), {}, postponed, retried(time.Second)},
			kept:   1,
		},
		"DelayAndBackoff": {
			reason: "A result with both is a delay for controller-runtime, so it should end the backoff.",
			steps: []step{
				postponed, {
					result: reconcile.Result{Requeue: true, RequeueAfter: time.Hour},
					want:   reconcile.Result{Requeue: true, RequeueAfter: time.Hour},
				}, queued,
			},
		},
		"Failed": {
			reason: "An error should be returned to the work queue, and the count should stay.",
			steps: []step{
				postponed, retried(time.Second), {err: errors.New("boom")}, retried(2 * time.Second),
			},
			kept: 1,
		},
		"Requested": {
			reason: "A backoff that a patch requests should count, also after a terminal error.",
			steps: []step{
				postponed,
				{requeues: []Requeue{WithBackoff()}, result: poll, want: after(time.Second)},
				{
					requeues: []Requeue{WithBackoff()}, err: reconcile.TerminalError(errors.New("boom")),
					want: after(2 * time.Second),
				},
			},
			kept: 1,
		},
		"Deadline": {
			reason: "A deadline should bound the delay, which is known.",
			steps: []step{
				postponed, retried(time.Second),
				{requeues: []Requeue{Deadline(time.Second)}, result: backoff, want: after(time.Second)},
				retried(4 * time.Second),
			},
			kept: 1,
		},
		"Priority": {
			reason: "The priority should stay.",
			steps: []step{
				postponed, {
					result: reconcile.Result{Requeue: true, Priority: &low},
					want:   reconcile.Result{RequeueAfter: time.Second, Priority: &low},
				},
			},
			kept: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(newBucket())
			c := NewClient(api.Client())
			var now step
			inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				if err := c.Get(ctx, key(), newBucket()); err != nil {
					return reconcile.Result{}, errors.Wrap(err, "cannot get the object")
				}
				return now.result, now.err
			})
			r := NewReconciler(api.Client(), NewKind(testkit.BucketKind(), testkit.Scheme()), inner, Options{}, Patch{
				Open: func(_ context.Context, s *Session, _ client.Object) error {
					for _, q := range now.requeues {
						s.Requeue(q)
					}
					if now.postponed {
						return &Postponed{After: 3 * time.Second}
					}
					return nil
				},
			})
			for _, now = range tc.steps {
				got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()})
				wants(t, tc.reason, "Reconcile(...)", now.want, got)
				wants(t, tc.reason, "error", now.err != nil && now.want.IsZero(), err != nil)
			}
			wants(t, tc.reason, "kept", tc.kept, r.options.Store.Len())
		})
	}
}

func TestReconcile_BackoffWithoutRead(t *testing.T) {
	want := reconcile.Result{Requeue: true}
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return want, nil })
	r := NewReconciler(
		testkit.NewAPI().Client(), NewKind(testkit.BucketKind(), testkit.Scheme()), inner, Options{},
	)
	got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()})
	must(t, "Reconcile", err)
	wants(t, "The work queue should back off if no object was read.", "Reconcile(...)", want, got)
}

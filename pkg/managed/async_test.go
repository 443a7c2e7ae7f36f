package managed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncReconciler returns a provider that works in the background, and its cloud.
func asyncReconciler(a *testkit.API, takes time.Duration) (*Reconciler, *cloud.Cloud) {
	w, connects := newWorld()
	w.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op == cloud.OpCreate || c.Op == cloud.OpDelete {
			time.Sleep(takes)
		}
		return nil
	}})
	return newBucketReconciler(a, connects, WithAsync(newTracker(a))), w
}

func reasonOf(b *v1alpha1.Bucket, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

func TestAsyncLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It was created before, and removed since.
		a := testkit.NewAPI(bucket(annotated(meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z")))
		r, w := asyncReconciler(a, 5*time.Minute)
		says := func(when string, incomplete, recorded bool, name string, reasons ...xpv2.ConditionReason) {
			t.Helper()
			b := get(t, a)
			_, record := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]
			wants(t, when, "incomplete, recorded, name", []any{incomplete, recorded, name}, []any{meta.ExternalCreateIncomplete(b), record, meta.GetExternalName(b)})
			wants(t, when, "Ready, Synced, operation", reasons, []xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced), reasonOf(b, asyncstate.TypeOperation)})
		}
		run(t, r, "b")
		says("While the create runs it has not succeeded.", true, true, "", xpv2.ReasonCreating, xpv2.ReasonReconcileSuccess, asyncstate.ReasonRunning)
		a.Forget()
		repeat(t, r, 5)
		if w := a.Writes(); w > 1 {
			t.Errorf("Five reconciles while nothing changes made %d writes: %v", w, a.Requests())
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		wants(t, "What was created is known before it is observed.", "name", "id-0001", meta.GetExternalName(get(t, a)))
		run(t, r, "b")
		says("The create has ended.", false, false, "id-0001", xpv2.ReasonAvailable, xpv2.ReasonReconcileSuccess, asyncstate.ReasonFinished)
		a.Forget()
		run(t, r, "b")
		wants(t, "", "writes in a steady state", 0, a.Writes())
		remove(t, a, "b")
		run(t, r, "b", "b")
		wants(t, "", "reason while the delete runs", reconciler.ReasonWaitingForAsyncOperation, reasonOf(get(t, a), reconciler.TypeDeleting))
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		run(t, r, "b")
		wants(t, "", "object, creates, external resources", []any{"", 1, map[string]string{}}, []any{get(t, a).GetName(), w.Counts()[cloud.OpCreate], resources(w)})
	})
}

// Upstream's event that a deletion was requested is left out after a refusal.
func TestAsyncDeleteRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		refuse error
		want   int
	}{
		"Refused":  {reason: "Another request after a refusal is no success.", refuse: errors.New("in use"), want: 1},
		"Accepted": {reason: "The first request is, also after something else had failed."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, rec := testkit.NewAPI(bucket(named("id-1"), deleting, finalizers(FinalizerName), func(b *v1alpha1.Bucket) {
					b.SetConditions(xpv2.ReconcileError(errors.New("update failed: invalid tags")))
				})), &testkit.Said{}
				x := (&outside{there: true, slow: 1000}).on("delete", func(*v1alpha1.Bucket) error { return tc.refuse })
				r := newBucketReconciler(a, WithRecorder(rec), WithAsync(newTracker(a)), connects(x.client()))
				for range 10 {
					// The end of an operation causes a reconcile.
					for range 2 {
						run(t, r, "b")
						synctest.Wait()
					}
					time.Sleep(5 * time.Minute)
				}
				if n, deletes := len(rec.Events(reasonDeleted)), x.did("delete"); deletes < 3 || tc.refuse != nil && n != tc.want || tc.refuse == nil && n < deletes {
					t.Errorf("\n%s\nevents of %d requests: %d", tc.reason, deletes, n)
				}
				x.on("observe", func(*v1alpha1.Bucket) error { return errors.New("boom") })
				try(r, 1)
				wants(t, "Other events are not left out.", "events", 1, len(rec.Events("CannotObserveExternalResource")))
			})
		})
	}
}

// A recorder among raw options of upstream's is upstream's, also with WithAsync.
func TestUpstreamRecorderWithAsync(t *testing.T) {
	ours, theirs := &testkit.Said{}, &testkit.Said{}
	a := testkit.NewAPI(bucket(named("id-1"), annotated(meta.AnnotationKeyReconciliationPaused, "true")))
	r := newBucketReconciler(a, WithRecorder(ours), Upstream(upstream.WithRecorder(theirs)),
		WithAsync(newTracker(a)), connects(ExternalClientFns{}))
	run(t, r, "b")
	wants(t, "", "events of upstream's recorder, and of ours", []bool{true, false}, []bool{len(theirs.Events()) > 0, len(ours.Events()) > 0})
}

package managed

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncReconciler returns a process of a provider that works in the background for as
// long as takes.
func asyncReconciler(a *testkit.API, x *outside, takes time.Duration) *Reconciler {
	fns := x.client()
	fns.CreateFn = func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
		time.Sleep(takes)
		return x.create(ctx, mg)
	}
	fns.DeleteFn = func(ctx context.Context, mg resource.Managed) (ExternalDelete, error) {
		time.Sleep(takes)
		return x.delete(ctx, mg)
	}

	return NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), WithManagementPolicies(), WithInitializers(),
		connects(fns), WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))))
}

func reasonOf(b *v1alpha1.Bucket, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

func TestAsyncLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It was created before, and removed since.
		a, x := testkit.NewAPI(bucket(annotated(meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z"))), newOutside()
		r := asyncReconciler(a, x, 5*time.Minute)

		run(t, r, "b")

		b := get(t, a)
		if diff := cmp.Diff([]xpv2.ConditionReason{xpv2.ReasonCreating, xpv2.ReasonReconcileSuccess, asyncstate.ReasonRunning},
			[]xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced), reasonOf(b, asyncstate.TypeOperation)}); diff != "" {
			t.Errorf("While the create runs, -want, +got:\n%s", diff)
		}

		if !meta.ExternalCreateIncomplete(b) {
			t.Errorf("A create that runs has not succeeded: %v", b.GetAnnotations())
		}

		if b.GetAnnotations()[asyncstate.AnnotationKeyOperation] == "" {
			t.Error("There is no record of the create")
		}

		a.Forget()

		for range 5 {
			run(t, r, "b")
		}

		if w := a.Writes(); w > 1 {
			t.Errorf("Five reconciles while nothing changes made %d writes: %v", w, a.Requests())
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()

		b = get(t, a)
		if got := meta.GetExternalName(b); got != "id-1" {
			t.Errorf("external name %q", got)
		}

		if _, ok := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]; ok {
			t.Error("The record of a create that succeeded stays")
		}

		if meta.ExternalCreateIncomplete(b) {
			t.Error("The create has succeeded, and says nothing of it")
		}

		run(t, r, "b")

		b = get(t, a)
		if diff := cmp.Diff([]xpv2.ConditionReason{xpv2.ReasonAvailable, xpv2.ReasonReconcileSuccess, asyncstate.ReasonFinished},
			[]xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced), reasonOf(b, asyncstate.TypeOperation)}); diff != "" {
			t.Errorf("When the create has ended, -want, +got:\n%s", diff)
		}

		a.Forget()
		run(t, r, "b")

		if w := a.Writes(); w > 0 {
			t.Errorf("In a steady state there is nothing to write: %v", a.Requests())
		}

		must(t, a.Server().Delete(t.Context(), get(t, a)))

		run(t, r, "b")
		run(t, r, "b")

		b = get(t, a)
		if diff := cmp.Diff(reconciler.ReasonWaitingForAsyncOperation, reasonOf(b, reconciler.TypeDeleting)); diff != "" {
			t.Errorf("While the delete runs, -want, +got:\n%s", diff)
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		run(t, r, "b")

		if b := get(t, a); b.GetName() != "" {
			t.Errorf("The bucket is there: %v", b.GetFinalizers())
		}

		if x.creates != 1 || len(x.ids()) != 0 {
			t.Errorf("%d creates, %v left", x.creates, x.ids())
		}
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
		"Accepted": {reason: "The first request is."},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, rec, deletes := testkit.NewAPI(bucket(named("id-1"), deleting, finalizers(FinalizerName))), &recorder{}, 0
				tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
				r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()),
					WithManagementPolicies(), WithInitializers(), WithRecorder(rec), WithAsync(tr), connects(upstream.ExternalClientFns{
						DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
							deletes++
							return ExternalDelete{}, tc.refuse
						},
					}))

				for range 10 {
					// The end of an operation causes a reconcile.
					for range 2 {
						run(t, r, "b")

						synctest.Wait()
					}

					time.Sleep(5 * time.Minute)
				}

				if n := len(rec.of(reasonDeleted)); deletes < 3 || tc.refuse != nil && n != tc.want || tc.refuse == nil && n < deletes {
					t.Errorf("\n%s\nevents of %d requests: %d", tc.reason, deletes, n)
				}
			})
		})
	}
}

// What stopped an Observe is an interrupted create, not a failure to observe.
func TestAsyncInterruptedCreateSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket())
		run(t, asyncReconciler(a, newOutside(), time.Hour), "b")

		// A new process, which knows nothing of the create.
		run(t, asyncReconciler(a, newOutside(), 0), "b")

		synced := get(t, a).GetCondition(xpv2.TypeSynced)
		if synced.Status != corev1.ConditionFalse || strings.Contains(synced.Message, "observe failed") || !strings.Contains(synced.Message, "create") {
			t.Errorf("Synced: want the interrupted create, got %s %q", synced.Status, synced.Message)
		}

		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
}

// A recorder among raw options of upstream's is upstream's, also with WithAsync.
func TestUpstreamRecorderWithAsync(t *testing.T) {
	ours, theirs := &recorder{}, &recorder{}
	a := testkit.NewAPI(bucket(named("id-1"), annotated(meta.AnnotationKeyReconciliationPaused, "true")))

	r := newBucketReconciler(a, WithRecorder(ours), Upstream(upstream.WithRecorder(theirs)),
		WithAsync(asyncstate.NewTracker(a.Client())), connects(upstream.ExternalClientFns{}))

	run(t, r, "b")

	if len(theirs.events) == 0 || len(ours.events) > 0 {
		t.Errorf("events: %d of upstream's recorder, %d of ours", len(theirs.events), len(ours.events))
	}
}

// The event of a delete that was requested, after something else had failed.
func TestDeletedEventIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, rec, there := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), deleting, func(b *v1alpha1.Bucket) {
			b.SetConditions(xpv2.ReconcileError(errors.New("update failed: invalid tags")))
		})), &recorder{}, true

		r := newBucketReconciler(a, WithRecorder(rec), WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))), connects(upstream.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
				return ExternalObservation{ResourceExists: there, ResourceUpToDate: true}, nil
			},
			DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
				there = false
				return ExternalDelete{}, nil
			},
		}))

		for range 5 {
			run(t, r, "b")
			synctest.Wait()
		}

		if n := len(rec.of(reasonDeleted)); bucketNamed(t, a, "b").GetName() != "" || n != 1 {
			t.Errorf("events that the deletion was requested: want 1, got %d", n)
		}
	})
}

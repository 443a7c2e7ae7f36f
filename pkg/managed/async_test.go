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
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncReconciler returns a reconciler WithAsync, and a cloud in which creates and deletes take time.
func asyncReconciler(api *testkit.API, takes time.Duration) (*Reconciler, *cloud.Cloud) {
	w, connects := newCloud()
	w.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op == cloud.OpCreate || c.Op == cloud.OpDelete {
			time.Sleep(takes)
		}
		return nil
	}})
	return newBucketReconciler(api, connects, WithAsync(newTracker(api))), w
}

func TestAsync_CreateAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// An earlier external resource was created, and no longer exists.
		api := testkit.NewAPI(newBucket(withAnnotation(
			meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z",
		)))
		r, w := asyncReconciler(api, 5*time.Minute)
		type status struct {
			Incomplete, HasRecord          bool
			ExternalName                   string
			Ready, Synced, OperationReason xpv2.ConditionReason
		}
		getStatus := func() status {
			b := getBucket(t, api)
			_, hasRecord := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]
			return status{
				Incomplete: meta.ExternalCreateIncomplete(b),
				HasRecord:  hasRecord, ExternalName: meta.GetExternalName(b),
				Ready:  reasonOf(b, xpv2.TypeReady),
				Synced: reasonOf(b, xpv2.TypeSynced), OperationReason: reasonOf(b, asyncstate.TypeOperation),
			}
		}

		mustReconcile(t, r, "b")
		expectEqual(t, "A create should be pending while it is in progress.", "status",
			status{
				Incomplete:      true,
				HasRecord:       true,
				Ready:           xpv2.ReasonCreating,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonRunning,
			}, getStatus())
		api.Forget()
		mustReconcileTimes(t, r, 5)
		if w := api.Writes(); w > 1 {
			t.Errorf("\nAn unchanged situation should be written once.\ngot %d writes: %v", w, api.Requests())
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		expectEqual(
			t, "The external name should be stored before the next Observe.", "external name", "id-0001",
			meta.GetExternalName(getBucket(t, api)),
		)
		mustReconcile(t, r, "b")
		expectEqual(t, "A create that has ended should have a result.", "status",
			status{
				ExternalName:    "id-0001",
				Ready:           xpv2.ReasonAvailable,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonFinished,
			}, getStatus())
		api.Forget()
		mustReconcile(t, r, "b")
		expectEqual(t, "A steady state should need no writes.", "writes", 0, api.Writes())

		deleteBucket(t, api, "b")
		mustReconcile(t, r, "b", "b")
		expectEqual(
			t, "The Deleting condition should say that a Delete is in progress.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, reasonOf(getBucket(t, api), reconciler.TypeDeleting),
		)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		mustReconcile(t, r, "b")
		expectEqual(t, "The managed resource should be deleted.", "name", "", getBucket(t, api).GetName())
		expectEqual(t, "The external resource should be created once.", "creates", 1, w.Counts()[cloud.OpCreate])
		expectEqual(
			t, "The external resource should be deleted.", "external resources", map[string]string{}, regionsByID(w),
		)
	})
}

func TestAsync_OrphanedWhileCreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket())
		r, w := asyncReconciler(api, 5*time.Minute)
		mustReconcile(t, r, "b")
		updateBucket(
			t, api, "b", withPolicies(
				xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
			),
		)
		deleteBucket(t, api, "b")
		mustReconcile(t, r, "b")
		result, err := r.Reconcile(t.Context(), request())
		must(t, err)
		expectEqual(
			t, "The finalizer should be looked at again soon.", "requeue after", 10*time.Second, result.RequeueAfter,
		)
		expectEqual(
			t, "The finalizer should stay while a create runs, also if the external resource is kept.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, reasonOf(getBucket(t, api), reconciler.TypeDeleting),
		)
		api.Forget()
		mustReconcileTimes(t, r, 5)
		expectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		mustReconcile(t, r, "b")
		const reason = "The managed resource should be removed without its external resource when the create has ended."
		expectEqual(t, reason, "name", "", getBucket(t, api).GetName())
		expectEqual(t, reason, "external resources", 1, len(regionsByID(w)))
	})
}

func TestAsync_ForceOrphanedWhileDeleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("id-1"), withFinalizers(FinalizerName), withDeletionTimestamp))
		ext := (&externalResource{exists: true}).onCall("delete", func(*v1alpha1.Bucket) error {
			time.Sleep(5 * time.Minute)
			return errors.New("it is in use")
		})
		r := newBucketReconciler(
			api, withClient(ext.client()), WithAsync(newTracker(api)), WithForceOrphan(),
		)
		mustReconcile(t, r, "b")
		expectEqual(t, "The hint should not promise that nothing is deleted.", "hint", true, strings.Contains(
			deletion.ConditionOf(getBucket(t, api)).Message,
			"that removes "+FinalizerName+" when the operation that runs has ended.",
		))

		updateBucket(t, api, "b", withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		result, err := r.Reconcile(t.Context(), request())
		must(t, err)
		expectEqual(t, "The request should be looked at again soon.", "requeue", 10*time.Second, result.RequeueAfter)
		const waits = "The finalizer should stay while the delete runs: it may still delete the external resource."
		expectEqual(t, waits, "finalizers", []string{FinalizerName}, getBucket(t, api).GetFinalizers())
		deleting := deletion.ConditionOf(getBucket(t, api))
		expectEqual(t, waits, "reason", reconciler.ReasonForceOrphaned, deleting.Reason)
		expectEqual(t, waits, "message", "An operator asked to orphan it, but an operation on its external resource, a delete, may run until "+
			"2000-01-01T01:01:00Z: it is recorded as running. After that these finalizers are removed: "+
			FinalizerName+".", deleting.Message)
		api.Forget()
		mustReconcileTimes(t, r, 5)
		expectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		tryReconcile(r, 1)
		collectGarbage(t, api)
		const then = "No other delete should begin after the one that failed."
		expectEqual(t, then, "name", "", getBucket(t, api).GetName())
		expectEqual(t, then, "exists", true, ext.exists)
	})
}

func TestAsync_ForceOrphanedWhileDeleteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket(withExternalName("id-1"), withFinalizers(FinalizerName), withDeletionTimestamp))
		hangs := make(chan struct{})
		ext := (&externalResource{exists: true}).onCall("delete", func(*v1alpha1.Bucket) error {
			<-hangs
			return errors.New("it is in use")
		})
		r := newBucketReconciler(api, withClient(ext.client()), WithAsync(newTracker(api)), WithForceOrphan())
		mustReconcile(t, r, "b")
		updateBucket(t, api, "b", withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		tryReconcile(r, 1)
		expectEqual(
			t, "The finalizer should stay while the delete may end.", "finalizers", []string{FinalizerName},
			getBucket(t, api).GetFinalizers(),
		)
		time.Sleep(2 * time.Hour)
		tryReconcile(r, 1)
		collectGarbage(t, api)
		expectEqual(
			t, "A delete that has not ended long after its deadline should not be waited for.", "name", "",
			getBucket(t, api).GetName(),
		)
		close(hangs)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestAsync_AnnouncedAfterRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket())
		killed, w := asyncReconciler(api, time.Hour)
		mustReconcile(t, killed, "b")
		updateBucket(t, api, "b", withAnnotation(meta.AnnotationKeyExternalCreatePending, "2000-01-01T00:00:01Z"))

		f := &fakeFinder{}
		r := newBucketReconciler(
			api, WithExternalConnector(sample.NewSync[resource.Managed](w)), WithAsync(newTracker(api)),
			WithCreateResolver(f),
		)
		mustReconcile(t, r, "b")
		const reason = "A create that was announced after a recorded one should be resolved by the tracker alone."
		expectEqual(t, reason, "look-ups", 0, len(f.attempts))
		expectEqual(
			t, reason, "OperationRunning", asyncstate.ReasonOutcomeUnknown,
			reasonOf(getBucket(t, api), asyncstate.TypeOperation),
		)
		time.Sleep(2 * time.Hour) // until the create ends
	})
}

func TestAsync_AnnouncementWithoutAnswer(t *testing.T) {
	api, creates := testkit.NewAPI(newBucket(withExternalName("b"))), 0
	r := newBucketReconciler(
		api, WithAsync(newTracker(api)), WithDeterministicExternalName(true), withClient(ExternalClientFns{
			ObserveFn: observeAbsent,
			CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
				creates++
				return ExternalCreation{}, errProvider
			},
		}),
	)
	api.After = func(context.Context, testkit.Request) error {
		if !meta.ExternalCreateIncomplete(getBucket(t, api)) {
			return nil
		}
		api.After = nil
		return serverError()
	}
	mustReconcile(t, r, "b")
	expectEqual(t, "No create should begin while its announcement has no answer.", "creates", 0, creates)

	mustReconcile(t, r, "b")
	_, open := getBucket(t, api).GetAnnotations()[creation.AnnotationKeyOpenUntil]
	expectEqual(t, "A create that the same process did not begin should not count as repeated.", "open", false, open)
}

func TestAsync_UpstreamRecorder(t *testing.T) {
	ours, theirs := &testkit.Said{}, &testkit.Said{}
	api := testkit.NewAPI(newBucket(
		withExternalName("id-1"), withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
	))
	r := newBucketReconciler(api, WithRecorder(ours), Upstream(upstream.WithRecorder(theirs)),
		WithAsync(newTracker(api)), withClient(ExternalClientFns{}))
	mustReconcile(t, r, "b")
	const reason = "The recorder of upstream's option should replace ours."
	expectEqual(t, reason, "upstream's recorder has events", true, len(theirs.Events()) > 0)
	expectEqual(t, reason, "our recorder has events", false, len(ours.Events()) > 0)
}

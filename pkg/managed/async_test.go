package managed_test

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
	fakecloud "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/managedtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncReconciler returns a reconciler WithAsync, and a cloud in which creates and deletes take time.
func asyncReconciler(api *testkit.API, takes time.Duration) (*managed.Reconciler, *fakecloud.Cloud) {
	w, connects := managedtest.NewCloud()
	w.SetHooks(fakecloud.Hooks{Before: func(_ context.Context, c fakecloud.Call) error {
		if c.Op == fakecloud.OpCreate || c.Op == fakecloud.OpDelete {
			time.Sleep(takes)
		}
		return nil
	}})
	return managedtest.NewBucketReconciler(api, connects, managed.WithAsync(managedtest.NewTracker(api))), w
}

func TestAsync_CreateAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// An earlier external resource was created, and no longer exists.
		api := testkit.NewAPI(managedtest.NewBucket(managedtest.WithAnnotation(
			meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z",
		)))
		r, w := asyncReconciler(api, 5*time.Minute)
		type status struct {
			Incomplete, HasRecord          bool
			ExternalName                   string
			Ready, Synced, OperationReason xpv2.ConditionReason
		}
		getStatus := func() status {
			b := managedtest.GetBucket(t, api)
			_, hasRecord := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]
			return status{
				Incomplete: meta.ExternalCreateIncomplete(b),
				HasRecord:  hasRecord, ExternalName: meta.GetExternalName(b),
				Ready:  managedtest.ReasonOf(b, xpv2.TypeReady),
				Synced: managedtest.ReasonOf(b, xpv2.TypeSynced), OperationReason: managedtest.ReasonOf(b, asyncstate.TypeOperation),
			}
		}

		managedtest.MustReconcile(t, r, "b")
		managedtest.ExpectEqual(t, "A create should be pending while it is in progress.", "status",
			status{
				Incomplete:      true,
				HasRecord:       true,
				Ready:           xpv2.ReasonCreating,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonRunning,
			}, getStatus())
		api.Forget()
		managedtest.MustReconcileTimes(t, r, 5)
		if w := api.Writes(); w > 1 {
			t.Errorf("\nAn unchanged situation should be written once.\ngot %d writes: %v", w, api.Requests())
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		managedtest.ExpectEqual(
			t, "The external name should be stored before the next Observe.", "external name", "id-0001",
			meta.GetExternalName(managedtest.GetBucket(t, api)),
		)
		managedtest.MustReconcile(t, r, "b")
		managedtest.ExpectEqual(t, "A create that has ended should have a result.", "status",
			status{
				ExternalName:    "id-0001",
				Ready:           xpv2.ReasonAvailable,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonFinished,
			}, getStatus())
		api.Forget()
		managedtest.MustReconcile(t, r, "b")
		managedtest.ExpectEqual(t, "A steady state should need no writes.", "writes", 0, api.Writes())

		managedtest.DeleteBucket(t, api, "b")
		managedtest.MustReconcile(t, r, "b", "b")
		managedtest.ExpectEqual(
			t, "The Deleting condition should say that a Delete is in progress.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, managedtest.ReasonOf(managedtest.GetBucket(t, api), reconciler.TypeDeleting),
		)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		managedtest.MustReconcile(t, r, "b")
		managedtest.ExpectEqual(t, "The managed resource should be deleted.", "name", "", managedtest.GetBucket(t, api).GetName())
		managedtest.ExpectEqual(t, "The external resource should be created once.", "creates", 1, w.Counts()[fakecloud.OpCreate])
		managedtest.ExpectEqual(
			t, "The external resource should be deleted.", "external resources", map[string]string{}, managedtest.RegionsByID(w),
		)
	})
}

func TestAsync_OrphanedWhileCreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(managedtest.NewBucket())
		r, w := asyncReconciler(api, 5*time.Minute)
		managedtest.MustReconcile(t, r, "b")
		managedtest.UpdateBucket(
			t, api, "b", managedtest.WithPolicies(
				xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
			),
		)
		managedtest.DeleteBucket(t, api, "b")
		managedtest.MustReconcile(t, r, "b")
		result, err := r.Reconcile(t.Context(), managedtest.Request())
		managedtest.Must(t, err)
		managedtest.ExpectEqual(
			t, "The finalizer should be looked at again soon.", "requeue after", 10*time.Second, result.RequeueAfter,
		)
		managedtest.ExpectEqual(
			t, "The finalizer should stay while a create runs, also if the external resource is kept.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, managedtest.ReasonOf(managedtest.GetBucket(t, api), reconciler.TypeDeleting),
		)
		api.Forget()
		managedtest.MustReconcileTimes(t, r, 5)
		managedtest.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		managedtest.MustReconcile(t, r, "b")
		const reason = "The managed resource should be removed without its external resource when the create has ended."
		managedtest.ExpectEqual(t, reason, "name", "", managedtest.GetBucket(t, api).GetName())
		managedtest.ExpectEqual(t, reason, "external resources", 1, len(managedtest.RegionsByID(w)))
	})
}

func TestAsync_ForceOrphanedWhileDeleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(managedtest.NewBucket(managedtest.WithExternalName("id-1"), managedtest.WithFinalizers(managed.FinalizerName), managedtest.WithDeletionTimestamp))
		ext := (&managedtest.ExternalResource{Exists: true}).OnCall("delete", func(*v1alpha1.Bucket) error {
			time.Sleep(5 * time.Minute)
			return errors.New("it is in use")
		})
		r := managedtest.NewBucketReconciler(
			api, managedtest.WithClient(ext.Client()), managed.WithAsync(managedtest.NewTracker(api)), escape.WithForceOrphan(),
		)
		managedtest.MustReconcile(t, r, "b")
		managedtest.ExpectEqual(t, "The hint should not promise that nothing is deleted.", "hint", true, strings.Contains(
			deletion.ConditionOf(managedtest.GetBucket(t, api)).Message,
			"that removes "+managed.FinalizerName+" when the operation that runs has ended.",
		))

		managedtest.UpdateBucket(t, api, "b", managedtest.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		result, err := r.Reconcile(t.Context(), managedtest.Request())
		managedtest.Must(t, err)
		managedtest.ExpectEqual(t, "The request should be looked at again soon.", "requeue", 10*time.Second, result.RequeueAfter)
		const waits = "The finalizer should stay while the delete runs: it may still delete the external resource."
		managedtest.ExpectEqual(t, waits, "finalizers", []string{managed.FinalizerName}, managedtest.GetBucket(t, api).GetFinalizers())
		deleting := deletion.ConditionOf(managedtest.GetBucket(t, api))
		managedtest.ExpectEqual(t, waits, "reason", reconciler.ReasonForceOrphaned, deleting.Reason)
		managedtest.ExpectEqual(t, waits, "message", "An operator asked to orphan it, but an operation on its external resource, a delete, may run until "+
			"2000-01-01T01:01:00Z: it is recorded as running. After that these finalizers are removed: "+
			managed.FinalizerName+".", deleting.Message)
		api.Forget()
		managedtest.MustReconcileTimes(t, r, 5)
		managedtest.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		managedtest.TryReconcile(r, 1)
		managedtest.CollectGarbage(t, api)
		const then = "No other delete should begin after the one that failed."
		managedtest.ExpectEqual(t, then, "name", "", managedtest.GetBucket(t, api).GetName())
		managedtest.ExpectEqual(t, then, "exists", true, ext.Exists)
	})
}

func TestAsync_ForceOrphanedWhileDeleteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(managedtest.NewBucket(managedtest.WithExternalName("id-1"), managedtest.WithFinalizers(managed.FinalizerName), managedtest.WithDeletionTimestamp))
		hangs := make(chan struct{})
		ext := (&managedtest.ExternalResource{Exists: true}).OnCall("delete", func(*v1alpha1.Bucket) error {
			<-hangs
			return errors.New("it is in use")
		})
		r := managedtest.NewBucketReconciler(api, managedtest.WithClient(ext.Client()), managed.WithAsync(managedtest.NewTracker(api)), escape.WithForceOrphan())
		managedtest.MustReconcile(t, r, "b")
		managedtest.UpdateBucket(t, api, "b", managedtest.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		managedtest.TryReconcile(r, 1)
		managedtest.ExpectEqual(
			t, "The finalizer should stay while the delete may end.", "finalizers", []string{managed.FinalizerName},
			managedtest.GetBucket(t, api).GetFinalizers(),
		)
		time.Sleep(2 * time.Hour)
		managedtest.TryReconcile(r, 1)
		managedtest.CollectGarbage(t, api)
		managedtest.ExpectEqual(
			t, "A delete that has not ended long after its deadline should not be waited for.", "name", "",
			managedtest.GetBucket(t, api).GetName(),
		)
		close(hangs)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestAsync_AnnouncedAfterRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(managedtest.NewBucket())
		killed, w := asyncReconciler(api, time.Hour)
		managedtest.MustReconcile(t, killed, "b")
		managedtest.UpdateBucket(t, api, "b", managedtest.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2000-01-01T00:00:01Z"))

		f := &managedtest.FakeFinder{}
		r := managedtest.NewBucketReconciler(
			api, managed.WithExternalConnector(sample.NewSync[resource.Managed](w)), managed.WithAsync(managedtest.NewTracker(api)),
			resolve.With(f),
		)
		managedtest.MustReconcile(t, r, "b")
		const reason = "A create that was announced after a recorded one should be resolved by the tracker alone."
		managedtest.ExpectEqual(t, reason, "look-ups", 0, len(f.Attempts))
		managedtest.ExpectEqual(
			t, reason, "OperationRunning", asyncstate.ReasonOutcomeUnknown,
			managedtest.ReasonOf(managedtest.GetBucket(t, api), asyncstate.TypeOperation),
		)
		time.Sleep(2 * time.Hour) // until the create ends
	})
}

func TestAsync_AnnouncementWithoutAnswer(t *testing.T) {
	api, creates := testkit.NewAPI(managedtest.NewBucket(managedtest.WithExternalName("b"))), 0
	r := managedtest.NewBucketReconciler(
		api, managed.WithAsync(managedtest.NewTracker(api)), managed.WithDeterministicExternalName(true), managedtest.WithClient(managed.ExternalClientFns{
			ObserveFn: managedtest.ObserveAbsent,
			CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
				creates++
				return managed.ExternalCreation{}, managedtest.ErrProvider
			},
		}),
	)
	api.After = func(context.Context, testkit.Request) error {
		if !meta.ExternalCreateIncomplete(managedtest.GetBucket(t, api)) {
			return nil
		}
		api.After = nil
		return managedtest.ServerError()
	}
	managedtest.MustReconcile(t, r, "b")
	managedtest.ExpectEqual(t, "No create should begin while its announcement has no answer.", "creates", 0, creates)

	managedtest.MustReconcile(t, r, "b")
	_, open := managedtest.GetBucket(t, api).GetAnnotations()[creation.AnnotationKeyOpenUntil]
	managedtest.ExpectEqual(t, "A create that the same process did not begin should not count as repeated.", "open", false, open)
}

func TestAsync_UpstreamRecorder(t *testing.T) {
	ours, theirs := &testkit.Said{}, &testkit.Said{}
	api := testkit.NewAPI(managedtest.NewBucket(
		managedtest.WithExternalName("id-1"), managedtest.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
	))
	r := managedtest.NewBucketReconciler(api, managed.WithRecorder(ours), managed.Upstream(upstream.WithRecorder(theirs)),
		managed.WithAsync(managedtest.NewTracker(api)), managedtest.WithClient(managed.ExternalClientFns{}))
	managedtest.MustReconcile(t, r, "b")
	const reason = "The recorder of upstream's option should replace ours."
	managedtest.ExpectEqual(t, reason, "upstream's recorder has events", true, len(theirs.Events()) > 0)
	managedtest.ExpectEqual(t, reason, "our recorder has events", false, len(ours.Events()) > 0)
}

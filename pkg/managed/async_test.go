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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncReconciler returns an asynchronous reconciler, and a cloud in which creates and deletes take time.
func asyncReconciler(api *testkit.API, takes time.Duration) (*managed.Reconciler, *fakecloud.Cloud) {
	w, connects := kit.NewCloud()
	w.SetHooks(fakecloud.Hooks{Before: func(_ context.Context, c fakecloud.Call) error {
		if c.Op == fakecloud.OpCreate || c.Op == fakecloud.OpDelete {
			time.Sleep(takes)
		}
		return nil
	}})
	return kit.NewBucketReconciler(api, connects, asyncstate.With(asyncstate.NewTracker())), w
}

func TestAsync_CreateAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// An earlier external resource was created, and no longer exists.
		api := testkit.NewAPI(kit.NewBucket(kit.WithAnnotation(
			meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z",
		)))
		r, w := asyncReconciler(api, 5*time.Minute)
		type status struct {
			Incomplete, HasRecord          bool
			ExternalName                   string
			Ready, Synced, OperationReason xpv2.ConditionReason
		}
		getStatus := func() status {
			b := kit.GetBucket(t, api)
			_, hasRecord := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]
			return status{
				Incomplete: meta.ExternalCreateIncomplete(b),
				HasRecord:  hasRecord, ExternalName: meta.GetExternalName(b),
				Ready:  kit.ReasonOf(b, xpv2.TypeReady),
				Synced: kit.ReasonOf(b, xpv2.TypeSynced), OperationReason: kit.ReasonOf(b, asyncstate.TypeOperation),
			}
		}

		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(t, "A create should be pending while it is in progress.", "status",
			status{
				Incomplete:      true,
				HasRecord:       true,
				Ready:           xpv2.ReasonCreating,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonRunning,
			}, getStatus())
		api.Forget()
		kit.MustReconcileTimes(t, r, 5)
		if w := api.Writes(); w > 1 {
			t.Errorf("\nAn unchanged situation should be written once.\ngot %d writes: %v", w, api.Requests())
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		kit.ExpectEqual(
			t, "The external name should be stored before the next Observe.", "external name", "id-0001",
			meta.GetExternalName(kit.GetBucket(t, api)),
		)
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(t, "A create that has ended should have a result.", "status",
			status{
				ExternalName:    "id-0001",
				Ready:           xpv2.ReasonAvailable,
				Synced:          xpv2.ReasonReconcileSuccess,
				OperationReason: asyncstate.ReasonFinished,
			}, getStatus())
		api.Forget()
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(t, "A steady state should need no writes.", "writes", 0, api.Writes())

		kit.DeleteBucket(t, api, "b")
		kit.MustReconcile(t, r, "b", "b")
		kit.ExpectEqual(
			t, "The Deleting condition should say that a Delete is in progress.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, kit.ReasonOf(kit.GetBucket(t, api), reconciler.TypeDeleting),
		)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(t, "The managed resource should be deleted.", "name", "", kit.GetBucket(t, api).GetName())
		kit.ExpectEqual(
			t, "The external resource should be created once.", "creates", 1, w.Counts()[fakecloud.OpCreate],
		)
		kit.ExpectEqual(
			t, "The external resource should be deleted.", "external resources", map[string]string{},
			kit.RegionsByID(w),
		)
	})
}

func TestAsync_OrphanedWhileCreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket())
		r, w := asyncReconciler(api, 5*time.Minute)
		kit.MustReconcile(t, r, "b")
		kit.UpdateBucket(
			t, api, "b", kit.WithPolicies(
				xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
			),
		)
		kit.DeleteBucket(t, api, "b")
		kit.MustReconcile(t, r, "b")
		result, err := r.Reconcile(t.Context(), kit.Request())
		kit.Must(t, err)
		kit.ExpectEqual(
			t, "The finalizer should be looked at again soon.", "requeue after", 10*time.Second, result.RequeueAfter,
		)
		kit.ExpectEqual(
			t, "The finalizer should stay while a create runs, also if the external resource is kept.", "reason",
			reconciler.ReasonWaitingForAsyncOperation, kit.ReasonOf(kit.GetBucket(t, api), reconciler.TypeDeleting),
		)
		api.Forget()
		kit.MustReconcileTimes(t, r, 5)
		kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		kit.MustReconcile(t, r, "b")
		const reason = "The managed resource should be removed without its external resource when the create has ended."
		kit.ExpectEqual(t, reason, "name", "", kit.GetBucket(t, api).GetName())
		kit.ExpectEqual(t, reason, "external resources", 1, len(kit.RegionsByID(w)))
	})
}

func TestAsync_ForceOrphanedWhileDeleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(
			kit.NewBucket(
				kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp,
			),
		)
		ext := (&kit.ExternalResource{Exists: true}).OnCall("delete", func(*v1alpha1.Bucket) error {
			time.Sleep(5 * time.Minute)
			return errors.New("it is in use")
		})
		r := kit.NewBucketReconciler(
			api, kit.WithClient(ext.Client()), asyncstate.With(asyncstate.NewTracker()), escape.WithForceOrphan(),
		)
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(t, "The hint should not promise that nothing is deleted.", "hint", true, strings.Contains(
			deletion.ConditionOf(kit.GetBucket(t, api)).Message,
			"that removes "+managed.FinalizerName+" when the operation that runs has ended.",
		))

		kit.UpdateBucket(t, api, "b", kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		result, err := r.Reconcile(t.Context(), kit.Request())
		kit.Must(t, err)
		kit.ExpectEqual(
			t, "The request should be looked at again soon.", "requeue", 10*time.Second, result.RequeueAfter,
		)
		const waits = "The finalizer should stay while the delete runs: it may still delete the external resource."
		kit.ExpectEqual(t, waits, "finalizers", []string{managed.FinalizerName}, kit.GetBucket(t, api).GetFinalizers())
		deleting := deletion.ConditionOf(kit.GetBucket(t, api))
		kit.ExpectEqual(t, waits, "reason", reconciler.ReasonForceOrphaned, deleting.Reason)
		kit.ExpectEqual(t, waits, "message", "An operator asked to orphan it, but an operation on its external resource, a delete, may run until "+
			"2000-01-01T01:01:00Z: it is recorded as running. After that these finalizers are removed: "+
			managed.FinalizerName+".", deleting.Message)
		api.Forget()
		kit.MustReconcileTimes(t, r, 5)
		kit.ExpectEqual(t, "An unchanged situation should be written once.", "writes", 0, api.Writes())

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		kit.TryReconcile(r, 1)
		kit.CollectGarbage(t, api)
		const then = "No other delete should begin after the one that failed."
		kit.ExpectEqual(t, then, "name", "", kit.GetBucket(t, api).GetName())
		kit.ExpectEqual(t, then, "exists", true, ext.Exists)
	})
}

func TestAsync_ForceOrphanedWhileDeleteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(
			kit.NewBucket(
				kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName), kit.WithDeletionTimestamp,
			),
		)
		hangs := make(chan struct{})
		ext := (&kit.ExternalResource{Exists: true}).OnCall("delete", func(*v1alpha1.Bucket) error {
			<-hangs
			return errors.New("it is in use")
		})
		r := kit.NewBucketReconciler(
			api, kit.WithClient(ext.Client()), asyncstate.With(asyncstate.NewTracker()), escape.WithForceOrphan(),
		)
		kit.MustReconcile(t, r, "b")
		kit.UpdateBucket(t, api, "b", kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1"))
		kit.TryReconcile(r, 1)
		kit.ExpectEqual(
			t, "The finalizer should stay while the delete may end.", "finalizers", []string{managed.FinalizerName},
			kit.GetBucket(t, api).GetFinalizers(),
		)
		time.Sleep(2 * time.Hour)
		kit.TryReconcile(r, 1)
		kit.CollectGarbage(t, api)
		kit.ExpectEqual(
			t, "A delete that has not ended long after its deadline should not be waited for.", "name", "",
			kit.GetBucket(t, api).GetName(),
		)
		close(hangs)
		synctest.Wait()
		time.Sleep(time.Hour)
	})
}

func TestAsync_AnnouncedAfterRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket())
		killed, w := asyncReconciler(api, time.Hour)
		kit.MustReconcile(t, killed, "b")
		kit.UpdateBucket(
			t, api, "b", kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2000-01-01T00:00:01Z"),
		)

		f := &kit.FakeFinder{}
		r := kit.NewBucketReconciler(
			api, managed.WithExternalConnector(
				sample.NewSync[resource.Managed](w),
			), asyncstate.With(asyncstate.NewTracker()),
			resolve.With(f),
		)
		kit.MustReconcile(t, r, "b")
		const reason = "A create that was announced after a recorded one should be resolved by the tracker alone."
		kit.ExpectEqual(t, reason, "look-ups", 0, len(f.Attempts))
		kit.ExpectEqual(
			t, reason, "OperationRunning", asyncstate.ReasonOutcomeUnknown,
			kit.ReasonOf(kit.GetBucket(t, api), asyncstate.TypeOperation),
		)
		time.Sleep(2 * time.Hour) // until the create ends
	})
}

func TestAsync_AnnouncementWithoutAnswer(t *testing.T) {
	api, creates := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("b"))), 0
	r := kit.NewBucketReconciler(
		api, asyncstate.With(asyncstate.NewTracker()), managed.WithDeterministicExternalName(true),
		kit.WithClient(managed.ExternalClientFns{
			ObserveFn: kit.ObserveAbsent,
			CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
				creates++
				return managed.ExternalCreation{}, kit.ErrProvider
			},
		}),
	)
	api.After = func(context.Context, testkit.Request) error {
		if !meta.ExternalCreateIncomplete(kit.GetBucket(t, api)) {
			return nil
		}
		api.After = nil
		return kit.ServerError()
	}
	kit.MustReconcile(t, r, "b")
	kit.ExpectEqual(t, "No create should begin while its announcement has no answer.", "creates", 0, creates)

	kit.MustReconcile(t, r, "b")
	_, open := kit.GetBucket(t, api).GetAnnotations()[creation.AnnotationKeyOpenUntil]
	kit.ExpectEqual(
		t, "A create that the same process did not begin should not count as repeated.", "open", false, open,
	)
}

func TestAsync_UpstreamRecorder(t *testing.T) {
	ours, theirs := &testkit.Said{}, &testkit.Said{}
	api := testkit.NewAPI(kit.NewBucket(
		kit.WithExternalName("id-1"), kit.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
	))
	r := kit.NewBucketReconciler(api, managed.WithRecorder(ours), managed.Upstream(upstream.WithRecorder(theirs)),
		asyncstate.With(asyncstate.NewTracker()), kit.WithClient(managed.ExternalClientFns{}))
	kit.MustReconcile(t, r, "b")
	const reason = "The recorder of upstream's option should replace ours."
	kit.ExpectEqual(t, reason, "upstream's recorder has events", true, len(theirs.Events()) > 0)
	kit.ExpectEqual(t, reason, "our recorder has events", false, len(ours.Events()) > 0)
}

package resolve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestCreateResolver(t *testing.T) {
	const (
		now     = "2026-01-02T03:04:05Z"
		hourAgo = time.Hour
		// hourAgoStamp is the annotation of a create that started an hour ago.
		hourAgoStamp = "2026-01-02T02:04:05Z"
		// settleAfter is the time until which it may run.
		settleAfter = " after 2026-01-02T02:09:05Z, when the create has certainly ended"
	)
	unknownMessage := fmt.Sprintf(messageResultUnknown, hourAgoStamp, settleAfter)
	findFailedMessage := fmt.Sprintf(messageFindFailed, hourAgoStamp, settleAfter)
	incomplete := "cannot determine creation result"
	type want struct {
		Finds, Observes, Creates, Deletes int
		Name, Succeeded, Failed           string

		// Resolved and Message are of the CreateResolved condition. Synced is a part of the
		// message of Synced.
		Resolved, Message string
		Synced            string
		Deleting          string
		Result            reconcile.Result
		Events            []event.Reason
		Stores            int // writes of the outcome of a create
		Gone              bool
	}
	poll := reconcile.Result{RequeueAfter: time.Minute}
	requeue := reconcile.Result{Requeue: true}
	inASecond := reconcile.Result{RequeueAfter: time.Second}

	// wantUnresolved is wanted if the create stays without a result.
	wantUnresolved := func(resolved, message string, result reconcile.Result, events ...event.Reason) want {
		return want{Finds: 1, Synced: incomplete, Result: result, Events: events, Resolved: resolved, Message: message}
	}

	// wantFound and wantCreated are wanted if the finder finds the external resource, or finds
	// that there is none.
	wantFound := func(resolved string, events ...event.Reason) want {
		return want{
			Finds:     1,
			Observes:  1,
			Name:      "id-1",
			Succeeded: now,
			Resolved:  resolved,
			Synced:    "ReconcileSuccess",
			Result:    poll,
			Events:    events,
			Stores:    1,
		}
	}
	wantCreated := func(failed, resolved string) want {
		return want{
			Finds:     1,
			Observes:  1,
			Creates:   1,
			Name:      "id-2",
			Failed:    failed,
			Succeeded: "now",
			Resolved:  resolved,
			Synced:    "ReconcileSuccess",
			Result:    requeue,
			Events:    []event.Reason{"ResolvedCreate"},
			Stores:    2,
		}
	}
	withUnknownOutcome := func(b *v1alpha1.Bucket) {
		b.SetConditions(xpv2.Condition{
			Type:    TypeCreateResolved,
			Status:  corev1.ConditionFalse,
			Reason:  reconciler.ReasonCreateResultUnknown,
			Message: unknownMessage,
		})
	}
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket // by default its create was interrupted an hour ago
		finder *kit.FakeFinder
		async  bool
		opts   []managed.ReconcilerOption
		want   want
	}{
		"Complete": {
			reason: "The finder should not be called when no create was interrupted.",
			object: kit.NewBucket(
				kit.WithExternalName("id-1"), kit.WithInterruptedCreate(hourAgo),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, hourAgoStamp),
			),
			want: want{Observes: 1, Name: "id-1", Succeeded: hourAgoStamp, Synced: "ReconcileSuccess", Result: poll},
		},
		"FoundInPlaceOfDefault": {
			reason: "The external name that was found should replace the default of upstream's initializer.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), kit.WithExternalName("b")),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")},
			want:   wantFound("", "ResolvedCreate"),
		},
		"FoundInPlaceOfAnother": {
			reason: "The external name that was found should replace another one, and an event should say so.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), kit.WithExternalName("by-hand")),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")},
			want:   wantFound("", "OverwroteAnnotation", "ResolvedCreate"),
		},
		"FoundAfterDoubt": {
			reason: "The external resource that was found should be stored with its name in one write, and then be managed. CreateResolved should become True.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), withUnknownOutcome),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")},
			want:   wantFound("True Resolved", "ResolvedCreate"),
		},
		"SettledByHandAfterDoubt": {
			reason: "CreateResolved should become True when an operator has set the outcome.",
			object: kit.NewBucket(kit.WithExternalName("id-1"), withUnknownOutcome),
			want: want{
				Observes: 1,
				Name:     "id-1",
				Resolved: "True Resolved",
				Synced:   "ReconcileSuccess",
				Result:   poll,
			},
		},
		"NameThatCannotBeStored": {
			reason: "We should return an error if the name that was found can't be stored in an annotation.",
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id\x00")},
			want: wantUnresolved(
				"False FindFailed", findFailedMessage, requeue, "CannotResolveCreate",
			),
		},
		"AbsentAfterDoubt": {
			reason: "The create should be repeated when the external resource does not exist. CreateResolved should become True.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), withUnknownOutcome),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want:   wantCreated(hourAgoStamp, "True Resolved"),
		},
		"AbsentTooSoon": {
			reason: "The create should not be repeated before its deadline, because its process may still run.",
			object: kit.NewBucket(kit.WithInterruptedCreate(2*time.Minute - time.Second)),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want: wantUnresolved(
				"False WaitingForCreate",
				fmt.Sprintf(messageWaitingForCreate, "2026-01-02T03:02:06Z", "2026-01-02T03:04:06Z"), inASecond,
			),
		},
		"AbsentTooSoonForUpstreamTimeout": {
			reason: "The timeout of upstream's WithTimeout should decide the deadline.",
			object: kit.NewBucket(kit.WithInterruptedCreate(2 * time.Minute)),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			opts:   []managed.ReconcilerOption{managed.Upstream(upstream.WithTimeout(3 * time.Minute))},
			want: wantUnresolved(
				"False WaitingForCreate",
				fmt.Sprintf(messageWaitingForCreate, "2026-01-02T03:02:05Z", "2026-01-02T03:06:05Z"), inASecond,
			),
		},
		"AbsentSoonAsConfigured": {
			reason: "WithAfter should decide the deadline.",
			object: kit.NewBucket(kit.WithInterruptedCreate(time.Second)),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			opts:   []managed.ReconcilerOption{WithAfter(time.Second)},
			want:   wantCreated("2026-01-02T03:04:04Z", ""),
		},
		"AbsentForEver": {
			reason: "The longest time should not wrap around: the create should not be repeated.",
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			opts: []managed.ReconcilerOption{
				WithAfter(math.MaxInt64), managed.WithCreationGracePeriod(30 * time.Second),
			},
			want: wantUnresolved(
				"False WaitingForCreate", fmt.Sprintf(messageWaitingForCreate, hourAgoStamp, "2318-04-14T01:51:21Z"),
				inASecond,
			),
		},
		"FinderHangs": {
			reason: "We should cancel a finder that hangs, report the error and retry with backoff.",
			finder: &kit.FakeFinder{
				Finding: asyncstate.Absent(),
				OnFind:  func(ctx context.Context, _ resource.Managed) { <-ctx.Done() },
				Err:     context.DeadlineExceeded,
			},
			opts: []managed.ReconcilerOption{managed.WithTimeout(time.Millisecond)},
			want: wantUnresolved(
				"False FindFailed", findFailedMessage, requeue, "CannotResolveCreate",
			),
		},
		"FinderWrites": {
			reason: "CreateResolved should tell the operator how to continue while the outcome is unknown. Changes that the finder makes to the managed resource should be dropped.",
			finder: &kit.FakeFinder{OnFind: func(_ context.Context, mg resource.Managed) {
				meta.SetExternalName(mg, "not-this")
				meta.RemoveAnnotations(mg, meta.AnnotationKeyExternalCreatePending)
			}},
			want: wantUnresolved("False CreateResultUnknown", unknownMessage, inASecond, "CannotResolveCreate"),
		},
		"Recorded": {
			reason: "The finder should not be called when there is the record of an asynchronous operation.",
			object: kit.NewBucket(
				kit.WithInterruptedCreate(hourAgo), kit.WithAnnotation(asyncstate.AnnotationKeyOperation, "{}"),
			),
			want: want{Synced: incomplete, Result: poll},
		},
		"DeterministicNameOfUpstream": {
			reason: "The finder should not be called with upstream's WithDeterministicExternalName.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), kit.WithExternalName("id-1")),
			opts:   []managed.ReconcilerOption{managed.Upstream(upstream.WithDeterministicExternalName(true))},
			want:   want{Observes: 1, Name: "id-1", Synced: "ReconcileSuccess", Result: poll},
		},
		"AbsentToObserve": {
			reason: "The create should not be repeated if the policies forbid it.",
			object: kit.NewBucket(kit.WithInterruptedCreate(hourAgo), kit.WithPolicies(xpv2.ManagementActionObserve)),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want: want{
				Finds:    1,
				Observes: 1,
				Failed:   hourAgoStamp,
				Synced:   "does not exist",
				Result:   poll,
				Events:   []event.Reason{"ResolvedCreate"},
				Stores:   1,
			},
		},
		"DeletingFound": {
			reason: "The external resource that was found should be deleted with its managed resource.",
			object: kit.NewBucket(
				kit.WithInterruptedCreate(hourAgo), kit.WithDeletionTimestamp,
				kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")},
			want: want{
				Finds:     1,
				Observes:  1,
				Deletes:   1,
				Name:      "id-1",
				Succeeded: now,
				Synced:    "ReconcileSuccess", Result: requeue, Events: []event.Reason{"ResolvedCreate"}, Stores: 1,
				Deleting: "ExternalDeleteRequested: " + deletion.MessageDeleteRequested,
			},
		},
		"DeletingAbsent": {
			reason: "A managed resource without an external resource should be deleted.",
			object: kit.NewBucket(
				kit.WithInterruptedCreate(hourAgo), kit.WithDeletionTimestamp,
				kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want:   want{Finds: 1, Observes: 1, Gone: true, Events: []event.Reason{"ResolvedCreate"}, Stores: 1},
		},
		"DeletingUnknown": {
			reason: "The deletion should wait while the outcome is unknown, and say why.",
			object: kit.NewBucket(
				kit.WithInterruptedCreate(hourAgo), kit.WithDeletionTimestamp,
				kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{},
			want: want{
				Finds:  1,
				Synced: incomplete,
				Result: reconcile.Result{RequeueAfter: time.Second}, Events: []event.Reason{"CannotResolveCreate"},
				Resolved: "False CreateResultUnknown",
				Message:  unknownMessage, Deleting: "CreateResultUnknown: " + unknownMessage,
			},
		},
		"DeletingUnknownAsync": {
			reason: "An asynchronous create without a record should be resolved, too.",
			object: kit.NewBucket(
				kit.WithInterruptedCreate(hourAgo), kit.WithDeletionTimestamp,
				kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{},
			async:  true,
			want: want{
				Finds:  1,
				Synced: "connect failed: cannot determine the result of the create",
				Result: requeue, Events: []event.Reason{"CannotResolveCreate"},
				Resolved: "False CreateResultUnknown",
				Message:  unknownMessage, Deleting: "CreateResultUnknown: " + unknownMessage,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := tc.finder
			if f == nil {
				f = &kit.FakeFinder{Finding: asyncstate.Found("not-asked")}
			}
			if tc.object == nil {
				tc.object = kit.NewBucket(kit.WithInterruptedCreate(hourAgo))
			}
			api := testkit.NewAPI(tc.object)
			recorder := &testkit.Said{}
			got := want{}
			ext := &kit.ExternalResource{Exists: f.Finding.Found()}
			ext.OnCall("create", func(b *v1alpha1.Bucket) error {
				kit.ExpectEqual(
					t, "A create should be announced before it starts.", "incomplete", true,
					meta.ExternalCreateIncomplete(b),
				)
				kit.WithExternalName("id-2")(b)
				return nil
			})
			if tc.async {
				tc.opts = append(tc.opts, asyncstate.With(asyncstate.NewTracker()))
			}
			r := kit.NewBucketReconciler(api, append([]managed.ReconcilerOption{
				kit.WithClient(ext.Client()), managed.WithRecorder(recorder), kit.NewClock().Option(), With(f),
			}, tc.opts...)...)
			result, err := r.Reconcile(context.Background(), kit.Request())
			kit.Must(t, err)
			b := kit.GetBucket(t, api)
			got.Finds, got.Observes, got.Creates, got.Deletes = len(f.Attempts), ext.Observes, ext.Count("create"),
				ext.Count("delete")
			got.Name = meta.GetExternalName(b)
			got.Succeeded = b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded]
			got.Failed = b.GetAnnotations()[meta.AnnotationKeyExternalCreateFailed]
			got.Result = result
			got.Gone = b.GetUID() == ""
			if got.Creates > 0 {
				got.Succeeded = "now" // upstream has no fake clock
			}
			if c := b.GetCondition(TypeCreateResolved); c.Reason != "" {
				got.Resolved, got.Message = fmt.Sprintf("%s %s", c.Status, c.Reason), c.Message
			}
			if c := b.GetCondition(reconciler.TypeDeleting); c.Reason != "" {
				got.Deleting = fmt.Sprintf("%s: %s", c.Reason, c.Message)
			}
			if c := b.GetCondition(xpv2.TypeSynced); strings.Contains(
				fmt.Sprintf("%s %s", c.Reason, c.Message), tc.want.Synced,
			) {
				got.Synced = tc.want.Synced
			} else {
				got.Synced = fmt.Sprintf("%s: %s", c.Reason, c.Message)
			}
			for _, q := range api.Requests() {
				if q.Verb == testkit.Patch && strings.Contains(q.Body, "external-create-") {
					got.Stores++
				}

				if got.Creates == 0 && strings.Contains(q.Body, meta.AnnotationKeyExternalName) &&
					!strings.Contains(q.Body, meta.AnnotationKeyExternalCreateSucceeded) {
					t.Errorf(
						"\nThe external name should be stored in one write with the outcome.\ngot patch %s", q.Body,
					)
				}
			}
			for _, reason := range []event.Reason{
				"OverwroteAnnotation", "ResolvedCreate", "CannotResolveCreate",
			} {
				got.Events = append(got.Events, slices.Repeat([]event.Reason{reason}, len(recorder.Events(reason)))...)
			}
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
			for _, attempt := range f.Attempts {
				kit.ExpectEqual(
					t, "The finder should be called with the create that was interrupted.", "attempt",
					asyncstate.Attempt{
						Type:    asyncstate.Create,
						Number:  1,
						Started: meta.GetExternalCreatePending(tc.object),
					},
					attempt,
				)
			}

			api.Forget()
			kit.MustReconcile(t, r, "b")
			if n := api.Writes(); strings.HasPrefix(got.Resolved, "False") && n > 0 {
				t.Errorf("\nAn unchanged situation should be written once.\ngot %d more writes: %v", n, api.Requests())
			}
		})
	}
}

func TestCreateResolver_StoresOutcome(t *testing.T) {
	type want struct {
		Name                  string
		Succeeded, Incomplete bool
		Events                int    // ResolvedCreate
		Synced                string // part of the message after the first reconcile
	}
	cases := map[string]struct {
		reason string
		absent bool // the finder returns Absent, and otherwise Found("id-1")
		// cacheStale: meanwhile is called before the first reconcile, and the cache does not show it.
		cacheStale                  bool
		meanwhile                   func(api *testkit.API)
		beforeRequest, afterRequest func(context.Context, testkit.Request) error
		want                        want
	}{
		"Conflict": {
			reason:        "We should retry after a conflict, without an event.",
			beforeRequest: kit.OnNthRequest(1, kit.IsVerb(testkit.Patch), kit.FailWithConflict),
			want:          want{Name: "id-1", Succeeded: true, Events: 1},
		},
		"Error": {
			reason:        "We should return an error if the outcome can't be stored.",
			beforeRequest: kit.FailRequests(kit.IsVerb(testkit.Patch), kit.ServerError()),
			want:          want{Incomplete: true, Synced: "cannot store the result of an interrupted create"},
		},
		"LostAnswer": {
			reason:       "We should read the managed resource again if the answer to the write was lost.",
			afterRequest: kit.OnNthRequest(1, kit.IsVerb(testkit.Patch), kit.FailWithServerError),
			want:         want{Name: "id-1", Succeeded: true},
		},
		"SettledByHandMeanwhile": {
			reason: "An outcome that an operator sets meanwhile should be kept.",
			meanwhile: func(api *testkit.API) {
				kit.UpdateBucket(
					t, api, "b", kit.WithExternalName("by-hand"),
					kit.WithoutAnnotation(meta.AnnotationKeyExternalCreatePending),
				)
			},
			want: want{Name: "by-hand"},
		},
		"SucceededAndUnseen": {
			reason:     "The outcome that the create's own process stores meanwhile should be kept, although the cache is stale.",
			absent:     true,
			cacheStale: true,
			meanwhile: func(api *testkit.API) {
				kit.UpdateBucket(
					t, api, "b", kit.WithExternalName("theirs"),
					kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:00:00Z"),
				)
			},
			want: want{Name: "theirs", Succeeded: true},
		},
		"GoneMeanwhile": {
			reason:    "We should store nothing when the managed resource no longer exists.",
			absent:    true,
			meanwhile: func(api *testkit.API) { kit.RemoveBucket(t, api, "b") },
		},
		"AnotherMeanwhile": {
			reason: "We should store nothing when another managed resource has the name.",
			meanwhile: func(api *testkit.API) {
				kit.RemoveBucket(t, api, "b")
				kit.Must(t, api.Server().Create(context.Background(), kit.NewBucket(kit.WithExternalName("another"))))
			},
			want: want{Name: "another"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(kit.WithInterruptedCreate(time.Hour)))
			recorder := &testkit.Said{}
			ext := &kit.ExternalResource{}
			ext.OnCall(
				"observe", func(b *v1alpha1.Bucket) error { ext.Exists = meta.GetExternalName(b) != ""; return nil },
			)
			f := &kit.FakeFinder{Finding: asyncstate.Found("id-1")}
			if tc.absent {
				f.Finding = asyncstate.Absent()
			}
			f.OnFind = func(context.Context, resource.Managed) {
				if len(f.Attempts) == 1 && tc.meanwhile != nil && !tc.cacheStale {
					tc.meanwhile(api)
				}
			}
			r := kit.NewBucketReconciler(
				api, managed.WithRecorder(recorder), kit.NewClock().Option(), With(f), kit.WithClient(ext.Client()),
			)
			if tc.cacheStale {
				kit.Must(t, api.Freeze(context.Background(), kit.NewBucket()))
				tc.meanwhile(api)
			}
			api.Before, api.After = tc.beforeRequest, tc.afterRequest
			result, err := r.Reconcile(context.Background(), kit.Request())
			kit.ExpectEqual(t, tc.reason, "result", reconcile.Result{Requeue: true}, result)
			kit.ExpectEqual(t, tc.reason, "finds", 1, len(f.Attempts))
			kit.ExpectEqual(t, tc.reason, "creates", 0, ext.Count("create"))
			kit.ExpectEqual(
				t, tc.reason, "no error", tc.want.Synced == "",
				err == nil && len(recorder.Events("CannotInitializeManagedResource")) == 0,
			)
			got := want{Synced: tc.want.Synced}
			if c := kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced); !strings.Contains(c.Message, tc.want.Synced) {
				got.Synced = c.Message
			}
			api.Thaw()
			kit.TryReconcile(r, 5)
			b := kit.GetBucket(t, api)
			got.Name = meta.GetExternalName(b)
			got.Succeeded, got.Incomplete = !meta.GetExternalCreateSucceeded(b).IsZero(),
				meta.ExternalCreateIncomplete(b)
			got.Events = len(recorder.Events("ResolvedCreate"))
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}

func TestCreateResolver_FailedCreate(t *testing.T) {
	begun, ended := seam.Stamp(kit.NewClock().Now.Add(-time.Minute)), seam.Stamp(kit.NewClock().Now.Add(-time.Second))
	withFailedCreate := func(b *v1alpha1.Bucket) {
		meta.AddAnnotations(b, map[string]string{
			meta.AnnotationKeyExternalCreatePending: begun,
			meta.AnnotationKeyExternalCreateFailed:  ended,
		})
	}
	withCreateBefore := kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, ended)
	withFailedCreateSettled := kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, ended)
	type want struct {
		Finds, Creates, Deletes int
		Name, Synced            string
		Gone                    bool
	}
	cases := map[string]struct {
		reason         string
		object         *v1alpha1.Bucket
		finder         *kit.FakeFinder
		opts           []managed.ReconcilerOption
		existingName   string
		firstCreateErr error // returned by the first create, which has created an external resource
		patchesFail    bool
		async          bool
		want           want
	}{
		"Found": {
			reason: "The external resource that was found should be managed under its name.",
			object: kit.NewBucket(withFailedCreate),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")}, existingName: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundAfterLaterStep": {
			reason:         "We should look for an external resource before a failed create is repeated, because a later step may have failed.",
			object:         kit.NewBucket(),
			finder:         &kit.FakeFinder{Finding: asyncstate.Found("id-0001")},
			firstCreateErr: errors.New("cannot tag the bucket"),
			want:           want{Finds: 1, Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"FoundAfterLostAnswer": {
			reason:         "After \"already exists\", we should call the finder, because the last create may have created the external resource although its answer was lost.",
			object:         kit.NewBucket(withFailedCreate, withCreateBefore, kit.WithExternalName("id-0")),
			finder:         &kit.FakeFinder{Finding: asyncstate.Found("id-0001")},
			firstCreateErr: errors.New("the bucket already exists"),
			want:           want{Finds: 1, Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"ExistsAfterAll": {
			reason:         "An external resource that Observe finds should not wait for a finder that cannot tell, although one Observe did not find it.",
			object:         kit.NewBucket(withFailedCreate, withCreateBefore, kit.WithExternalName("id-0001")),
			finder:         &kit.FakeFinder{},
			firstCreateErr: errors.New("the bucket already exists"),
			want:           want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"ExistsElsewhere": {
			reason:         "After \"already exists\" the create should not be repeated while the finder cannot tell.",
			object:         kit.NewBucket(withFailedCreate, withCreateBefore, kit.WithExternalName("id-0")),
			finder:         &kit.FakeFinder{},
			firstCreateErr: errors.New("the bucket already exists"),
			want: want{
				Finds: 2, Creates: 1, Name: "id-0",
				Synced: "unknown whether the create that failed created an external resource. Look for it",
			},
		},
		"ExistedAndFoundInStaleList": {
			reason:         "A finder whose list is stale should not be called again and again.",
			object:         kit.NewBucket(withFailedCreate, withCreateBefore, kit.WithExternalName("id-0")),
			finder:         &kit.FakeFinder{Finding: asyncstate.Found("id-9")},
			firstCreateErr: errors.New("the bucket already exists"),
			want:           want{Finds: 1, Creates: 1, Name: "id-9", Synced: "ReconcileError"},
		},
		"FoundButNotStored": {
			reason: "We should return an error if the name that was found can't be stored.",
			object: kit.NewBucket(withFailedCreate),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")}, patchesFail: true,
			want: want{Finds: 3, Synced: "cannot store the result"},
		},
		"FoundThoughRecorded": {
			reason: "A record that an asynchronous provider has left should be ignored.",
			object: kit.NewBucket(withFailedCreate, kit.WithAnnotation(asyncstate.AnnotationKeyOperation, "{}")),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")}, existingName: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundWithoutRecord": {
			reason: "An asynchronous provider should resolve a create without a record, too.", async: true,
			object: kit.NewBucket(withFailedCreate),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")}, existingName: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundWhileDeleted": {
			reason: "The external resource that was found should be deleted with its managed resource.",
			object: kit.NewBucket(
				withFailedCreate, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{Finding: asyncstate.Found("id-1")}, existingName: "id-1",
			want: want{Finds: 1, Deletes: 1, Gone: true},
		},
		"Absent": {
			reason: "A create that is known to have ended should be repeated before its deadline.",
			object: kit.NewBucket(withFailedCreate), finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want: want{Finds: 1, Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"AbsentWhileDeleted": {
			reason: "A managed resource without an external resource should be deleted.",
			object: kit.NewBucket(
				withFailedCreate, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{Finding: asyncstate.Absent()},
			want:   want{Finds: 1, Gone: true},
		},
		"Unknown": {
			reason: "The create should not be repeated while it is unknown whether it created something.",
			object: kit.NewBucket(withFailedCreate),
			finder: &kit.FakeFinder{},
			want: want{
				Finds:  3,
				Synced: "unknown whether the create that failed created an external resource. Look for it",
			},
		},
		"FindFailsWhileDeleted": {
			reason: "The managed resource should be kept while the finder fails.",
			object: kit.NewBucket(
				withFailedCreate, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{Err: errors.New("boom")},
			want:   want{Finds: 3, Synced: "cannot look up the external resource of a create that failed: boom"},
		},
		"Exists": {
			reason:       "The finder should not be called when Observe finds the external resource.",
			object:       kit.NewBucket(withFailedCreate, kit.WithExternalName("id-1")),
			finder:       &kit.FakeFinder{},
			existingName: "id-1",
			want:         want{Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"Succeeded": {
			reason: "The finder should not be called after a create that succeeded.",
			object: kit.NewBucket(withFailedCreate, withCreateBefore, kit.WithExternalName("id-0")),
			finder: &kit.FakeFinder{},
			want:   want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"Settled": {
			reason: "A person who removes the announcement should settle a create that failed.",
			object: kit.NewBucket(withFailedCreateSettled), finder: &kit.FakeFinder{},
			want: want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"SettledWhileDeleted": {
			reason: "A managed resource whose failed create was settled should be deleted.",
			object: kit.NewBucket(
				withFailedCreateSettled, kit.WithDeletionTimestamp, kit.WithFinalizers(managed.FinalizerName),
			),
			finder: &kit.FakeFinder{},
			want:   want{Gone: true},
		},
		"SettledBeforeNextCreate": {
			reason:         "A create that fails after an earlier one was settled should not be repeated.",
			object:         kit.NewBucket(withFailedCreateSettled),
			finder:         &kit.FakeFinder{},
			firstCreateErr: errors.New("cannot tag the bucket"),
			want: want{
				Finds:   2,
				Creates: 1,
				Synced:  "unknown whether the create that failed created an external resource. Look for it",
			},
		},
		"Deterministic": {
			reason: "The finder should not be called with deterministic names.",
			object: kit.NewBucket(withFailedCreate, kit.WithExternalName("id-0")),
			finder: &kit.FakeFinder{}, opts: []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)},
			want: want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(tc.object)
			api.Before = kit.FailRequests(
				func(r testkit.Request) bool { return tc.patchesFail && r.Verb == testkit.Patch }, kit.ServerError(),
			)
			w, connects := kit.NewCloud()
			if tc.existingName != "" {
				_, err := w.Session("").Create(t.Context(), cloud.CreateRequest{
					Kind: v1alpha1.BucketKind,
					Name: tc.existingName,
				})
				kit.Must(t, err)
			}
			if tc.async {
				tc.opts = append(tc.opts, asyncstate.With(asyncstate.NewTracker()))
			}
			had := w.Counts()[cloud.OpCreate]
			w.SetHooks(cloud.Hooks{After: func(_ context.Context, call cloud.Call) error {
				if call.Op == cloud.OpCreate && len(tc.finder.Attempts) == 0 {
					return tc.firstCreateErr
				}
				return nil
			}})
			kit.MustReconcileTimes(
				t,
				kit.NewBucketReconciler(
					api, append(tc.opts, kit.NewClock().Option(), connects, With(tc.finder))...,
				),
				3,
			)
			got := want{
				Finds:   len(tc.finder.Attempts),
				Creates: w.Counts()[cloud.OpCreate] - had,
				Deletes: w.Counts()[cloud.OpDelete],
				Gone:    true,
			}
			if b := kit.GetBucket(t, api); b.GetName() != "" {
				synced := b.GetCondition(xpv2.TypeSynced)
				got.Gone, got.Name, got.Synced = false, meta.GetExternalName(b), string(synced.Reason)+synced.Message
			}
			if strings.Contains(got.Synced, tc.want.Synced) {
				got.Synced = tc.want.Synced
			}
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}

// After "already exists" the finder is called only until the external resource was observed.
func TestCreateResolver_ExistedAndDeleted(t *testing.T) {
	ended := seam.Stamp(kit.NewClock().Now.Add(-time.Hour))
	api := testkit.NewAPI(kit.NewBucket(
		kit.WithExternalName("id-1"), kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, ended),
		kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, ended),
	))
	c, f := kit.NewClock(), &kit.FakeFinder{}
	ext := &kit.ExternalResource{}
	ext.BeforeCall = func(what string, _ resource.Managed) error {
		if what == "create" && ext.Count("create") == 1 {
			ext.Exists = true
			return errors.New("the bucket already exists")
		}
		return nil
	}
	r := kit.NewBucketReconciler(api, c.Option(), kit.WithClient(ext.Client()), With(f))
	kit.MustReconcileTimes(t, r, 2)
	kit.ExpectEqual(t, "The external resource should be managed.", "finds", 0, len(f.Attempts))

	ext.Exists = false
	for range 5 {
		kit.TryReconcile(r, 1)
		c.Now = c.Now.Add(time.Minute)
	}
	kit.ExpectEqual(
		t, "An external resource that was observed, and was deleted since, should be created again.", "creates, finds",
		[]int{2, 0}, []int{ext.Count("create"), len(f.Attempts)},
	)
}

// A findingClient is an external client with a Find method.
type findingClient[M resource.Managed] struct {
	managed.TypedExternalClient[M]

	asked       *[]any
	disconnects *int
}

func (c *findingClient[M]) Find(_ context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
	*c.asked = []any{mg.GetName(), a}
	return asyncstate.Found("id-1"), nil
}

func (c *findingClient[M]) Disconnect(context.Context) error {
	*c.disconnects++
	return errors.New("boom")
}

type clientWithUntypedFinder struct {
	managed.TypedExternalClient[*v1alpha1.Bucket]
	asyncstate.Finder
}

func TestFindWithConnector(t *testing.T) {
	type want struct {
		Finding     asyncstate.Finding
		Error       string
		Asked       []any
		Disconnects int // of the client and of the connector
	}
	attempt := asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: kit.NewClock().Now}
	asked := []any{"b", attempt}
	var got want
	untyped := func(c managed.ExternalClient, err error) asyncstate.Finder {
		return FindWithConnector(managed.ExternalConnectDisconnectorFns{
			ConnectFn:    func(context.Context, resource.Managed) (managed.ExternalClient, error) { return c, err },
			DisconnectFn: func(context.Context) error { got.Disconnects++; return nil },
		})
	}
	typed := func(c managed.TypedExternalClient[*v1alpha1.Bucket]) asyncstate.Finder {
		return FindWithTypedConnector(
			managed.TypedExternalConnectorFn[*v1alpha1.Bucket](
				func(context.Context, *v1alpha1.Bucket) (managed.TypedExternalClient[*v1alpha1.Bucket], error) {
					return c, nil
				},
			),
		)
	}
	plain := kit.NewExternalClient(managed.ExternalClientFns{})
	cases := map[string]struct {
		reason string
		finder asyncstate.Finder
		want   want
	}{
		"Found": {
			reason: "We should call the finder of the external client and disconnect client and connector, although that fails.",
			finder: untyped(&findingClient[resource.Managed]{asked: &got.Asked, disconnects: &got.Disconnects}, nil),
			want:   want{Finding: asyncstate.Found("id-1"), Asked: asked, Disconnects: 2},
		},
		"ConnectFails": {
			reason: "We should return the error of the connector, and not disconnect it.",
			finder: untyped(nil, errors.New("boom")),
			want:   want{Error: "cannot connect: boom"},
		},
		"NeitherClientNorError": {
			reason: "We should return an error if the connector returns neither a client nor an error.",
			finder: untyped(nil, nil),
			want:   want{Error: "the external connector returned neither a client nor an error", Disconnects: 1},
		},
		"NoFinder": {
			reason: "The error should name the interface to implement if the external client has no Find method.",
			finder: untyped(&plain, nil),
			want: want{
				Error:       "*managed.TypedExternalClientFns[github.com/crossplane/crossplane-runtime/v2/pkg/resource.Managed] can't look for external resources: implement asyncstate.Finder, or leave With out",
				Disconnects: 1,
			},
		},
		"Typed": {
			reason: "We should call the finder of a typed client.",
			finder: typed(&findingClient[*v1alpha1.Bucket]{asked: &got.Asked, disconnects: &got.Disconnects}),
			want:   want{Finding: asyncstate.Found("id-1"), Asked: asked, Disconnects: 1},
		},
		"TypedWithUntypedFinder": {
			reason: "We should call the untyped finder of a typed client.",
			finder: typed(&clientWithUntypedFinder{
				TypedExternalClient: kit.NewTypedClient[*v1alpha1.Bucket](kit.FakeProvider{}),
				Finder:              &kit.FakeFinder{Finding: asyncstate.Absent()},
			}),
			want: want{Finding: asyncstate.Absent()},
		},
		"OfAnotherKind": {
			reason: "We should return an error if the connector is for another kind.",
			finder: FindWithTypedConnector(kit.NewTypedConnector[*v1alpha1.Database](kit.FakeProvider{}, nil)),
			want: want{
				Error: "the connector is for *v1alpha1.Database, but the managed resource is a *v1alpha1.Bucket: pass the connector of this kind",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got = want{}
			f, err := tc.finder.Find(t.Context(), kit.NewBucket(), attempt)
			if got.Finding = f; err != nil {
				got.Error = err.Error()
			}
			kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
		})
	}
}

func TestCreateResolver_ErrorsDoNotChangeCondition(t *testing.T) {
	api := testkit.NewAPI(kit.NewBucket(kit.WithInterruptedCreate(time.Hour)))
	recorder := &testkit.Said{}
	f := &kit.FakeFinder{}
	f.OnFind = func(context.Context, resource.Managed) {
		f.Err = errors.Errorf("throttled, request %d", len(f.Attempts))
	}
	r := kit.NewBucketReconciler(
		api, With(f), managed.WithRecorder(recorder), kit.WithClient(managed.ExternalClientFns{}),
	)
	kit.MustReconcile(t, r, "b")
	api.Forget()
	kit.MustReconcileTimes(t, r, 3)
	kit.ExpectEqual(t, "An error with a request ID should be written once.", "writes", 0, api.Writes())
	if ms := recorder.Events("CannotResolveCreate"); len(ms) != 4 || !strings.Contains(ms[3], "request 4") {
		t.Errorf("\nEach error should be in an event.\ngot %v", ms)
	}
}

func TestCreateResolver_ClockAhead(t *testing.T) {
	api := testkit.NewAPI(kit.NewBucket(kit.WithInterruptedCreate(-10 * 365 * 24 * time.Hour)))
	c := kit.NewClock()
	ext := &kit.ExternalResource{}
	c.Now = time.Now()
	r := kit.NewBucketReconciler(api, c.Option(), With(&kit.FakeFinder{
		Finding: asyncstate.Absent(),
	}), kit.WithClient(ext.Client()))
	kit.MustReconcile(t, r, "b")
	c.Now = c.Now.Add(3 * time.Minute)
	kit.MustReconcile(t, r, "b")
	c.Now = c.Now.Add(time.Second)
	kit.MustReconcile(t, r, "b")
	kit.ExpectEqual(
		t, "A create that was announced by a clock that is ahead should be repeated after its deadline.", "creates", 1,
		ext.Count("create"),
	)
}

func TestCriticalAnnotations(t *testing.T) {
	merged, boom := 0, errors.New("boom")
	updaters := map[string]func(api *testkit.API) managed.ReconcilerOption{
		"Default": func(*testkit.API) managed.ReconcilerOption { return managed.WithInitializers() },
		"WithoutPersistence": func(*testkit.API) managed.ReconcilerOption {
			return managed.WithoutExternalNamePersistence()
		},
		"Upstream": func(api *testkit.API) managed.ReconcilerOption {
			return managed.WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(api.Client()))
		},
		"Custom": func(api *testkit.API) managed.ReconcilerOption {
			return managed.WithCriticalAnnotationUpdater(
				upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
					merged++
					data, err := json.Marshal(map[string]any{
						"metadata": map[string]any{"annotations": o.GetAnnotations()},
					})
					kit.Must(t, err)
					return api.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
				}),
			)
		},
	}
	type want struct {
		Creates                       int
		Incomplete, Succeeded, Failed bool
	}
	cases := map[string]struct {
		reason     string
		createErr  func(n int) error // returns the error of the n-th create
		pause      time.Duration     // between reconciles; a second by default
		reconciles int
		want       want
	}{
		"Succeeds": {
			reason:     "A create that succeeds should be recorded.",
			createErr:  func(int) error { return nil },
			reconciles: 1,
			want:       want{Creates: 1, Succeeded: true},
		},
		"Fails": {
			reason:     "A create that fails should be recorded.",
			createErr:  func(int) error { return boom },
			reconciles: 1,
			want:       want{Creates: 1, Failed: true},
		},
		"OutcomeUnknown": {
			reason:     "A create with an unknown outcome should stay pending, and the external name should be stored.",
			createErr:  func(int) error { return errors.Wrap(asyncstate.ErrOutcomeUnknown, "no answer") },
			reconciles: 1,
			want:       want{Creates: 1, Incomplete: true},
		},
		"SameSecond": {
			reason:    "We should not create in the second in which the last create ended, because upstream could not tell the two apart.",
			createErr: func(int) error { return boom },
			pause:     time.Millisecond, reconciles: 5, want: want{Creates: 1, Failed: true},
		},
		"FailsTwice": {
			reason:     "A create that ends in the second in which it was announced should be recorded.",
			reconciles: 4, want: want{Creates: 3, Succeeded: true, Failed: true},
			createErr: func(n int) error {
				if n == 3 {
					return nil
				}
				return boom
			},
		},
		"ThirdIsCutOff": {
			reason:     "The third create should stay pending because its process died, although the first two failed.",
			reconciles: 5, want: want{Creates: 3, Incomplete: true, Failed: true},
			createErr: func(n int) error {
				if n == 3 {
					panic("the process died")
				}
				return boom
			},
		},
	}
	for updaterName, updater := range updaters {
		for name, tc := range cases {
			t.Run(updaterName+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := testkit.NewAPI(
						kit.NewBucket(kit.WithExternalName("id-1"), kit.WithAnnotation("example.org/kept", "kept")),
					)
					ext := &kit.ExternalResource{}
					ext.OnCall("create", func(b *v1alpha1.Bucket) error {
						err := tc.createErr(ext.Count("create"))
						b.Status.AtProvider.ID = "id-1"
						return err
					})
					r := kit.NewBucketReconciler(api, updater(api), kit.WithClient(ext.Client()))
					for range tc.reconciles {
						kit.TryReconcile(r, 1)
						time.Sleep(cmp.Or(tc.pause, time.Second))
					}
					b := kit.GetBucket(t, api)
					got := want{
						Creates: ext.Count("create"), Incomplete: meta.ExternalCreateIncomplete(b),
						Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(),
						Failed:    !meta.GetExternalCreateFailed(b).IsZero(),
					}
					kit.ExpectEqual(t, tc.reason, "result", tc.want, got)
					kit.ExpectEqual(t, tc.reason, "name", "id-1", meta.GetExternalName(b))
					kit.ExpectEqual(t, tc.reason, "status", "id-1", b.Status.AtProvider.ID)
					kit.ExpectEqual(t, tc.reason, "others' annotation", "kept", b.GetAnnotations()["example.org/kept"])
				})
			})
		}
	}
	kit.ExpectEqual(t, "The provider's own updater should be called.", "called", true, merged > 0)
}

func TestCriticalAnnotations_WithoutCreate(t *testing.T) {
	for reason, actions := range map[string][]xpv2.ManagementAction{
		"The result of the last create should be kept if the policies allow updates and no creates.": {
			xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize,
		},
		"The result of the last create should be kept if the policies allow neither updates nor creates.": {
			xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
				kit.WithPolicies(
					actions...,
				),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, created),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, created)))
			ext := (&kit.ExternalResource{LateInitialized: true}).OnCall(
				"observe", func(b *v1alpha1.Bucket) error { b.Spec.ForProvider.Region = "eu"; return nil },
			)
			kit.MustReconcile(t, kit.NewBucketReconciler(api, kit.WithClient(ext.Client())), "b")
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(
				t, reason, "external-create-succeeded", created,
				b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded],
			)
			kit.ExpectEqual(t, reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
		})
	}
}

func TestCriticalAnnotations_Requests(t *testing.T) {
	resolves := func(*testkit.API) []managed.ReconcilerOption {
		return []managed.ReconcilerOption{With(&kit.FakeFinder{})}
	}
	setRegion := func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }
	cases := map[string]struct {
		reason         string
		opts           func(api *testkit.API) []managed.ReconcilerOption
		create         func(t *testing.T, api *testkit.API, b *v1alpha1.Bucket)
		createErr      error
		wantPatches    int
		wantUpdates    int
		wantRegion     string
		wantName       string
		wantIncomplete bool
	}{
		"Nothing": {
			reason:      "The result of a create should be stored in a patch.",
			create:      func(*testing.T, *testkit.API, *v1alpha1.Bucket) {},
			wantPatches: 1,
			wantUpdates: 2,
		},
		"Name": {
			reason:      "The external name should be stored in a patch of its own.",
			create:      func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { kit.WithExternalName("id-1")(b) },
			wantPatches: 2,
			wantUpdates: 2,
			wantName:    "id-1",
		},
		"SpecToo": {
			reason:      "As with upstream, other changes should be stored too.",
			create:      setRegion,
			wantPatches: 1,
			wantUpdates: 3,
			wantRegion:  "eu",
		},
		"UnknownOutcome": {
			reason:         "Other changes of a create with an unknown outcome should be stored: the finder may search by them.",
			opts:           resolves,
			create:         setRegion,
			createErr:      asyncstate.ErrOutcomeUnknown,
			wantUpdates:    3,
			wantRegion:     "eu",
			wantIncomplete: true,
		},
		"UnknownOutcomeWithoutPersistence": {
			reason: "The name and other changes of a create with an unknown outcome should be stored.",
			opts: func(api *testkit.API) []managed.ReconcilerOption {
				return append(resolves(api), managed.WithoutExternalNamePersistence())
			},
			create: func(t *testing.T, api *testkit.API, b *v1alpha1.Bucket) {
				kit.WithExternalName("id-1")(b)
				setRegion(t, api, b)
			},
			createErr:      asyncstate.ErrOutcomeUnknown,
			wantPatches:    1,
			wantUpdates:    3,
			wantRegion:     "eu",
			wantName:       "id-1",
			wantIncomplete: true,
		},
		"UnknownOutcomeUnchanged": {
			reason:         "A create with an unknown outcome that changes nothing should cause no write of the whole object.",
			opts:           resolves,
			create:         func(*testing.T, *testkit.API, *v1alpha1.Bucket) {},
			createErr:      asyncstate.ErrOutcomeUnknown,
			wantUpdates:    2,
			wantIncomplete: true,
		},
		"UnknownOutcomeLostARace": {
			reason: "A conflict should drop other changes of a create with an unknown outcome, too.",
			opts:   resolves,
			create: func(t *testing.T, api *testkit.API, b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "eu"
				kit.UpdateBucket(t, api, "b", kit.WithAnnotation("a", "b"))
			},
			createErr:      asyncstate.ErrOutcomeUnknown,
			wantUpdates:    3,
			wantIncomplete: true,
		},
		"LostARace": {
			reason: "As with upstream, a conflict should drop other changes.",
			create: func(t *testing.T, api *testkit.API, b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "eu"
				kit.UpdateBucket(t, api, "b", kit.WithAnnotation("a", "b"))
			},
			wantPatches: 2,
			wantUpdates: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			ext := (&kit.ExternalResource{}).OnCall(
				"create", func(b *v1alpha1.Bucket) error { tc.create(t, api, b); return tc.createErr },
			)
			opts := []managed.ReconcilerOption{kit.WithClient(ext.Client())}
			if tc.opts != nil {
				opts = append(opts, tc.opts(api)...)
			}
			kit.MustReconcile(t, kit.NewBucketReconciler(api, opts...), "b")
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "patches", tc.wantPatches, api.Count(testkit.Patch))
			kit.ExpectEqual(t, tc.reason, "updates", tc.wantUpdates, api.Count(testkit.Update))
			kit.ExpectEqual(t, tc.reason, "region", tc.wantRegion, b.Spec.ForProvider.Region)
			kit.ExpectEqual(t, tc.reason, "name", tc.wantName, meta.GetExternalName(b))

			kit.ExpectEqual(t, tc.reason, "incomplete", tc.wantIncomplete, meta.ExternalCreateIncomplete(b))
		})
	}
}

func TestCriticalAnnotations_OtherChangesFail(t *testing.T) {
	cases := map[string]struct {
		reason     string
		err        error
		failures   int
		wantRegion string
		wantEvents int
	}{
		"Transient": {
			reason:     "As with upstream, a transient error should not drop other changes.",
			err:        kit.ErrProvider,
			failures:   1,
			wantRegion: "eu",
		},
		"Unreachable": {
			reason:     "An event should say that other changes could not be stored.",
			err:        kit.ErrProvider,
			failures:   100,
			wantEvents: 1,
		},
		"Refused": {
			reason:     "Other changes that the API server refuses should be sent once.",
			err:        kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
			failures:   1,
			wantEvents: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(func(b *v1alpha1.Bucket) {
				b.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: "secret"}
			}))
			failures := 0
			api.Before = kit.FailRequests(func(r testkit.Request) bool {
				if failures == 0 || r.Verb != testkit.Update {
					return false
				}
				failures--
				return true
			}, tc.err)
			recorder := &testkit.Said{}
			kit.MustReconcile(t,
				kit.NewBucketReconciler(api, managed.WithRecorder(recorder), kit.WithClient(managed.ExternalClientFns{
					ObserveFn: kit.ObserveAbsent,
					CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
						failures = tc.failures
						meta.SetExternalName(mg, "id-1")
						kit.AsBucket(mg).Spec.ForProvider.Region = "eu"
						return managed.ExternalCreation{
							ConnectionDetails: managed.ConnectionDetails{"password": []byte("once")},
						}, nil
					},
				})), "b")
			b, secret := kit.GetBucket(t, api), &corev1.Secret{}
			key := client.ObjectKey{Namespace: "default", Name: "secret"}
			kit.Must(t, client.IgnoreNotFound(api.Server().Get(t.Context(), key, secret)))
			kit.ExpectEqual(t, tc.reason, "region", tc.wantRegion, b.Spec.ForProvider.Region)
			kit.ExpectEqual(t, tc.reason, "name", "id-1", meta.GetExternalName(b))
			kit.ExpectEqual(t, tc.reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
			kit.ExpectEqual(t, tc.reason, "events", tc.wantEvents, len(recorder.Events("CannotUpdateManagedResource")))
			kit.ExpectEqual(t, tc.reason, "Ready", xpv2.ReasonCreating, b.GetCondition(xpv2.TypeReady).Reason)
			kit.ExpectEqual(
				t, "Connection details should be published in any case.", "password", "once",
				string(secret.Data["password"]),
			)
		})
	}
}

func TestCriticalAnnotations_CreateOfAnotherProcess(t *testing.T) {
	pending := time.Now().Add(-time.Second).Format(time.RFC3339)
	announce := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, pending)
	cases := map[string]struct {
		reason                 string
		duringCreate           kit.BucketModifier
		afterFirstConflictRead kit.BucketModifier
	}{
		"DuringCreate": {
			reason:       "A create that failed should not end the one that another process has announced since.",
			duringCreate: announce,
		},
		"AfterAConflict": {
			reason:                 "A create that failed should not end the one that another process announces after an unrelated conflict.",
			duringCreate:           kit.WithAnnotation("example.org/unrelated", "1"),
			afterFirstConflictRead: announce,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			ext := (&kit.ExternalResource{}).OnCall("create", func(*v1alpha1.Bucket) error {
				kit.UpdateBucket(t, api, "b", tc.duringCreate)
				api.After = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.LiveGet && tc.afterFirstConflictRead != nil {
						api.After = nil
						kit.UpdateBucket(t, api, "b", tc.afterFirstConflictRead)
					}
					return nil
				}
				return errors.New("boom")
			})
			kit.MustReconcile(t, kit.NewBucketReconciler(api, kit.WithClient(ext.Client())), "b")
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "incomplete", true, meta.ExternalCreateIncomplete(b))
			kit.ExpectEqual(
				t, tc.reason, "announced", pending, b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending],
			)
		})
	}
}

// A create whose answer was lost should have its error in CreateResolved, also after a restart of the provider.
func TestCreateResolver_LastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(kit.NewBucket())
		client := managed.ExternalClientFns{
			ObserveFn: kit.ObserveAbsent,
			CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
				return managed.ExternalCreation{}, errors.New("POST https://h/x: 502 (request 7)")
			},
		}
		start := func() reconcile.Reconciler {
			return kit.NewBucketReconciler(api, With(&kit.FakeFinder{}), kit.WithClient(client))
		}
		message := func() string { return kit.GetBucket(t, api).GetCondition(TypeCreateResolved).Message }
		r := start()
		kit.TryReconcile(r, 1)
		until := creation.RunsUntil(kit.GetBucket(t, api), time.Now()).Until
		kit.TryReconcile(r, 1)
		first := message()
		for _, want := range []string{
			" after " + seam.Stamp(until) + ", when the create has certainly ended",
			"Its last error: POST https://h/x: 502",
		} {
			if !strings.Contains(first, want) {
				t.Errorf("\nThe condition should have %q: got %q", want, first)
			}
		}
		time.Sleep(time.Hour)
		kit.TryReconcile(start(), 2)
		kit.ExpectEqual(
			t, "A process that does not know the error should keep it.", "message", first, message(),
		)
	})
}

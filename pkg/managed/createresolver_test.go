package managed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// interruptedBucket started a create of unknown outcome this long before a new clock's time.
func interruptedBucket(ago time.Duration) func(*v1alpha1.Bucket) {
	return annotated(meta.AnnotationKeyExternalCreatePending, seam.Stamp(newClock().now.Add(-ago)))
}

// A seeker is a Finder that knows what it was told, and what it was asked.
type seeker struct {
	finding asyncstate.Finding
	err     error
	then    func(ctx context.Context, mg resource.Managed) // Called with what the finder is asked about.
	asked   []asyncstate.Attempt
}

func (f *seeker) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	f.asked = append(f.asked, a)
	if f.then != nil {
		f.then(ctx, mg)
	}
	return f.finding, f.err
}

func TestCreateResolver(t *testing.T) {
	const (
		now  = "2026-01-02T03:04:05Z"
		long = time.Hour
		// begun is when a create began that began long ago.
		begun = "2026-01-02T02:04:05Z"
	)
	unknown := fmt.Sprintf(messageResultUnknown, begun)
	incomplete := "cannot determine creation result"
	type want struct {
		Finds, Observes, Creates, Deletes int
		Name, Succeeded, Failed           string

		// Resolved is the CreateResolved condition, Synced a part of that one's message.
		Resolved, Message string
		Synced            string
		Deleting          string
		Result            reconcile.Result
		Events            []event.Reason
		Stores            int // Writes of the outcome of a create.
		Gone              bool
	}
	poll := reconcile.Result{RequeueAfter: time.Minute}
	again := reconcile.Result{Requeue: true}
	soon := reconcile.Result{RequeueAfter: time.Second}

	// stops is what is wanted where upstream's refusal stands.
	stops := func(resolved, message string, result reconcile.Result, events ...event.Reason) want {
		return want{Finds: 1, Synced: incomplete, Result: result, Events: events, Resolved: resolved, Message: message}
	}

	// found and created are what is wanted where the finder knows.
	found := func(resolved string, events ...event.Reason) want {
		return want{Finds: 1, Observes: 1, Name: "id-1", Succeeded: now, Resolved: resolved, Synced: "ReconcileSuccess", Result: poll, Events: events, Stores: 1}
	}
	created := func(failed, resolved string) want {
		return want{Finds: 1, Observes: 1, Creates: 1, Name: "id-2", Failed: failed, Succeeded: "now", Resolved: resolved, Synced: "ReconcileSuccess", Result: again, Events: []event.Reason{reasonResolvedCreate}, Stores: 2}
	}
	doubted := func(b *v1alpha1.Bucket) {
		b.SetConditions(xpv2.Condition{Type: TypeCreateResolved, Status: corev1.ConditionFalse, Reason: reconciler.ReasonCreateResultUnknown, Message: unknown})
	}
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket // One whose create began long ago, if it is nil.
		finder *seeker
		async  bool
		opts   []ReconcilerOption
		how    []CreateResolverOption
		want   want
	}{
		"Complete": {
			reason: "Where no create was interrupted nothing is asked.",
			object: bucket(named("id-1"), interruptedBucket(long), annotated(meta.AnnotationKeyExternalCreateSucceeded, begun)),
			want:   want{Observes: 1, Name: "id-1", Succeeded: begun, Synced: "ReconcileSuccess", Result: poll},
		},
		"FoundInPlaceOfDefault": {
			reason: "The name that upstream's initializer sets says nothing.",
			object: bucket(interruptedBucket(long), named("b")),
			finder: &seeker{finding: asyncstate.Found("id-1")},
			want:   found("", reasonResolvedCreate),
		},
		"FoundInPlaceOfAnother": {
			reason: "Another name gives way, as it does to Create's, and an event says which.",
			object: bucket(interruptedBucket(long), named("by-hand")),
			finder: &seeker{finding: asyncstate.Found("id-1")},
			want:   found("", reasonOverwroteAnnotation, reasonResolvedCreate),
		},
		"FoundAfterDoubt": {
			reason: "What is found is stored, with its name, in one write, and is managed from then on. The condition that reported an unknown outcome becomes true.",
			object: bucket(interruptedBucket(long), doubted),
			finder: &seeker{finding: asyncstate.Found("id-1")},
			want:   found("True Resolved", reasonResolvedCreate),
		},
		"SettledByHandAfterDoubt": {
			reason: "The condition becomes true if an operator set the outcome, too.",
			object: bucket(named("id-1"), doubted),
			want:   want{Observes: 1, Name: "id-1", Resolved: "True Resolved", Synced: "ReconcileSuccess", Result: poll},
		},
		"NameThatCannotBeStored": {
			reason: "A name that would not come back as it was is none.",
			finder: &seeker{finding: asyncstate.Found("id\x00")},
			want:   stops("False FindFailed", fmt.Sprintf(messageFindFailed, begun), again, reasonCannotResolveCreate),
		},
		"AbsentAfterDoubt": {
			reason: "What is surely not there is created, and the next create is newer than the one that failed. The condition becomes true, too.",
			object: bucket(interruptedBucket(long), doubted),
			finder: &seeker{finding: asyncstate.Absent()},
			want:   created(begun, "True Resolved"),
		},
		"AbsentTooSoon": {
			reason: "Before the deadline the process that started the create may still run.",
			object: bucket(interruptedBucket(2*time.Minute - time.Second)),
			finder: &seeker{finding: asyncstate.Absent()},
			want:   stops("False WaitingForCreate", fmt.Sprintf(messageWaitingForCreate, "2026-01-02T03:02:06Z", "2026-01-02T03:04:06Z"), soon),
		},
		"AbsentTooSoonForUpstreamTimeout": {
			reason: "However that was said.",
			object: bucket(interruptedBucket(2 * time.Minute)),
			finder: &seeker{finding: asyncstate.Absent()},
			opts:   []ReconcilerOption{Upstream(upstream.WithTimeout(3 * time.Minute))},
			want:   stops("False WaitingForCreate", fmt.Sprintf(messageWaitingForCreate, "2026-01-02T03:02:05Z", "2026-01-02T03:06:05Z"), soon),
		},
		"AbsentSoonAsConfigured": {
			reason: "Also if it is less.",
			object: bucket(interruptedBucket(time.Second)),
			finder: &seeker{finding: asyncstate.Absent()},
			how:    []CreateResolverOption{WithResolveAfter(time.Second)},
			want:   created("2026-01-02T03:04:04Z", ""),
		},
		"FinderHangs": {
			reason: "A finder doesn't keep a reconcile from saying what is wrong. An error is no answer: it is said, and asked again with backoff.",
			finder: &seeker{finding: asyncstate.Absent(), then: func(ctx context.Context, _ resource.Managed) { <-ctx.Done() }, err: context.DeadlineExceeded},
			opts:   []ReconcilerOption{WithTimeout(time.Millisecond)},
			want:   stops("False FindFailed", fmt.Sprintf(messageFindFailed, begun), again, reasonCannotResolveCreate),
		},
		"FinderWrites": {
			reason: "If the outcome is unknown, upstream's refusal stands, and the condition says what to do. What the finder does to the managed resource is not kept.",
			finder: &seeker{then: func(_ context.Context, mg resource.Managed) {
				meta.SetExternalName(mg, "not-this")
				meta.RemoveAnnotations(mg, meta.AnnotationKeyExternalCreatePending)
			}},
			want: stops("False CreateResultUnknown", unknown, soon, reasonCannotResolveCreate),
		},
		"Recorded": {
			reason: "Where there is the record of an operation, that says more.",
			object: bucket(interruptedBucket(long), annotated(asyncstate.AnnotationKeyOperation, "{}")),
			want:   want{Synced: incomplete},
		},
		"DeterministicNameOfUpstream": {
			reason: "However that was said.",
			object: bucket(interruptedBucket(long), named("id-1")),
			opts:   []ReconcilerOption{Upstream(upstream.WithDeterministicExternalName(true))},
			want:   want{Observes: 1, Name: "id-1", Synced: "ReconcileSuccess", Result: poll},
		},
		"AbsentToObserve": {
			reason: "If it was not, nothing is created that the policies don't allow.",
			object: bucket(interruptedBucket(long), policies(xpv2.ManagementActionObserve)),
			finder: &seeker{finding: asyncstate.Absent()},
			want:   want{Finds: 1, Observes: 1, Failed: begun, Synced: "does not exist", Result: poll, Events: []event.Reason{reasonResolvedCreate}, Stores: 1},
		},
		"DeletingFound": {
			reason: "What is found is deleted.",
			object: bucket(interruptedBucket(long), deleting, finalizers(FinalizerName)),
			finder: &seeker{finding: asyncstate.Found("id-1")},
			want: want{
				Finds: 1, Observes: 1, Deletes: 1, Name: "id-1", Succeeded: now, Synced: "ReconcileSuccess", Result: again, Events: []event.Reason{reasonResolvedCreate}, Stores: 1,
				Deleting: "ExternalDeleteRequested: " + messageDeleteRequested,
			},
		},
		"DeletingAbsent": {
			reason: "What was never created holds nothing up.",
			object: bucket(interruptedBucket(long), deleting, finalizers(FinalizerName)),
			finder: &seeker{finding: asyncstate.Absent()},
			want:   want{Finds: 1, Observes: 1, Gone: true, Events: []event.Reason{reasonResolvedCreate}, Stores: 1},
		},
		"DeletingUnknown": {
			reason: "While the outcome is unknown, the deletion waits and reports why.",
			object: bucket(interruptedBucket(long), deleting, finalizers(FinalizerName)),
			finder: &seeker{},
			want: want{
				Finds: 1, Synced: incomplete, Result: reconcile.Result{RequeueAfter: time.Second}, Events: []event.Reason{reasonCannotResolveCreate},
				Resolved: "False CreateResultUnknown", Message: unknown, Deleting: "CreateResultUnknown: " + unknown,
			},
		},
		"DeletingUnknownAsync": {
			reason: "An asynchronous create that has no record is resolved, too.",
			object: bucket(interruptedBucket(long), deleting, finalizers(FinalizerName)),
			finder: &seeker{},
			async:  true,
			want: want{
				Finds: 1, Synced: "connect failed: cannot determine the result of the create", Result: again, Events: []event.Reason{reasonCannotResolveCreate},
				Resolved: "False CreateResultUnknown", Message: unknown, Deleting: "CreateResultUnknown: " + unknown,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := tc.finder
			if f == nil {
				f = &seeker{finding: asyncstate.Found("not-asked")}
			}
			if tc.object == nil {
				tc.object = bucket(interruptedBucket(long))
			}
			a, rec, got, x := testkit.NewAPI(tc.object), &testkit.Said{}, want{}, &outside{there: f.finding.Found()}
			x.on("create", func(b *v1alpha1.Bucket) error {
				wants(t, tc.reason, "the create would be found incomplete", true, meta.ExternalCreateIncomplete(b))
				named("id-2")(b)
				return nil
			})
			if tc.async {
				tc.opts = append(tc.opts, WithAsync(newTracker(a)))
			}
			r := newBucketReconciler(a, append([]ReconcilerOption{connects(x.client()), WithRecorder(rec), newClock().option(), WithCreateResolver(f, tc.how...)}, tc.opts...)...)
			result, err := r.Reconcile(context.Background(), request())
			must(t, err)
			b := get(t, a)
			got.Finds, got.Observes, got.Creates, got.Deletes = len(f.asked), x.observes, x.did("create"), x.did("delete")
			got.Name = meta.GetExternalName(b)
			got.Succeeded = b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded]
			got.Failed = b.GetAnnotations()[meta.AnnotationKeyExternalCreateFailed]
			got.Result = result
			got.Gone = b.GetUID() == ""
			if got.Creates > 0 {
				// It is upstream that wrote it then, by the clock on the wall.
				got.Succeeded = "now"
			}
			if c := b.GetCondition(TypeCreateResolved); c.Reason != "" {
				got.Resolved, got.Message = fmt.Sprintf("%s %s", c.Status, c.Reason), c.Message
			}
			if c := b.GetCondition(reconciler.TypeDeleting); c.Reason != "" {
				got.Deleting = fmt.Sprintf("%s: %s", c.Reason, c.Message)
			}
			if c := b.GetCondition(xpv2.TypeSynced); strings.Contains(fmt.Sprintf("%s %s", c.Reason, c.Message), tc.want.Synced) {
				got.Synced = tc.want.Synced
			} else {
				got.Synced = fmt.Sprintf("%s: %s", c.Reason, c.Message)
			}
			for _, q := range a.Requests() {
				if q.Verb == testkit.Patch && strings.Contains(q.Body, "external-create-") {
					got.Stores++
				}

				// Together with the name, or not at all.
				if got.Creates == 0 && strings.Contains(q.Body, meta.AnnotationKeyExternalName) && !strings.Contains(q.Body, meta.AnnotationKeyExternalCreateSucceeded) {
					t.Errorf("\n%s\nthe name was stored without the success: %s", tc.reason, q.Body)
				}
			}
			for _, reason := range []event.Reason{reasonOverwroteAnnotation, reasonResolvedCreate, reasonCannotResolveCreate} {
				got.Events = append(got.Events, slices.Repeat([]event.Reason{reason}, len(rec.Events(reason)))...)
			}
			wants(t, tc.reason, "", tc.want, got)
			for _, asked := range f.asked {
				wants(t, tc.reason, "asked", asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: meta.GetExternalCreatePending(tc.object)}, asked)
			}

			// What lasts is said once.
			a.Forget()
			run(t, r, "b")
			if n := a.Writes(); strings.HasPrefix(got.Resolved, "False") && n > 0 {
				t.Errorf("\n%s\nwant no write in the same situation, got %d: %v", tc.reason, n, a.Requests())
			}
		})
	}
}

// What is stored is stored of what was asked about, or not at all.
func TestCreateResolverStores(t *testing.T) {
	type want struct {
		Name                  string
		Succeeded, Incomplete bool
		Settled               int    // How often it was said that a create was resolved.
		Synced                string // A part of the message after the first reconcile.
	}
	cases := map[string]struct {
		reason         string
		absent         bool // The finder says, and not that its name is id-1.
		unseen         bool // The cache doesn't show what happens, before the first reconcile then.
		meanwhile      func(a *testkit.API)
		refuses, loses func(context.Context, testkit.Request) error // Requests.
		want           want
	}{
		"Conflict": {
			reason:  "A conflict is met with another reconcile, without a word.",
			refuses: on(1, verb(testkit.Patch), lostRace),
			want:    want{Name: "id-1", Succeeded: true, Settled: 1},
		},
		"Error": {
			reason:  "If the result can't be stored, the reconcile stops.",
			refuses: failing(verb(testkit.Patch), serverError()),
			want:    want{Incomplete: true, Synced: "cannot store the result of an interrupted create"},
		},
		"LostAnswer": {reason: "If the answer is lost, what was stored is read again.", loses: on(1, verb(testkit.Patch), broken), want: want{Name: "id-1", Succeeded: true}},
		"SettledByHandMeanwhile": {
			reason: "An outcome that an operator sets in the meantime is kept.",
			meanwhile: func(a *testkit.API) {
				edit(t, a, "b", named("by-hand"), unannotated(meta.AnnotationKeyExternalCreatePending))
			},
			want: want{Name: "by-hand"},
		},
		"SucceededAndUnseen": {
			reason: "The process that started the create may finish it in the meantime. Its result is kept, also if a stale cache doesn't show it.",
			absent: true,
			unseen: true,
			meanwhile: func(a *testkit.API) {
				edit(t, a, "b", named("theirs"), annotated(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:00:00Z"))
			},
			want: want{Name: "theirs", Succeeded: true},
		},
		"GoneMeanwhile": {reason: "What is gone needs nothing.", absent: true, meanwhile: func(a *testkit.API) { kill(t, a, "b") }},
		"AnotherMeanwhile": {
			reason: "What has its name by then has nothing to do with it.",
			meanwhile: func(a *testkit.API) {
				kill(t, a, "b")
				must(t, a.Server().Create(context.Background(), bucket(named("another"))))
			},
			want: want{Name: "another"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, h, x := testkit.NewAPI(bucket(interruptedBucket(time.Hour))), &testkit.Said{}, &outside{}
			x.on("observe", func(b *v1alpha1.Bucket) error { x.there = meta.GetExternalName(b) != ""; return nil })
			f := &seeker{finding: asyncstate.Found("id-1")}
			if tc.absent {
				f.finding = asyncstate.Absent()
			}
			f.then = func(context.Context, resource.Managed) {
				if len(f.asked) == 1 && tc.meanwhile != nil && !tc.unseen {
					tc.meanwhile(a)
				}
			}
			r := newBucketReconciler(a, WithRecorder(h), newClock().option(), WithCreateResolver(f), connects(x.client()))
			if tc.unseen {
				must(t, a.Freeze(context.Background(), bucket()))
				tc.meanwhile(a)
			}
			a.Before, a.After = tc.refuses, tc.loses
			result, err := r.Reconcile(context.Background(), request())
			wants(t, tc.reason, "result, finds, creates, said", []any{reconcile.Result{Requeue: true}, 1, 0, tc.want.Synced == ""},
				[]any{result, len(f.asked), x.did("create"), err == nil && len(h.Events("CannotInitializeManagedResource")) == 0})
			got := want{Synced: tc.want.Synced}
			if c := get(t, a).GetCondition(xpv2.TypeSynced); !strings.Contains(c.Message, tc.want.Synced) {
				got.Synced = c.Message
			}
			a.Thaw()
			try(r, 5)
			b := get(t, a)
			got.Name = meta.GetExternalName(b)
			got.Succeeded, got.Incomplete = !meta.GetExternalCreateSucceeded(b).IsZero(), meta.ExternalCreateIncomplete(b)
			got.Settled = len(h.Events(reasonResolvedCreate))
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

// What is looked up for a create that failed decides what happens next.
func TestCreateResolver_FailedCreate(t *testing.T) {
	begun, ended := seam.Stamp(newClock().now.Add(-time.Minute)), seam.Stamp(newClock().now.Add(-time.Second))
	failed := func(b *v1alpha1.Bucket) {
		meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyExternalCreatePending: begun, meta.AnnotationKeyExternalCreateFailed: ended})
	}
	type want struct {
		Finds, Creates, Deletes int
		Name, Synced            string
		Gone                    bool
	}
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		finder *seeker
		opts   []ReconcilerOption
		exists string
		fails  error // What the first create ends in, after it has made something.
		down   bool  // The API server refuses patches.
		async  bool
		want   want
	}{
		"Found": {
			reason: "It is managed under its name, and the provider is connected with it.",
			object: bucket(failed), finder: &seeker{finding: asyncstate.Found("id-1")}, exists: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundAfterLaterStep": {
			reason: "What an error is that of is not known: it is looked up before the create is repeated.",
			object: bucket(), finder: &seeker{finding: asyncstate.Found("id-0001")}, fails: errors.New("cannot tag the bucket"),
			want: want{Finds: 1, Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"FoundButNotStored": {
			reason: "If its name can't be stored, the reconcile stops.",
			object: bucket(failed), finder: &seeker{finding: asyncstate.Found("id-1")}, down: true,
			want: want{Finds: 3, Synced: "cannot store the result"},
		},
		"FoundThoughRecorded": {
			reason: "A provider that has stopped to be asynchronous left the record of the create.",
			object: bucket(failed, annotated(asyncstate.AnnotationKeyOperation, "{}")), finder: &seeker{finding: asyncstate.Found("id-1")}, exists: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundWithoutRecord": {
			reason: "Nor is there a record yet of one that was made before the provider became asynchronous.", async: true,
			object: bucket(failed), finder: &seeker{finding: asyncstate.Found("id-1")}, exists: "id-1",
			want: want{Finds: 1, Name: "id-1", Synced: "ReconcileSuccess"},
		},
		"FoundWhileDeleted": {
			reason: "It is deleted with the managed resource.",
			object: bucket(failed, deleting, finalizers(FinalizerName)), finder: &seeker{finding: asyncstate.Found("id-1")}, exists: "id-1",
			want: want{Finds: 1, Deletes: 1, Gone: true},
		},
		"Absent": {
			reason: "A create that was seen to end needs no patience.",
			object: bucket(failed), finder: &seeker{finding: asyncstate.Absent()},
			want: want{Finds: 1, Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"AbsentWhileDeleted": {
			reason: "There is nothing to delete.",
			object: bucket(failed, deleting, finalizers(FinalizerName)), finder: &seeker{finding: asyncstate.Absent()},
			want: want{Finds: 1, Gone: true},
		},
		"Unknown": {reason: "As long as it is unknown nothing is created.", object: bucket(failed), finder: &seeker{}, want: want{Finds: 3, Synced: "unknown whether the create that failed created an external resource. Look for it"}},
		"FindFailsWhileDeleted": {
			reason: "Nothing is decided if it can't be looked up: the managed resource stays until it is known.",
			object: bucket(failed, deleting, finalizers(FinalizerName)), finder: &seeker{err: errors.New("boom")},
			want: want{Finds: 3, Synced: "cannot look up the external resource of a create that failed: boom"},
		},
		"Exists": {reason: "What is there need not be looked up.", object: bucket(failed, named("id-1")), finder: &seeker{}, exists: "id-1", want: want{Name: "id-1", Synced: "ReconcileSuccess"}},
		"Succeeded": {
			reason: "A create that succeeded later made what is missing now.",
			object: bucket(failed, annotated(meta.AnnotationKeyExternalCreateSucceeded, ended), named("id-0")), finder: &seeker{},
			want: want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
		"Deterministic": {
			reason: "A name that is known beforehand needs no look-up.",
			object: bucket(failed, named("id-0")), finder: &seeker{}, opts: []ReconcilerOption{WithDeterministicExternalName(true)},
			want: want{Creates: 1, Name: "id-0001", Synced: "ReconcileSuccess"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			a.Before = failing(func(r testkit.Request) bool { return tc.down && r.Verb == testkit.Patch }, serverError())
			w, connects := newWorld()
			if tc.exists != "" {
				_, err := w.Session("").Create(t.Context(), cloud.CreateRequest{Kind: v1alpha1.BucketKind, Name: tc.exists})
				must(t, err)
			}
			if tc.async {
				tc.opts = append(tc.opts, WithAsync(newTracker(a)))
			}
			had := w.Counts()[cloud.OpCreate]
			w.SetHooks(cloud.Hooks{After: func(_ context.Context, call cloud.Call) error {
				if call.Op == cloud.OpCreate && len(tc.finder.asked) == 0 {
					return tc.fails
				}
				return nil
			}})
			repeat(t, newBucketReconciler(a, append(tc.opts, newClock().option(), connects, WithCreateResolver(tc.finder))...), 3)
			got := want{Finds: len(tc.finder.asked), Creates: w.Counts()[cloud.OpCreate] - had, Deletes: w.Counts()[cloud.OpDelete], Gone: true}
			if b := get(t, a); b.GetName() != "" {
				synced := b.GetCondition(xpv2.TypeSynced)
				got.Gone, got.Name, got.Synced = false, meta.GetExternalName(b), string(synced.Reason)+synced.Message
			}
			if strings.Contains(got.Synced, tc.want.Synced) {
				got.Synced = tc.want.Synced
			}
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

type findingClient[M resource.Managed] struct {
	TypedExternalClient[M]

	asked       *[]any
	disconnects *int
}

func (c *findingClient[M]) Find(_ context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
	*c.asked = []any{mg.GetName(), a}
	return asyncstate.Found("id-1"), nil
}

func (c *findingClient[M]) Disconnect(context.Context) error {
	*c.disconnects++
	return errors.New("it is gone already")
}

type untypedFinder struct {
	TypedExternalClient[*v1alpha1.Bucket]
	asyncstate.Finder
}

func TestFindWithConnector(t *testing.T) {
	type want struct {
		Finding     asyncstate.Finding
		Error       string
		Asked       []any
		Disconnects int // Of the client, and of the connector if it has to be disconnected.
	}
	attempt := asyncstate.Attempt{Type: asyncstate.Create, Number: 1, Started: newClock().now}
	asked := []any{"b", attempt}
	var got want
	untyped := func(c ExternalClient, err error) asyncstate.Finder {
		return FindWithConnector(ExternalConnectDisconnectorFns{
			ConnectFn:    func(context.Context, resource.Managed) (ExternalClient, error) { return c, err },
			DisconnectFn: func(context.Context) error { got.Disconnects++; return nil },
		})
	}
	typed := func(c TypedExternalClient[*v1alpha1.Bucket]) asyncstate.Finder {
		return FindWithTypedConnector(TypedExternalConnectorFn[*v1alpha1.Bucket](func(context.Context, *v1alpha1.Bucket) (TypedExternalClient[*v1alpha1.Bucket], error) {
			return c, nil
		}))
	}
	plain := clientOf(ExternalClientFns{})
	cases := map[string]struct {
		reason string
		finder asyncstate.Finder
		want   want
	}{
		"Found": {
			reason: "The external client is asked, and disconnected with its connector. That this fails is no reason not to know.",
			finder: untyped(&findingClient[resource.Managed]{asked: &got.Asked, disconnects: &got.Disconnects}, nil),
			want:   want{Finding: asyncstate.Found("id-1"), Asked: asked, Disconnects: 2},
		},
		"ConnectFails":          {reason: "What could not be connected is not disconnected.", finder: untyped(nil, errors.New("boom")), want: want{Error: "cannot connect: boom"}},
		"NeitherClientNorError": {reason: "A connector that returns nothing is not followed.", finder: untyped(nil, nil), want: want{Error: "the external connector returned neither a client nor an error", Disconnects: 1}},
		"NoFinder": {
			reason: "A client that can't look for anything is told to.",
			finder: untyped(&plain, nil),
			want:   want{Error: "*managed.TypedExternalClientFns[github.com/crossplane/crossplane-runtime/v2/pkg/resource.Managed] can't look for external resources: implement asyncstate.Finder, or leave WithCreateResolver out", Disconnects: 1},
		},
		"Typed": {
			reason: "A typed client is asked as that.",
			finder: typed(&findingClient[*v1alpha1.Bucket]{asked: &got.Asked, disconnects: &got.Disconnects}),
			want:   want{Finding: asyncstate.Found("id-1"), Asked: asked, Disconnects: 1},
		},
		"TypedWithUntypedFinder": {
			reason: "A typed client may be able to look for anything.",
			finder: typed(&untypedFinder{TypedExternalClient: connected[*v1alpha1.Bucket](provider{}), Finder: &seeker{finding: asyncstate.Absent()}}),
			want:   want{Finding: asyncstate.Absent()},
		},
		"OfAnotherKind": {
			reason: "A connector for another kind is not given this one.",
			finder: FindWithTypedConnector(connect[*v1alpha1.Database](provider{}, nil)),
			want:   want{Error: "the connector is one for *v1alpha1.Database, but the managed resource is a *v1alpha1.Bucket: pass the connector of this kind"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got = want{}
			f, err := tc.finder.Find(t.Context(), bucket(), attempt)
			if got.Finding = f; err != nil {
				got.Error = err.Error()
			}
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

// An error with a request id in it changes no condition.
func TestCreateResolverFindsOutNothingQuietly(t *testing.T) {
	a, h, f := testkit.NewAPI(bucket(interruptedBucket(time.Hour))), &testkit.Said{}, &seeker{}
	f.then = func(context.Context, resource.Managed) { f.err = errors.Errorf("throttled, request %d", len(f.asked)) }
	r := newBucketReconciler(a, WithCreateResolver(f), WithRecorder(h), connects(ExternalClientFns{}))
	run(t, r, "b")
	a.Forget()
	repeat(t, r, 3)
	wants(t, "", "writes after the first", 0, a.Writes())
	if ms := h.Events(reasonCannotResolveCreate); len(ms) != 4 || !strings.Contains(ms[3], "request 4") {
		t.Errorf("events: want the error of each, got %v", ms)
	}
}

// The clock of the machine that announced a create may be ahead.
func TestCreateResolverClockAhead(t *testing.T) {
	a, c, x := testkit.NewAPI(bucket(interruptedBucket(-10*365*24*time.Hour))), newClock(), &outside{}
	c.now = time.Now()
	r := newBucketReconciler(a, c.option(), WithCreateResolver(&seeker{finding: asyncstate.Absent()}), connects(x.client()))
	run(t, r, "b")
	c.now = c.now.Add(3 * time.Minute)
	run(t, r, "b")
	c.now = c.now.Add(time.Second)
	run(t, r, "b")
	wants(t, "", "creates after three minutes", 1, x.did("create"))
}

// What a create left in memory is stored at once, and creates of one second are told apart.
func TestCriticalAnnotations(t *testing.T) {
	merged, boom := 0, errors.New("boom")
	updaters := map[string]func(a *testkit.API) ReconcilerOption{
		"Default":            func(*testkit.API) ReconcilerOption { return WithInitializers() },
		"WithoutPersistence": func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() },
		"Upstream": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
		},
		"Custom": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
				merged++
				data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": o.GetAnnotations()}})
				must(t, err)
				return a.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
			}))
		},
	}
	type want struct {
		Creates                       int
		Incomplete, Succeeded, Failed bool
	}
	cases := map[string]struct {
		reason string
		ends   func(n int) error // The error of the n-th create.
		pause  time.Duration     // Between reconciles. A second, if zero.
		tries  int
		want   want
	}{
		"Succeeds":       {reason: "A create that succeeds has.", ends: func(int) error { return nil }, tries: 1, want: want{Creates: 1, Succeeded: true}},
		"Fails":          {reason: "One that fails has not.", ends: func(int) error { return boom }, tries: 1, want: want{Creates: 1, Failed: true}},
		"OutcomeUnknown": {reason: "A create without a result may have set the external name.", ends: func(int) error { return errors.Wrap(asyncstate.ErrOutcomeUnknown, "no answer") }, tries: 1, want: want{Creates: 1, Incomplete: true}},
		"SameSecond": {
			reason: "We should not create in the second in which the last create ended, because upstream could not tell the two apart.",
			ends:   func(int) error { return boom }, pause: time.Millisecond, tries: 5, want: want{Creates: 1, Failed: true},
		},
		"FailsTwice": {
			reason: "A create that ends in the second in which it was announced has ended.", tries: 4, want: want{Creates: 3, Succeeded: true, Failed: true},
			ends: func(n int) error {
				if n == 3 {
					return nil
				}
				return boom
			},
		},
		"ThirdIsCutOff": {
			reason: "The third create has no result, whatever the first two ended in.", tries: 5, want: want{Creates: 3, Incomplete: true, Failed: true},
			ends: func(n int) error {
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
					a, x := testkit.NewAPI(bucket(named("id-1"), annotated(keptKey, "kept"))), &outside{}
					x.on("create", func(b *v1alpha1.Bucket) error {
						err := tc.ends(x.did("create"))
						b.Status.AtProvider.ID = "id-1"
						return err
					})
					r := newBucketReconciler(a, updater(a), connects(x.client()))
					for range tc.tries {
						try(r, 1)
						time.Sleep(cmp.Or(tc.pause, time.Second))
					}
					b := get(t, a)
					got := want{
						Creates: x.did("create"), Incomplete: meta.ExternalCreateIncomplete(b),
						Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(), Failed: !meta.GetExternalCreateFailed(b).IsZero(),
					}
					wants(t, tc.reason, "", tc.want, got)
					wants(t, tc.reason, "name, status, others' annotation", []string{"id-1", "id-1", "kept"}, []string{meta.GetExternalName(b), b.Status.AtProvider.ID, b.GetAnnotations()[keptKey]})
				})
			})
		}
	}
	wants(t, "The provider's own updater is called.", "called", true, merged > 0)
}

// A reconcile that announces no create leaves alone what is said of the last one.
func TestNoAnnouncementWithoutCreate(t *testing.T) {
	for reason, actions := range map[string][]xpv2.ManagementAction{
		"The policies allow an update, and no create.": {xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize},
		"The policies allow neither.":                  {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	} {
		t.Run(reason, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), policies(actions...),
				annotated(meta.AnnotationKeyExternalCreatePending, created), annotated(meta.AnnotationKeyExternalCreateSucceeded, created)))
			x := (&outside{late: true}).on("observe", func(b *v1alpha1.Bucket) error { b.Spec.ForProvider.Region = "eu"; return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, reason, "external-create-succeeded, incomplete", []any{created, false},
				[]any{b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded], meta.ExternalCreateIncomplete(b)})
		})
	}
}

// The default stores annotations in patches, unless Create changed more.
func TestDefaultCriticalAnnotations(t *testing.T) {
	cases := map[string]struct {
		reason  string
		create  func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket)
		patches int
		updates int
		region  string
	}{
		"Nothing": {reason: "A result is stored by a patch.", create: func(*testing.T, *testkit.API, *v1alpha1.Bucket) {}, patches: 1, updates: 2},
		"Name":    {reason: "So is a name.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { named("id-1")(b) }, patches: 2, updates: 2},
		"SpecToo": {reason: "As with upstream, other changes are stored too.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }, patches: 1, updates: 3, region: "eu"},
		"LostARace": {
			reason: "As with upstream, a conflict drops other changes.",
			create: func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "eu"
				edit(t, a, "b", annotated("a", "b"))
			},
			patches: 2,
			updates: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket())
			x := (&outside{}).on("create", func(b *v1alpha1.Bucket) error { tc.create(t, a, b); return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, tc.reason, "patches, updates, region, incomplete", []any{tc.patches, tc.updates, tc.region, false}, []any{a.Count(testkit.Patch), a.Count(testkit.Update), b.Spec.ForProvider.Region, meta.ExternalCreateIncomplete(b)})
		})
	}
}

// An object that no reconcile is about goes to the updater that writes all of it.
func TestCriticalAnnotationsOfUntracked(t *testing.T) {
	boom := errors.New("boom")
	u := &createOutcome{whole: upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error { return boom })}
	if err := u.UpdateCriticalAnnotations(t.Context(), bucket()); !errors.Is(err, boom) {
		t.Errorf("UpdateCriticalAnnotations(...): want %v, got %v", boom, err)
	}
}

// A create that failed says nothing of the one that another process has announced since.
func TestFailedCreateSaysNothingOfAnother(t *testing.T) {
	a, there := testkit.NewAPI(bucket()), time.Now().Add(-time.Second).Format(time.RFC3339)
	x := (&outside{}).on("create", func(*v1alpha1.Bucket) error {
		edit(t, a, "b", annotated(meta.AnnotationKeyExternalCreatePending, there))
		return errors.New("boom")
	})
	run(t, newBucketReconciler(a, connects(x.client())), "b")
	b := get(t, a)
	wants(t, "", "incomplete, announced", []any{true, there}, []any{meta.ExternalCreateIncomplete(b), b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]})
}

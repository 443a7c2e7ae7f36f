package managed

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// secret is in every error that a provider returns here.
const secret = "p4ssw0rd" //nolint:gosec // It opens nothing.

var errProvider = errors.New("401 for user root with " + secret)

func fails(context.Context, resource.Managed) (ExternalObservation, error) {
	return ExternalObservation{}, errProvider
}

func deleteFails(context.Context, resource.Managed) (ExternalDelete, error) {
	return ExternalDelete{}, errProvider
}

func refused() error {
	return kerrors.NewForbidden(schema.GroupResource{}, "b", errProvider)
}

func justCreated(mg *v1alpha1.Bucket) { meta.SetExternalCreateSucceeded(mg, time.Now()) }

func said(c ...xpv2.Condition) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.SetConditions(c...) }
}

// A condition is compared field by field: Equal of an xpv2.Condition ignores some.
type condition xpv2.Condition

// status of the conditions that tell about a deletion.
type status struct {
	Ready    condition
	Deleting condition
}

func statusOf(mg resource.Managed) status {
	s := status{Ready: condition(mg.GetCondition(xpv2.TypeReady)), Deleting: condition(mg.GetCondition(reconciler.TypeDeleting))}
	s.Ready.LastTransitionTime.Reset()
	s.Deleting.LastTransitionTime.Reset()
	return s
}

// deletes returns what the status of an object of generation 3 is to be.
func deletes(r xpv2.ConditionReason, message string) status {
	return status{
		Ready:    condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Deleting", Message: message, ObservedGeneration: 3},
		Deleting: condition{Type: "Deleting", Status: corev1.ConditionTrue, Reason: r, Message: message, ObservedGeneration: 3},
	}
}

func reported(s status) func(b *v1alpha1.Bucket) {
	return said(xpv2.Condition(s.Ready), xpv2.Condition(s.Deleting))
}

// A managed resource that is being deleted says why it is still there, in as few writes as there are changes.
func TestDeletionReported(t *testing.T) {
	requested := deletes(reconciler.ReasonDeletionRequested, messageRequested)
	one := func(r xpv2.ConditionReason, message string) []status { return []status{deletes(r, message)} }
	gone, down := provider{client: ExternalClientFns{ObserveFn: absent}}, provider{client: ExternalClientFns{ObserveFn: fails}}
	waitingFor := func(fs string) status {
		return deletes(reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer+fs)
	}
	cases := map[string]struct {
		reason   string
		mods     []func(b *v1alpha1.Bucket)
		provider provider
		opts     []ReconcilerOption
		before   func(ctx context.Context, r testkit.Request) error

		// connecting is what the server says at the first Connect: that a deletion was requested, unless it is set.
		connecting  status
		unconnected bool
		after       []status // What the server says after each reconcile, and the last one from then on.
		writes      int      // Of status until nothing changes any more; 2 if it is 0.
		loud        bool     // An error is to be seen in Synced.
	}{
		"InitializeFails": {
			reason:      "A custom initializer's failure should be reported.",
			opts:        []ReconcilerOption{WithInitializers(InitializerFn(func(context.Context, resource.Managed) error { return errProvider }))},
			after:       one(reconciler.ReasonInitializeFailed, messageInitializeFailed),
			unconnected: true,
			loud:        true,
		},
		"ConnectFails": {reason: "Broken credentials should be reported.", provider: provider{connectErr: errProvider}, after: one(reconciler.ReasonConnectFailed, messageConnectFailed), loud: true},
		"NamespaceTerminates": {
			reason:   "What can't be created in a namespace that is being deleted should be told from broken credentials.",
			provider: provider{connectErr: terminating()},
			after:    one(reconciler.ReasonNamespaceTerminating, messageTerminating),
		},
		"NilClient": {
			reason:   "A connector that returns neither a client nor an error should be reported, not crash.",
			provider: provider{nilClient: true},
			after:    one(reconciler.ReasonConnectFailed, messageConnectFailed),
		},
		"ObserveFails": {reason: "An external resource that can't be observed should be reported.", provider: down, after: one(reconciler.ReasonObserveFailed, messageObserveFailed), loud: true},
		"ObserveFailsWhileOthersHoldFinalizers": {
			reason:     "What stopped this reconcile should be reported, not what would stop it next.",
			mods:       []func(b *v1alpha1.Bucket){finalizers(FinalizerName, "example.org/a")},
			provider:   down,
			connecting: waitingFor("example.org/a"),
			after:      one(reconciler.ReasonObserveFailed, messageObserveFailed),
			loud:       true,
		},
		"CreateIncomplete": {
			reason:      "An incomplete create should be reported as what it is for a deletion, with what to do.",
			mods:        []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			after:       one(reconciler.ReasonCreateResultUnknown, messageCreateUnknown),
			unconnected: true,
		},
		"ManyOtherFinalizers": {
			reason:     "Finalizers of others should be named, sorted, without the reconciler's own; of many the first few, and the rest counted.",
			mods:       []func(b *v1alpha1.Bucket){finalizers("f/7", "f/6", "f/5", FinalizerName, "f/4", "f/3", "f/2", "f/1")},
			connecting: waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			after:      []status{waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			writes:     1,
		},
		"FinalizersLeft": {
			reason:   "If only another controller's finalizer is there, the deletion should proceed and then wait for it.",
			mods:     []func(b *v1alpha1.Bucket){finalizers("example.org/a")},
			provider: gone,
			after:    []status{waitingFor("example.org/a")},
		},
		"PausedByAnnotation": {
			reason:      "A pause by annotation should be reported.",
			mods:        []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyReconciliationPaused, "true")},
			after:       one(reconciler.ReasonBlockedByPause, messagePaused),
			unconnected: true,
		},
		"PausedBefore": {
			reason:      "What was paused before it is deleted should be reported in one write.",
			mods:        []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyReconciliationPaused, "true"), said(xpv2.ReconcilePaused().WithObservedGeneration(3))},
			after:       one(reconciler.ReasonBlockedByPause, messagePaused),
			writes:      1,
			unconnected: true,
		},
		"PausedByPolicy": {
			reason:      "A pause by management policies should be reported.",
			mods:        []func(b *v1alpha1.Bucket){policies()},
			after:       one(reconciler.ReasonBlockedByPause, messagePaused),
			unconnected: true,
		},
		"PauseEnded": {
			reason: "After a pause it should not be blamed any more.",
			mods: []func(b *v1alpha1.Bucket){
				said(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, messagePaused)...),
				said(xpv2.ReconcilePaused()),
			},
			provider: down,
			after:    one(reconciler.ReasonObserveFailed, messageObserveFailed),
			loud:     true,
		},
		"InvalidPolicies": {
			reason:      "Management policies that are not supported should be reported.",
			mods:        []func(b *v1alpha1.Bucket){policies(xpv2.ManagementActionDelete)},
			after:       one(reconciler.ReasonReconcileFailed, messageReconcileFailed),
			unconnected: true,
		},
		"CreationGracePeriod": {
			reason:   "While absence is being confirmed, that should be reported.",
			mods:     []func(b *v1alpha1.Bucket){justCreated},
			provider: gone,
			opts:     []ReconcilerOption{WithCreationGracePeriod(time.Hour)},
			after:    one(reconciler.ReasonConfirmingAbsence, messageGracePeriod),
		},
		"DeleteFails": {
			reason:   "A delete that is refused should be reported.",
			provider: provider{client: ExternalClientFns{DeleteFn: deleteFails}},
			after:    one(reconciler.ReasonExternalDeleteFailed, messageDeleteFailed),
			writes:   3,
			loud:     true,
		},
		"DeleteAccepted": {
			reason: "A delete that is accepted should be reported, and on the next pass that it is not done.",
			after: []status{
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
			},
			writes: 3,
		},
		"RemoveFinalizerFails": {
			reason:   "That the default finalizer can't be removed should be reported.",
			provider: gone,
			before:   failing(func(r testkit.Request) bool { return r.Verb == testkit.Update }, refused()),
			after:    one(reconciler.ReasonReconcileFailed, messageCleanupFailed),
			loud:     true,
		},
		"InvalidPoliciesAndCreateIncomplete": {
			reason: "That a create is incomplete should not be said before it is known to be what stops.",
			mods: []func(b *v1alpha1.Bucket){
				policies(xpv2.ManagementActionDelete),
				annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			after:       one(reconciler.ReasonReconcileFailed, messageReconcileFailed),
			unconnected: true,
		},
		"ReportedBefore": {
			reason:   "What is on the server already should not be written again before Connect.",
			mods:     []func(b *v1alpha1.Bucket){reported(requested)},
			provider: provider{connectErr: errProvider},
			after:    one(reconciler.ReasonConnectFailed, messageConnectFailed),
			writes:   1,
			loud:     true,
		},
		"ReadyAgainThoughReportedBefore": {
			reason:     "If another writer set Ready on an object that is being deleted, Ready should become False again before Connect, with the reason that was reported.",
			mods:       []func(b *v1alpha1.Bucket){reported(deletes(reconciler.ReasonObserveFailed, messageObserveFailed)), said(xpv2.Available())},
			provider:   provider{connectErr: errProvider},
			connecting: deletes(reconciler.ReasonObserveFailed, messageObserveFailed),
			after:      one(reconciler.ReasonConnectFailed, messageConnectFailed),
			loud:       true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rec := &testkit.Said{}
			a := testkit.NewAPI(deleted(append([]func(b *v1alpha1.Bucket){said(xpv2.Available(), xpv2.ReconcileSuccess())}, tc.mods...)...))
			a.Before = tc.before
			var connecting []status
			r := connectingReconciler(a, tc.provider, func() { connecting = append(connecting, statusOf(get(t, a))) }, append(tc.opts, WithRecorder(rec))...)
			writes := func() int { return a.Count(testkit.StatusUpdate, testkit.StatusPatch) }
			before := get(t, a)
			for i := range 2 + len(tc.after) {
				run(t, r, "b")
				now := get(t, a)
				wants(t, tc.reason, fmt.Sprintf("after reconcile %d", i+1), tc.after[min(i, len(tc.after)-1)], statusOf(now))
				for _, c := range []xpv2.ConditionType{xpv2.TypeReady, reconciler.TypeDeleting} {
					was, is := before.GetCondition(c), now.GetCondition(c)
					wants(t, tc.reason, "moved: the time of "+string(c)+", which should if it changed, and only then", was.Equal(is), was.LastTransitionTime.Equal(&is.LastTransitionTime))
				}
				before = now
			}
			var want []status
			if !tc.unconnected {
				want = []status{stdcmp.Or(tc.connecting, requested)}
				want[0].Ready.LastTransitionTime.Reset()
			}
			wants(t, tc.reason, "while connecting", want, connecting[:min(1, len(connecting))])
			wants(t, tc.reason, "status writes until it settled", stdcmp.Or(tc.writes, 2), writes())
			a.Forget()
			repeat(t, r, 10)
			wants(t, tc.reason, "status writes in 10 more reconciles", 0, writes())
			wants(t, tc.reason, "10 reconciles later", before, get(t, a))
			wants(t, tc.reason, "Synced says what upstream says", tc.loud, strings.Contains(before.GetCondition(xpv2.TypeSynced).Message, secret))
			for _, reason := range []event.Reason{reasonCannotReportDeletion, reasonCannotStoreAnnotations, reasonOverwroteAnnotation} {
				wants(t, tc.reason, "events", 0, len(rec.Events(reason)))
			}
		})
	}
}

// A deletion is reported through faults, and doesn't depend on that.
func TestDeletionUnderFaults(t *testing.T) {
	type run struct {
		*testing.T
		a       *testkit.API
		r       *Reconciler
		deletes int
		ready   []status
	}

	// reconciles runs it n times, of which some fail.
	reconciles := func(x *run, n, fail int) {
		x.Helper()
		failed := 0
		for range n {
			if _, err := x.r.Reconcile(x.Context(), request()); err != nil {
				failed++
			}
		}
		wants(x.T, "", "reconciles that failed", fail, failed)
	}

	// before makes another writer write before the n-th patch of status.
	before := func(x *run, n int, write func(mg resource.Managed) error) {
		x.a.Before = on(n, verb(testkit.StatusPatch), func(testkit.Request) error { return write(get(x.T, x.a)) })
	}
	releases := func(x *run) func(mg resource.Managed) error {
		return func(mg resource.Managed) error {
			mg.SetFinalizers(nil)
			return x.a.Server().Update(x.Context(), mg)
		}
	}
	silent := status{Ready: condition{Type: "Ready", Status: "Unknown"}, Deleting: condition{Type: "Deleting", Status: "Unknown"}}
	requested := deletes(reconciler.ReasonDeletionRequested, messageRequested)
	deleteRequested := deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested)
	exists := deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists)
	held := []func(b *v1alpha1.Bucket){finalizers(FinalizerName, "example.org/a")}
	cases := map[string]struct {
		reason   string
		mods     []func(b *v1alpha1.Bucket)
		fails    error // What writes of status end in, or only patches of it.
		patch    bool
		run      func(x *run) // One reconcile, unless it is set.
		deletes  int          // Of the external resource.
		ready    []status     // What the server said while the provider was connected to.
		warnings int          // How many events said that a deletion can't be reported.
		after    status       // What the server says in the end, if it is set.
	}{
		"Conflict": {
			reason: "After a conflict right before Delete nothing is deleted until the object was read again. The other writer's condition is kept.",
			run: func(x *run) {
				before(x, 2, func(mg resource.Managed) error {
					mg.SetConditions(foreignCondition())
					return x.a.Server().Status().Update(x.Context(), mg)
				})
				reconciles(x, 2, 0)
				wants(x.T, "", "foreign condition", foreignCondition(), get(x.T, x.a).GetCondition("Foreign"))
			},
			deletes: 1,
			ready:   []status{requested, deleteRequested},
			after:   exists,
		},
		"StaleCache": {
			reason: "A cache that lags should lead to no error, and not take back what was reported.",
			run: func(x *run) {
				must(x.T, x.a.Freeze(x.Context(), deleted()))
				reconciles(x, 1, 0)
				x.a.After = func(_ context.Context, r testkit.Request) error {
					if statusWrite(r) {
						wants(x.T, "", "reason after a stale read", reconciler.ReasonWaitingForExternalResource, statusOf(get(x.T, x.a)).Deleting.Reason)
					}
					return nil
				}
				reconciles(x, 1, 0)
				version := get(x.T, x.a).GetResourceVersion()
				reconciles(x, 3, 0)
				wants(x.T, "", "resource version", version, get(x.T, x.a).GetResourceVersion())
			},
			deletes: 5,
			ready:   []status{requested, deleteRequested, exists, exists, exists},
		},
		"CacheStaleByOneReport": {
			reason: "Nothing is deleted for an object that is known to be older than the last report, which is not taken back either.",
			run: func(x *run) {
				x.a.After = on(1, verb(testkit.StatusPatch), func(testkit.Request) error { return x.a.Freeze(x.Context(), deleted()) })
				reconciles(x, 3, 0)
			},
			deletes: 1,
			ready:   []status{requested, deleteRequested, deleteRequested},
			after:   deleteRequested,
		},
		"GoneBeforeTheFirstReport": {reason: "An object that is gone needs no report, and that is no error.", run: func(x *run) { before(x, 1, releases(x)); reconciles(x, 1, 0) }},
		"GoneBeforeDelete": {
			reason: "The external resource of an object that was released, by an operator who orphans it for example, is kept.",
			run: func(x *run) {
				before(x, 2, releases(x))
				// Upstream writes status of what does not exist.
				reconciles(x, 2, 1)
			},
			ready: []status{requested},
		},
		"ServerErrors": {
			reason: "A report that doesn't succeed should not hold up a deletion for ever.",
			fails:  serverError(),
			run: func(x *run) {
				reconciles(x, 5, 5)
				wants(x.T, "", "deletes", 0, x.deletes)
				// Upstream can't write status either.
				reconciles(x, 1, 1)
			},
			deletes:  1,
			ready:    []status{silent},
			warnings: 2,
		},
		"ServerErrorAtTheEnd": {
			reason: "A report that doesn't succeed after upstream returned should be tried again.",
			mods:   append(held, reported(requested)),
			fails:  serverError(),
			run:    func(x *run) { reconciles(x, 1, 1) },
			ready:  []status{requested},
		},
		"Invalid": {
			reason: "If no status is accepted, that is said when it begins, and when something is about to be deleted.",
			fails:  kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
			run:    func(x *run) { reconciles(x, 1, 1) }, deletes: 1, ready: []status{silent}, warnings: 2,
		},
		"UpstreamsStatusIsInvalid": {
			reason: "What happened is reported although the API server refuses the status that the provider has set.",
			run: func(x *run) {
				x.a.Before = failing(verb(testkit.StatusUpdate), kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil))
				reconciles(x, 3, 3)
				x.r = connectingReconciler(x.a, provider{connectErr: errProvider}, func() {})
				reconciles(x, 1, 1)
			},
			deletes: 3,
			ready:   []status{requested, deleteRequested, exists},
			after:   deletes(reconciler.ReasonConnectFailed, messageConnectFailed),
		},
		"Forbidden":         {reason: "A report that is not allowed should hold up nothing.", fails: refused(), patch: true, deletes: 1, ready: []status{silent}, warnings: 2},
		"ForbiddenAtTheEnd": {reason: "A report that is not allowed should not make a reconcile fail that did not.", mods: held, fails: refused(), patch: true, ready: []status{silent}, warnings: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rec := &testkit.Said{}
			x := &run{T: t, a: testkit.NewAPI(deleted(tc.mods...))}
			x.a.Before = failing(func(r testkit.Request) bool { return statusWrite(r) && (!tc.patch || r.Verb == testkit.StatusPatch) }, tc.fails)
			x.r = connectingReconciler(x.a, provider{client: ExternalClientFns{DeleteFn: counts[ExternalDelete](&x.deletes)}},
				func() { x.ready = append(x.ready, statusOf(get(t, x.a))) }, WithRecorder(rec))
			if tc.run == nil {
				reconciles(x, 1, 0)
			} else {
				tc.run(x)
			}
			if tc.after != (status{}) {
				wants(t, tc.reason, "status", tc.after, statusOf(get(t, x.a)))
			}
			wants(t, tc.reason, "external deletes, warnings", []int{tc.deletes, tc.warnings}, []int{x.deletes, len(rec.Events(reasonCannotReportDeletion))})
			wants(t, tc.reason, "while connecting", tc.ready, x.ready)
		})
	}
}

// A deletion that a restored backup speaks of is withdrawn, unless it is true by now.
func TestRestoredDeletion(t *testing.T) {
	for name, deleted := range map[string]bool{"Live": false, "DeletedMeanwhile": true} {
		t.Run(name, func(t *testing.T) {
			restored := deletes(reconciler.ReasonDeadlineExceeded, "old")
			a, x := testkit.NewAPI(bucket(finalizers(FinalizerName), func(b *v1alpha1.Bucket) { reported(restored)(b); said(xpv2.Available())(b) })), &outside{there: true}
			want := status{Ready: condition(xpv2.Available()), Deleting: condition(reconciler.NotDeleting(time.Time{}))}
			if deleted {
				must(t, a.Freeze(t.Context(), bucket()))
				remove(t, a, "b")
				want = restored
			}
			want.Ready.LastTransitionTime.Reset()
			var seen []status
			x.before = func(string, resource.Managed) error {
				now := statusOf(get(t, a))
				now.Ready.ObservedGeneration, now.Deleting.ObservedGeneration = want.Ready.ObservedGeneration, want.Deleting.ObservedGeneration
				seen = append(seen, now)
				return nil
			}
			r := newBucketReconciler(a, connects(x.client()))
			run(t, r, "b")
			wants(t, "The status should be true before the provider is called.", "status", want, seen[0])
			if !deleted {
				repeat(t, r, 2, "b")
				wants(t, "It takes one write, and upstream's own takes another.", "status writes", 2, a.Count(testkit.StatusUpdate, testkit.StatusPatch))
			}
		})
	}
}

// A Deleting condition that another controller restores each time is withdrawn three times,
// and then once an interval.
func TestRestoredDeletion_EachTime(t *testing.T) {
	restore := said(reconciler.Deleting(time.Time{}, "Theirs", "as they see it")[1])
	b := bucket(finalizers(FinalizerName), named("b"), restore)
	a, clock := testkit.NewAPI(b), newClock()
	r := newBucketReconciler(a, connects(clientOf(ExternalClientFns{})), clock.option())
	withdrawn := func(reconciles int) int {
		times := 0
		for range reconciles {
			run(t, r, "b")
			if b := get(t, a); deletingCondition(b).Status != corev1.ConditionTrue {
				times++
				restore(b)
				must(t, a.Server().Status().Update(t.Context(), b))
			}
		}
		return times
	}
	wants(t, "Each withdrawal causes a reconcile.", "withdrawn in 20 reconciles", 3, withdrawn(20))
	clock.now = clock.now.Add(withdrawInterval)
	wants(t, "The condition is not true.", "withdrawn in an interval", 1, withdrawn(5))
}

// A deletion is not blamed on what the reconcile in which it begins was on its way to.
func TestDeletionBeginsMeanwhile(t *testing.T) {
	requested := deletes(reconciler.ReasonDeletionRequested, messageRequested)
	cases := map[string]struct {
		reason string
		there  bool
		err    error
		others []string
		want   status
	}{
		"Updated":        {reason: "After an update that succeeded the deletion was merely requested.", there: true, want: requested},
		"UpdatedAndHeld": {reason: "Finalizers of others should be named.", there: true, others: []string{"example.org/a"}, want: deletes(reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer+"example.org/a")},
		"UpdateFailed":   {reason: "It should not be said of an external resource that exists that it doesn't.", there: true, err: errProvider, want: deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
		"Created":        {reason: "It should not be said of an external resource that was created that it doesn't exist.", want: requested},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket(finalizers(append(tc.others, FinalizerName)...))), &outside{there: tc.there, outdated: true}
			x.before = func(what string, mg resource.Managed) error {
				if what == "observe" {
					return nil
				}
				remove(t, a, "b")
				must(t, a.Server().Get(t.Context(), request().NamespacedName, mg))
				return tc.err
			}
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			got := statusOf(get(t, a))
			got.Ready.ObservedGeneration, got.Deleting.ObservedGeneration = 3, 3
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

// A provider that writes Ready itself is left alone after it has done so twice.
func TestDeletionWithForeignStatusWriter(t *testing.T) {
	cases := map[string]struct {
		reason string
		holds  []string
		delete error
		ready  xpv2.Condition
	}{
		"Deletes":      {reason: "The external resource takes a while.", ready: xpv2.Available()},
		"SaysDeleting": {reason: "It says that it is deleting, too, but in its own words.", ready: xpv2.Deleting()},
		"DeleteFails":  {reason: "It can't be deleted.", delete: errors.New("boom"), ready: xpv2.Available()},
		"OtherHolders": {reason: "Upstream writes no status.", holds: []string{"example.org/other"}, ready: xpv2.Available()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, rec := testkit.NewAPI(bucket(named("id-1"), deleting, finalizers(append(tc.holds, FinalizerName)...))), &testkit.Said{}
			r := newBucketReconciler(a, WithRecorder(rec), connects(ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					mg.SetConditions(tc.ready)
					// With the manager's own client.
					return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, a.Server().Status().Update(ctx, mg)
				},
				DeleteFn: returns(ExternalDelete{}, tc.delete),
			}))
			repeat(t, r, maxOverwritten)
			rests := get(t, a).GetResourceVersion()
			repeat(t, r, 5)
			got := get(t, a)
			wants(t, tc.reason, "resource version at rest", rests, got.GetResourceVersion())
			wants(t, tc.reason, "Ready, Deleting, events", []any{tc.ready.Reason, corev1.ConditionTrue, 1}, []any{got.GetCondition(xpv2.TypeReady).Reason, got.GetCondition(reconciler.TypeDeleting).Status, len(rec.Events(reasonForeignStatus))})
		})
	}
}

// The provider's own finalizer is none of another controller's, whatever its name.
func TestDeletionWithCustomFinalizer(t *testing.T) {
	custom := func(a *testkit.API) resource.Finalizer {
		return resource.NewAPIFinalizer(a.Client(), "example.org/own")
	}
	cases := map[string]struct {
		reason     string
		finalizer  func(a *testkit.API) resource.Finalizer
		finalizers []string
		want       string
	}{
		"Others":   {reason: "The others are named.", finalizer: custom, finalizers: []string{"example.org/own", "example.org/other"}, want: messageWaitingFinalizer + "example.org/other"},
		"Upstream": {reason: "Upstream's is another's then.", finalizer: custom, finalizers: []string{"example.org/own", FinalizerName}, want: messageWaitingFinalizer + FinalizerName},
		"Unknown": {
			reason: "Of a finalizer that is code of the provider's the name is not known.",
			finalizer: func(a *testkit.API) resource.Finalizer {
				f := custom(a)
				return resource.FinalizerFns{AddFinalizerFn: f.AddFinalizer, RemoveFinalizerFn: f.RemoveFinalizer}
			},
			finalizers: []string{"example.org/own", "example.org/other"},
			want:       messageSomeFinalizer + "example.org/other, example.org/own",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(named("id-1"), deleting, finalizers(tc.finalizers...)))
			r := newBucketReconciler(a, WithFinalizer(tc.finalizer(a)), connects(ExternalClientFns{}))
			run(t, r, "b")
			c := get(t, a).GetCondition(reconciler.TypeDeleting)
			wants(t, tc.reason, "Deleting", []any{reconciler.ReasonWaitingForFinalizers, tc.want}, []any{c.Reason, c.Message})
		})
	}
}

const interval = 10 * time.Second

// observes returns an Observe that answers found, absent, or fails, and absent after that.
func observes(words string) func(context.Context, resource.Managed) (ExternalObservation, error) {
	answers := strings.Fields(words)
	return func(context.Context, resource.Managed) (ExternalObservation, error) {
		answer := "absent"
		if len(answers) > 0 {
			answer, answers = answers[0], answers[1:]
		}
		if answer == "fails" {
			return ExternalObservation{}, errors.New("boom")
		}
		return ExternalObservation{ResourceExists: answer == "found", ResourceUpToDate: true}, nil
	}
}

func TestDeletionConfirmation(t *testing.T) {
	cases := map[string]struct {
		reason   string
		mods     []func(b *v1alpha1.Bucket)
		n        int
		observes string
		refuses  string        // Which Deletes are refused, from 1.
		every    time.Duration // How far apart reconciles are.

		// then is what happens after so many reconciles: the process ends, if it is nil.
		after   int
		then    func(t *testing.T, a *testkit.API)
		want    int // How many reconciles it takes until the object is gone.
		deletes int
		again   int
	}{
		"Confirmed":        {reason: "An external resource that is never found is gone after the third time.", n: 3, every: interval, want: 3},
		"Once":             {reason: "Once is what upstream does.", n: 1, every: interval, want: 1},
		"OneWrongNotFound": {reason: "One wrong not-found among the observations doesn't remove the finalizer, and the external resource is deleted.", n: 3, observes: "absent found absent", every: interval, want: 3, deletes: 1, again: 1},
		"FailedBetween":    {reason: "So does an observation that failed: in a row means nothing else in between.", n: 3, observes: "absent absent fails absent absent absent", every: interval, want: 6},
		"SawDelete":        {reason: "After a Delete that we saw succeed the first not-found counts.", n: 3, observes: "found absent", every: interval, want: 2, deletes: 1},
		"StillThere":       {reason: "What takes a while to delete was never found not to exist.", n: 3, observes: "found found absent", every: interval, want: 3, deletes: 2},
		"Refused":          {reason: "A Delete that failed has deleted nothing.", n: 3, observes: "found found", refuses: "2", every: interval, want: 5, deletes: 2},
		"RefusedFirst":     {reason: "What counts is the last one.", n: 3, observes: "found found", refuses: "1", every: interval, want: 3, deletes: 2},
		"FailedAfter":      {reason: "A failed Observe undoes no Delete.", n: 3, observes: "found fails", every: interval, want: 3, deletes: 1},
		"Renamed":          {reason: "What was deleted is not what is looked for now.", n: 3, observes: "found", after: 1, then: func(t *testing.T, a *testkit.API) { edit(t, a, "b", named("another")) }, every: interval, want: 4, deletes: 1},
		"Restart":          {reason: "Another process counts again.", n: 3, after: 2, every: interval, want: 5},
		"GoneOtherwise":    {reason: "What is gone is forgotten.", n: 3, after: 2, then: func(t *testing.T, a *testkit.API) { kill(t, a, "b") }, every: interval, want: 2},
		"AnotherOfTheName": {
			reason: "Another object is counted for itself.",
			after:  2, then: func(t *testing.T, a *testkit.API) {
				kill(t, a, "b")
				must(t, a.Server().Create(t.Context(), bucket(finalizers(FinalizerName))))
				remove(t, a, "b")
			},
			n: 3, every: interval, want: 5,
		},
		"TooSoon": {reason: "Not found twice in less than the interval is not found once.", n: 2, every: interval / 4, want: 5},
		"Orphan": {
			reason: "What is deleted without its external resource is not observed, and goes at once.",
			mods:   []func(b *v1alpha1.Bucket){policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate)},
			n:      3, every: interval, want: 1,
		},
	}
	for name, tc := range cases {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/WithoutDeletionStatus=%t", name, without), func(t *testing.T) {
				a, c, rec, deletes := testkit.NewAPI(bucket(append(tc.mods, deleting, finalizers(FinalizerName))...)), newClock(), &testkit.Said{}, 0
				opts := []ReconcilerOption{c.option(), WithRecorder(rec), WithDeletionConfirmation(tc.n, interval), connects(ExternalClientFns{
					ObserveFn: observes(tc.observes),
					DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
						if deletes++; tc.refuses == fmt.Sprint(deletes) {
							return ExternalDelete{}, errors.New("protection is on")
						}
						return ExternalDelete{}, nil
					},
				})}
				if without {
					opts = append(opts, WithoutDeletionStatus())
				}
				r, n := newBucketReconciler(a, opts...), 0
				for get(t, a).GetName() != "" && n < 20 {
					run(t, r, "b")
					c.now = c.now.Add(tc.every)
					switch n++; {
					case n == tc.after && tc.then == nil:
						r = newBucketReconciler(a, opts...)
					case n == tc.after:
						tc.then(t, a)
					}
				}
				run(t, r, "b")
				wants(t, tc.reason, "reconciles, deletes, found after all, remembered", []any{tc.want, tc.deletes, tc.again, 0}, []any{n, deletes, len(rec.Events(reasonFoundAfterAll)), r.seam.Store().Len()})
			})
		}
	}
}

// While absence is being confirmed the reconcile comes back in time, and is quiet.
func TestDeletionConfirmationIsQuiet(t *testing.T) {
	a, c, rec := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName, "other"))), newClock(), &testkit.Said{}
	r := newBucketReconciler(a, c.option(), WithRecorder(rec), WithDeletionConfirmation(3, interval), connects(ExternalClientFns{ObserveFn: absent}))
	var after []time.Duration
	for _, step := range []time.Duration{0, time.Second, time.Second, interval - 2*time.Second, 3 * time.Second} {
		c.now = c.now.Add(step)
		result, err := r.Reconcile(context.Background(), request())
		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err != nil || result.Requeue {
			t.Fatalf("Reconcile: want no error and no backoff, got %v, %v", result, err)
		}
		after = append(after, result.RequeueAfter)
	}
	want := []time.Duration{interval, interval - time.Second, interval - 2*time.Second, interval, interval - 3*time.Second}
	wants(t, "", "RequeueAfter", want, after)
	b := get(t, a)
	said := []any{b.GetCondition(reconciler.TypeDeleting).Reason, b.GetCondition(xpv2.TypeReady).Reason, b.GetCondition(xpv2.TypeReady).Message, b.GetFinalizers()}
	wants(t, "", "reason, Ready, message, finalizers", []any{reconciler.ReasonConfirmingAbsence, xpv2.ReasonDeleting, messageAbsent, []string{FinalizerName, "other"}}, said)

	// Deleting is said at once, then why.
	wants(t, "", "writes, events", []int{2, 1}, []int{a.Writes(), len(rec.Events(reasonConfirmingAbsence))})
	c.now = c.now.Add(interval)
	run(t, r, "b")
	wants(t, "It is confirmed.", "reason", reconciler.ReasonWaitingForFinalizers, get(t, a).GetCondition(reconciler.TypeDeleting).Reason)
}

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

// refused is what an API server says to a write that it will never do.
func refused() error {
	return kerrors.NewForbidden(schema.GroupResource{}, "b", errProvider)
}

func held(fs ...string) func(resource.Managed) {
	return func(mg resource.Managed) { mg.SetFinalizers(fs) }
}

func noted(key, value string) func(resource.Managed) {
	return func(mg resource.Managed) { meta.AddAnnotations(mg, map[string]string{key: value}) }
}

// justCreated says that the external resource was created when the object is made.
func justCreated(mg resource.Managed) { meta.SetExternalCreateSucceeded(mg, time.Now()) }

func allowed(p ...xpv2.ManagementAction) func(resource.Managed) {
	return func(mg resource.Managed) { mg.SetManagementPolicies(p) }
}

func said(c ...xpv2.Condition) func(resource.Managed) {
	return func(mg resource.Managed) { mg.SetConditions(c...) }
}

// A condition that is compared field by field: an xpv2.Condition has an Equal of
// its own, which ignores times, and generations if one is zero.
type condition xpv2.Condition

// status of the conditions that tell about a deletion.
type status struct {
	Ready    condition
	Deleting condition
}

// statusOf mg, without times.
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

func reported(s status) func(resource.Managed) {
	return said(xpv2.Condition(s.Ready), xpv2.Condition(s.Deleting))
}

// A managed resource that is being deleted says so, and why it is still there,
// in every situation, for as long as that lasts, and in as many writes as there
// are changes to see.
func TestDeletionReported(t *testing.T) {
	requested := deletes(reconciler.ReasonDeletionRequested, messageRequested)
	one := func(r xpv2.ConditionReason, message string) []status { return []status{deletes(r, message)} }
	gone, down := provider{client: ExternalClientFns{ObserveFn: absent}}, provider{client: ExternalClientFns{ObserveFn: fails}}
	waitingFor := func(fs string) status {
		return deletes(reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer+fs)
	}
	cases := map[string]struct {
		reason   string
		mods     []func(mg resource.Managed)
		provider provider
		opts     []ReconcilerOption
		before   func(ctx context.Context, r testkit.Request) error

		// connecting is what the server says while the provider is connected to, for
		// the first time: that a deletion was requested, unless it is something else,
		// or the provider is not connected to.
		connecting  status
		unconnected bool

		// after is what the server says after each of the first reconciles. The
		// last one is to stay.
		after []status

		// writes of status until nothing changes any more; 2 if it is 0.
		writes int

		// loud means that an error is to be seen in Synced.
		loud bool
	}{
		"InitializeFails": {
			reason:      "A custom initializer's failure should be reported.",
			opts:        []ReconcilerOption{WithInitializers(InitializerFn(func(context.Context, resource.Managed) error { return errProvider }))},
			after:       one(reconciler.ReasonInitializeFailed, messageInitializeFailed),
			unconnected: true,
			loud:        true,
		},
		"ConnectFails": {reason: "Broken credentials should be reported.", provider: provider{connectErr: errProvider}, after: one(reconciler.ReasonConnectFailed, messageConnectFailed), loud: true},
		"NilClient": {
			reason:   "A connector that returns neither a client nor an error should be reported, not crash.",
			provider: provider{nilClient: true},
			after:    one(reconciler.ReasonConnectFailed, messageConnectFailed),
		},
		"ObserveFails": {reason: "An external resource that can't be observed should be reported.", provider: down, after: one(reconciler.ReasonObserveFailed, messageObserveFailed), loud: true},
		"ObserveFailsWhileOthersHoldFinalizers": {
			reason:     "What stopped this reconcile should be reported, not what would stop it next.",
			mods:       []func(resource.Managed){held(FinalizerName, "example.org/a")},
			provider:   down,
			connecting: waitingFor("example.org/a"),
			after:      one(reconciler.ReasonObserveFailed, messageObserveFailed),
			loud:       true,
		},
		"CreateIncomplete": {
			reason:      "An incomplete create should be reported as what it is for a deletion, with what to do.",
			mods:        []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			after:       one(reconciler.ReasonCreateResultUnknown, messageCreateUnknown),
			unconnected: true,
		},
		"ManyOtherFinalizers": {
			reason:     "Finalizers of others should be named, sorted, without the reconciler's own; of many the first few, and the rest counted.",
			mods:       []func(resource.Managed){held("f/7", "f/6", "f/5", FinalizerName, "f/4", "f/3", "f/2", "f/1")},
			connecting: waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			after:      []status{waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			writes:     1,
		},
		"FinalizersLeft": {
			reason:   "If only another controller's finalizer is there, the deletion should proceed and then wait for it.",
			mods:     []func(resource.Managed){held("example.org/a")},
			provider: gone,
			after:    []status{waitingFor("example.org/a")},
		},
		"PausedByAnnotation": {
			reason:      "A pause by annotation should be reported.",
			mods:        []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true")},
			after:       one(reconciler.ReasonBlockedByPause, messagePaused),
			unconnected: true,
		},
		"PausedByPolicy": {
			reason:      "A pause by management policies should be reported.",
			mods:        []func(resource.Managed){allowed()},
			after:       one(reconciler.ReasonBlockedByPause, messagePaused),
			unconnected: true,
		},
		"PauseEnded": {
			reason: "After a pause it should not be blamed any more.",
			mods: []func(resource.Managed){
				said(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, messagePaused)...),
				said(xpv2.ReconcilePaused()),
			},
			provider:   down,
			connecting: status{Ready: condition(xpv2.Deleting().WithMessage(messagePaused)), Deleting: condition{Type: "Deleting", Status: "True", Reason: reconciler.ReasonBlockedByPause, Message: messagePaused}},
			after:      one(reconciler.ReasonObserveFailed, messageObserveFailed),
			writes:     1,
			loud:       true,
		},
		"InvalidPolicies": {
			reason:      "Management policies that are not supported should be reported.",
			mods:        []func(resource.Managed){allowed(xpv2.ManagementActionDelete)},
			after:       one(reconciler.ReasonReconcileFailed, messageReconcileFailed),
			unconnected: true,
		},
		"CreationGracePeriod": {
			reason:   "While absence is being confirmed, that should be reported.",
			mods:     []func(resource.Managed){justCreated},
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
		"UnpublishFails": {
			reason:   "That connection details can't be unpublished should be reported.",
			provider: gone,
			opts:     []ReconcilerOption{withUnpublisher(func() error { return errProvider })},
			after:    one(reconciler.ReasonReconcileFailed, messageCleanupFailed),
			loud:     true,
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
			mods: []func(resource.Managed){
				allowed(xpv2.ManagementActionDelete),
				noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			after:       one(reconciler.ReasonReconcileFailed, messageReconcileFailed),
			unconnected: true,
		},
		"ReportedBefore": {
			reason:   "What is on the server already should not be written again before Connect.",
			mods:     []func(resource.Managed){reported(requested)},
			provider: provider{connectErr: errProvider},
			after:    one(reconciler.ReasonConnectFailed, messageConnectFailed),
			writes:   1,
			loud:     true,
		},
		"ReadyAgainThoughReportedBefore": {
			reason:     "If another writer set Ready on an object that is being deleted, Ready should become False again before Connect, with the reason that was reported.",
			mods:       []func(resource.Managed){reported(deletes(reconciler.ReasonObserveFailed, messageObserveFailed)), said(xpv2.Available())},
			provider:   provider{connectErr: errProvider},
			connecting: deletes(reconciler.ReasonObserveFailed, messageObserveFailed),
			after:      one(reconciler.ReasonConnectFailed, messageConnectFailed),
			loud:       true,
		},
	}
	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				rec := &testkit.Said{}
				a := testkit.NewAPI(f.object(append([]func(resource.Managed){said(xpv2.Available(), xpv2.ReconcileSuccess())}, tc.mods...)...))
				a.Before = tc.before
				var connecting []status
				r := f.reconciler(a, tc.provider, func(resource.Managed) { connecting = append(connecting, statusOf(f.get(t, a))) }, append(tc.opts, WithRecorder(rec))...)
				writes := func() int { return a.Count(testkit.StatusUpdate, testkit.StatusPatch) }
				before := f.get(t, a)
				for i := range 2 + len(tc.after) {
					run(t, r, f.name())
					now := f.get(t, a)
					wants(t, tc.reason, fmt.Sprintf("after reconcile %d", i+1), tc.after[min(i, len(tc.after)-1)], statusOf(now))
					for _, c := range []xpv2.ConditionType{xpv2.TypeReady, reconciler.TypeDeleting} {
						was, is := before.GetCondition(c), now.GetCondition(c)
						if was.Equal(is) != was.LastTransitionTime.Equal(&is.LastTransitionTime) {
							t.Errorf("\n%s\nthe time of %s should move if it changed, and only then: %+v, %+v", tc.reason, c, was, is)
						}
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
				repeat(t, r, 10, f.name())
				wants(t, tc.reason, "status writes in 10 more reconciles", 0, writes())
				wants(t, tc.reason, "10 reconciles later", before, f.get(t, a))
				wants(t, tc.reason, "Synced says what upstream says", tc.loud, strings.Contains(before.GetCondition(xpv2.TypeSynced).Message, secret))
				for _, reason := range []event.Reason{reasonCannotReportDeletion, reasonCannotStoreAnnotations, reasonOverwroteAnnotation} {
					wants(t, tc.reason, "events", 0, len(rec.Events(reason)))
				}
			})
		}
	}
}

// A deletion is reported through faults, and does not depend on whether it can
// be.
func TestDeletionUnderFaults(t *testing.T) {
	type run struct {
		*testing.T
		a       *testkit.API
		r       *Reconciler
		f       flavour
		deletes int
		ready   []status
	}

	// reconciles runs it n times, of which some fail.
	reconciles := func(x *run, n, fail int) {
		x.Helper()
		failed := 0
		for range n {
			if _, err := x.r.Reconcile(x.Context(), requestFor(x.f.name())); err != nil {
				failed++
			}
		}
		wants(x.T, "", "reconciles that failed", fail, failed)
	}

	// before makes another writer write before the n-th patch of status.
	before := func(x *run, n int, write func(mg resource.Managed) error) {
		x.a.Before = on(n, verb(testkit.StatusPatch), func(testkit.Request) error { return write(x.f.get(x.T, x.a)) })
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
	held := []func(resource.Managed){held(FinalizerName, "example.org/a")}
	cases := map[string]struct {
		reason string
		mods   []func(resource.Managed)
		fails  error // What writes of status end in, or only patches of it.
		patch  bool
		run    func(x *run) // One reconcile, unless it is set.

		// deletes is how often the external resource was deleted.
		deletes int

		// ready is what the server said while the provider was connected to.
		ready []status

		// warnings is how many events said that a deletion can't be reported.
		warnings int

		// after, if set, is what the server says in the end.
		after status
	}{
		"Conflict": {
			reason: "After a conflict right before Delete nothing is deleted until the object was read again. The other writer's condition is kept.",
			run: func(x *run) {
				before(x, 2, func(mg resource.Managed) error {
					mg.SetConditions(foreignCondition())
					return x.a.Server().Status().Update(x.Context(), mg)
				})
				reconciles(x, 2, 0)
				wants(x.T, "", "foreign condition", foreignCondition(), x.f.get(x.T, x.a).GetCondition("Foreign"))
			},
			deletes: 1,
			ready:   []status{requested, deleteRequested},
			after:   exists,
		},
		"StaleCache": {
			reason: "A cache that lags should lead to no error, and not take back what was reported.",
			run: func(x *run) {
				must(x.T, x.a.Freeze(x.Context(), x.f.object()))
				reconciles(x, 1, 0)
				x.a.After = func(_ context.Context, r testkit.Request) error {
					if statusWrite(r) {
						wants(x.T, "", "reason after a stale read", reconciler.ReasonWaitingForExternalResource, statusOf(x.f.get(x.T, x.a)).Deleting.Reason)
					}
					return nil
				}
				reconciles(x, 1, 0)
				version := x.f.get(x.T, x.a).GetResourceVersion()
				reconciles(x, 3, 0)
				wants(x.T, "", "resource version", version, x.f.get(x.T, x.a).GetResourceVersion())
			},
			deletes: 5,
			ready:   []status{requested, deleteRequested, exists, exists, exists},
		},
		"CacheStaleByOneReport": {
			reason: "Nothing is deleted for an object that is known to be older than the last report, which is not taken back either.",
			run: func(x *run) {
				x.a.After = on(1, verb(testkit.StatusPatch), func(testkit.Request) error { return x.a.Freeze(x.Context(), x.f.object()) })
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
		"Forbidden":         {reason: "A report that is not allowed should hold up nothing.", fails: refused(), patch: true, deletes: 1, ready: []status{silent}, warnings: 2},
		"ForbiddenAtTheEnd": {reason: "A report that is not allowed should not make a reconcile fail that did not.", mods: held, fails: refused(), patch: true, ready: []status{silent}, warnings: 2},
	}
	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				rec := &testkit.Said{}
				x := &run{T: t, f: f, a: testkit.NewAPI(f.object(tc.mods...))}
				x.a.Before = failing(func(r testkit.Request) bool { return statusWrite(r) && (!tc.patch || r.Verb == testkit.StatusPatch) }, tc.fails)
				x.r = f.reconciler(x.a, provider{client: ExternalClientFns{DeleteFn: counts[ExternalDelete](&x.deletes)}},
					func(resource.Managed) { x.ready = append(x.ready, statusOf(f.get(t, x.a))) }, WithRecorder(rec))
				if tc.run == nil {
					reconciles(x, 1, 0)
				} else {
					tc.run(x)
				}
				if tc.after != (status{}) {
					wants(t, tc.reason, "status", tc.after, statusOf(x.f.get(t, x.a)))
				}
				wants(t, tc.reason, "external deletes, warnings", []int{tc.deletes, tc.warnings}, []int{x.deletes, len(rec.Events(reasonCannotReportDeletion))})
				wants(t, tc.reason, "while connecting", tc.ready, x.ready)
			})
		}
	}
}

// A deletion that begins while a reconcile is on its way to something else is
// not blamed on what it was on its way to.
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

// A provider that writes Ready itself, also while the managed resource is deleted, is
// left alone after it has done so twice.
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
			repeat(t, r, 3)
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

// What is left alone, since it has changed, is not said to be being deleted.
func TestDeletionNotRequestedOfWhatMoved(t *testing.T) {
	a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), deleting))
	x := (&outside{there: true}).on("observe", func(b *v1alpha1.Bucket) error {
		annotated("k", "v")(b)
		edit(t, a, "b", paused)
		return nil
	})
	try(newBucketReconciler(a, connects(x.client())), 1)
	wants(t, "", "deletes, reason", []any{0, reconciler.ReasonDeletionRequested}, []any{x.did("delete"), deletingCondition(get(t, a)).Reason})
}

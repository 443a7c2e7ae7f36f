package managed

import (
	stdcmp "cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
			opts:        []ReconcilerOption{WithInitializers(upstream.InitializerFn(func(context.Context, resource.Managed) error { return errProvider }))},
			after:       []status{deletes(reconciler.ReasonInitializeFailed, messageInitializeFailed)},
			unconnected: true, loud: true,
		},
		"ConnectFails": {
			reason:   "Broken credentials should be reported.",
			provider: provider{connectErr: errProvider},
			after:    []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			loud:     true,
		},
		"NilClient": {
			reason:   "A connector that returns neither a client nor an error should be reported, not crash.",
			provider: provider{nilClient: true},
			after:    []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
		},
		"ObserveFails": {
			reason:   "An external resource that can't be observed should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			after:    []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			loud:     true,
		},
		"ObserveFailsWhileOthersHoldFinalizers": {
			reason:     "What stopped this reconcile should be reported, not what would stop it next.",
			mods:       []func(resource.Managed){held(FinalizerName, "example.org/a")},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			connecting: waitingFor("example.org/a"),
			after:      []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			loud:       true,
		},
		"CreateIncomplete": {
			reason:      "An incomplete create should be reported as what it is for a deletion, with what to do.",
			mods:        []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			after:       []status{deletes(reconciler.ReasonCreateResultUnknown, messageCreateUnknown)},
			unconnected: true,
		},
		"CreateIncompleteButDeterministic": {
			reason: "With deterministic names an incomplete create should stop nothing.",
			mods:   []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			opts:   []ReconcilerOption{WithDeterministicExternalName(true)},
			after: []status{
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
			},
			writes: 3,
		},
		"OtherFinalizers": {
			reason:     "Finalizers of others should be named, sorted, without the reconciler's own.",
			mods:       []func(resource.Managed){held("example.org/b", FinalizerName, "example.org/a")},
			connecting: waitingFor("example.org/a, example.org/b"),
			after:      []status{waitingFor("example.org/a, example.org/b")},
			writes:     1,
		},
		"ManyOtherFinalizers": {
			reason:     "Of many finalizers the first few should be named, and the rest counted.",
			mods:       []func(resource.Managed){held("f/7", "f/6", "f/5", FinalizerName, "f/4", "f/3", "f/2", "f/1")},
			connecting: waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			after:      []status{waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			writes:     1,
		},
		"FinalizersLeft": {
			reason:   "If only another controller's finalizer is there, the deletion should proceed and then wait for it.",
			mods:     []func(resource.Managed){held("example.org/a")},
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			after:    []status{waitingFor("example.org/a")},
		},
		"PausedByAnnotation": {
			reason:      "A pause by annotation should be reported.",
			mods:        []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true")},
			after:       []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			unconnected: true,
		},
		"PausedByPolicy": {
			reason:      "A pause by management policies should be reported.",
			mods:        []func(resource.Managed){allowed()},
			after:       []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			unconnected: true,
		},
		"PauseEnded": {
			reason: "After a pause it should not be blamed any more.",
			mods: []func(resource.Managed){
				said(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, messagePaused)...),
				said(xpv2.ReconcilePaused()),
			},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			connecting: status{Ready: condition(xpv2.Deleting().WithMessage(messagePaused)), Deleting: condition{Type: "Deleting", Status: "True", Reason: reconciler.ReasonBlockedByPause, Message: messagePaused}},
			after:      []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			writes:     1,
			loud:       true,
		},
		"InvalidPolicies": {
			reason:      "Management policies that are not supported should be reported.",
			mods:        []func(resource.Managed){allowed(xpv2.ManagementActionDelete)},
			after:       []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			unconnected: true,
		},
		"CreationGracePeriod": {
			reason:   "While absence is being confirmed, that should be reported.",
			mods:     []func(resource.Managed){justCreated},
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts:     []ReconcilerOption{WithCreationGracePeriod(time.Hour)},
			after:    []status{deletes(reconciler.ReasonConfirmingAbsence, messageGracePeriod)},
		},
		"DeleteFails": {
			reason:   "A delete that is refused should be reported.",
			provider: provider{client: upstream.ExternalClientFns{DeleteFn: deleteFails}},
			after:    []status{deletes(reconciler.ReasonExternalDeleteFailed, messageDeleteFailed)},
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
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts:     []ReconcilerOption{withUnpublisher(func() error { return errProvider })},
			after:    []status{deletes(reconciler.ReasonReconcileFailed, messageCleanupFailed)},
			loud:     true,
		},
		"RemoveFinalizerFails": {
			reason:   "That the default finalizer can't be removed should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			before:   failing(func(r testkit.Request) bool { return r.Verb == testkit.Update }, refused()),
			after:    []status{deletes(reconciler.ReasonReconcileFailed, messageCleanupFailed)},
			loud:     true,
		},
		"CustomRemoveFinalizerFails": {
			reason:   "That a custom finalizer can't be removed should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts: []ReconcilerOption{WithFinalizer(resource.FinalizerFns{
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return errProvider },
			})},
			after: []status{deletes(reconciler.ReasonReconcileFailed, messageCleanupFailed)},
			loud:  true,
		},
		"PausedBeforeDeletion": {
			reason:      "An object that was paused already should say that its deletion is.",
			mods:        []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true"), said(xpv2.Available(), xpv2.ReconcilePaused().WithObservedGeneration(3))},
			after:       []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			writes:      1,
			unconnected: true,
		},
		"PauseEndedWhileHeld": {
			reason: "After a pause it should not be blamed any more where upstream writes no status, either.",
			mods: []func(resource.Managed){
				held(FinalizerName, "example.org/a"),
				said(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, messagePaused)...),
				said(xpv2.ReconcilePaused()),
			},
			connecting: status{Ready: condition(xpv2.Deleting().WithMessage(messagePaused)), Deleting: condition{Type: "Deleting", Status: "True", Reason: reconciler.ReasonBlockedByPause, Message: messagePaused}},
			after:      []status{waitingFor("example.org/a")},
			writes:     1,
		},
		"CreationGracePeriodWhileHeld": {
			reason:     "Others who hold the object should be named, also while absence is being confirmed.",
			mods:       []func(resource.Managed){held(FinalizerName, "example.org/a"), justCreated},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts:       []ReconcilerOption{WithCreationGracePeriod(time.Hour)},
			connecting: waitingFor("example.org/a"),
			after:      []status{waitingFor("example.org/a")},
			writes:     1,
		},
		"InvalidPoliciesAndCreateIncomplete": {
			reason: "That a create is incomplete should not be said before it is known to be what stops.",
			mods: []func(resource.Managed){
				allowed(xpv2.ManagementActionDelete),
				noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			after:       []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			unconnected: true,
		},
		"ReportedBefore": {
			reason:   "What is on the server already should not be written again before Connect.",
			mods:     []func(resource.Managed){reported(requested)},
			provider: provider{connectErr: errProvider},
			after:    []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			writes:   1,
			loud:     true,
		},
		"ReadyAgainThoughReportedBefore": {
			reason:     "If another writer set Ready on an object that is being deleted, Ready should become False again before Connect, with the reason that was reported.",
			mods:       []func(resource.Managed){reported(deletes(reconciler.ReasonObserveFailed, messageObserveFailed)), said(xpv2.Available())},
			provider:   provider{connectErr: errProvider},
			connecting: deletes(reconciler.ReasonObserveFailed, messageObserveFailed),
			after:      []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			loud:       true,
		},
	}

	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				rec := &recorder{}
				a := testkit.NewAPI(f.object(append([]func(resource.Managed){said(xpv2.Available(), xpv2.ReconcileSuccess())}, tc.mods...)...))
				a.Before = tc.before

				var connecting []status

				r := f.reconciler(a, append([]ReconcilerOption{WithRecorder(rec), f.connector(tc.provider, func(resource.Managed) {
					connecting = append(connecting, statusOf(f.get(context.Background(), t, a)))
				})}, tc.opts...)...)

				writes := func() int { return a.Count(testkit.StatusUpdate, testkit.StatusPatch) }

				before := f.get(context.Background(), t, a)

				for i := range 2 + len(tc.after) {
					if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
						t.Fatalf("\n%s\nReconcile %d: %v", tc.reason, i+1, err)
					}

					if diff := cmp.Diff(tc.after[min(i, len(tc.after)-1)], statusOf(f.get(context.Background(), t, a))); diff != "" {
						t.Fatalf("\n%s\nafter reconcile %d: -want, +got:\n%s", tc.reason, i+1, diff)
					}

					now := f.get(context.Background(), t, a)
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

				if diff := cmp.Diff(want, connecting[:min(1, len(connecting))]); diff != "" {
					t.Errorf("\n%s\nwhile connecting: -want, +got:\n%s", tc.reason, diff)
				}

				if got := writes(); got != stdcmp.Or(tc.writes, 2) {
					t.Errorf("\n%s\nstatus writes until it settled: got %d: %v", tc.reason, got, verbs(a))
				}

				settled := f.get(context.Background(), t, a)

				a.Forget()

				for range 10 {
					if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
						t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
					}
				}

				if got := writes(); got != 0 {
					t.Errorf("\n%s\nstatus writes in 10 more reconciles: want 0, got %d", tc.reason, got)
				}

				if diff := cmp.Diff(settled, f.get(context.Background(), t, a)); diff != "" {
					t.Errorf("\n%s\n10 reconciles later: -want, +got:\n%s", tc.reason, diff)
				}

				synced := settled.GetCondition(xpv2.TypeSynced)
				if got := strings.Contains(synced.Message, secret); got != tc.loud {
					t.Errorf("\n%s\nSynced should say what upstream says: %q", tc.reason, synced.Message)
				}

				for _, reason := range []event.Reason{reasonCannotReportDeletion, reasonCannotStoreAnnotations, reasonOverwroteAnnotation} {
					if es := rec.of(reason); len(es) > 0 {
						t.Errorf("\n%s\nevents: %v", tc.reason, es)
					}
				}
			})
		}
	}
}

// verbs of the requests that were made.
func verbs(a *testkit.API) []string {
	var out []string
	for _, r := range a.Requests() {
		out = append(out, r.Verb)
	}

	return out
}

// While a delete takes long, the server says that it was asked for.
func TestSlowDelete(t *testing.T) {
	for name, f := range flavours() {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(f.object())

			var during []status

			r := f.reconciler(a, f.connector(provider{client: upstream.ExternalClientFns{DeleteFn: func(ctx context.Context, _ resource.Managed) (ExternalDelete, error) {
				during = append(during, statusOf(f.get(ctx, t, a)))
				return ExternalDelete{}, nil
			}}}, func(resource.Managed) {}))

			for range 2 {
				res, err := r.Reconcile(context.Background(), f.request())
				if err != nil || !res.Requeue { //nolint:staticcheck // Upstream requeues with backoff this way.
					t.Fatalf("Reconcile: %+v, %v", res, err)
				}
			}

			want := []status{
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
			}
			if diff := cmp.Diff(want, during); diff != "" {
				t.Errorf("while Delete ran: -want, +got:\n%s", diff)
			}

			if c := f.get(context.Background(), t, a).GetCondition(xpv2.TypeSynced); c.Status != corev1.ConditionTrue {
				t.Errorf("the status that upstream wrote after Delete should not have met a conflict: %+v", c)
			}
		})
	}
}

// A managed resource is released in the middle of its deletion, for example by an
// operator who orphans it. The external resource is kept.
func TestReleasedDuringDeletion(t *testing.T) {
	for name, f := range flavours() {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(f.object())
			deletes := 0

			r := f.reconciler(a, f.connector(provider{client: upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, _ resource.Managed) (ExternalObservation, error) {
					o := f.get(ctx, t, a)
					o.SetFinalizers(nil)

					return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, a.Server().Update(ctx, o)
				},
				DeleteFn: counts[ExternalDelete](&deletes),
			}}, func(resource.Managed) {}))

			for range 2 {
				if _, err := r.Reconcile(context.Background(), f.request()); err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
					t.Fatal(err)
				}
			}

			if deletes != 0 {
				t.Errorf("the external resource of a managed resource that is gone was deleted %d times", deletes)
			}
		})
	}
}

// failing returns a Before that fails the requests that match.
func failing(match func(testkit.Request) bool, err error) func(context.Context, testkit.Request) error {
	return func(_ context.Context, r testkit.Request) error {
		if match(r) {
			return err
		}

		return nil
	}
}

func statusPatch(r testkit.Request) bool { return r.Verb == testkit.StatusPatch }

// serverError is the error of an API server that is not available.
func serverError() error { return kerrors.NewInternalError(errors.New("etcd has no leader")) }

// A deletion is reported through faults, and does not depend on whether it can
// be.
func TestDeletionUnderFaults(t *testing.T) {
	foreign := xpv2.Condition{Type: "Foreign", Status: "True", Reason: "Another", Message: "writer"}

	type run struct {
		a *testkit.API
		r *Reconciler

		f       flavour
		rec     *recorder
		deletes int
		ready   []status
	}

	// writesBefore makes another writer write before the n-th request of verb.
	writesBefore := func(t *testing.T, x *run, verb string, n int) {
		t.Helper()

		x.a.Before = func(ctx context.Context, r testkit.Request) error {
			if r.Verb != verb {
				return nil
			}

			if n--; n == 0 {
				mg := x.f.get(ctx, t, x.a)
				mg.SetConditions(foreign)

				return x.a.Server().Status().Update(ctx, mg)
			}

			return nil
		}
	}

	reconciles := func(t *testing.T, x *run, n int) {
		t.Helper()

		for i := range n {
			if _, err := x.r.Reconcile(context.Background(), x.f.request()); err != nil {
				t.Fatalf("Reconcile %d: %v", i+1, err)
			}
		}
	}

	cases := map[string]struct {
		reason string
		mods   []func(resource.Managed)
		api    func(o ...client.Object) *testkit.API
		run    func(t *testing.T, x *run)

		// deletes is how often the external resource was deleted.
		deletes int

		// ready is what the server said while the provider was connected to.
		ready []status

		// warnings is how many events said that a deletion can't be reported.
		warnings int

		// foreign means that the other writer's condition is to be kept, and after,
		// if set, is what the server says in the end.
		foreign bool
		after   status
	}{
		"ConflictBeforeTheFirstReport": {
			reason: "A conflict should be resolved, and the other writer's condition be kept.",
			run: func(t *testing.T, x *run) {
				writesBefore(t, x, testkit.StatusPatch, 1)
				reconciles(t, x, 1)
			},
			deletes: 1,
			ready:   []status{deletes(reconciler.ReasonDeletionRequested, messageRequested)},
			foreign: true,
		},
		"ConflictBeforeTheDeleteIsReported": {
			reason: "After a conflict right before Delete nothing is deleted until the object was read again. The other writer's condition is kept.",
			run: func(t *testing.T, x *run) {
				writesBefore(t, x, testkit.StatusPatch, 2)
				reconciles(t, x, 2)
			},
			deletes: 1,
			ready: []status{
				deletes(reconciler.ReasonDeletionRequested, messageRequested),
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
			},
			foreign: true,
			after:   deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
		},
		"ConflictBeforeTheLastReport": {
			reason: "A conflict after upstream returned should be resolved.",
			mods:   []func(resource.Managed){held(FinalizerName, "example.org/a", "example.org/b"), reported(deletes(reconciler.ReasonDeletionRequested, messageRequested))},
			run: func(t *testing.T, x *run) {
				writesBefore(t, x, testkit.StatusPatch, 1)
				reconciles(t, x, 1)
			},
			ready:   []status{deletes(reconciler.ReasonDeletionRequested, messageRequested)},
			foreign: true,
			after:   deletes(reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer+"example.org/a, example.org/b"),
		},
		"StaleCache": {
			reason: "A cache that lags should lead to no error, and not take back what was reported.",
			run: func(t *testing.T, x *run) {
				must(t, x.a.Freeze(context.Background(), x.f.object()))

				reconciles(t, x, 1)

				v := x.f.get(context.Background(), t, x.a).GetResourceVersion()

				x.a.After = func(ctx context.Context, r testkit.Request) error {
					if statusWrite(r) {
						if got := statusOf(x.f.get(ctx, t, x.a)).Deleting.Reason; got != reconciler.ReasonWaitingForExternalResource {
							t.Errorf("a stale read led to reason %s", got)
						}
					}

					return nil
				}

				reconciles(t, x, 1)

				if v == x.f.get(context.Background(), t, x.a).GetResourceVersion() {
					t.Errorf("the second pass should have reported that the external resource still exists")
				}

				v = x.f.get(context.Background(), t, x.a).GetResourceVersion()
				reconciles(t, x, 3)

				if got := x.f.get(context.Background(), t, x.a).GetResourceVersion(); got != v {
					t.Errorf("resource version: want %s, got %s: stale reads should change nothing", v, got)
				}
			},
			deletes: 5,
			ready: []status{
				deletes(reconciler.ReasonDeletionRequested, messageRequested),
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
			},
		},
		"CacheStaleByOneReport": {
			reason: "Nothing is deleted for an object that is known to be older than the last report, which is not taken back either.",
			run: func(t *testing.T, x *run) {
				frozen := false
				x.a.After = func(ctx context.Context, r testkit.Request) error {
					if r.Verb == testkit.StatusPatch && !frozen {
						frozen = true
						return x.a.Freeze(ctx, x.f.object())
					}

					return nil
				}

				reconciles(t, x, 3)
			},
			deletes: 1,
			ready: []status{
				deletes(reconciler.ReasonDeletionRequested, messageRequested),
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
			},
			after: deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
		},
		"GoneBeforeTheFirstReport": {
			reason: "An object that is gone needs no report, and that is no error.",
			run: func(t *testing.T, x *run) {
				x.a.Before = func(ctx context.Context, r testkit.Request) error {
					if r.Verb == testkit.StatusPatch {
						mg := x.f.get(ctx, t, x.a)
						mg.SetFinalizers(nil)

						return x.a.Server().Update(ctx, mg)
					}

					return nil
				}
				reconciles(t, x, 1)
			},
		},
		"ServerErrorsForAWhile": {
			reason: "A server that is back soon should get the report before the provider is connected to.",
			run: func(t *testing.T, x *run) {
				n := 0
				x.a.Before = func(_ context.Context, r testkit.Request) error {
					if n++; statusWrite(r) && n <= 4 {
						return serverError()
					}

					return nil
				}

				errs := 0
				for range 3 {
					if _, err := x.r.Reconcile(context.Background(), x.f.request()); err != nil {
						errs++
					}
				}

				if errs != 2 {
					t.Errorf("reconciles that failed: want 2, got %d", errs)
				}
			},
			deletes: 1,
			ready:   []status{deletes(reconciler.ReasonDeletionRequested, messageRequested)},
		},
		"ServerErrorsForLong": {
			reason: "A report that doesn't succeed should not hold up a deletion for ever.",
			run: func(t *testing.T, x *run) {
				x.a.Before = failing(statusWrite, serverError())

				for i := range 5 {
					if _, err := x.r.Reconcile(context.Background(), x.f.request()); err == nil {
						t.Errorf("reconcile %d should have failed", i+1)
					}
				}

				if x.deletes > 0 {
					t.Errorf("the external resource should not have been deleted yet")
				}

				// Upstream can't write status either.
				if _, err := x.r.Reconcile(context.Background(), x.f.request()); err == nil {
					t.Errorf("upstream's status write should have failed")
				}
			},
			deletes:  1,
			ready:    []status{{}},
			warnings: 2,
		},
		"ServerErrorAtTheEnd": {
			reason: "A report that doesn't succeed after upstream returned should be tried again.",
			mods:   []func(resource.Managed){held(FinalizerName, "example.org/a"), reported(deletes(reconciler.ReasonDeletionRequested, messageRequested))},
			run: func(t *testing.T, x *run) {
				x.a.Before = failing(statusWrite, serverError())

				if _, err := x.r.Reconcile(context.Background(), x.f.request()); err == nil {
					t.Errorf("the reconcile should have failed")
				}
			},
			ready: []status{deletes(reconciler.ReasonDeletionRequested, messageRequested)},
		},
		"Forbidden": {
			reason: "A report that is not allowed should hold up nothing.",
			run: func(t *testing.T, x *run) {
				x.a.Before = failing(statusPatch, refused())
				reconciles(t, x, 1)
			},
			deletes:  1,
			ready:    []status{{}},
			warnings: 2,
		},
		"ForbiddenAtTheEnd": {
			reason: "A report that is not allowed should not make a reconcile fail that did not.",
			mods:   []func(resource.Managed){held(FinalizerName, "example.org/a")},
			run: func(t *testing.T, x *run) {
				x.a.Before = failing(statusPatch, refused())
				reconciles(t, x, 1)
			},
			ready:    []status{{}},
			warnings: 2,
		},
		"NoStatusSubresource": {
			reason: "An object of a kind without the status subresource should be deleted, too.",
			api:    testkit.NewAPIWithoutStatus,
			run: func(t *testing.T, x *run) {
				if _, err := x.r.Reconcile(context.Background(), x.f.request()); err == nil {
					t.Errorf("upstream can't write status either, and says so")
				}

				if n := x.a.Count(testkit.StatusPatch); n != 2 {
					t.Errorf("patches of status, where trying again is of no use: want 2, got %d", n)
				}
			},
			deletes:  1,
			ready:    []status{{}},
			warnings: 2,
		},
		"Cancelled": {
			reason: "A context that is done should end the reconcile with its error.",
			run: func(t *testing.T, x *run) {
				ctx, cancel := context.WithCancel(context.Background())
				x.a.Before = func(_ context.Context, r testkit.Request) error {
					if statusWrite(r) {
						cancel()
						return ctx.Err()
					}

					return nil
				}

				if _, err := x.r.Reconcile(ctx, x.f.request()); !errors.Is(err, context.Canceled) {
					t.Errorf("error: want %v, got %v", context.Canceled, err)
				}
			},
		},
		"Recreated": {
			reason: "An object that has taken the name of the one that was read should not be written.",
			run: func(t *testing.T, x *run) {
				var fresh resource.Managed

				x.a.Before = func(ctx context.Context, r testkit.Request) error {
					if r.Verb != testkit.StatusPatch || fresh != nil {
						return nil
					}

					old := x.f.get(ctx, t, x.a)
					old.SetFinalizers(nil)

					if err := x.a.Server().Update(ctx, old); err != nil {
						return err
					}

					fresh = x.f.object(func(mg resource.Managed) {
						mg.SetDeletionTimestamp(nil)
						mg.SetUID("another")
					})

					return x.a.Server().Create(ctx, fresh)
				}

				reconciles(t, x, 1)

				if diff := cmp.Diff(fresh.GetResourceVersion(), x.f.get(context.Background(), t, x.a).GetResourceVersion()); diff != "" {
					t.Errorf("resource version of the new object: -want, +got:\n%s", diff)
				}
			},
		},
	}

	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				newAPI := testkit.NewAPI
				if tc.api != nil {
					newAPI = tc.api
				}

				x := &run{f: f, rec: &recorder{}, a: newAPI(f.object(tc.mods...))}
				x.r = f.reconciler(x.a, WithRecorder(x.rec), f.connector(provider{client: upstream.ExternalClientFns{DeleteFn: counts[ExternalDelete](&x.deletes)}}, func(resource.Managed) { x.ready = append(x.ready, statusOf(f.get(context.Background(), t, x.a))) }))

				tc.run(t, x)

				if tc.foreign {
					if diff := cmp.Diff(foreign, x.f.get(context.Background(), t, x.a).GetCondition("Foreign")); diff != "" {
						t.Errorf("\n%s\nforeign condition: -want, +got:\n%s", tc.reason, diff)
					}
				}

				if tc.after != (status{}) {
					if diff := cmp.Diff(tc.after, statusOf(x.f.get(context.Background(), t, x.a))); diff != "" {
						t.Errorf("\n%s\nstatus: -want, +got:\n%s", tc.reason, diff)
					}
				}

				if x.deletes != tc.deletes {
					t.Errorf("\n%s\nexternal deletes: want %d, got %d", tc.reason, tc.deletes, x.deletes)
				}

				for i := range tc.ready {
					if tc.ready[i] == (status{}) {
						tc.ready[i] = status{Ready: condition{Type: "Ready", Status: "Unknown"}, Deleting: condition{Type: "Deleting", Status: "Unknown"}}
					}
				}

				if diff := cmp.Diff(tc.ready, x.ready); diff != "" {
					t.Errorf("\n%s\nwhile connecting: -want, +got:\n%s", tc.reason, diff)
				}

				if got := len(x.rec.of(reasonCannotReportDeletion)); got != tc.warnings {
					t.Errorf("\n%s\nwarnings: want %d, got %d: %v", tc.reason, tc.warnings, got, x.rec.events)
				}
			})
		}
	}
}

// A deletion that begins while a reconcile is on its way to something else is
// not blamed on what it was on its way to.
func TestDeletionBeginsMeanwhile(t *testing.T) {
	cases := map[string]struct {
		reason  string
		observe ExternalObservation
		err     error
		mods    []func(resource.Managed)
		want    status
	}{
		"Updated": {
			reason:  "After an update that succeeded the deletion was merely requested.",
			observe: ExternalObservation{ResourceExists: true},
			want:    deletes(reconciler.ReasonDeletionRequested, messageRequested),
		},
		"UpdatedAndHeld": {
			reason:  "Finalizers of others should be named.",
			observe: ExternalObservation{ResourceExists: true},
			mods:    []func(resource.Managed){held(FinalizerName, "example.org/a")},
			want:    deletes(reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer+"example.org/a"),
		},
		"UpdateFailed": {
			reason:  "It should not be said of an external resource that exists that it doesn't.",
			observe: ExternalObservation{ResourceExists: true},
			err:     errProvider,
			want:    deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed),
		},
		"Created": {
			reason: "It should not be said of an external resource that was created that it doesn't exist.",
			want:   deletes(reconciler.ReasonDeletionRequested, messageRequested),
		},
	}

	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				a := testkit.NewAPI(f.object(append(tc.mods, func(mg resource.Managed) { mg.SetDeletionTimestamp(nil) })...))

				deleted := func(ctx context.Context, mg resource.Managed) error {
					if err := a.Server().Delete(ctx, mg); err != nil {
						return err
					}

					if err := a.Server().Get(ctx, f.request().NamespacedName, mg); err != nil {
						return err
					}

					return tc.err
				}

				r := f.reconciler(a, f.connector(provider{client: upstream.ExternalClientFns{
					ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) { return tc.observe, nil },
					CreateFn: func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
						return ExternalCreation{}, deleted(ctx, mg)
					},
					UpdateFn: func(ctx context.Context, mg resource.Managed) (ExternalUpdate, error) {
						return ExternalUpdate{}, deleted(ctx, mg)
					},
				}}, func(resource.Managed) {}))

				if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
					t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
				}

				got := statusOf(f.get(context.Background(), t, a))
				got.Ready.ObservedGeneration, got.Deleting.ObservedGeneration = 3, 3

				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// What is not being deleted has no Deleting condition, whatever upstream leaves
// unsaid.
func TestNotDeleted(t *testing.T) {
	alive := func(mg resource.Managed) { mg.SetDeletionTimestamp(nil) }

	cases := map[string]struct {
		reason   string
		mods     []func(resource.Managed)
		provider provider
	}{
		"Steady":              {reason: "There is nothing to say."},
		"Paused":              {reason: "A pause is no deletion.", mods: []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true")}},
		"ConnectFails":        {reason: "An error is no deletion.", provider: provider{connectErr: errProvider}},
		"CreationGracePeriod": {reason: "Waiting is no deletion.", mods: []func(resource.Managed){justCreated}, provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}}},
	}

	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				a := testkit.NewAPI(f.object(append(tc.mods, alive)...))
				r := f.reconciler(a, WithCreationGracePeriod(time.Hour), f.connector(tc.provider, func(resource.Managed) {}))

				for range 2 {
					if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
						t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
					}
				}

				want := xpv2.Condition{Type: reconciler.TypeDeleting, Status: corev1.ConditionUnknown}
				if diff := cmp.Diff(want, f.get(context.Background(), t, a).GetCondition(reconciler.TypeDeleting)); diff != "" {
					t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// A provider that writes Ready itself, also while the managed resource is deleted, is
// left alone after it has done so twice.
func TestDeletionWithForeignStatusWriter(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   []ReconcilerOption
		delete error
		ready  xpv2.Condition // Available, if it has no reason.
	}{
		"Deletes":      {reason: "The external resource takes a while."},
		"SaysDeleting": {reason: "It says that it is deleting, too, but in its own words.", ready: xpv2.Deleting()},
		"DeleteFails":  {reason: "It can't be deleted.", delete: errors.New("boom")},
		"OtherHolders": {reason: "Upstream writes no status.", opts: []ReconcilerOption{func(*Reconciler) {}}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mods := []func(b *v1alpha1.Bucket){named("id-1"), deleting, finalizers(FinalizerName)}
			if len(tc.opts) > 0 {
				mods = append(mods, finalizers(FinalizerName, "example.org/other"))
			}

			if tc.ready.Reason == "" {
				tc.ready = xpv2.Available()
			}

			a, rec := testkit.NewAPI(bucket(mods...)), &recorder{}

			r := newBucketReconciler(a, append(tc.opts, WithRecorder(rec), connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					mg.SetConditions(tc.ready)
					// With the manager's own client.
					if err := a.Server().Status().Update(ctx, mg); err != nil {
						return ExternalObservation{}, err
					}

					return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
				},
				DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) { return ExternalDelete{}, tc.delete },
			}))...)

			for range 3 {
				run(t, r, "b")
			}

			rests := get(t, a)

			for range 5 {
				run(t, r, "b")
			}

			got := get(t, a)
			if diff := cmp.Diff(rests.GetResourceVersion(), got.GetResourceVersion()); diff != "" {
				t.Errorf("\n%s\nresource version at rest: -want, +got:\n%s", tc.reason, diff)
			}

			want := []any{tc.ready.Reason, corev1.ConditionTrue, 1}
			if diff := cmp.Diff(want, []any{got.GetCondition(xpv2.TypeReady).Reason, got.GetCondition(reconciler.TypeDeleting).Status, len(rec.of(reasonForeignStatus))}); diff != "" {
				t.Errorf("\n%s\nReady, Deleting, events: -want, +got:\n%s", tc.reason, diff)
			}
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
		"Others": {
			reason:     "The others are named.",
			finalizer:  custom,
			finalizers: []string{"example.org/own", "example.org/other"},
			want:       messageWaitingFinalizer + "example.org/other",
		},
		"Upstream": {
			reason:     "Upstream's is another's then.",
			finalizer:  custom,
			finalizers: []string{"example.org/own", FinalizerName},
			want:       messageWaitingFinalizer + FinalizerName,
		},
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
			r := newBucketReconciler(a, WithFinalizer(tc.finalizer(a)), connects(upstream.ExternalClientFns{}))

			run(t, r, "b")

			c := get(t, a).GetCondition(reconciler.TypeDeleting)
			if diff := cmp.Diff([]any{reconciler.ReasonWaitingForFinalizers, tc.want}, []any{c.Reason, c.Message}); diff != "" {
				t.Errorf("\n%s\nDeleting: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

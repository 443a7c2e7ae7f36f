package managed

import (
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

	"github.com/crossplane-graft/graft/pkg/internal/testkit"
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

func allowed(p ...xpv2.ManagementAction) func(resource.Managed) {
	return func(mg resource.Managed) { mg.SetManagementPolicies(p) }
}

func said(c ...xpv2.Condition) func(resource.Managed) {
	return func(mg resource.Managed) { mg.SetConditions(c...) }
}

// status of the conditions that tell about a deletion.
type status struct {
	Ready    xpv2.Condition
	Deleting xpv2.Condition
}

// statusOf mg, without times.
func statusOf(mg resource.Managed) status {
	s := status{Ready: mg.GetCondition(xpv2.TypeReady), Deleting: mg.GetCondition(reconciler.TypeDeleting)}
	s.Ready.LastTransitionTime.Reset()
	s.Deleting.LastTransitionTime.Reset()

	return s
}

// deletes returns what the status of an object of generation 3 is to be.
func deletes(r xpv2.ConditionReason, message string) status {
	return status{
		Ready:    xpv2.Condition{Type: "Ready", Status: corev1.ConditionFalse, Reason: "Deleting", Message: message, ObservedGeneration: 3},
		Deleting: xpv2.Condition{Type: "Deleting", Status: corev1.ConditionTrue, Reason: r, Message: message, ObservedGeneration: 3},
	}
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
		opts     func(a *testkit.API) []ReconcilerOption
		before   func(ctx context.Context, r testkit.Request) error

		// connecting is what the server says while the provider is connected
		// to, for the first time; the zero value if that doesn't happen.
		connecting status

		// after is what the server says after each of the first reconciles. The
		// last one is to stay.
		after []status

		// writes of status until nothing changes any more.
		writes int

		// silent means that no error is to be seen in Synced.
		silent bool
	}{
		"InitializeFails": {
			reason: "A custom initializer's failure should be reported.",
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithInitializers(upstream.InitializerFn(func(context.Context, resource.Managed) error { return errProvider }))}
			},
			after:  []status{deletes(reconciler.ReasonInitializeFailed, messageInitializeFailed)},
			writes: 2,
		},
		"DefaultInitializeFails": {
			reason: "The default initializer's failure should be reported.",
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{func(r *Reconciler) { r.config.initializer = nil }}
			},
			before: func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Update {
					return refused()
				}

				return nil
			},
			after:  []status{deletes(reconciler.ReasonInitializeFailed, messageInitializeFailed)},
			writes: 2,
		},
		"ConnectFails": {
			reason:     "Broken credentials should be reported.",
			provider:   provider{connectErr: errProvider},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			writes:     2,
		},
		"NilClient": {
			reason:     "A connector that returns neither a client nor an error should be reported, not crash.",
			provider:   provider{nilClient: true},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			writes:     2,
			silent:     true,
		},
		"ObserveFails": {
			reason:     "An external resource that can't be observed should be reported.",
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			writes:     2,
		},
		"ObserveFailsWhileOthersHoldFinalizers": {
			reason:     "What stopped this reconcile should be reported, not what would stop it next.",
			mods:       []func(resource.Managed){held(FinalizerName, "example.org/a")},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			connecting: waitingFor("example.org/a"),
			after:      []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			writes:     2,
		},
		"CreateIncomplete": {
			reason: "An incomplete create should be reported as what it is for a deletion, with what to do.",
			mods:   []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			after:  []status{deletes(reconciler.ReasonCreateResultUnknown, messageCreateUnknown)},
			writes: 2,
			silent: true,
		},
		"CreateIncompleteButDeterministic": {
			reason: "With deterministic names an incomplete create should stop nothing.",
			mods:   []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithDeterministicExternalName(true)}
			},
			connecting: requested,
			after: []status{
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
			},
			writes: 3,
			silent: true,
		},
		"CreateIncompleteAndOrphanedUnpublishFails": {
			reason: "That a create is incomplete should not be said where it is not what stops.",
			mods: []func(resource.Managed){
				noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
				allowed(xpv2.ManagementActionObserve),
			},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{withUnpublisher(func() error { return errProvider })}
			},
			after:  []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			writes: 2,
		},
		"OtherFinalizers": {
			reason:     "Finalizers of others should be named, sorted, without the reconciler's own.",
			mods:       []func(resource.Managed){held("example.org/b", FinalizerName, "example.org/a")},
			connecting: waitingFor("example.org/a, example.org/b"),
			after:      []status{waitingFor("example.org/a, example.org/b")},
			writes:     1,
			silent:     true,
		},
		"ManyOtherFinalizers": {
			reason:     "Of many finalizers the first few should be named, and the rest counted.",
			mods:       []func(resource.Managed){held("f/7", "f/6", "f/5", FinalizerName, "f/4", "f/3", "f/2", "f/1")},
			connecting: waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more"),
			after:      []status{waitingFor("f/1, f/2, f/3, f/4, f/5 and 2 more")},
			writes:     1,
			silent:     true,
		},
		"ForegroundDeletion": {
			reason:     "The garbage collector's finalizer is one of somebody else.",
			mods:       []func(resource.Managed){held(FinalizerName, "foregroundDeletion")},
			connecting: waitingFor("foregroundDeletion"),
			after:      []status{waitingFor("foregroundDeletion")},
			writes:     1,
			silent:     true,
		},
		"FinalizersLeft": {
			reason:     "If only somebody else's finalizer is there, the deletion should go on and then wait for it.",
			mods:       []func(resource.Managed){held("example.org/a")},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			connecting: requested,
			after:      []status{waitingFor("example.org/a")},
			writes:     2,
			silent:     true,
		},
		"FinalizersLeftByOrphaning": {
			reason: "If the policy orphans, what is left should be reported after our finalizer went.",
			mods:   []func(resource.Managed){held(FinalizerName, "example.org/a"), allowed(xpv2.ManagementActionObserve)},
			after:  []status{waitingFor("example.org/a")},
			writes: 1,
			silent: true,
		},
		"PausedByAnnotation": {
			reason: "A pause by annotation should be reported.",
			mods:   []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true")},
			after:  []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			writes: 2,
			silent: true,
		},
		"PausedByPolicy": {
			reason: "A pause by management policies should be reported.",
			mods:   []func(resource.Managed){allowed()},
			after:  []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			writes: 2,
			silent: true,
		},
		"PausedBeforeDeletion": {
			reason: "An object that was paused already should say that its deletion is.",
			mods:   []func(resource.Managed){noted(meta.AnnotationKeyReconciliationPaused, "true"), said(xpv2.Available(), xpv2.ReconcilePaused().WithObservedGeneration(3))},
			after:  []status{deletes(reconciler.ReasonBlockedByPause, messagePaused)},
			writes: 1,
			silent: true,
		},
		"PauseEnded": {
			reason: "After a pause it should not be blamed any more.",
			mods: []func(resource.Managed){
				said(reconciler.Deleting(time.Time{}, reconciler.ReasonBlockedByPause, messagePaused)...),
				said(xpv2.ReconcilePaused()),
			},
			provider:   provider{client: upstream.ExternalClientFns{ObserveFn: fails}},
			connecting: status{Ready: xpv2.Deleting().WithMessage(messagePaused), Deleting: xpv2.Condition{Type: "Deleting", Status: "True", Reason: reconciler.ReasonBlockedByPause, Message: messagePaused}},
			after:      []status{deletes(reconciler.ReasonObserveFailed, messageObserveFailed)},
			writes:     1,
		},
		"InvalidPolicies": {
			reason: "Management policies that are not supported should be reported.",
			mods:   []func(resource.Managed){allowed(xpv2.ManagementActionDelete)},
			after:  []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			writes: 2,
			silent: true,
		},
		"InvalidPoliciesAndCreateIncomplete": {
			reason: "That a create is incomplete should not be said before it is known to be what stops.",
			mods: []func(resource.Managed){
				allowed(xpv2.ManagementActionDelete),
				noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
			after:  []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			writes: 2,
			silent: true,
		},
		"CreationGracePeriod": {
			reason:   "While absence is being confirmed, that should be reported.",
			mods:     []func(resource.Managed){noted(meta.AnnotationKeyExternalCreateSucceeded, time.Now().Format(time.RFC3339))},
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithCreationGracePeriod(time.Hour)}
			},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonConfirmingAbsence, messageConfirming)},
			writes:     2,
			silent:     true,
		},
		"DeleteFails": {
			reason:     "A delete that is refused should be reported.",
			provider:   provider{client: upstream.ExternalClientFns{DeleteFn: deleteFails}},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonExternalDeleteFailed, messageDeleteFailed)},
			writes:     3,
		},
		"DeleteAccepted": {
			reason:     "A delete that is accepted should be reported, and on the next pass that it is not done.",
			connecting: requested,
			after: []status{
				deletes(reconciler.ReasonExternalDeleteRequested, messageDeleteRequested),
				deletes(reconciler.ReasonWaitingForExternalResource, messageStillExists),
			},
			writes: 3,
			silent: true,
		},
		"UnpublishFails": {
			reason:   "That connection details can't be unpublished should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{withUnpublisher(func() error { return errProvider })}
			},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonReconcileFailed, messageGone)},
			writes:     2,
		},
		"OrphanedUnpublishFails": {
			reason: "That connection details can't be unpublished should be reported if the policy orphans, too.",
			mods:   []func(resource.Managed){allowed(xpv2.ManagementActionObserve)},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{withUnpublisher(func() error { return errProvider })}
			},
			after:  []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			writes: 2,
		},
		"RemoveFinalizerFails": {
			reason:   "That the default finalizer can't be removed should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			before: func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Update {
					return refused()
				}

				return nil
			},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonReconcileFailed, messageGone)},
			writes:     2,
		},
		"CustomRemoveFinalizerFails": {
			reason:   "That a custom finalizer can't be removed should be reported.",
			provider: provider{client: upstream.ExternalClientFns{ObserveFn: absent}},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithFinalizer(resource.FinalizerFns{
					RemoveFinalizerFn: func(context.Context, resource.Object) error { return errProvider },
				})}
			},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonReconcileFailed, messageGone)},
			writes:     2,
		},
		"OrphanedRemoveFinalizerFails": {
			reason: "That a finalizer can't be removed should be reported if the policy orphans, too.",
			mods:   []func(resource.Managed){allowed(xpv2.ManagementActionObserve)},
			opts: func(*testkit.API) []ReconcilerOption {
				return []ReconcilerOption{WithFinalizer(resource.FinalizerFns{
					RemoveFinalizerFn: func(context.Context, resource.Object) error { return errProvider },
				})}
			},
			after:  []status{deletes(reconciler.ReasonReconcileFailed, messageReconcileFailed)},
			writes: 2,
		},
		"ReportedBefore": {
			reason:     "What is on the server already should not be written again before Connect.",
			mods:       []func(resource.Managed){said(requested.Ready, requested.Deleting)},
			provider:   provider{connectErr: errProvider},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			writes:     1,
		},
		"ReadyAgainThoughReportedBefore": {
			reason:     "If somebody made a deleting object Ready again, that should end before Connect.",
			mods:       []func(resource.Managed){said(requested.Deleting, xpv2.Available())},
			provider:   provider{connectErr: errProvider},
			connecting: requested,
			after:      []status{deletes(reconciler.ReasonConnectFailed, messageConnectFailed)},
			writes:     2,
		},
	}

	for name, tc := range cases {
		for fname, f := range flavours() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				rec := &recorder{}
				a := testkit.NewAPI(f.object(append([]func(resource.Managed){said(xpv2.Available(), xpv2.ReconcileSuccess())}, tc.mods...)...))
				a.Before = tc.before

				var connecting []status

				opts := []ReconcilerOption{WithRecorder(rec), f.connector(tc.provider, func(resource.Managed) {
					connecting = append(connecting, statusOf(f.get(t, a)))
				})}
				if tc.opts != nil {
					opts = append(opts, tc.opts(a)...)
				}

				r := f.reconciler(a, opts...)

				writes := func() int { return a.Count(testkit.StatusUpdate, testkit.StatusPatch) }

				for i := range 2 + len(tc.after) {
					if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
						t.Fatalf("\n%s\nReconcile %d: %v", tc.reason, i+1, err)
					}

					if diff := cmp.Diff(tc.after[min(i, len(tc.after)-1)], statusOf(f.get(t, a))); diff != "" {
						t.Fatalf("\n%s\nafter reconcile %d: -want, +got:\n%s", tc.reason, i+1, diff)
					}
				}

				var want []status
				if tc.connecting != (status{}) {
					want = []status{tc.connecting}
					want[0].Ready.LastTransitionTime.Reset()
				}

				if diff := cmp.Diff(want, connecting[:min(1, len(connecting))]); diff != "" {
					t.Errorf("\n%s\nwhile connecting: -want, +got:\n%s", tc.reason, diff)
				}

				if got := writes(); got != tc.writes {
					t.Errorf("\n%s\nstatus writes until it settled: want %d, got %d: %v", tc.reason, tc.writes, got, verbs(a))
				}

				settled := f.get(t, a)

				a.Forget()

				for range 10 {
					if _, err := r.Reconcile(context.Background(), f.request()); err != nil {
						t.Fatalf("\n%s\nReconcile: %v", tc.reason, err)
					}
				}

				if got := writes(); got != 0 {
					t.Errorf("\n%s\nstatus writes in 10 more reconciles: want 0, got %d", tc.reason, got)
				}

				if diff := cmp.Diff(settled, f.get(t, a)); diff != "" {
					t.Errorf("\n%s\n10 reconciles later: -want, +got:\n%s", tc.reason, diff)
				}

				synced := settled.GetCondition(xpv2.TypeSynced)
				if got := strings.Contains(synced.Message, secret); got == tc.silent {
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

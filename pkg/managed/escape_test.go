package managed

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestWithDeletionDeadline(t *testing.T) {
	const foreign = "example.org/foreign"
	passed, future := time.Minute, 100*365*24*time.Hour
	cases := map[string]struct {
		reason   string
		deadline time.Duration
		mods     []func(b *v1alpha1.Bucket)
		client   ExternalClientFns

		want     xpv2.ConditionReason
		message  string
		exceeded int
	}{
		"Passed": {
			reason: "The Deleting condition should say that the deadline has passed, and why the managed resource exists.", deadline: passed,
			want: reconciler.ReasonDeadlineExceeded, message: messageDeleteRequested, exceeded: 1,
		},
		"NotPassed": {
			reason: "A deadline that has not passed should change nothing.", deadline: future,
			want: reconciler.ReasonWaitingForExternalResource, message: messageStillExists,
		},
		"ObserveFails": {
			reason: "The message should say what failed.", deadline: passed, client: ExternalClientFns{ObserveFn: fails},
			want: reconciler.ReasonDeadlineExceeded, message: messageObserveFailed, exceeded: 1,
		},
		"WaitsForFinalizers": {
			reason: "The message should name the finalizers.", deadline: passed, mods: []func(b *v1alpha1.Bucket){finalizers(FinalizerName, foreign)},
			want: reconciler.ReasonDeadlineExceeded, message: messageWaitingFinalizer + foreign, exceeded: 1,
		},
		"Paused": {
			reason: "The message should say that the managed resource is paused.", deadline: passed, mods: []func(b *v1alpha1.Bucket){paused},
			want: reconciler.ReasonDeadlineExceeded, message: messagePaused, exceeded: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(append([]func(b *v1alpha1.Bucket){finalizers(FinalizerName), deleting, named("id-1")}, tc.mods...)...)
			a, said, exceeded := testkit.NewAPI(b), &testkit.Said{}, 0
			r := newBucketReconciler(a, connects(tc.client), WithRecorder(said),
				WithDeletionDeadline(tc.deadline, func(context.Context, client.Object) { exceeded++ }))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), request())
			}
			got := deletingCondition(get(t, a))
			wants(t, tc.reason, "reason, has the message", []any{tc.want, true}, []any{got.Reason, strings.HasSuffix(got.Message, tc.message)})
			wants(t, tc.reason, "events, calls", []int{tc.exceeded, tc.exceeded}, []int{len(said.Events("DeletionDeadlineExceeded")), exceeded})
			wants(t, tc.reason, "Ready", corev1.ConditionFalse, get(t, a).GetCondition(xpv2.TypeReady).Status)

			a.Forget()
			_, _ = r.Reconcile(t.Context(), request())
			wants(t, "An unchanged situation should be written once.", "writes", 0, a.Writes())

			// Another process knows from the condition that the event was emitted.
			r = newBucketReconciler(a, connects(tc.client), WithRecorder(said), WithDeletionDeadline(tc.deadline, nil))
			_, _ = r.Reconcile(t.Context(), request())
			wants(t, "There should be one event after a restart, too.", "events", tc.exceeded, len(said.Events("DeletionDeadlineExceeded")))
		})
	}
}

func TestWithDeletionDeadline_Requeue(t *testing.T) {
	b := bucket(finalizers(FinalizerName), deleting, paused)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	b.DeletionTimestamp.Time = at
	a := testkit.NewAPI(b)
	r := newBucketReconciler(a, WithDeletionDeadline(2*time.Hour, nil))
	result, err := r.Reconcile(t.Context(), request())
	must(t, err)
	wants(t, "The managed resource should be reconciled at the deadline.", "within an hour", true, result.RequeueAfter > 0 && result.RequeueAfter <= time.Hour)
}

func TestWithForceOrphan(t *testing.T) {
	const foreign = "example.org/foreign"
	asks := func(uid string) func(b *v1alpha1.Bucket) { return annotated(reconciler.AnnotationKeyForceOrphan, uid) }
	cases := map[string]struct {
		reason  string
		mods    []func(b *v1alpha1.Bucket)
		options []ReconcilerOption

		gone    bool
		want    []string // The finalizers.
		deletes bool     // Delete is called.
		reasons xpv2.ConditionReason
		message string
	}{
		"Asked":     {reason: "The managed resource should go, and the external resource stay.", mods: []func(b *v1alpha1.Bucket){asks("uid-1")}, gone: true},
		"NotAsked":  {reason: "The condition should say what the annotation would do.", want: []string{FinalizerName}, deletes: true, reasons: reconciler.ReasonWaitingForExternalResource, message: "To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-1"},
		"OtherUID":  {reason: "A request for another object should be ignored.", mods: []func(b *v1alpha1.Bucket){asks("uid-2")}, want: []string{FinalizerName}, deletes: true, reasons: reconciler.ReasonWaitingForExternalResource, message: "To orphan it"},
		"NotDelete": {reason: "A managed resource that is not being deleted should be left alone.", mods: []func(b *v1alpha1.Bucket){asks("uid-1"), func(b *v1alpha1.Bucket) { b.SetDeletionTimestamp(nil) }}, want: []string{FinalizerName}},
		"Foreign":   {reason: "Other controllers' finalizers should stay, and the external resource, too.", mods: []func(b *v1alpha1.Bucket){asks("uid-1"), finalizers(FinalizerName, foreign)}, want: []string{foreign}, reasons: reconciler.ReasonForceOrphaned},
		"Named":     {reason: "Exactly the supplied finalizers should be removed.", mods: []func(b *v1alpha1.Bucket){asks("uid-1"), finalizers(FinalizerName, foreign)}, options: []ReconcilerOption{WithForceOrphan(FinalizerName, foreign)}, gone: true},
		"WithReservation": {
			reason: "A reservation should not keep the managed resource.", mods: []func(b *v1alpha1.Bucket){asks("uid-1")}, gone: true,
			options: []ReconcilerOption{WithForceOrphan(), WithExternalNameReservation(leaseNamespace)},
		},
		"PastDeadline": {
			reason: "A deadline that has passed should not hide the request.", mods: []func(b *v1alpha1.Bucket){asks("uid-1"), finalizers(FinalizerName, foreign)}, want: []string{foreign}, reasons: reconciler.ReasonForceOrphaned,
			options: []ReconcilerOption{WithForceOrphan(), WithDeletionDeadline(time.Minute, nil)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(append([]func(b *v1alpha1.Bucket){finalizers(FinalizerName), deleting, named("id-1")}, tc.mods...)...)
			a, said, deletes := testkit.NewAPI(b), &testkit.Said{}, 0
			if tc.options == nil {
				tc.options = []ReconcilerOption{WithForceOrphan()}
			}
			r := newBucketReconciler(a, append([]ReconcilerOption{connects(ExternalClientFns{DeleteFn: counts[ExternalDelete](&deletes)}), WithRecorder(said)}, tc.options...)...)
			for range 4 {
				_, _ = r.Reconcile(t.Context(), request())
				collectGarbage(t, a)
			}
			wants(t, tc.reason, "Delete is called", tc.deletes, deletes > 0)

			got := &v1alpha1.Bucket{}
			err := a.Server().Get(t.Context(), request().NamespacedName, got)
			wants(t, tc.reason, "gone", tc.gone, kerrors.IsNotFound(err))
			if tc.gone || slices.Equal(tc.want, []string{foreign}) {
				wants(t, tc.reason, "events", 1, len(said.Events("ForceOrphaned")))
			}
			if tc.gone {
				return
			}
			wants(t, tc.reason, "finalizers", tc.want, got.GetFinalizers(), cmpopts.EquateEmpty())
			wants(t, tc.reason, "reason, has the message", []any{tc.reasons, true}, []any{deletingCondition(got).Reason, strings.Contains(deletingCondition(got).Message, tc.message)})

			a.Forget()
			_, _ = r.Reconcile(t.Context(), request())
			wants(t, "An unchanged situation should be written once.", "writes", 0, a.Writes())
		})
	}
}

// collectGarbage removes the finalizer of the garbage collector, as that does when no object is owned.
func collectGarbage(t *testing.T, a *testkit.API) {
	t.Helper()
	b := &v1alpha1.Bucket{}
	err := a.Server().Get(t.Context(), request().NamespacedName, b)
	if kerrors.IsNotFound(err) {
		return
	}
	must(t, err)
	if i := slices.Index(b.Finalizers, metav1.FinalizerOrphanDependents); i >= 0 {
		b.Finalizers = slices.Delete(b.Finalizers, i, i+1)
		must(t, a.Server().Update(t.Context(), b))
	}
}

func TestEscape_WithoutDeletionStatus(t *testing.T) {
	for option, o := range map[string]ReconcilerOption{"WithDeletionDeadline": WithDeletionDeadline(time.Hour, nil), "WithForceOrphan": WithForceOrphan()} {
		err := func() (p any) {
			defer func() { p = recover() }()
			NewReconciler(testkit.NewAPI().Manager(), resource.ManagedKind(testkit.BucketKind()), o, WithoutDeletionStatus())
			return nil
		}()
		e, ok := err.(error)
		wants(t, "We should refuse options that exclude each other.", option, true, ok && strings.Contains(e.Error(), "leave one of them out"))
	}
}

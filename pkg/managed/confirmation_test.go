package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const interval = 10 * time.Second

// observes returns an Observe that answers as the word says: found, absent, or
// fails. After the last word it is absent.
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
		after int
		then  func(t *testing.T, a *testkit.API)

		// want is how many reconciles it takes until the object is gone.
		want    int
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
				var known *confirmation
				a, c, rec, deletes := testkit.NewAPI(bucket(append(tc.mods, deleting, finalizers(FinalizerName))...)), newClock(), &testkit.Said{}, 0
				opts := []ReconcilerOption{c.option(), WithRecorder(rec), WithDeletionConfirmation(tc.n, interval), spies(slotConfirmation, &known), connects(ExternalClientFns{
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
				wants(t, tc.reason, "reconciles, deletes, found after all, remembered", []any{tc.want, tc.deletes, tc.again, 0}, []any{n, deletes, len(rec.Events(reasonFoundAfterAll)), known.absences.len()})
			})
		}
	}
}

// While absence is being confirmed the reconcile comes back when the next
// observation counts, says so once, and writes nothing more.
func TestDeletionConfirmationIsQuiet(t *testing.T) {
	a, c, rec := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName))), newClock(), &testkit.Said{}
	unpublished := 0
	r := newBucketReconciler(a, c.option(), WithRecorder(rec), WithDeletionConfirmation(3, interval), connects(ExternalClientFns{ObserveFn: absent}),
		withUnpublisher(func() error { unpublished++; return nil }))
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
	wants(t, "", "reason, Ready, message, finalizers", []any{reconciler.ReasonConfirmingAbsence, xpv2.ReasonDeleting, messageAbsent, []string{FinalizerName}}, said)

	// Deleting is said at once, then why.
	wants(t, "", "writes, events, unpublished", []any{2, 1, 0}, []any{a.Writes(), len(rec.Events(reasonConfirmingAbsence)), unpublished})
}

// Absence is confirmed also while other finalizers hold the object: which of them
// upstream waits for is for upstream to know.
func TestDeletionConfirmationWithOtherFinalizers(t *testing.T) {
	a, c := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName, "other"))), newClock()
	r := newBucketReconciler(a, c.option(), WithDeletionConfirmation(2, interval), connects(ExternalClientFns{ObserveFn: absent}))
	var got []xpv2.ConditionReason
	for range 3 {
		run(t, r, "b")
		c.now = c.now.Add(interval)
		got = append(got, get(t, a).GetCondition(reconciler.TypeDeleting).Reason)
	}
	wants(t, "", "reasons", []xpv2.ConditionReason{reconciler.ReasonConfirmingAbsence, reconciler.ReasonWaitingForFinalizers, reconciler.ReasonWaitingForFinalizers}, got)
}

package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const interval = 10 * time.Second

// A clock stands still until it is moved.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) option() ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.Now = func() time.Time { return c.now } }
}

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
		object   *v1alpha1.Bucket
		n        int
		observes string
		delete   func(context.Context, resource.Managed) (ExternalDelete, error)
		// every is how far apart reconciles are, interval if zero.
		every time.Duration
		// want is how many reconciles it takes until the object is gone.
		want    int
		deletes int
		again   int
	}{
		"Confirmed": {
			reason: "An external resource that is never found is gone after the third time.",
			n:      3,
			want:   3,
		},
		"Once": {
			reason: "Once is what upstream does.",
			n:      1,
			want:   1,
		},
		"OneWrongNotFound": {
			reason:   "One wrong not-found among the observations doesn't remove the finalizer, and the external resource is deleted.",
			n:        3,
			observes: "absent found absent",
			want:     3,
			deletes:  1,
			again:    1,
		},
		"FailedBetween": {
			reason:   "So does an observation that failed: in a row means nothing else in between.",
			n:        3,
			observes: "absent absent fails absent absent absent",
			want:     6,
		},
		"SawDelete": {
			reason:   "After a Delete that we saw succeed the first not-found counts.",
			n:        3,
			observes: "found absent",
			want:     2,
			deletes:  1,
		},
		"TooSoon": {
			reason: "Not found twice in less than the interval is not found once.",
			n:      2,
			every:  interval / 4,
			want:   5,
		},
		"Orphan": {
			reason: "What is deleted without its external resource is not observed, and goes at once.",
			object: bucket(deleting, finalizers(FinalizerName), policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate)),
			n:      3,
			want:   1,
		},
	}

	for name, tc := range cases {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/WithoutDeletionStatus=%t", name, without), func(t *testing.T) {
				if tc.object == nil {
					tc.object = bucket(deleting, finalizers(FinalizerName))
				}

				o, _ := tc.object.DeepCopyObject().(*v1alpha1.Bucket)
				var known *confirmation

				a, c, rec, deletes := testkit.NewAPI(o), newClock(), &recorder{}, 0

				if tc.every == 0 {
					tc.every = interval
				}

				opts := []ReconcilerOption{c.option(), WithRecorder(rec), WithDeletionConfirmation(tc.n, interval), spies(slotConfirmation, &known), connects(upstream.ExternalClientFns{
					ObserveFn: observes(tc.observes),
					DeleteFn: func(ctx context.Context, mg resource.Managed) (ExternalDelete, error) {
						deletes++
						if tc.delete != nil {
							return tc.delete(ctx, mg)
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
					n++
				}

				got := []any{n, deletes, len(rec.of(reasonFoundAfterAll)), known.absences.len()}
				if diff := cmp.Diff([]any{tc.want, tc.deletes, tc.again, 0}, got); diff != "" {
					t.Errorf("\n%s\nreconciles, deletes, found after all, remembered: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// While absence is being confirmed the reconcile comes back when the next
// observation counts, says so once, and writes nothing more.
func TestDeletionConfirmationIsQuiet(t *testing.T) {
	a, c, rec := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName))), newClock(), &recorder{}
	unpublished := 0

	r := newBucketReconciler(a, c.option(), WithRecorder(rec), WithDeletionConfirmation(3, interval), connects(upstream.ExternalClientFns{ObserveFn: absent}),
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
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("RequeueAfter: -want, +got:\n%s", diff)
	}

	b := get(t, a)
	said := []any{b.GetCondition(reconciler.TypeDeleting).Reason, b.GetCondition(xpv2.TypeReady).Reason, b.GetCondition(xpv2.TypeReady).Message, b.GetFinalizers()}

	if diff := cmp.Diff([]any{reconciler.ReasonConfirmingAbsence, xpv2.ReasonDeleting, messageAbsent, []string{FinalizerName}}, said); diff != "" {
		t.Errorf("reason, Ready, message, finalizers: -want, +got:\n%s", diff)
	}

	// Deleting is said at once, then why.
	if diff := cmp.Diff([]any{2, 1, 0}, []any{a.Writes(), len(rec.of(reasonConfirmingAbsence)), unpublished}); diff != "" {
		t.Errorf("writes, events, unpublished: -want, +got:\n%s", diff)
	}
}

// A count is of one object, and of one process.
func TestDeletionConfirmationBeginsAnew(t *testing.T) {
	var known *confirmation

	start := func() (*testkit.API, *clock, func(a *testkit.API, c *clock) *Reconciler) {
		return testkit.NewAPI(bucket(deleting, finalizers(FinalizerName))), newClock(), func(a *testkit.API, c *clock) *Reconciler {
			return newBucketReconciler(a, c.option(), WithDeletionConfirmation(3, interval), spies(slotConfirmation, &known), connects(upstream.ExternalClientFns{ObserveFn: absent}))
		}
	}

	reconciles := func(t *testing.T, r reconcile.Reconciler, c *clock, n int) {
		t.Helper()

		for range n {
			run(t, r, "b")

			c.now = c.now.Add(interval)
		}
	}

	t.Run("Restart", func(t *testing.T) {
		a, c, build := start()
		reconciles(t, build(a, c), c, 2)
		reconciles(t, build(a, c), c, 2)

		if get(t, a).GetName() == "" {
			t.Error("the object went after two observations of this process")
		}
	})

	t.Run("AnotherOfTheName", func(t *testing.T) {
		a, c, build := start()
		r := build(a, c)
		reconciles(t, r, c, 2)

		edit(t, a, "b", finalizers())

		b := bucket(finalizers(FinalizerName))
		must(t, a.Server().Create(context.Background(), b))

		must(t, a.Server().Delete(context.Background(), b))

		reconciles(t, r, c, 2)

		if get(t, a).GetName() == "" {
			t.Error("the new object went after two observations")
		}

		reconciles(t, r, c, 1)

		if get(t, a).GetName() != "" {
			t.Error("the new object is there after three observations")
		}
	})

	t.Run("GoneOtherwise", func(t *testing.T) {
		a, c, build := start()
		r := build(a, c)
		reconciles(t, r, c, 1)

		edit(t, a, "b", finalizers())

		reconciles(t, r, c, 1)

		if n := known.absences.len(); n != 0 {
			t.Errorf("remembered: want 0, got %d", n)
		}
	})
}

// Absence is confirmed also while other finalizers hold the object: which of them
// upstream waits for is for upstream to know.
func TestDeletionConfirmationWithOtherFinalizers(t *testing.T) {
	var known *confirmation

	a, c := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName, "other"))), newClock()
	r := newBucketReconciler(a, c.option(), WithDeletionConfirmation(2, interval), spies(slotConfirmation, &known), connects(upstream.ExternalClientFns{ObserveFn: absent}))

	var got []xpv2.ConditionReason

	for range 3 {
		run(t, r, "b")

		c.now = c.now.Add(interval)

		got = append(got, get(t, a).GetCondition(reconciler.TypeDeleting).Reason)
	}

	want := []xpv2.ConditionReason{reconciler.ReasonConfirmingAbsence, reconciler.ReasonWaitingForFinalizers, reconciler.ReasonWaitingForFinalizers}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons: -want, +got:\n%s", diff)
	}
}

// A Delete that succeeded counts only as long as nothing has shown otherwise.
func TestDeletionConfirmationForgetsDelete(t *testing.T) {
	boom := errors.New("protection is on")

	// A step is one reconcile, as the layer sees it.
	type step struct {
		exists bool
		err    error // of Observe

		deletes bool
		state   seam.State
		refused error

		renamed bool // since the step before
	}

	accepted := step{exists: true, deletes: true}

	cases := map[string]struct {
		reason string
		steps  []step
		want   bool
	}{
		"Succeeded": {
			reason: "Not found after a Delete that succeeded needs no more.",
			steps:  []step{accepted, {}},
			want:   true,
		},
		"Refused": {
			reason: "A Delete that failed has deleted nothing.",
			steps:  []step{accepted, {exists: true, deletes: true, refused: boom}, {}},
		},
		"RefusedFirst": {
			reason: "What counts is the last one.",
			steps:  []step{{exists: true, deletes: true, refused: boom}, accepted, {}},
			want:   true,
		},
		"Seen": {
			reason: "It exists although it was deleted.",
			steps:  []step{accepted, {exists: true}, {}},
		},
		"ObserveFailed": {
			reason: "A failed Observe undoes no Delete.",
			steps:  []step{accepted, {err: boom}, {}},
			want:   true,
		},
		"InProgress": {
			reason: "A Delete that has only begun may fail.",
			steps:  []step{{exists: true, deletes: true, state: seam.InProgress}, {}},
		},
		"Renamed": {
			reason: "What was deleted is not what is looked for now.",
			steps:  []step{accepted, {renamed: true}},
		},
		"InProgressAfterSuccess": {
			reason: "Nor may one that has begun be taken for an earlier one.",
			steps:  []step{accepted, {exists: true, deletes: true, state: seam.InProgress}, {}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName)))

			r := &Reconciler{}
			WithDeletionConfirmation(3, interval)(r)

			build, confirmed := r.config.layers[slotConfirmation], false
			l := build(parts{log: logging.NewNopLogger(), record: &recorder{}})
			same := func(parts) layer { return l }

			for _, now := range tc.steps {
				if now.renamed {
					edit(t, a, "b", named("another"))
				}

				alone(t, a, same, &recorder{}, calls{
					observe: func(*call) (observation, error) {
						return observation{ExternalObservation: ExternalObservation{ResourceExists: now.exists}}, now.err
					},
					delete: func(*call) (deletion, error) { return deletion{Outcome: seam.Outcome{State: now.state}}, now.refused },
				}, func(ctx context.Context, e external, c *call) {
					o, err := e.Observe(ctx, c)
					confirmed = err == nil && !o.ResourceExists

					if now.deletes {
						_, _ = e.Delete(ctx, c)
					}
				})
			}

			if confirmed != tc.want {
				t.Errorf("\n%s\nconfirmed: want %t, got %t", tc.reason, tc.want, confirmed)
			}
		})
	}
}

package asyncstate

import (
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestSituation_Condition(t *testing.T) {
	const failedAt = "update, attempt 2, failed at 2026-01-02T04:00:00Z"
	ended := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	now := ended.Add(time.Minute)
	had := func(reason xpv2.ConditionReason, message string, since time.Time) xpv2.Condition {
		c := xpv2.Condition{
			Type: TypeOperation, Status: corev1.ConditionFalse, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(since),
		}
		if reason == ReasonRunning {
			c.Status = corev1.ConditionTrue
		}
		return c
	}
	running := func(typ Type, since time.Duration) *Status {
		return &Status{
			Attempt: Attempt{Type: typ, Number: 1, Started: now.Add(-since)}, Deadline: now.Add(time.Hour), Percent: 40,
		}
	}
	failed := &creation.Record{
		Type: creation.Update, Phase: creation.RecordFailed, Attempt: 2, Failures: 1, Error: "no answer",
		Ended: &metav1.Time{Time: ended},
	}
	runs := had(ReasonRunning, "old", now)
	cases := map[string]struct {
		reason     string
		had        xpv2.Condition
		conditions []xpv2.Condition
		policies   xpv2.ManagementPolicies
		situation
		want string
	}{
		"NoOperation": {
			reason:    "An object that never had an operation should have no condition.",
			situation: situation{report: progressReport{observed: true}}, want: "Unknown : ",
		},
		"Running": {
			reason: "The condition should say how far the operation is, also if the object waits for a permit.",
			situation: situation{
				running: running(Create, 0), report: progressReport{reason: ReasonQueued, message: "queued"},
			},
			want: "True Running: create, attempt 1, since 2026-01-02T04:01:00Z, deadline 2026-01-02T05:01:00Z: 40%",
		},
		"PastDeadline": {
			reason: "An operation that has not ended by its deadline should say so.",
			situation: situation{running: &Status{
				Attempt: Attempt{Type: Create, Number: 2, Started: ended}, Deadline: now, Message: "copying",
			}},
			want: "True Running: create, attempt 2, since 2026-01-02T04:00:00Z, deadline 2026-01-02T04:01:00Z " +
				"(past its deadline, and not ended yet): 0% copying",
		},
		"CreateNotAllowed": {
			reason:   "A create that is no longer allowed should have no next attempt.",
			policies: xpv2.ManagementPolicies{"Observe"},
			situation: situation{
				record: &creation.Record{Type: creation.Create, Attempt: 1, Error: "quota", Ended: failed.Ended},
				report: progressReport{observed: true},
			},
			want: "False Failed: create, attempt 1, failed at 2026-01-02T04:00:00Z: quota",
		},
		"BriefUpdate": {
			reason:    "An update that has just begun should not be reported.",
			had:       had(ReasonFinished, "old", ended),
			situation: situation{running: running(Update, 9*time.Second)}, want: "False Finished: old",
		},
		"LongUpdate": {
			reason:    "An update that takes longer should be reported.",
			situation: situation{running: running(Update, 10*time.Second)},
			want:      "True Running: update, attempt 1, since 2026-01-02T04:00:50Z, deadline 2026-01-02T05:01:00Z: 40%",
		},
		"Stopped": {
			reason:    "The reason to wait should come before the recorded failure.",
			situation: situation{record: failed, report: progressReport{reason: ReasonOutcomeUnknown, message: "look"}},
			want:      "False OutcomeUnknown: look",
		},
		"ResumptionWaits": {
			reason:    "A resumption that waits should name the error of the last attempt.",
			situation: situation{record: failed, report: progressReport{reason: ReasonInterrupted}},
			want:      "False Interrupted: " + failedAt + ", next attempt at 2026-01-02T04:00:01Z: no answer",
		},
		"NotObserved": {
			reason: "A reconcile that returned before Observe should change nothing.",
			had:    had(ReasonQueued, "queued", ended), want: "False Queued: queued",
		},
		"EndedUnobserved": {
			reason: "An operation that has ended should not be shown as running.",
			had:    runs, want: "False Finished: No operation is running.",
		},
		"FailedUnobserved": {
			reason: "The failure should be shown at once, with its text.",
			had:    runs, situation: situation{record: failed, failure: operationError{text: "quota"}},
			want: "False Failed: " + failedAt + ", next attempt at 2026-01-02T04:00:01Z: quota",
		},
		"Terminal": {
			reason: "No next attempt should be named if there is none.", had: runs,
			situation: situation{record: failed, failure: operationError{text: "quota", terminal: true}},
			want:      "False Failed: " + failedAt + ": quota",
		},
		"InterruptedWhilePaused": {
			reason: "An operation with an unknown outcome should not be shown as running, and the condition should say what to do.",
			had:    runs, conditions: []xpv2.Condition{xpv2.ReconcilePaused()},
			situation: situation{record: &creation.Record{Type: creation.Create, Phase: creation.RecordUnknown}},
			want:      "False Interrupted: The create was interrupted. Its outcome is determined when reconciliation is no longer paused.",
		},
		"FailureOfAnotherProcess": {
			reason: "The text of an error that only the stored condition has should stay.",
			had:    had(ReasonFailed, "quota", ended), want: "False Failed: quota",
			situation: situation{record: failed, report: progressReport{observed: true}},
		},
		"FailureNotReported": {
			reason:    "The class of an error should replace the text of an earlier error.",
			had:       had(ReasonFailed, "quota", ended.Add(-time.Second)),
			want:      "False Failed: " + failedAt + ", next attempt at 2026-01-02T04:00:01Z: no answer",
			situation: situation{record: failed, report: progressReport{observed: true}},
		},
		"FailedBefore": {
			reason:    "The failure should be shown until an attempt succeeds.",
			situation: situation{record: &creation.Record{Error: "panic"}, report: progressReport{observed: true}},
			want:      "False Failed: panic",
		},
		"Done": {
			reason: "An observation should end all other reasons.", had: had(ReasonOutcomeUnknown, "look", ended),
			situation: situation{report: progressReport{observed: true}},
			want:      "False Finished: No operation is running.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.Bucket{}
			b.SetManagementPolicies(append(tc.policies, xpv2.ManagementActionAll)[:1])
			if b.SetConditions(tc.conditions...); tc.had.Reason != "" {
				b.SetConditions(tc.had)
			}
			s := tc.situation
			s.object, s.now, s.backoff = b, now, backoff{first: time.Second, last: time.Minute}
			c := s.condition()
			if diff := cmp.Diff(tc.want, string(c.Status)+" "+string(c.Reason)+": "+c.Message); diff != "" {
				t.Errorf("\n%s\ncondition(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

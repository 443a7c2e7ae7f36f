package diagnosis

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCreateUnknown(t *testing.T) {
	const (
		early = "2026-01-02T03:00:00Z"
		late  = "2026-01-02T04:00:00Z"
	)
	record := func(fields string) string {
		return `{"version":1,"uid":"uid","holder":"h","token":"t","started":"` + late +
			`","deadline":"2026-01-02T05:00:00Z","pending":"` +
			late +
			`",` +
			fields +
			`}`
	}
	before, after := time.Date(2026, 1, 2, 4, 30, 0, 0, time.UTC), time.Date(2026, 1, 2, 5, 30, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason  string
		now     time.Time
		pending string
		ended   string
		failed  string
		record  string
		want    bool

		reported string // A condition's type and reason.
	}{
		"NeverCreated": {reason: "An object that was never created has no unknown create."},
		"Incomplete": {reason: "A create that was announced and did not end is " +
			"unknown.", pending: late, ended: early, want: true},
		"Ended":       {reason: "A create that ended is known.", pending: early, ended: late},
		"FailedLater": {reason: "A failure ends a create, too.", pending: late, ended: early, failed: late},
		"BadTime":     {reason: "Upstream ignores an annotation that is not a time.", pending: "yesterday"},
		"Runs": {
			reason: "A create within its deadline may run.",
			now:    before, pending: late, record: record(`"type":"create","phase":"running"`),
		},
		"PastDeadline": {
			reason:  "A create past its deadline was interrupted.",
			pending: late, record: record(`"type":"create","phase":"running"`), want: true,
		},
		"Repeated": {
			reason:  "An earlier process may still run the same attempt.",
			pending: late, record: record(`"type":"create","phase":"unknown","open":"2026-01-02T06:00:00Z"`),
		},
		"EndedUnknown": {
			reason:  "The record says that the outcome is unknown.",
			pending: late, record: record(`"type":"create","phase":"unknown"`), want: true,
		},
		"Refused": {
			reason:  "A create that the external system refused is known.",
			pending: late, failed: late, record: record(`"type":"create","phase":"failed"`),
		},
		"RefusedNamed": {
			reason:  "A create that failed after it set a name has created something.",
			pending: late, failed: late, record: record(`"type":"create","phase":"failed","named":true`), want: true,
		},
		"Update": {
			reason:  "An update begins only if the external resource exists.",
			pending: late, record: record(`"type":"update","phase":"unknown"`),
		},
		"Settled": {
			reason: "A person removed the announcement.",
			record: record(`"type":"create","phase":"unknown"`),
		},
		"SettledLater": {
			reason:  "Another writer stored an end since the record was made.",
			pending: late, ended: late, record: record(`"type":"create","phase":"unknown","announced":{}`),
		},
		"AsyncUpstream": {
			reason:  "Upstream says at once that an asynchronous create succeeded.",
			pending: late, ended: late, record: record(`"type":"create","phase":"unknown"`), want: true,
		},
		"Superseded": {
			reason:  "A provider without Graft announced a create after the record was made.",
			pending: "2026-01-02T04:10:00Z", record: record(`"type":"delete","phase":"failed"`), want: true,
		},
		"OfAnother": {
			reason: "The record of another object cannot be used.",
			record: `{"version":1,"uid":"another","type":"create","phase":"failed"}`, want: true,
		},
		"OfALater": {
			reason: "The record of a later version cannot be used.",
			record: `{"version":2,"uid":"uid","type":"create","phase":"failed"}`, want: true,
		},
		"FailedUnknown": {
			reason:  "A provider that cannot look up the external resource of a create that failed does not know it.",
			pending: early, failed: late, reported: "Synced/ReconcileError", want: true,
		},
		"FailedSettled": {
			reason: "A person who removed the announcement has settled a create that failed.",
			failed: late, reported: "Synced/ReconcileError",
		},
		"SucceededSince": {
			reason:  "The report about a create that failed is obsolete once a later one succeeded.",
			pending: early, failed: early, ended: late, reported: "Synced/ReconcileError",
		},
		"RefusedUnknown": {
			reason:  "A provider that asks a person about a recorded create that failed does not know it.",
			pending: late, failed: late, record: record(`"type":"create","phase":"failed"`),
			reported: "OperationRunning/OutcomeUnknown", want: true,
		},
		"RefusedUnknownWhileDeleted": {
			reason:  "The question is the same while the object is being deleted.",
			pending: late, failed: late, record: record(`"type":"create","phase":"failed"`),
			reported: "Deleting/CreateResultUnknown", want: true,
		},
		"RefusedByProvider": {
			reason:  "The provider checks more of a record.",
			pending: late, ended: late, record: record(`"type":"move","phase":"failed"`),
			reported: "OperationRunning/RecordUnusable", want: true,
		},
		"Damaged": {reason: "A record that is not JSON cannot be used.", record: `{`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID("uid")
			annotations := map[string]string{}
			for k, v := range map[string]string{
				AnnotationCreatePending:   tc.pending,
				annotationCreateSucceeded: tc.ended,
				annotationCreateFailed:    tc.failed,
				AnnotationOperation:       tc.record,
			} {
				if v != "" {
					annotations[k] = v
				}
			}
			o.SetAnnotations(annotations)
			if tc.reported != "" {
				typ, reason, _ := strings.Cut(tc.reported, "/")
				c := map[string]any{"type": typ, "status": "False", "reason": reason}
				if typ == typeDeleting {
					c["status"] = "True"
				}
				if typ == typeSynced {
					c["message"] = "observe failed: " + createFailed + ": boom"
				}
				o.Object["status"] = map[string]any{"conditions": []any{c}}
			}
			now := tc.now
			if now.IsZero() {
				now = after
			}
			if _, got := CreateUnknown(o, now); got != tc.want {
				t.Errorf("%s want %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}

func TestCreateMayRun(t *testing.T) {
	const announced = "2026-01-02T04:00:00Z"
	for name, tc := range map[string]struct {
		reason   string
		pending  string
		failed   string
		record   string
		reported string
		want     string
		ended    bool
	}{
		"NeverAnnounced": {reason: "No create was announced.", want: "0001-01-01T00:00:00Z"},
		"Announced": {
			reason:  "Only the announcement shows a create without a record.",
			pending: announced, want: "2026-01-02T04:05:00Z",
		},
		"Failed": {
			reason:  "A create that failed has ended.",
			pending: announced, failed: announced, want: "0001-01-01T00:00:00Z",
		},
		"Recorded": {
			reason:  "The record has the create's own deadline.",
			pending: announced, want: "0001-01-01T00:00:00Z",
			record: `{"version":1,"uid":"uid","type":"create","phase":"unknown","pending":"` + announced + `"}`,
		},
		"Superseded": {
			reason:  "The record is about an earlier operation.",
			pending: announced, want: "2026-01-02T04:05:00Z",
			record: `{"version":1,"uid":"uid","type":"delete","phase":"failed","pending":"2026-01-02T03:00:00Z"}`,
		},
		"Reported": {
			reason:  "A reconcile that finds the create incomplete follows its end, and the last request may be carried out.",
			pending: announced, reported: "2026-01-02T04:00:10Z", want: "2026-01-02T04:01:10Z", ended: true,
		},
		"ReportedLate": {
			reason:  "A create that was announced long ago has ended, whenever that is reported.",
			pending: announced, reported: "2026-01-02T05:00:00Z", want: "2026-01-02T04:05:00Z", ended: true,
		},
		"ReportedBefore": {
			reason:  "The report is about an earlier create.",
			pending: announced, reported: "2026-01-02T03:59:59Z", want: "2026-01-02T04:05:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID("uid")
			annotations := map[string]string{AnnotationCreatePending: tc.pending, annotationCreateFailed: tc.failed}
			if tc.record != "" {
				annotations[AnnotationOperation] = tc.record
			}
			o.SetAnnotations(annotations)
			if tc.reported != "" {
				o.Object["status"] = map[string]any{"conditions": []any{map[string]any{
					"type": typeSynced, "message": createIncomplete, "lastTransitionTime": tc.reported,
				}}}
			}
			until, ended := CreateMayRun(o)
			if got := until.Format(time.RFC3339); got != tc.want || ended != tc.ended {
				t.Errorf("%s want %s, %t, got %s, %t", tc.reason, tc.want, tc.ended, got, ended)
			}
		})
	}
}

func TestRecord_MayRun(t *testing.T) {
	deadline := time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		record Record
		until  time.Duration // since the deadline
		ended  bool
	}{
		"Running": {
			reason: "The process of an operation abandons it a minute after its deadline.",
			record: Record{Operation: Operation{Phase: phaseRunning}},
			until:  time.Minute,
		},
		"Resumable": {
			reason: "An operation that a shutdown has interrupted is resumed by its handle.",
			record: Record{Operation: Operation{Phase: phaseUnknown}, Handle: "op-1"},
			until:  time.Minute,
		},
		"Open": {
			reason: "An earlier request may still be carried out.",
			record: Record{
				Operation: Operation{Phase: phaseUnknown}, Open: &metav1.Time{Time: deadline.Add(time.Hour)},
			},
			until: time.Hour,
		},
		"Unknown": {
			reason: "An operation without a handle has ended with its process.",
			record: Record{Operation: Operation{Phase: phaseUnknown}},
			ended:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.record.Type, tc.record.Deadline = typeCreate, metav1.Time{Time: deadline}
			for _, d := range []time.Duration{-time.Minute, tc.until - time.Second, tc.until, tc.until + time.Second} {
				want := d < tc.until && !tc.ended
				if got := tc.record.MayRun(deadline.Add(d)); got != want {
					t.Errorf("\n%s\nMayRun %s after the deadline: want %t, got %t", tc.reason, d, want, got)
				}
			}
		})
	}
}

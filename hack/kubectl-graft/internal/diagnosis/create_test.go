package diagnosis

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"Damaged": {reason: "A record that is not JSON cannot be used.", record: `{`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{}}
			for k, v := range map[string]string{
				AnnotationCreatePending:   tc.pending,
				annotationCreateSucceeded: tc.ended,
				annotationCreateFailed:    tc.failed,
				AnnotationOperation:       tc.record,
			} {
				if v != "" {
					o.Annotations[k] = v
				}
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

package creation_test

import (
	"math"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

func TestRunsUntil(t *testing.T) {
	began := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	at := began.Add
	unresolved := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	type record = creation.Record
	abandoned := func(r *record) {
		r.Phase, r.Abandoned, r.Ended = creation.RecordUnknown, true, &metav1.Time{Time: at(time.Minute)}
	}
	resumable := func(r *record) {
		abandoned(r)
		r.Handle = "op-1"
	}
	cases := map[string]struct {
		reason      string
		record      func(r *record)   // of a create for an hour; nil if there is none
		annotations map[string]string // besides the record and its announcement
		typ         creation.OperationType
		now         time.Time
		want        time.Time
	}{
		"NoCreate": {reason: "An object without annotations has no operation.", now: at(0)},
		"Running": {
			reason: "A recorded operation may run until its deadline.",
			record: func(*record) {}, now: at(time.Minute), want: at(61 * time.Minute),
		},
		"PastDeadline": {
			reason: "A client may need a moment to return after its deadline.",
			record: func(*record) {}, now: at(time.Hour + time.Second), want: at(61 * time.Minute),
		},
		"PastGrace": {
			reason: "An operation that has had its time is not waited for.",
			record: func(*record) {}, now: at(61 * time.Minute),
		},
		"Failed": {
			reason: "An operation that failed has ended, also if it has a handle.",
			record: func(r *record) {
				r.Phase, r.Handle, r.Ended = creation.RecordFailed, "op-1", &metav1.Time{Time: at(time.Minute)}
			},
			now: at(time.Minute),
		},
		"Unknown": {
			reason: "An operation that nothing waits for and nothing resumes does not run.",
			record: abandoned, now: at(2 * time.Minute),
		},
		"Resumable": {
			reason: "The next process resumes an operation by its handle.",
			record: resumable, now: at(2 * time.Minute), want: at(61 * time.Minute),
		},
		"ResumableLate": {
			reason: "No clock ends an operation that is resumed.",
			record: resumable, now: at(3 * time.Hour), want: unresolved,
		},
		"KilledWithHandle": {
			reason: "The next process resumes it, whenever it starts.",
			record: func(r *record) { r.Handle = "op-1" }, now: at(3 * time.Hour), want: unresolved,
		},
		"Open": {
			reason: "An earlier request of a repeated create may still be carried out after the last one ended.",
			record: func(r *record) {
				abandoned(r)
				r.OpenUntil = &metav1.Time{Time: at(2 * time.Hour)}
			},
			now: at(90 * time.Minute), want: at(2 * time.Hour),
		},
		"OpenAnnotation": {
			reason: "The same for a create without a record.",
			annotations: map[string]string{
				meta.AnnotationKeyExternalCreatePending:   "2026-01-02T04:00:00Z",
				meta.AnnotationKeyExternalCreateSucceeded: "2026-01-02T04:00:01Z",
				creation.AnnotationKeyOpenUntil:           "2026-01-02T04:02:00Z",
			},
			now: at(time.Minute), want: at(2 * time.Minute),
		},
		"Update": {
			reason: "The result of an update may be lost, too.",
			record: func(r *record) { r.Type = creation.Update }, typ: creation.Update,
			now: at(time.Minute), want: at(61 * time.Minute),
		},
		"Announced": {
			reason:      "Only an announcement shows a create without a record.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T04:00:00Z"},
			now:         at(time.Minute), want: at(5 * time.Minute),
		},
		"AnnouncedLongAgo": {
			reason:      "A create without a record has an end, too.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T04:00:00Z"},
			now:         at(5 * time.Minute),
		},
		"AnnouncedSince": {
			reason:      "A provider without Graft announced a create after the record was made.",
			record:      func(r *record) { r.Type = creation.Update },
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T04:30:00Z"},
			now:         at(31 * time.Minute), want: at(35 * time.Minute),
		},
		"Settled": {
			reason:      "A person who removes the announcement has settled the create.",
			record:      resumable,
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: ""},
			now:         at(2 * time.Minute),
		},
		"Unannounced": {
			reason:      "A create whose record has no announcement is not settled by the lack of one.",
			record:      func(r *record) { r.Announcement = "" },
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: ""},
			now:         at(time.Minute), want: at(61 * time.Minute),
		},
		"Unusable": {
			reason: "The announcement counts if the record cannot be used.",
			annotations: map[string]string{
				meta.AnnotationKeyExternalCreatePending: "2026-01-02T04:00:00Z", creation.AnnotationKeyRecord: "{",
			},
			now: at(time.Minute), want: at(5 * time.Minute),
		},
		"OfAnother": {
			reason:      "The update of an object from which this one was restored does not run on its external resource.",
			record:      func(r *record) { r.UID, r.Type = "another", creation.Update },
			annotations: map[string]string{meta.AnnotationKeyExternalCreateSucceeded: "2026-01-02T04:00:00Z"},
			now:         at(time.Minute),
		},
		"EndOfTime": {
			reason: "A deadline that is as late as possible should not wrap around.",
			record: func(r *record) { r.Deadline.Time = unresolved }, now: at(time.Minute), want: unresolved,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			o.SetUID("uid-1")
			if tc.record != nil {
				meta.SetExternalCreatePending(o, began)
				r := creation.NewRecord(o, creation.Create, "process-1", "token-1", began, time.Hour)
				tc.record(r)
				meta.AddAnnotations(o, map[string]string{creation.AnnotationKeyRecord: r.Text()})
			}
			meta.AddAnnotations(o, tc.annotations)
			run := creation.RunsUntil(o, tc.now)
			if diff := cmp.Diff(tc.want, run.Until); diff != "" {
				t.Errorf("\n%s\nRunsUntil(...): -want, +got:\n%s", tc.reason, diff)
			}
			if tc.typ != "" && run.Type != tc.typ {
				t.Errorf("\n%s\nRunsUntil(...): want type %q, got %q", tc.reason, tc.typ, run.Type)
			}
		})
	}
}

// Extreme durations and counts should not wrap around.
func TestExtremes(t *testing.T) {
	now := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	o := &unstructured.Unstructured{}
	o.SetUID("uid-1")
	meta.SetExternalCreatePending(o, now)
	const forever = time.Duration(math.MaxInt64)

	for name, tc := range map[string]struct {
		reason string
		limits creation.Limits
		record func(r *creation.Record) // nil if there is none
	}{
		"Timeout": {
			reason: "Absence should prove nothing while a create that is allowed forever may run.",
			limits: creation.Limits{Grace: time.Minute}, record: func(*creation.Record) {},
		},
		"Deadline": {
			reason: "The same for a deadline of another process.",
			limits: creation.Limits{Grace: time.Minute},
			record: func(r *creation.Record) { r.Deadline.Time = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) },
		},
		"Announced": {
			reason: "The same for a create without a record.",
			limits: creation.Limits{Announced: forever, Grace: time.Minute},
		},
		"Grace": {
			reason: "The same for an external system that hides a resource for ever.",
			limits: creation.Limits{Announced: time.Minute, Grace: forever},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := o.DeepCopy()
			if tc.record != nil {
				r := creation.NewRecord(of, creation.Create, "process-1", "token-1", now, forever)
				tc.record(r)
				meta.AddAnnotations(of, map[string]string{creation.AnnotationKeyRecord: r.Text()})
			}
			s, err := creation.Of(of)
			if err != nil {
				t.Fatal(err)
			}
			later := now.Add(50 * 365 * 24 * time.Hour)
			step := creation.Next(creation.Question{
				State: s, Can: creation.Can{Find: true, Create: true}, Limits: tc.limits, Lookup: creation.Absent,
				Now: later, FirstSeen: now,
			})
			if diff := cmp.Diff(creation.Wait, step.Action); diff != "" {
				t.Errorf("\n%s\nNext(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}

	t.Run("Counts", func(t *testing.T) {
		r := creation.NewRecord(o, creation.Create, "process-1", "token-1", now, forever)
		r.Attempt, r.Failures, r.Handle = math.MaxInt, math.MaxInt, "op-1"
		ended := r.WithFailure(creation.Failure{At: now.Add(time.Hour), Unknown: true, Forgotten: true})
		if ended.Handle == "" {
			t.Error("\nA handle should not be dropped before the operation has had its time.")
		}
		next := creation.NewRecord(o, creation.Create, "process-1", "token-2", now, time.Hour)
		next.Follows(ended)
		of := o.DeepCopy()
		meta.AddAnnotations(of, map[string]string{creation.AnnotationKeyRecord: next.Text()})
		if _, err := creation.RecordOf(of); err != nil {
			t.Errorf("\nThe record should be usable after very many failures: %v", err)
		}
	})
}

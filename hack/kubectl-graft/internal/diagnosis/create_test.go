package diagnosis

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The annotations leave the outcome of a create open that failed. Its provider may know more.
func TestStateOf_Reported(t *testing.T) {
	const (
		early, late = "2026-01-02T03:00:00Z", "2026-01-02T04:00:00Z"
		record      = `{"version":1,"uid":"uid","type":"create","phase":"failed","attempt":1,"token":"t","holder":"h",` +
			`"started":"` + late + `","deadline":"2026-01-02T05:00:00Z","ended":"` + late + `","pending":"` + late +
			`"}`
	)
	for name, tc := range map[string]struct {
		reason      string
		annotations map[string]string
		reported    string // A condition's type and reason.
		want        bool
	}{
		"Failed": {
			reason:      "A create that the external system refused is known.",
			annotations: map[string]string{AnnotationCreatePending: late, AnnotationOperation: record},
		},
		"FailedUnknown": {
			reason:      "A provider that cannot look up the external resource of a create that failed does not know it.",
			annotations: map[string]string{AnnotationCreatePending: early, annotationCreateFailed: late},
			reported:    "Synced/ReconcileError", want: true,
		},
		"FailedSettled": {
			reason:      "A person who removed the announcement has settled a create that failed.",
			annotations: map[string]string{annotationCreateFailed: late}, reported: "Synced/ReconcileError",
		},
		"SucceededSince": {
			reason: "The report about a create that failed is obsolete once a later one succeeded.",
			annotations: map[string]string{
				AnnotationCreatePending: early, annotationCreateFailed: early, annotationCreateSucceeded: late,
			},
			reported: "Synced/ReconcileError",
		},
		"RecordedUnknown": {
			reason:      "A provider that asks a person about a recorded create that failed does not know it.",
			annotations: map[string]string{AnnotationCreatePending: late, AnnotationOperation: record},
			reported:    "OperationRunning/OutcomeUnknown", want: true,
		},
		"RecordedUnknownWhileDeleted": {
			reason:      "The question is the same while the object is being deleted.",
			annotations: map[string]string{AnnotationCreatePending: late, AnnotationOperation: record},
			reported:    "Deleting/CreateResultUnknown", want: true,
		},
		"RecordUnusable": {
			reason:      "The version of the provider may check more of a record.",
			annotations: map[string]string{AnnotationCreatePending: late, AnnotationOperation: record},
			reported:    "OperationRunning/RecordUnusable", want: true,
		},
		"RecordRemoved": {
			reason: "The report about a record is obsolete once the record is removed.",
			annotations: map[string]string{
				annotationCreateSucceeded: late,
			}, reported: "OperationRunning/RecordUnusable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID("uid")
			o.SetAnnotations(tc.annotations)
			if typ, reason, ok := strings.Cut(tc.reported, "/"); ok {
				c := map[string]any{"type": typ, "status": "False", "reason": reason}
				switch typ {
				case typeDeleting:
					c["status"] = "True"
				case typeSynced:
					c["message"] = "observe failed: " + createFailed + ": boom"
				}
				o.Object["status"] = map[string]any{"conditions": []any{c}}
			}
			if got := StateOf(o, time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)).CreateUnknown; got != tc.want {
				t.Errorf("%s want %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}

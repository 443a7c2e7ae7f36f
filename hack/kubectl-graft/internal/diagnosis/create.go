package diagnosis

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// MayBeStopped reports whether an object with these annotations may wait for a person.
func MayBeStopped(annotations map[string]string) bool {
	_, incomplete := createIncompleteIn(annotations)
	return incomplete || annotations[AnnotationOperation] != "" || annotations[annotationCreateRefused] != ""
}

// CreateIncomplete reports whether crossplane-runtime's annotations say that a create was
// announced and never ended, and when it was announced.
func CreateIncomplete(o metav1.Object) (time.Time, bool) {
	return createIncompleteIn(o.GetAnnotations())
}

func createIncompleteIn(annotations map[string]string) (time.Time, bool) {
	at := func(key string) time.Time {
		t, err := time.Parse(time.RFC3339, annotations[key])
		if err != nil {
			return time.Time{}
		}
		return t
	}
	pending, ended := at(AnnotationCreatePending), at(annotationCreateSucceeded)
	if failed := at(annotationCreateFailed); failed.After(ended) {
		ended = failed
	}
	return pending, pending.After(ended)
}

// An Operation is what the record of an asynchronous operation says of it.
type Operation struct {
	Type     string      `json:"type"`
	Phase    string      `json:"phase"`
	Attempt  int         `json:"attempt"`
	Token    string      `json:"token,omitempty"`
	UID      string      `json:"uid,omitempty"`
	Started  metav1.Time `json:"started,omitzero"`
	Deadline metav1.Time `json:"deadline,omitzero"`

	// Open is until when an attempt of another process may be in progress, if that is known.
	Open *metav1.Time `json:"open,omitempty"`
}

// Phases of a record.
const (
	phaseRunning = "running"
	phaseUnknown = "unknown"
)

// OperationOf returns the operation that an object has a record of, or nil. A record that
// can't be read is returned without a type.
func OperationOf(o metav1.Object) *Operation {
	text, ok := o.GetAnnotations()[AnnotationOperation]
	if !ok {
		return nil
	}
	op := &Operation{}
	if err := json.Unmarshal([]byte(text), op); err != nil || op.UID != string(o.GetUID()) {
		return &Operation{}
	}
	return op
}

// MayRun reports whether the operation may be in progress in some process.
func (op *Operation) MayRun(now time.Time) bool {
	if op == nil || op.Type == "" {
		return false
	}
	return op.Phase == phaseRunning && now.Before(op.Deadline.Time) || op.Open != nil && now.Before(op.Open.Time)
}

// Until returns until when the operation may be in progress.
func (op *Operation) Until() time.Time {
	if op.Open != nil && op.Open.After(op.Deadline.Time) {
		return op.Open.Time
	}
	return op.Deadline.Time
}

// CreateAwaited reports whether the provider says that an interrupted create may still be
// in progress, and that it waits for the end of that.
func CreateAwaited(o *unstructured.Unstructured) bool {
	resolved := conditionOf(o, typeResolved)
	return conditionOf(o, typeOperation).Reason == ReasonInterrupted || resolved.Status == "False" && resolved.Reason == ReasonWaitingForCreate
}

// createUnknown reports whether the operation is a create whose outcome only a look at the
// external system can tell. A record that can't be read may be one.
func (op *Operation) createUnknown(now time.Time) bool {
	if op == nil {
		return false
	}
	return op.Type == "" || op.Type == "create" && (op.Phase == phaseUnknown || op.Phase == phaseRunning && !op.MayRun(now))
}

// CreateUnknown reports whether the outcome of a create of the object is unknown, and
// since when the create was in progress.
func CreateUnknown(o metav1.Object, now time.Time) (time.Time, bool) {
	op := OperationOf(o)
	if op.MayRun(now) {
		return op.Started.Time, false
	}
	since, incomplete := CreateIncomplete(o)
	if op != nil && !op.Started.IsZero() {
		since = op.Started.Time
	}
	return since, incomplete || op.createUnknown(now)
}

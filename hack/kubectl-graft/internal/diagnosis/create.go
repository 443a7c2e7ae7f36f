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
	pending, ended := timeIn(annotations[AnnotationCreatePending]), timeIn(annotations[annotationCreateSucceeded])
	if failed := timeIn(annotations[annotationCreateFailed]); failed.After(ended) {
		ended = failed
	}
	return pending, pending.After(ended)
}

// timeIn returns the time that an annotation has, or none if upstream would ignore it.
func timeIn(annotation string) time.Time {
	t, err := time.Parse(time.RFC3339, annotation)
	if err != nil {
		return time.Time{}
	}
	return t
}

// refused reports whether Graft did not create the external resource, because one with the
// same name appeared right before.
func refused(o metav1.Object) bool {
	as := ExternalName(o)
	if as == "" {
		as = string(o.GetUID())
	}
	if o.GetAnnotations()[annotationCreateRefused] != as {
		return false
	}
	succeeded, failed := o.GetAnnotations()[annotationCreateSucceeded], o.GetAnnotations()[annotationCreateFailed]
	return succeeded == "" || timeIn(failed).After(timeIn(succeeded))
}

// recordVersion is that of the records that are read here.
const recordVersion = 1

// An Operation is what the record of an asynchronous operation says about it.
type Operation struct {
	Version  int         `json:"version"`
	Type     string      `json:"type"`
	Phase    string      `json:"phase"`
	Attempt  int         `json:"attempt"`
	Token    string      `json:"token,omitempty"`
	UID      string      `json:"uid,omitempty"`
	Started  metav1.Time `json:"started,omitzero"`
	Deadline metav1.Time `json:"deadline,omitzero"`

	// Open is until when an attempt of another process may be in progress, if that is known.
	Open *metav1.Time `json:"open,omitempty"`

	// Named says that the create has set the external name.
	Named bool `json:"named,omitempty"`

	// Pending, and the ends of creates in Announced, are what upstream's annotations said
	// when the record was made.
	Pending   string `json:"pending,omitempty"`
	Announced *ends  `json:"announced,omitempty"`
}

type ends struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

func endsOf(o metav1.Object) ends {
	a := o.GetAnnotations()
	return ends{Succeeded: a[annotationCreateSucceeded], Failed: a[annotationCreateFailed]}
}

// Phases of a record.
const (
	phaseRunning = "running"
	phaseFailed  = "failed"
)

// typeCreate is the type of an operation that creates.
const typeCreate = "create"

// OperationOf returns the operation that an object has a record of, or nil. A record that
// can't be read is returned without a type.
func OperationOf(o metav1.Object) *Operation {
	text, ok := o.GetAnnotations()[AnnotationOperation]
	if !ok {
		return nil
	}
	op := &Operation{}
	if err := json.Unmarshal([]byte(text), op); err != nil || op.Version != recordVersion || op.UID != string(o.GetUID()) {
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

// superseded reports whether a create was announced after the record was made, and has not
// ended: a provider without Graft was interrupted.
func (op *Operation) superseded(o metav1.Object) bool {
	p := o.GetAnnotations()[AnnotationCreatePending]
	if timeIn(p).IsZero() || p == op.Pending {
		return false
	}
	_, incomplete := CreateIncomplete(o)
	return incomplete || op.Announced != nil && *op.Announced == endsOf(o)
}

// settled reports whether another writer has settled the recorded create: a provider
// without Graft, or a person.
func (op *Operation) settled(o metav1.Object) bool {
	p := o.GetAnnotations()[AnnotationCreatePending]
	_, incomplete := CreateIncomplete(o)

	switch {
	case op.Phase == phaseFailed:
		return false
	case timeIn(p).IsZero():
		return true
	case incomplete:
		return false
	case op.Announced != nil:
		return *op.Announced != endsOf(o)
	default:
		return p != op.Pending
	}
}

// CreateUnknown reports whether the outcome of the last create of the object is unknown,
// and only a look at the external system can tell it. It returns when the create began.
// Graft decides in the same way, in pkg/internal/creation.
func CreateUnknown(o metav1.Object, now time.Time) (time.Time, bool) {
	since, incomplete := CreateIncomplete(o)
	op := OperationOf(o)

	switch {
	case op == nil:
		return since, incomplete
	case op.Type == "", op.superseded(o):
		return since, true
	case op.Type != typeCreate:
		// An update or delete begins only if the external resource exists.
		return since, false
	case op.settled(o):
		return since, incomplete
	case op.MayRun(now):
		return op.Started.Time, false
	default:
		return op.Started.Time, op.Phase != phaseFailed || op.Named
	}
}

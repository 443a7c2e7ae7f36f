package asyncstate

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// A State describes the operations on the external resource of an object, as far as the object's annotations tell. It
// has nothing from the memory of a process. Programs that are not the provider use it, such as kubectl graft.
type State struct {
	// Run is the operation that some process may still run. It is the zero Run if none may.
	Run Run

	// Operation is the recorded operation. It is nil without a record, with an unusable one, and if another writer has
	// announced or settled a create since.
	Operation *RecordedOperation

	// RecordError says why the record cannot be used. The outcome of the last create is unknown then.
	RecordError error

	// CreateStarted is when the last create began, by the clock of its process. It is zero if none did.
	CreateStarted time.Time

	// CreateUnknown means that the last create may be in progress, or may have created the external resource.
	CreateUnknown bool

	// CreateFailed means that the last create failed and, if its error is right, created nothing.
	CreateFailed bool

	// CreateRefused means that Graft did not make the create, because an external resource with its name existed.
	CreateRefused bool
}

// A Run is an operation that some process may still run on an external resource.
type Run struct {
	Type Type

	// Until is when the operation has certainly ended, by the clock of the process that began it.
	Until time.Time

	// Unresolved means that Until does not end it, because its provider resumes it by its handle: it lasts until the
	// provider has done that, or a person has settled the operation.
	Unresolved bool

	// Reason is a clause such as "it is recorded as running". It is empty in the zero Run.
	Reason string
}

// A Phase says how far a recorded operation is.
type Phase string

// Phases of a recorded operation.
const (
	// PhaseRunning means that a process runs the operation, or died before it stored an outcome.
	PhaseRunning Phase = "running"

	// PhaseFailed means that the operation has failed.
	PhaseFailed Phase = "failed"

	// PhaseUnknown means that the operation has ended, and that its outcome is unknown.
	PhaseUnknown Phase = "unknown"
)

// A RecordedOperation is the operation that the record of an object describes.
type RecordedOperation struct {
	Attempt

	Phase Phase

	// Deadline of the operation, by the clock of its process.
	Deadline time.Time
}

// StateOf returns the state of o, which may be of any type, such as *unstructured.Unstructured. It reads the UID and
// the annotations of o, and makes no request. It compares now with times that other processes have stored: pass the
// time of the API server if the local clock may differ.
func StateOf(o client.Object, now time.Time) State {
	s, err := creation.Of(o)
	run := creation.RunsUntil(o, now)
	out := State{
		RecordError:   err,
		CreateStarted: s.Since,
		CreateUnknown: s.Incomplete(),
		CreateFailed:  s.Phase == creation.Failed,
		CreateRefused: s.Phase == creation.Refused || s.Phase == creation.Failed &&
			o.GetAnnotations()[creation.AnnotationKeyRefused] == creation.RefusedAs(o),
	}
	if !run.Until.IsZero() {
		out.Run = Run{Type: Type(run.Type), Until: run.Until, Unresolved: run.Unresolved(), Reason: run.Reason}
	}
	if r := s.Record; r != nil {
		out.Operation = &RecordedOperation{Attempt: attemptOf(r), Phase: Phase(r.Phase), Deadline: r.Deadline.Time}
	}
	return out
}

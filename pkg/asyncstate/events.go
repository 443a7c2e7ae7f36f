package asyncstate

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Event reasons.
const (
	reasonSucceeded         event.Reason = "OperationSucceeded"
	reasonFailed            event.Reason = "OperationFailed"
	reasonInterrupted       event.Reason = "OperationInterrupted"
	reasonFound             event.Reason = "FoundExternalResource"
	reasonAbsent            event.Reason = "ExternalResourceAbsent"
	reasonCannotFind        event.Reason = "CannotFindExternalResource"
	reasonOutcomeUnknown    event.Reason = "CreateResultUnknown"
	reasonRecordUnusable    event.Reason = "RecordUnusable"
	reasonCannotStoreResult event.Reason = "CannotStoreResult"
	reasonOverwrote         event.Reason = "OverwroteAnnotation"
	reasonOverruled         event.Reason = "OperationOverruled"
	reasonUnwatched         event.Reason = "OperationsNotWatched"
	reasonResultLost        event.Reason = "ExternalResourceOrphaned"
)

// An eventRecorder records events for users, and logs them.
type eventRecorder struct {
	log    logging.Logger
	record event.Recorder
}

// warn records an event about o, and logs it.
func (e eventRecorder) warn(o client.Object, r event.Reason, err error) {
	e.log.Info("Warning about an operation", "uid", o.GetUID(), "reason", r, "error", err)
	e.record.Event(o, event.Warning(r, err))
}

// operationEnded records the end of an operation.
func (e eventRecorder) operationEnded(o client.Object, r *creation.Record, outcome string, err error) {
	e.log.Debug("An operation has ended", "uid", o.GetUID(), "type", r.Type, "attempt", r.Attempt, "error", err)
	switch outcome {
	case outcomeSucceeded:
		e.record.Event(o, event.Normal(reasonSucceeded, fmt.Sprintf("The %s has succeeded", r.Type)))
	case outcomeFailed:
		e.record.Event(o, event.Warning(reasonFailed, errors.Wrapf(err, "the %s has failed", r.Type)))
	default:
		err = errors.Wrapf(err, "the outcome of the %s is unknown", r.Type)
		e.record.Event(o, event.Warning(reasonInterrupted, err))
	}
}

// overwrote records that the result of a create replaced the external name of another writer.
func (e eventRecorder) overwrote(o client.Object, c seam.Change) {
	e.warn(o, reasonOverwrote, errors.Errorf(
		"another external name, %q, was replaced by that of the external resource that was created: %q", c.Was, c.Value,
	))
}

// overruled records that another writer has the record of an operation: a person who settled the create, or another
// process that treated the operation as interrupted.
func (e eventRecorder) overruled(o client.Object, name, stored string) {
	e.warn(o, reasonOverruled, errors.Errorf(
		"another writer changed the record of an operation (annotation %s) while it ran", AnnotationKeyOperation,
	))
	if name != "" && name != stored {
		// Only a person can tell which external resource is the right one.
		e.warn(o, reasonOverruled, errors.Errorf(
			"an operation that was treated as interrupted created %q, which is not the external name of this managed resource: delete it if it is not needed",
			name,
		))
	}
}

package asyncstate

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
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
	reasonResultLost        event.Reason = "ExternalResourceOrphaned"
)

// An eventRecorder records events for users, and logs them.
type eventRecorder struct {
	log    logging.Logger
	record event.Recorder
}

func (e eventRecorder) warn(o client.Object, r event.Reason, err error) {
	e.record.Event(o, event.Warning(r, err))
}

// operationEnded records the end of an operation.
func (e eventRecorder) operationEnded(o client.Object, r *creation.Record, outcome string, err error) {
	e.log.Debug("An operation has ended", "uid", o.GetUID(), "type", r.Type, "attempt", r.Attempt, "error", err)
	switch outcome {
	case outcomeSucceeded:
		e.record.Event(o, event.Normal(reasonSucceeded, fmt.Sprintf("The %s has succeeded", r.Type)))
	case outcomeFailed:
		e.warn(o, reasonFailed, errors.Wrapf(err, "the %s has failed", r.Type))
	default:
		e.warn(o, reasonInterrupted, errors.Wrapf(err, "the outcome of the %s is unknown", r.Type))
	}
}

// found records that the external resource of a create was found.
func (e eventRecorder) found(o client.Object, name string) {
	e.record.Event(
		o, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)),
	)
}

// absent records that a create created nothing.
func (e eventRecorder) absent(o client.Object) {
	e.record.Event(o, event.Normal(reasonAbsent, "The interrupted create made no external resource"))
}

// overwrote records that the result of a create replaced the external name of another writer.
func (e eventRecorder) overwrote(o client.Object, key, theirs, ours string) {
	if key != meta.AnnotationKeyExternalName {
		return
	}
	e.log.Info("Overwrote an external name", "uid", o.GetUID())
	e.warn(
		o, reasonOverwrote,
		errors.Errorf(
			"another external name, %q, was replaced by that of the external resource that was created: %q", theirs,
			ours,
		),
	)
}

// overruled records that another writer changed the record of a running operation.
func (e eventRecorder) overruled(o client.Object) {
	e.log.Info("Another writer changed the record of an operation while it ran", "uid", o.GetUID())
	e.warn(
		o, reasonOverruled,
		errors.Errorf(
			"another writer changed the record of an operation (annotation %s) while it ran", AnnotationKeyOperation,
		),
	)
}

// renamed records that another writer set another external name than the operation.
func (e eventRecorder) renamed(o client.Object, name string) {
	e.log.Info(
		"An operation whose record was taken over ended with an external name that is not the stored one", "uid",
		o.GetUID(),
	)
	e.warn(
		o, reasonOverruled,
		errors.Errorf(
			"an operation that was treated as interrupted created %q, which is not the external name of this managed resource: delete it if it is not needed",
			name,
		),
	)
}

// refused records that the API server refused an annotation of an operation.
func (e eventRecorder) refused(o client.Object, err error) {
	e.log.Info(
		"The API server refuses an annotation that an operation set: it is not stored", "uid", o.GetUID(), "error",
		err,
	)
	e.warn(o, reasonCannotStoreResult, err)
}

// lost records that a create has ended whose managed resource no longer exists.
func (e eventRecorder) lost(o client.Object, name string) {
	e.log.Info(
		"A create has ended whose managed resource is gone: its external resource has no owner", "uid", o.GetUID(),
		"external-name", name,
	)
	e.warn(
		o, reasonResultLost,
		errors.Errorf(
			"a create has ended whose managed resource no longer exists: external resource %q has no owner", name,
		),
	)
}

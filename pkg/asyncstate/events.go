package asyncstate

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
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
	reasonResultUnknown     event.Reason = "CreateResultUnknown"
	reasonRecordUnusable    event.Reason = "RecordUnusable"
	reasonCannotStoreResult event.Reason = "CannotStoreResult"
	reasonOverwrote         event.Reason = "OverwroteAnnotation"
	reasonOverruled         event.Reason = "OperationOverruled"
	reasonResultLost        event.Reason = "ExternalResourceOrphaned"
)

// tell the user the outcome of an operation.
func (t *Tracker) tell(op *Operation, r *creation.Record, err error) {
	t.log.Debug("An operation has ended", "uid", op.object.GetUID(), "type", r.Type, "attempt", r.Attempt, "error", err)
	switch outcome(r, err) {
	case outcomeSucceeded:
		t.record.Event(op.object, event.Normal(reasonSucceeded, fmt.Sprintf("The %s has succeeded", r.Type)))
	case outcomeFailed:
		t.record.Event(op.object, event.Warning(reasonFailed, errors.Wrapf(err, "the %s has failed", r.Type)))
	default:
		t.record.Event(op.object, event.Warning(reasonInterrupted, errors.Wrapf(err, "the outcome of the %s is unknown", r.Type)))
	}
}

// overwrote tells the user that the result of a create replaced another writer's value.
func (t *Tracker) overwrote(o client.Object, key, theirs, ours string) {
	if key != meta.AnnotationKeyExternalName {
		return
	}
	t.log.Info("Overwrote an external name", "uid", o.GetUID())
	t.record.Event(o, event.Warning(reasonOverwrote, errors.Errorf("another external name, %q, was replaced by that of the external resource that was created: %q", theirs, ours)))
}

// overruled tells the user that another writer settled the matter meanwhile.
func (t *Tracker) overruled(op *Operation) {
	t.log.Info("Another writer changed the record of an operation while it ran", "uid", op.object.GetUID())
	t.record.Event(op.object, event.Warning(reasonOverruled, errors.Errorf("another writer changed the record of an operation (annotation %s) while it ran", AnnotationKeyOperation)))
}

// lost tells the user of a result that there is nothing left to store on.
func (t *Tracker) lost(op *Operation) {
	op.mu.Lock()
	typ, err := op.record.Type, op.err
	_, named := op.set[meta.AnnotationKeyExternalName]
	name := op.name()
	op.mu.Unlock()
	if typ != creation.Create || err != nil && !named && !OutcomeUnknown(err) {
		return
	}
	t.metrics.lost.Inc()
	t.log.Info("A create has ended whose managed resource is gone: its external resource has no owner", "uid", op.object.GetUID(), "external-name", name)
	t.record.Event(op.object, event.Warning(reasonResultLost, errors.Errorf("a create has ended whose managed resource no longer exists: external resource %q has no owner", name)))
}

// warn the user about an object.
func (t *Tracker) warn(o runtime.Object, r event.Reason, err error) {
	t.record.Event(o, event.Warning(r, err))
}

package asyncstate

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// tell the user what came of an operation.
func (t *Tracker) tell(op *Operation, r *record, err error) {
	t.log.Debug("An operation has ended", "uid", op.object.GetUID(), "type", r.Type, "attempt", r.Attempt, "error", err)

	switch outcome(r, err) {
	case outcomeSucceeded:
		t.record.Event(op.object, event.Normal(reasonSucceeded, fmt.Sprintf("The %s has succeeded", r.Type)))
	case outcomeFailed:
		t.record.Event(op.object, event.Warning(reasonFailed, errors.Wrapf(err, "the %s has failed", r.Type)))
	default:
		t.record.Event(op.object, event.Warning(reasonInterrupted, errors.Wrapf(err, "the %s has ended, and what came of it is not known", r.Type)))
	}
}

// overwrote tells the user that what somebody else wrote had to give way to the
// result of a create.
func (t *Tracker) overwrote(o client.Object, key, theirs, ours string) {
	if key != meta.AnnotationKeyExternalName {
		return
	}

	t.log.Info("Overwrote an external name", "uid", o.GetUID())
	t.record.Event(o, event.Warning(reasonOverwrote, errors.Errorf("another external name, %q, was replaced by the one that came of creating the external resource: %q", theirs, ours)))
}

// overruled tells the user that somebody else settled the matter meanwhile.
func (t *Tracker) overruled(op *Operation) {
	t.log.Info("The record of an operation was changed by somebody else while it ran", "uid", op.object.GetUID())
	t.record.Event(op.object, event.Warning(reasonOverruled, errors.Errorf("the record of an operation (annotation %s) was changed by somebody else while the operation ran", AnnotationKeyOperation)))
}

// lost tells the user of a result that there is nothing left to store on.
func (t *Tracker) lost(op *Operation) {
	op.mu.Lock()
	typ, err := op.record.Type, op.err
	name, named := op.set[meta.AnnotationKeyExternalName]
	op.mu.Unlock()

	if name == "" {
		name = meta.GetExternalName(op.object)
	}

	if typ != Create || err != nil && !named && !OutcomeUnknown(err) {
		return
	}

	t.metrics.lost.Inc()
	t.log.Info("A create has ended whose managed resource is gone: nobody owns what it made", "uid", op.object.GetUID(), "external-name", name)
	t.record.Event(op.object, event.Warning(reasonResultLost, errors.Errorf("a create has ended whose managed resource is gone: nobody owns external resource %q", name)))
}

// warn the user about an object.
func (t *Tracker) warn(o runtime.Object, r event.Reason, err error) {
	t.record.Event(o, event.Warning(r, err))
}

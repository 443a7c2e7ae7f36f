package deletion

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyForceOrphan is the annotation of a request to orphan an object. Its value must be
// the object's own UID.
const AnnotationKeyForceOrphan = "graft.crossplane.io/force-orphan"

// Messages of a request that waits. They take the finalizers that stay.
const (
	messageRefused      = "An operator asked to orphan it, but the API server refused to "
	messageOwnedNotKept = messageRefused + "delete it with the propagation policy Orphan. " +
		"Without that the garbage collector would delete the objects that it owns. So these finalizers are kept: %s." +
		messageWaits
	messageFinalizersNotRemoved = messageRefused + "remove these finalizers: %s." + messageWaits
	messageOperationRuns        = "An operator asked to orphan it, but %s. After that these finalizers are " +
		"removed: %s."

	messageWaits = " Until that is permitted, the deletion waits: see the event CannotForceOrphan. " +
		"To continue it instead, remove the annotation " + AnnotationKeyForceOrphan + "."
)

// messageOrphaned is the message of an object whose finalizers were removed.
const messageOrphaned = "An operator asked to orphan it, and finalizers were removed."

// BusyInterval is how soon an object is looked at again whose finalizers an operation holds.
const BusyInterval = 10 * time.Second

// keepInterval is the minimum time between two deletions with the propagation policy Orphan. A
// second one keeps objects that o owns since the first, but each causes another reconcile: the
// garbage collector removes the finalizer that it adds.
const keepInterval = time.Minute

// ForceOrphan removes finalizers from an object that is being deleted if, and
// only if, an operator asked for exactly this object. It changes nothing that the
// finalizers wait for, and the objects that the object owns are kept.
func (e *Escape) ForceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if len(e.Removable) == 0 {
		return nil
	}
	if len(e.request(o)) == 0 {
		if e.isOrphaned(o) {
			return notFound(o)
		}
		return e.withdraw(ctx, s, o)
	}

	if err := e.announceOrphan(ctx, s, o); err != nil {
		return err
	}

	// The object that was read first may have been stale.
	if remove, err := e.granted(ctx, s, o); len(remove) == 0 {
		return err
	}
	err := e.keepOwned(ctx, s, o)

	switch {
	case seam.Permanent(err):
		return e.refuseToOrphan(o, messageOwnedNotKept, err)
	case err != nil:
		return errors.Wrap(err, "cannot orphan")
	}

	remove, err := e.granted(ctx, s, o)
	if len(remove) == 0 {
		return err
	}
	e.Log.Info(
		"Orphaning, as an operator asks", "kind", e.Kind.String(), "name", client.ObjectKeyFromObject(o).String(),
		"uid", o.GetUID(), "external-name", meta.GetExternalName(o), "finalizers", remove,
	)
	removed, err := s.RemoveFinalizers(ctx, o, remove)

	switch {
	case seam.Permanent(err):
		// A webhook may refuse with the code of a conflict.
		return e.refuseToOrphan(o, messageFinalizersNotRemoved, err)
	case removed, err != nil && !kerrors.IsConflict(err):
		e.recordOrphaning(o, remove)
	}

	switch {
	case err != nil:
		return errors.Wrap(err, "cannot orphan")
	case s.Gone(), e.isOrphaned(o):
		return notFound(o)
	}
	return nil
}

// granted returns the finalizers that are to be removed now. There are none if the request was withdrawn, or while an
// operation runs on the external resource of o. The error ends the reconcile: the inner reconciler must not see o
// meanwhile, because it could begin another operation.
func (e *Escape) granted(ctx context.Context, s *seam.Session, o client.Object) ([]string, error) {
	remove := e.request(o)
	if len(remove) == 0 {
		return nil, e.withdraw(ctx, s, o)
	}
	if !e.runs(s.Now(), o).Until.IsZero() {
		s.Requeue(seam.Within(BusyInterval))
		return nil, notFound(o)
	}
	return remove, nil
}

// runs returns the operation that may run on the external resource of o. One that only the provider would resume is
// not waited for: the inner reconciler does not run.
func (e *Escape) runs(now time.Time, o client.Object) creation.Run {
	of := e.Runs
	if of == nil {
		of = creation.RunsUntil
	}
	if run := of(o, now); !run.Unresolved() {
		return run
	}
	return creation.Run{}
}

// isOrphaned reports whether o was orphaned, and is held by others: by the garbage
// collector until it has removed the owner references to o, or by another controller. The
// inner reconciler must not act on it then: its finalizer is removed, and the external
// resource has to stay. The annotation may be removed by then. The condition still has the
// request, because it is stored before a finalizer is removed.
func (e *Escape) isOrphaned(o client.Object) bool {
	listed := func(f string) bool { return slices.Contains(e.Removable, f) }
	removed := e.Objects.ConditionOf(o, Type).Reason == ReasonForceOrphaned && !slices.ContainsFunc(
		o.GetFinalizers(), listed,
	)
	if !meta.WasDeleted(o) || !removed && !orphanRequested(o) {
		return false
	}
	return slices.Equal(o.GetFinalizers(), []string{metav1.FinalizerOrphanDependents}) ||
		len(e.Own) > 0 && !e.owns(o.GetFinalizers())
}

// keepsReason reports whether ReasonForceOrphaned stays the reason of the condition of o. A request
// that was withdrawn before the finalizers were removed is forgotten, and one that left the inner
// reconciler a finalizer says nothing about the deletion, which continues.
func (e *Escape) keepsReason(o client.Object, stored xpv2.ConditionReason) bool {
	return stored == ReasonForceOrphaned && len(e.Removable) > 0 && (len(e.toOrphan(o)) > 0 ||
		orphanRequested(o) && !e.owns(o.GetFinalizers()) || e.isOrphaned(o))
}

// owns reports whether one of the finalizers is the inner reconciler's.
func (e *Escape) owns(finalizers []string) bool {
	return slices.ContainsFunc(finalizers, func(f string) bool { return slices.Contains(e.Own, f) })
}

func notFound(o client.Object) error {
	return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
}

// keepOwned keeps the garbage collector from deleting the objects that o owns. It gives o the
// state of the API server.
//
// It deletes o a second time, at the version at which it was read, and with the
// propagation policy Orphan. The API server then gives o a finalizer of the garbage
// collector's. It removes that finalizer when it has removed the owner references to
// o from all objects. So o can't go before that, whichever finalizers it loses.
func (e *Escape) keepOwned(ctx context.Context, s *seam.Session, o client.Object) error {
	orphaning := slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
	collecting := slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
	recent := s.Now().Sub(e.states.Get(&e.Store, o).keptOwned) < keepInterval
	if !collecting && (orphaning || recent) {
		return nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := e.Client.Delete(ctx, seam.Empty(o), client.Preconditions{
		UID:             &uid,
		ResourceVersion: &version,
	}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if err != nil && !seam.IsGone(err) {
		return errors.Wrap(err, "cannot keep the objects that it owns")
	}

	// The garbage collector may have removed its finalizer before o is read again.
	e.states.Update(&e.Store, o, func(v *state) { v.keptOwned = s.Now() })
	s.Reread(ctx, o) // If it can't be read, removing finalizers finds out why.
	return nil
}

// refuseToOrphan reports that o is not orphaned, and the reason. It returns an error, so that
// the inner reconciler does not delete the resources that o should leave. The error does not wrap
// err, which may be "not found" while the API server does not serve the kind: callers ignore that.
func (e *Escape) refuseToOrphan(o client.Object, message string, err error) error {
	e.states.Update(&e.Store, o, func(v *state) { v.refused = message })
	e.Log.Info("Cannot orphan", "uid", o.GetUID(), "error", err)
	e.Record.Event(o, event.Warning(reasonCannotForceOrphan, err))
	return errors.Errorf("cannot orphan: %v", err)
}

// reportRefusal reports that the API server has refused a request, or that it has granted one
// that it refused before. No status write of the inner reconciler reports that: it has not run.
func (e *Escape) reportRefusal(ctx context.Context, s *seam.Session) error {
	if s.Unannounced() {
		return nil
	}
	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		switch {
		case e.states.Get(&e.Store, server).refused == "":
			return nil
		case len(e.toOrphan(server)) > 0:
			return Conditions(s.Now(), ReasonForceOrphaned, e.orphanMessage(s.Now(), server))
		case e.isOrphaned(server):
			return Conditions(s.Now(), ReasonForceOrphaned, messageOrphaned)
		default:
			return nil
		}
	})
	if seam.Permanent(err) {
		e.failed(s.Base(), err)
		return nil
	}
	return errors.Wrap(err, "cannot report deletion")
}

func (e *Escape) announceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if _, ok := e.Objects.Conditioned(o); !ok {
		return nil
	}
	return s.Announce(ctx, o, e.failed, func(server client.Object) []xpv2.Condition {
		if _, ok := e.Objects.Conditioned(server); !ok || len(e.toOrphan(server)) == 0 {
			return nil
		}
		return Conditions(s.Now(), ReasonForceOrphaned, e.orphanMessage(s.Now(), server))
	})
}

// withdraw replaces the report of a request that was withdrawn before finalizers were removed. The
// inner reconciler may remove them next, and the object would seem to be orphaned.
func (e *Escape) withdraw(ctx context.Context, s *seam.Session, o client.Object) error {
	withdrawn := func(o client.Object) bool {
		return e.Objects.ConditionOf(o, Type).Reason == ReasonForceOrphaned && !orphanRequested(o) &&
			len(e.orphanable(o)) > 0
	}
	if !withdrawn(o) {
		return nil
	}
	err := s.Announce(ctx, o, e.failed, func(server client.Object) []xpv2.Condition {
		if !withdrawn(server) {
			return nil
		}
		return Conditions(s.Now(), ReasonDeletionRequested, e.Message(s.Now(), MessageRequested, server))
	})

	// The object that was read first may have been stale.
	switch {
	case err != nil:
		return err
	case e.isOrphaned(o):
		return notFound(o)
	case len(e.request(o)) > 0:
		return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("an operator asks to orphan it"))
	}
	return nil
}

// recordOrphaning records once that finalizers are removed as an operator asked. If the answer of the API server was
// lost, they may not be removed yet: the next reconcile tries again unless the request is withdrawn.
func (e *Escape) recordOrphaning(o client.Object, remove []string) {
	if e.states.Get(&e.Store, o).orphaning {
		return
	}
	e.states.Update(&e.Store, o, func(v *state) { v.orphaning = true })
	e.Record.Event(o, event.Warning(reasonForceOrphaned, errors.New(Cut(fmt.Sprintf(
		"An operator asked to orphan it (external name %q): removing the finalizers %s", meta.GetExternalName(o),
		Names(remove),
	), maxEventLength))))
	if e.Metrics != nil {
		e.Metrics.Orphaned()
	}
}

// orphanRequested reports whether an operator asked to orphan exactly this object.
func orphanRequested(o client.Object) bool {
	return o.GetUID() != "" && o.GetAnnotations()[AnnotationKeyForceOrphan] == string(o.GetUID())
}

// request returns the finalizers that are to be removed. It forgets a request that was withdrawn
// before they were removed: the inner reconciler, which goes on, may create objects that o owns, and
// removes its own finalizer.
func (e *Escape) request(o client.Object) []string {
	remove := e.toOrphan(o)
	if len(remove) == 0 && meta.WasDeleted(o) && len(e.orphanable(o)) > 0 {
		e.states.Update(&e.Store, o, func(v *state) { v.keptOwned, v.refused, v.orphaning = time.Time{}, "", false })
	}
	return remove
}

// toOrphan returns the finalizers that are to be removed.
func (e *Escape) toOrphan(o client.Object) []string {
	if !meta.WasDeleted(o) || !orphanRequested(o) {
		return nil
	}
	return e.orphanable(o)
}

// orphanable returns the finalizers that would be removed.
func (e *Escape) orphanable(o client.Object) []string {
	return slices.DeleteFunc(
		slices.Clone(o.GetFinalizers()), func(f string) bool { return !slices.Contains(e.Removable, f) },
	)
}

// orphanMessage returns the message of an object that an operator asked to orphan.
func (e *Escape) orphanMessage(now time.Time, o client.Object) string {
	if run := e.runs(now, o); !run.Until.IsZero() {
		return fmt.Sprintf(messageOperationRuns, run, Names(e.toOrphan(o)))
	}
	if refused := e.states.Get(&e.Store, o).refused; refused != "" {
		return fmt.Sprintf(refused, Names(e.toOrphan(o)))
	}
	return fmt.Sprintf(
		"An operator asked to orphan it: these finalizers are removed, whatever they wait for: %s. The objects that it owns are not deleted because of that.",
		Names(e.toOrphan(o)),
	)
}

// Message appends the hint about orphaning to m.
func (e *Escape) Message(now time.Time, m string, o client.Object) string {
	hint := ""
	if remove := e.orphanable(o); len(remove) > 0 && !orphanRequested(o) {
		hint = Cut(
			fmt.Sprintf(
				"%s%s=%s: that removes %s%s.", OrphanHint, AnnotationKeyForceOrphan, o.GetUID(), Names(remove),
				e.effectOf(now, o, remove),
			),
			maxHintLength,
		)
	}
	return Cut(m, MaxMessageLength-len(hint)) + hint
}

// effectOf returns what else happens when finalizers are removed.
func (e *Escape) effectOf(now time.Time, o client.Object, removed []string) string {
	switch {
	case !e.runs(now, o).Until.IsZero():
		return " when the operation that runs has ended"
	case e.owns(OtherFinalizers(o, removed...)):
		return ", and the deletion continues"
	default:
		return ", and deletes nothing"
	}
}

package reconciler

import (
	"context"
	"fmt"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyForceOrphan is the annotation by which an operator asks that the
// finalizers which WithForceOrphan lists be removed from an object that is being
// deleted. Its value must be the object's own UID.
const AnnotationKeyForceOrphan = "graft.crossplane.io/force-orphan"

// Messages of a request that the API server refuses. They take the finalizers that stay.
const (
	messageOwnedNotKept = "An operator asked to orphan it, but the API server refused to delete it with the propagation policy Orphan. " +
		"Without that the garbage collector would delete the objects that it owns. So these finalizers are kept: %s. See the event CannotForceOrphan."
	messageFinalizersNotRemoved = "An operator asked to orphan it, but the API server refused to remove these finalizers: %s. See the event CannotForceOrphan."
)

// An orphaner removes finalizers from objects that an operator asked to orphan.
type orphaner struct {
	kind    schema.GroupVersionKind
	objects seam.Kind
	client  client.Client
	live    client.Reader
	log     logging.Logger
	record  event.Recorder
	metrics *Metrics
	memory  *memory

	// finalizers may be removed. own are those that the inner reconciler removes.
	finalizers, own []string

	// failed is called if that can't be announced.
	failed func(o client.Object, err error)
}

// forceOrphan removes finalizers from an object that is being deleted if, and
// only if, an operator asked for exactly this object. It changes nothing that the
// finalizers wait for, and the objects that the object owns are kept.
func (d *orphaner) forceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if len(d.finalizers) == 0 {
		return nil
	}
	d.resolveDoubt(o)

	if len(d.toOrphan(o)) == 0 {
		if d.isOrphaned(o) {
			return notFound(o)
		}
		return nil
	}

	if err := d.announceOrphan(ctx, s, o); err != nil {
		return err
	}

	// The object that was read first may have been stale.
	if len(d.toOrphan(o)) == 0 {
		return nil
	}
	err := d.keepOwned(ctx, s, o)

	switch {
	case seam.Permanent(err):
		d.refuseToOrphan(o, messageOwnedNotKept, err)
		return nil
	case err != nil:
		return errors.Wrap(err, "cannot orphan")
	}

	remove := d.toOrphan(o)
	if len(remove) == 0 {
		return nil
	}
	inDoubt, _ := d.memory.get(o)
	d.memory.update(o, func(r *remembered) { r.orphaning, r.refused = nil, "" })
	before, _ := o.DeepCopyObject().(client.Object)
	is := &orphaned{object: before, finalizers: remove}
	d.log.Info("Orphaning, as an operator asks", d.details(is)...)
	removed, err := s.RemoveFinalizers(ctx, o, remove)

	switch {
	case kerrors.IsConflict(err):
		d.memory.update(o, func(r *remembered) { r.orphaning = inDoubt.orphaning })
		return errors.Wrap(err, "cannot orphan")
	case seam.Permanent(err):
		// The rest of the deletion must not wait for this.
		d.memory.update(o, func(r *remembered) { r.keptOwned = false })
		d.refuseToOrphan(o, messageFinalizersNotRemoved, err)
		return nil
	case err != nil:
		// It may own new objects when this is tried again.
		d.memory.update(o, func(r *remembered) { r.orphaning, r.keptOwned = is, false })
		return errors.Wrap(err, "cannot orphan")
	case removed:
		d.recordOrphaned(is)
	case inDoubt.orphaning != nil:
		d.recordOrphaned(inDoubt.orphaning)
	}

	if s.Gone() || d.isOrphaned(o) {
		return notFound(o)
	}
	return nil
}

// isOrphaned reports whether o was orphaned, and is held by others: by the garbage
// collector until it has removed the owner references to o, or by another controller. The
// inner reconciler must not act on it then: its finalizer is removed, and the external
// resource has to stay.
func (d *orphaner) isOrphaned(o client.Object) bool {
	if !meta.WasDeleted(o) || !orphanRequested(o) {
		return false
	}
	own := func(f string) bool { return slices.Contains(d.own, f) }
	return slices.Equal(o.GetFinalizers(), []string{metav1.FinalizerOrphanDependents}) ||
		len(d.own) > 0 && !slices.ContainsFunc(o.GetFinalizers(), own)
}

func notFound(o client.Object) error {
	return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
}

// keepOwned sees to it that the garbage collector does not delete what o owns. It
// gives o the state that the API server then has.
//
// It deletes o a second time, at the version at which it was read, and with the
// propagation policy Orphan. The API server then gives o a finalizer of the garbage
// collector's. It removes that finalizer when it has removed the owner references to
// o from all objects. So o can't go before that, whichever finalizers it loses.
func (d *orphaner) keepOwned(ctx context.Context, s *seam.Session, o client.Object) error {
	orphaning := slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
	collecting := slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
	if r, _ := d.memory.get(o); !collecting && (orphaning || r.keptOwned) {
		return nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := d.client.Delete(ctx, seam.Empty(o), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if err != nil && !seam.IsGone(err) {
		return errors.Wrap(err, "cannot keep the objects that it owns")
	}

	// The garbage collector may have removed its finalizer before o is read again.
	d.memory.update(o, func(r *remembered) { r.keptOwned = true })
	reader := d.live
	if reader == nil {
		reader = d.client
	}

	// If it can't be read, removing finalizers finds out why.
	now := seam.Empty(o)
	if err := reader.Get(ctx, client.ObjectKeyFromObject(o), now); err == nil && seam.OlderThan(version, now.GetResourceVersion()) {
		s.Read(now)
		s.Refresh(o)
	}
	return nil
}

// refuseToOrphan says that o is not orphaned, and why.
func (d *orphaner) refuseToOrphan(o client.Object, message string, err error) {
	d.memory.update(o, func(r *remembered) { r.refused = message })
	d.log.Info("Cannot orphan", "uid", o.GetUID(), "error", err)
	d.record.Event(o, event.Warning(reasonCannotForceOrphan, err))
}

func (d *orphaner) announceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if _, ok := d.objects.Conditioned(o); !ok {
		return nil
	}
	return s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		if _, ok := d.objects.Conditioned(server); !ok || len(d.toOrphan(server)) == 0 {
			return nil
		}
		return Deleting(s.Now(), ReasonForceOrphaned, d.orphanMessage(server))
	})
}

// resolveDoubt leaves the trail of an object that was orphaned by a request whose
// answer was lost.
func (d *orphaner) resolveDoubt(o client.Object) {
	r, _ := d.memory.get(o)
	if r.orphaning == nil || slices.ContainsFunc(r.orphaning.finalizers, func(f string) bool { return slices.Contains(o.GetFinalizers(), f) }) {
		return
	}
	d.memory.update(o, func(r *remembered) { r.orphaning = nil })
	d.recordOrphaned(r.orphaning)
}

// trail leaves what shows later that, and how, an object was orphaned.
func (d *orphaner) recordOrphaned(is *orphaned) {
	d.log.Info("Orphaned", d.details(is)...)
	d.record.Event(is.object, event.Warning(reasonForceOrphaned, errors.New(cut(fmt.Sprintf("An operator asked to orphan it (external name %q): removed the finalizers %s",
		meta.GetExternalName(is.object), names(is.finalizers)), maxEventLength))))
	d.metrics.orphaned.WithLabelValues(d.kind.String()).Inc()
}

func (d *orphaner) details(is *orphaned) []any {
	return []any{
		"kind", d.kind.String(), "name", client.ObjectKeyFromObject(is.object).String(), "uid", is.object.GetUID(),
		"external-name", meta.GetExternalName(is.object), "finalizers", is.finalizers,
	}
}

// asked reports whether an operator asked to orphan exactly this object.
func orphanRequested(o client.Object) bool {
	return o.GetUID() != "" && o.GetAnnotations()[AnnotationKeyForceOrphan] == string(o.GetUID())
}

// toOrphan returns the finalizers that are to be removed.
func (d *orphaner) toOrphan(o client.Object) []string {
	if !meta.WasDeleted(o) || !orphanRequested(o) {
		return nil
	}
	return d.orphanable(o)
}

// orphanable returns the finalizers that would be removed.
func (d *orphaner) orphanable(o client.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return !slices.Contains(d.finalizers, f) })
}

// orphanMessage returns the message of an object that an operator asked to orphan.
func (d *orphaner) orphanMessage(o client.Object) string {
	if r, _ := d.memory.get(o); r.refused != "" {
		return fmt.Sprintf(r.refused, names(d.toOrphan(o)))
	}
	return fmt.Sprintf("An operator asked to orphan it: these finalizers are removed, whatever they wait for: %s. The objects that it owns are not deleted because of that.", names(d.toOrphan(o)))
}

// message appends the hint about orphaning to m.
func (d *orphaner) message(m string, o client.Object) string {
	hint := ""
	if remove := d.orphanable(o); len(remove) > 0 && !orphanRequested(o) {
		hint = cut(fmt.Sprintf("%s%s=%s: that removes %s, and deletes nothing.", orphanHint, AnnotationKeyForceOrphan, o.GetUID(), names(remove)), maxHintLength)
	}
	return cut(m, maxMessageLength-len(hint)) + hint
}

package reconciler

import (
	"context"
	"fmt"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyForceOrphan is the annotation by which an operator asks that the
// finalizers which WithForceOrphan lists be removed from an object that is being
// deleted. Its value must be the object's own UID.
const AnnotationKeyForceOrphan = "graft.crossplane.io/force-orphan"

// orphanHint begins what a message says about orphaning.
const orphanHint = " To orphan it, set the annotation "

// orphan is an object that is orphaned, and the finalizers that it loses.
type orphan struct {
	object     client.Object
	finalizers []string
}

// forceOrphan removes finalizers from an object that is being deleted if, and
// only if, an operator asked for exactly this object. What the finalizers wait
// for is left as it is.
func (d *deletion) forceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if len(d.orphan) == 0 {
		return nil
	}

	d.resolveDoubt(o)

	if len(d.toOrphan(o)) == 0 {
		return nil
	}

	if err := d.announceOrphan(ctx, s, o); err != nil {
		return err
	}

	// What was read first may have been old, so ask again.
	remove := d.toOrphan(o)
	if len(remove) == 0 {
		return nil
	}

	inDoubt, _ := d.memory.get(o)
	d.memory.update(o, func(r *remembered) { r.orphaning = nil })

	before, _ := o.DeepCopyObject().(client.Object)
	is := &orphan{object: before, finalizers: remove}

	d.log.Info("Orphaning, as an operator asks", d.details(is)...)

	removed, err := s.RemoveFinalizers(ctx, o, remove)

	switch {
	case kerrors.IsConflict(err):
		d.memory.update(o, func(r *remembered) { r.orphaning = inDoubt.orphaning })
		return errors.Wrap(err, "cannot orphan")
	case seam.Permanent(err):
		// The rest of the deletion must not wait for this.
		d.log.Info("Cannot orphan", "uid", o.GetUID(), "error", err)
		d.record.Event(o, event.Warning(reasonCannotForceOrphan, err))

		return nil
	case err != nil:
		d.memory.update(o, func(r *remembered) { r.orphaning = is })
		return errors.Wrap(err, "cannot orphan")
	case removed:
		d.trail(is)
	case inDoubt.orphaning != nil:
		d.trail(inDoubt.orphaning)
	}

	if s.Gone() {
		return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}

	return nil
}

func (d *deletion) announceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	if _, ok := seam.Conditioned(o); !ok {
		return nil
	}

	return s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		if _, ok := seam.Conditioned(server); !ok || len(d.toOrphan(server)) == 0 {
			return nil
		}

		return Deleting(s.Now(), ReasonForceOrphaned, d.orphanMessage(server))
	})
}

// resolveDoubt tells of an object that was orphaned by a request whose answer was
// lost.
func (d *deletion) resolveDoubt(o client.Object) {
	r, _ := d.memory.get(o)
	if r.orphaning == nil || slices.ContainsFunc(r.orphaning.finalizers, func(f string) bool { return slices.Contains(o.GetFinalizers(), f) }) {
		return
	}

	d.memory.update(o, func(r *remembered) { r.orphaning = nil })
	d.trail(r.orphaning)
}

// trail leaves what shows later that, and how, an object was orphaned.
func (d *deletion) trail(is *orphan) {
	d.log.Info("Orphaned", d.details(is)...)
	d.record.Event(is.object, event.Warning(reasonForceOrphaned, errors.New(cut(fmt.Sprintf("An operator asked to orphan it (external name %q): removed the finalizers %s",
		meta.GetExternalName(is.object), names(is.finalizers)), maxEventLength))))
	d.metrics.orphaned.WithLabelValues(d.kind.String()).Inc()
}

func (d *deletion) details(is *orphan) []any {
	return []any{
		"kind", d.kind.String(), "name", client.ObjectKeyFromObject(is.object).String(), "uid", is.object.GetUID(),
		"external-name", meta.GetExternalName(is.object), "finalizers", is.finalizers,
	}
}

// asked tells whether an operator asked to orphan exactly this object.
func asked(o client.Object) bool {
	return o.GetUID() != "" && o.GetAnnotations()[AnnotationKeyForceOrphan] == string(o.GetUID())
}

// toOrphan returns the finalizers that are to be removed.
func (d *deletion) toOrphan(o client.Object) []string {
	if !meta.WasDeleted(o) || !asked(o) {
		return nil
	}

	return d.orphanable(o)
}

// orphanable returns the finalizers that would be removed.
func (d *deletion) orphanable(o client.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return !slices.Contains(d.orphan, f) })
}

// orphanMessage says what is about to happen.
func (d *deletion) orphanMessage(o client.Object) string {
	return fmt.Sprintf("An operator asked to orphan it: these finalizers are removed, whatever they wait for: %s.", names(d.toOrphan(o)))
}

// message says what orphaning would do, after what is to be said anyway.
func (d *deletion) message(m string, o client.Object) string {
	hint := ""
	if remove := d.orphanable(o); len(remove) > 0 && !asked(o) {
		hint = cut(fmt.Sprintf("%s%s=%s: that removes %s, and deletes nothing.", orphanHint, AnnotationKeyForceOrphan, o.GetUID(), names(remove)), maxHintLength)
	}

	return cut(m, maxMessageLength-len(hint)) + hint
}

package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyForceOrphan is the annotation by which an operator asks that the
// finalizers which WithForceOrphan lists be removed from an object that is being
// deleted. Its value must be the object's own UID.
const AnnotationKeyForceOrphan = "graft.crossplane.io/force-orphan"

// forceOrphan removes finalizers from an object that is being deleted if, and
// only if, an operator asked for exactly this object. What the finalizers wait
// for is left as it is.
func (d *deletion) forceOrphan(ctx context.Context, s *seam.Session, o client.Object) error {
	asked := o.GetUID() != "" && o.GetAnnotations()[AnnotationKeyForceOrphan] == string(o.GetUID())

	remove := d.orphanable(o)
	if !asked || len(remove) == 0 {
		return nil
	}

	say := func(server client.Object) []xpv2.Condition {
		if _, ok := seam.Conditioned(server); !ok {
			return nil
		}

		return Deleting(s.Now(), ReasonForceOrphaned, fmt.Sprintf("An operator asked to orphan it: the finalizers %s are removed, whatever they wait for.", strings.Join(remove, ", ")))
	}

	if err := s.Announce(ctx, o, d.failed, say); err != nil {
		return err
	}

	if err := s.RemoveFinalizers(ctx, o, remove); err != nil {
		return errors.Wrap(err, "cannot orphan")
	}

	d.log.Info("Orphaned", "uid", o.GetUID(), "name", client.ObjectKeyFromObject(o), "external-name", meta.GetExternalName(o), "finalizers", remove)
	d.record.Event(o, event.Warning(reasonForceOrphaned, errors.Errorf("an operator asked to orphan it (external name %q): removed the finalizers %s", meta.GetExternalName(o), strings.Join(remove, ", "))))
	d.metrics.orphaned.WithLabelValues(d.kind.Kind).Inc()

	if s.Gone() {
		return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}

	return nil
}

// orphanable returns the finalizers that would be removed.
func (d *deletion) orphanable(o client.Object) []string {
	var out []string

	for _, f := range d.orphan {
		if slices.Contains(o.GetFinalizers(), f) {
			out = append(out, f)
		}
	}

	return out
}

// message says what orphaning would do, after what is to be said anyway.
func (d *deletion) message(m string, o client.Object) string {
	remove := d.orphanable(o)
	if len(remove) == 0 {
		return m
	}

	return fmt.Sprintf("%s To orphan it, set the annotation %s=%s: that removes %s, and deletes nothing.", m, AnnotationKeyForceOrphan, o.GetUID(), strings.Join(remove, ", "))
}

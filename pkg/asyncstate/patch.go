package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Patch is what a tracker adds at the client seam of Graft's package managed, which
// is the only one that can use it:
//
//   - The record of a create is stored together with upstream's announcement of it,
//     so that there is never the one without the other.
//   - Synced is not True while an operation that failed stands.
func (t *Tracker) Patch() seam.Patch {
	return seam.Patch{
		Write: t.announce, Status: t.keepTrue, Conditions: []xpv2.ConditionType{TypeOperation},
		Gone: func(s *seam.Session) { t.known.Forget(s.Key()) },
	}
}

func (t *Tracker) announce(_ context.Context, s *seam.Session, o client.Object) {
	pending, is := o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending], s.Base()

	// One that is announced in the second in which the last one ended has the same time.
	again := meta.ExternalCreateIncomplete(o) && !meta.ExternalCreateIncomplete(is)
	if pending == "" || pending == is.GetAnnotations()[meta.AnnotationKeyExternalCreatePending] && !again {
		return
	}

	// What it has instead of a record was met by Observe.
	if had, err := creation.RecordOf(o); err == nil {
		meta.AddAnnotations(o, map[string]string{AnnotationKeyOperation: t.next(o, Create, had).Text()})
	}
}

// keepTrue corrects what the conditions say of operations: upstream may have observed
// something else, or returned before it observed anything.
func (t *Tracker) keepTrue(_ context.Context, s *seam.Session, o client.Object) {
	mg, ok := o.(resource.Managed)
	if !ok {
		return
	}
	synced := mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionTrue
	if synced {
		t.known.detailsPublished(mg)
	}

	if stopped := t.reasons.Find(s); stopped != nil && *stopped != nil {
		// Upstream says that an Observe failed, which is not what happened.
		s.SetConditions(o, xpv2.ReconcileError(*stopped))
	}

	r, err := creation.RecordOf(o)
	if err != nil {
		return
	}
	if synced && r != nil && r.Error != "" {
		// As it was, if it was there: it is no news.
		stored, ok := s.Base().(resource.Managed)
		if !ok {
			stored = mg
		}
		s.SetConditions(o, xpv2.ReconcileError(errors.New(prefixFailed(r)+t.failure(stored, r).Error())))
	}

	running := mg.GetCondition(TypeOperation).Status == corev1.ConditionTrue

	switch {
	case !running || t.operation(mg.GetUID()) != nil:
	case r == nil || r.Phase == creation.RecordFailed:
		// It has ended while the object was paused, for example.
		t.sayEnded(mg, r)
	case mg.GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused:
		say(mg, corev1.ConditionFalse, ReasonInterrupted, "The "+string(r.Type)+" was interrupted. Its outcome is determined when reconciliation is no longer paused.")
	}
}

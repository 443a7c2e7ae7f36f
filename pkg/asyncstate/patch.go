package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Patch is what a tracker adds at the client seam of Graft's package managed, which
// is the only one that can use it:
//
//   - The record of a create is stored together with upstream's announcement of it,
//     so that there is never the one without the other.
//   - Synced is not True while an operation that failed stands.
func (t *Tracker) Patch() seam.Patch {
	return seam.Patch{Write: t.announce, Status: t.keepFailure}
}

func (t *Tracker) announce(_ context.Context, s *seam.Session, o client.Object) {
	pending := o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
	if pending == "" || pending == s.Base().GetAnnotations()[meta.AnnotationKeyExternalCreatePending] {
		return
	}

	// What it has instead of a record was met by Observe.
	if had, err := recordOf(o); err == nil {
		meta.AddAnnotations(o, map[string]string{AnnotationKeyOperation: t.next(o, Create, had).text()})
	}
}

func (t *Tracker) keepFailure(_ context.Context, _ *seam.Session, o client.Object) {
	mg, ok := o.(resource.Managed)
	if !ok {
		return
	}

	synced := mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionTrue
	if synced {
		t.details.published(mg.GetUID())
	}

	if r, err := recordOf(o); synced && err == nil && r != nil && r.Error != "" {
		mg.SetConditions(xpv2.ReconcileError(failure(r)).WithObservedGeneration(o.GetGeneration()))
	}
}

package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// otherFinalizer: another controller's finalizer blocks the deletion. Upstream waits,
// and reports nothing meanwhile: not even that the object is being deleted.
func otherFinalizer() story {
	const reconciles = 10
	return story{
		name: "silent-deletion/other-finalizer",
		about: fmt.Sprintf("A user deletes a managed resource that also has the finalizer %s. It is reconciled %d "+
			"times. Later that finalizer is removed.", backupFinalizer, reconciles),
		difference: "It says that it is being deleted, and names the finalizer that it waits for.",
		play: func(ctx context.Context, s *scene) []finding {
			p := s.createAtRest(ctx, databaseWith(backupFinalizer), sample.NewSync[resource.Managed](s.cloud))
			s.delete(ctx)
			p.reconcile(ctx, reconciles)
			vs := s.look(ctx)
			s.removeBackupFinalizer(ctx, "removes the other finalizer of")
			p.untilGone(ctx, nil)
			return []finding{
				deleting(fmt.Sprintf("READY after %d reconciles", reconciles), vs).knownToFail().headline("READY %s"),
				why(vs, reconciler.ReasonWaitingForFinalizers, backupFinalizer),
				gone(s.look(ctx)),
			}
		},
	}
}

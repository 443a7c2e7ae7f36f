package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// backupFinalizer belongs to a controller that has work to do before the object is
// deleted.
const backupFinalizer = "example.org/backup"

// otherFinalizer: another controller's finalizer blocks the deletion. Upstream waits,
// and reports nothing meanwhile: not even that the object is being deleted.
func otherFinalizer() story {
	const reconciles = 10
	return story{
		name: "silent-deletion/other-finalizer",
		about: fmt.Sprintf("A user deletes a managed resource that also has the finalizer %s. "+
			"It is reconciled %d times. Later that finalizer is removed.", backupFinalizer, reconciles),
		difference: "It says that it is being deleted, and names the finalizer that it waits for.",
		play: func(ctx context.Context, s *scene) ([]finding, error) {
			return playOtherFinalizer(ctx, s, reconciles)
		},
	}
}

func playOtherFinalizer(ctx context.Context, s *scene, reconciles int) ([]finding, error) {
	p, err := s.createAtRest(ctx, databaseWith(backupFinalizer), v1alpha1.DatabaseManagedKind(), sample.NewSync[resource.Managed](s.cloud))
	if err != nil {
		return nil, err
	}
	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := p.reconcile(ctx, reconciles, s.objs); err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings := []finding{
		deleting(fmt.Sprintf("READY after %d reconciles", reconciles), vs).knownToFail().headline("READY %s"),
		why(vs, reconciler.ReasonWaitingForFinalizers, backupFinalizer),
	}

	err = s.act(ctx, "removes the other finalizer of", func(o sample.Instance) error {
		now, _, err := read(ctx, s.stage.user(), o)
		if err != nil {
			return err
		}
		before, ok := now.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T has no metadata", now)
		}
		controllerutil.RemoveFinalizer(now, backupFinalizer)
		return s.stage.user().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return nil, err
	}
	if err := s.untilGone(ctx, p, nil); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, gone(vs)), nil
}

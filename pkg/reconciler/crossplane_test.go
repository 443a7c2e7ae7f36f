package reconciler_test

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The finalizers of Crossplane's reconcilers of claims and composite resources.
const (
	finalizerClaim     = "finalizer.apiextensions.crossplane.io"
	finalizerComposite = "composite.apiextensions.crossplane.io"
)

// claimShaped returns a reconciler that treats a claim which is being deleted as
// Crossplane 2.4's does. In the foreground it says Deleting in memory, deletes the
// composite resource, and returns without a word; from then on it writes status
// and asks to be run again, until the composite resource is gone.
func claimShaped(c client.Client) reconcile.Reconciler {
	finalizer := resource.NewAPIFinalizer(c, finalizerClaim)

	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		cm := claim.New(claim.WithGroupVersionKind(claims))
		if err := c.Get(ctx, req.NamespacedName, cm); err != nil {
			return reconcile.Result{}, errors.Wrap(resource.IgnoreNotFound(err), "cannot get claim")
		}

		status := conditions.ObservedGenerationPropagationManager{}.For(cm)

		if meta.IsPaused(cm) {
			status.MarkConditions(xpv2.ReconcilePaused())
			return reconcile.Result{}, errors.Wrap(c.Status().Update(ctx, cm), "cannot update status")
		}

		xr := composite.New(composite.WithGroupVersionKind(composites), composite.WithSchema(composite.SchemaLegacy))
		if r := cm.GetResourceReference(); r != nil {
			if err := c.Get(ctx, client.ObjectKey{Name: r.Name}, xr); resource.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, errors.Wrap(err, "cannot get composite resource")
			}
		}

		if !meta.WasDeleted(cm) {
			status.MarkConditions(xpv2.Available(), xpv2.ReconcileSuccess())
			return reconcile.Result{}, errors.Wrap(c.Status().Update(ctx, cm), "cannot update status")
		}

		status.MarkConditions(xpv2.Deleting())

		if xr.GetUID() != "" {
			policy := cm.GetCompositeDeletePolicy()
			foreground := policy != nil && *policy == xpv2.CompositeDeleteForeground

			if meta.WasDeleted(xr) && foreground {
				return reconcile.Result{Requeue: true}, errors.Wrap(c.Status().Update(ctx, cm), "cannot update status")
			}

			do := &client.DeleteOptions{}
			if foreground {
				client.PropagationPolicy(metav1.DeletePropagationForeground).ApplyToDelete(do)
			}

			if err := c.Delete(ctx, xr, do); resource.IgnoreNotFound(err) != nil {
				status.MarkConditions(xpv2.ReconcileError(errors.Wrap(err, "cannot delete composite resource")))
				_ = c.Status().Update(ctx, cm)

				return reconcile.Result{}, err
			}

			if foreground {
				return reconcile.Result{Requeue: true}, nil
			}
		}

		if err := finalizer.RemoveFinalizer(ctx, cm); err != nil {
			return reconcile.Result{}, errors.Wrap(err, "cannot remove finalizer")
		}

		status.MarkConditions(xpv2.ReconcileSuccess())

		return reconcile.Result{}, errors.Wrap(resource.IgnoreNotFound(c.Status().Update(ctx, cm)), "cannot update status")
	})
}

// compositeShaped returns a reconciler that treats a composite resource which is
// being deleted as Crossplane 2.4's does: it removes its finalizer at once, leaves
// the rest to the garbage collector, and doesn't ask to be run again.
func compositeShaped(c client.Client) reconcile.Reconciler {
	finalizer := resource.NewAPIFinalizer(c, finalizerComposite)

	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		xr := composite.New(composite.WithGroupVersionKind(composites))
		if err := c.Get(ctx, req.NamespacedName, xr); err != nil {
			return reconcile.Result{}, errors.Wrap(resource.IgnoreNotFound(err), "cannot get composite resource")
		}

		status := conditions.ObservedGenerationPropagationManager{}.For(xr)

		if meta.IsPaused(xr) {
			status.MarkConditions(xpv2.ReconcilePaused())
			return reconcile.Result{}, errors.Wrap(c.Status().Update(ctx, xr), "cannot update status")
		}

		if !meta.WasDeleted(xr) {
			status.MarkConditions(xpv2.Available(), xpv2.ReconcileSuccess())
			return reconcile.Result{}, errors.Wrap(c.Status().Update(ctx, xr), "cannot update status")
		}

		status.MarkConditions(xpv2.Deleting())

		if err := finalizer.RemoveFinalizer(ctx, xr); err != nil {
			if kerrors.IsConflict(err) {
				return reconcile.Result{Requeue: true}, nil
			}

			return reconcile.Result{}, errors.Wrap(err, "cannot remove finalizer")
		}

		status.MarkConditions(xpv2.ReconcileSuccess())

		return reconcile.Result{}, errors.Wrap(resource.IgnoreNotFound(c.Status().Update(ctx, xr)), "cannot update status")
	})
}

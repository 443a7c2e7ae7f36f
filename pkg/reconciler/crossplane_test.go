package reconciler_test

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
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
// Crossplane 2.4's does in the foreground. It says Deleting in memory, deletes the
// composite resource, and returns without a word; from then on it writes status
// and asks to be run again, until the composite resource no longer exists.
func claimShaped(c client.Client) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		cm := claim.New(claim.WithGroupVersionKind(claims))
		if err := c.Get(ctx, req.NamespacedName, cm); err != nil {
			return reconcile.Result{}, resource.IgnoreNotFound(err)
		}

		xr := composite.New(composite.WithGroupVersionKind(composites), composite.WithSchema(composite.SchemaLegacy))
		err := c.Get(ctx, client.ObjectKey{Name: cm.GetResourceReference().Name}, xr)

		conditions.ObservedGenerationPropagationManager{}.For(cm).MarkConditions(xpv2.Deleting())

		switch {
		case kerrors.IsNotFound(err):
			return reconcile.Result{}, resource.NewAPIFinalizer(c, finalizerClaim).RemoveFinalizer(ctx, cm)
		case err != nil:
			return reconcile.Result{}, err
		case meta.WasDeleted(xr):
			return reconcile.Result{Requeue: true}, c.Status().Update(ctx, cm)
		default:
			return reconcile.Result{Requeue: true}, c.Delete(ctx, xr, client.PropagationPolicy(metav1.DeletePropagationForeground))
		}
	})
}

// compositeShaped returns a reconciler that treats a composite resource which is
// being deleted as Crossplane 2.4's does: it removes its finalizer at once, leaves
// the rest to the garbage collector, and doesn't ask to be run again.
func compositeShaped(c client.Client) reconcile.Reconciler {
	return answers(func(ctx context.Context, c client.Client, xr *composite.Unstructured) (reconcile.Result, error) {
		status := conditions.ObservedGenerationPropagationManager{}.For(xr)
		status.MarkConditions(xpv2.Deleting())

		if err := resource.NewAPIFinalizer(c, finalizerComposite).RemoveFinalizer(ctx, xr); err != nil {
			return reconcile.Result{}, err
		}

		status.MarkConditions(xpv2.ReconcileSuccess())

		return reconcile.Result{}, resource.IgnoreNotFound(c.Status().Update(ctx, xr))
	})(c)
}

// Package crossplane has reconcilers of claims and composite resources that do what those
// of Crossplane 2.4 do, as far as it matters to a deletion in the foreground.
package crossplane

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The finalizers of the reconcilers.
const (
	FinalizerClaim     = "finalizer.apiextensions.crossplane.io"
	FinalizerComposite = "composite.apiextensions.crossplane.io"
)

type claimReconciler struct {
	client     client.Client
	finalizer  resource.Finalizer
	of         schema.GroupVersionKind
	composites schema.GroupVersionKind
}

// NewClaimReconciler returns a reconciler of claims of a kind. The first reconcile of one
// that is being deleted sets Deleting in memory, deletes the composite resource, and
// returns before it writes status. The next ones write status, and ask to be called
// again until the composite resource no longer exists.
func NewClaimReconciler(c client.Client, of, composites schema.GroupVersionKind) reconcile.Reconciler {
	c = unstructured.NewClient(c)
	return &claimReconciler{
		client:     c,
		finalizer:  resource.NewAPIFinalizer(c, FinalizerClaim),
		of:         of,
		composites: composites,
	}
}

// Reconcile a claim.
func (r *claimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cm := claim.New(claim.WithGroupVersionKind(r.of))
	if err := r.client.Get(ctx, req.NamespacedName, cm); err != nil {
		return reconcile.Result{}, resource.IgnoreNotFound(err)
	}
	status := conditions.ObservedGenerationPropagationManager{}.For(cm)
	xr := composite.New(composite.WithGroupVersionKind(r.composites), composite.WithSchema(composite.SchemaLegacy))
	if ref := cm.GetResourceReference(); ref != nil {
		if err := r.client.Get(ctx, client.ObjectKey{Name: ref.Name}, xr); resource.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}

	if meta.WasDeleted(cm) {
		return r.delete(ctx, cm, xr)
	}
	if err := r.finalizer.AddFinalizer(ctx, cm); err != nil {
		return reconcile.Result{}, err
	}
	status.MarkConditions(xpv2.ReconcileSuccess(), xpv2.Available())
	return reconcile.Result{}, r.client.Status().Update(ctx, cm)
}

func (r *claimReconciler) delete(
	ctx context.Context, cm *claim.Unstructured, xr *composite.Unstructured,
) (reconcile.Result, error) {
	status := conditions.ObservedGenerationPropagationManager{}.For(cm)
	status.MarkConditions(xpv2.Deleting())

	if meta.WasCreated(xr) {
		foreground := ptr.Deref(cm.GetCompositeDeletePolicy(), "") == xpv2.CompositeDeleteForeground
		if meta.WasDeleted(xr) && foreground {
			return reconcile.Result{Requeue: true}, r.client.Status().Update(ctx, cm)
		}
		do := &client.DeleteOptions{}
		if foreground {
			do.PropagationPolicy = ptr.To(metav1.DeletePropagationForeground)
		}

		if err := r.client.Delete(ctx, xr, do); resource.IgnoreNotFound(err) != nil {
			status.MarkConditions(xpv2.ReconcileError(err))
			_ = r.client.Status().Update(ctx, cm)
			return reconcile.Result{}, err
		}

		if foreground {
			return reconcile.Result{Requeue: true}, nil
		}
	}

	if err := r.finalizer.RemoveFinalizer(ctx, cm); err != nil {
		return reconcile.Result{}, err
	}
	status.MarkConditions(xpv2.ReconcileSuccess())
	return reconcile.Result{}, resource.IgnoreNotFound(r.client.Status().Update(ctx, cm))
}

type compositeReconciler struct {
	client    client.Client
	finalizer resource.Finalizer
	of        schema.GroupVersionKind
	schema    composite.Schema
}

// NewCompositeReconciler returns a reconciler of composite resources of a kind. It removes
// its finalizer at once from one that is being deleted, leaves the rest to the garbage
// collector, and doesn't ask to be called again.
func NewCompositeReconciler(c client.Client, of schema.GroupVersionKind, s composite.Schema) reconcile.Reconciler {
	c = unstructured.NewClient(c)
	return &compositeReconciler{
		client:    c,
		finalizer: resource.NewAPIFinalizer(c, FinalizerComposite),
		of:        of,
		schema:    s,
	}
}

// Reconcile a composite resource.
func (r *compositeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	xr := composite.New(composite.WithGroupVersionKind(r.of), composite.WithSchema(r.schema))
	if err := r.client.Get(ctx, req.NamespacedName, xr); err != nil {
		return reconcile.Result{}, resource.IgnoreNotFound(err)
	}
	status := conditions.ObservedGenerationPropagationManager{}.For(xr)
	change, what := r.finalizer.AddFinalizer, xpv2.Available()
	if meta.WasDeleted(xr) {
		change, what = r.finalizer.RemoveFinalizer, xpv2.Deleting()
	}
	status.MarkConditions(what)

	if err := change(ctx, xr); err != nil {
		if kerrors.IsConflict(err) {
			return reconcile.Result{Requeue: true}, nil
		}
		return reconcile.Result{}, err
	}

	status.MarkConditions(what, xpv2.ReconcileSuccess())
	return reconcile.Result{}, resource.IgnoreNotFound(r.client.Status().Update(ctx, xr))
}

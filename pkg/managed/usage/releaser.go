package usage

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// usageInterval is the interval at which the managed resource of a usage that is being deleted
// is read again. The controller gets no event when the managed resource is deleted.
const usageInterval = 30 * time.Second

// A Releaser releases the ProviderConfigUsages that WithProtection protects, if the
// reconciler of their managed resource can't: because the provider was not running, because a
// person removed the managed resource's finalizer, or because the managed resource was
// deleted before it had a finalizer.
//
// It is a reconciler of usages, and safe for concurrent use.
type Releaser struct {
	usages        usages
	unconditional bool
}

// NewReleaser returns a Releaser of the supplied kind of usages, one for
// each kind that was given to WithProtection:
//
//	ctrl.NewControllerManagedBy(mgr).
//		Named("providerconfigusage").
//		For(&v1.ProviderConfigUsage{}).
//		Complete(usage.NewReleaser(mgr, v1.ProviderConfigUsageGroupVersionKind))
//
// A usage that is being deleted is released when its managed resource no longer exists, by
// UID, or is being deleted and has only finalizers of the garbage collector. Both are checked
// on the API server, not only in the cache. While the managed resource exists, the cache is
// read every 30 seconds. If the managed resource can't be read, the usage stays, and the
// controller logs the error. Usages of managed resources that are not in the manager's scheme
// are left to the provider that has them in its scheme.
//
// The provider needs the permissions get, list, watch and update for usages, and get, list and
// watch for the managed resources.
//
// NewReleaser panics if the manager can't be used, or if the kind is incomplete or not a
// kind of usages.
func NewReleaser(m manager.Manager, of schema.GroupVersionKind) *Releaser {
	return newUsageReleaser(m, of, "NewReleaser")
}

// NewUnconditionalReleaser returns a Releaser that removes the finalizer from every
// usage of the supplied kind, whether it is in use or not, and even if the manager's scheme does
// not have the kind of its managed resource.
//
// A provider needs it to remove WithProtection, because without a Releaser it can't
// delete usages that have the finalizer. Run it once instead of WithProtection, until no
// usage has the finalizer. It panics if NewReleaser does.
func NewUnconditionalReleaser(m manager.Manager, of schema.GroupVersionKind) *Releaser {
	r := newUsageReleaser(m, of, "NewUnconditionalReleaser")
	r.unconditional = true
	return r
}

func newUsageReleaser(m manager.Manager, of schema.GroupVersionKind, caller string) *Releaser {
	layer.MustBeUsable(m)
	mustBeComplete(of, caller)
	return &Releaser{usages: mustFindUsages(m.GetScheme(), m.GetClient(), layer.LiveReader(m), of, caller)}
}

// Reconcile a usage.
func (r *Releaser) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	usage, err := r.usages.get(ctx, r.usages.client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !meta.FinalizerExists(usage, FinalizerName) || !meta.WasDeleted(usage) && !r.unconditional {
		return reconcile.Result{}, nil
	}
	if !r.unconditional {
		user, known := r.user(usage)
		if !known {
			return reconcile.Result{}, nil
		}
		needed, err := r.needed(ctx, usage, user)
		if err != nil {
			return reconcile.Result{}, err
		}
		if needed {
			return reconcile.Result{RequeueAfter: usageInterval}, nil
		}
	}

	err = r.usages.release(ctx, usage)
	if kerrors.IsConflict(err) {
		// The cache will have the change soon.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{}, err
}

// user returns the kind of the managed resource that uses a provider config, in a version in
// the scheme if there is one. It is false unless that is a kind of managed resources: users can
// write the reference, and must not make the cache watch other kinds.
func (r *Releaser) user(usage resource.ProviderConfigUsage) (schema.GroupVersionKind, bool) {
	ref := usage.GetResourceReference()
	of := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if c := metav1.GetControllerOf(usage); c != nil {
		of = schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	}

	for _, v := range append(
		[]schema.GroupVersion{of.GroupVersion()}, r.usages.scheme.VersionsForGroupKind(of.GroupKind())...,
	) {
		if o, err := r.usages.scheme.New(v.WithKind(of.Kind)); err == nil {
			_, managed := o.(resource.Managed)
			return v.WithKind(of.Kind), managed
		}
	}
	return of, false
}

// needed reports whether the managed resource that uses a provider config may still connect.
func (r *Releaser) needed(ctx context.Context, usage client.Object, of schema.GroupVersionKind) (bool, error) {
	user := metav1.GetControllerOf(usage)
	if user == nil {
		// Upstream deletes such a usage: it is created again if it is needed.
		return false, nil
	}

	// An absence in the cache is not enough.
	for _, from := range []client.Reader{r.usages.client, r.usages.live} {
		o, err := r.usages.scheme.New(of)
		if err != nil {
			return false, err
		}
		mg, ok := o.(client.Object)
		if !ok {
			return false, errors.Errorf("%T has no metadata", o)
		}
		err = from.Get(ctx, client.ObjectKey{Namespace: usage.GetNamespace(), Name: user.Name}, mg)

		switch {
		case r.isAbsent(err, of.GroupKind()):
		case err != nil:
			return false, errors.Wrapf(
				err, "cannot get %s %q, whose usage of a provider config is to be released", of.Kind, user.Name,
			)
		case mg.GetUID() == user.UID && !isReleased(mg):
			return true, nil
		}
	}
	return false, nil
}

// isAbsent reports whether the error of a read means that the object does not exist, or that
// no version of its kind is served.
func (r *Releaser) isAbsent(err error, of schema.GroupKind) bool {
	var none *kmeta.NoKindMatchError
	if !errors.As(err, &none) || len(none.SearchedVersions) == 0 {
		return seam.IsGone(err) || kmeta.IsNoMatchError(err)
	}
	_, err = r.usages.client.RESTMapper().RESTMapping(of)
	return kmeta.IsNoMatchError(err)
}

// isReleased reports whether a managed resource is being deleted and has only finalizers of
// the garbage collector.
func isReleased(mg client.Object) bool {
	return meta.WasDeleted(mg) && !slices.ContainsFunc(mg.GetFinalizers(), func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
}

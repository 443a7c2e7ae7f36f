package managed

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

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// usageInterval is the interval at which the user of a usage that is being deleted
// is read again. No event arrives if the user is deleted without its reconciler.
const usageInterval = 30 * time.Second

// A UsageReleaser releases the ProviderConfigUsages that WithUsageProtection
// protects, where the reconciler of their managed resource can't: because the
// provider was not running, because a person removed the managed resource's finalizer
// by hand, or because the managed resource was deleted before it had one.
//
// It is a reconciler of usages, and safe for concurrent use.
type UsageReleaser struct {
	usages usages
	all    bool
}

// A UsageReleaserOption configures a UsageReleaser.
type UsageReleaserOption func(*UsageReleaser)

// WithReleaseAll makes a UsageReleaser remove the finalizer from every usage, used or
// not. It is for going back: a provider without a UsageReleaser can't delete what
// has the finalizer. Run it once in place of WithUsageProtection, until no usage
// has the finalizer. It releases all usages of its kind, also those of managed
// resources that the manager's scheme doesn't know.
func WithReleaseAll() UsageReleaserOption {
	return func(r *UsageReleaser) { r.all = true }
}

// NewUsageReleaser returns a UsageReleaser of the supplied kind of usages, one for
// each kind that was given to WithUsageProtection:
//
//	ctrl.NewControllerManagedBy(mgr).
//		Named("providerconfigusage").
//		For(&v1.ProviderConfigUsage{}).
//		Complete(managed.NewUsageReleaser(mgr, v1.ProviderConfigUsageGroupVersionKind))
//
// A usage that is being deleted is released when its managed resource does not exist
// any more, by its UID, or is being deleted and has no finalizer left but the garbage
// collector's. That is believed only of the API server itself, not of the cache. As
// long as the managed resource is there, the cache is asked again every 30 seconds. A
// managed resource that can't be looked up keeps the usage; the controller logs why.
// Usages of managed resources that the manager's scheme doesn't know are left to the
// provider that has them in its scheme, unless WithReleaseAll is given.
//
// The provider needs get, list, watch and update of usages, and get, list and watch
// of the managed resources.
//
// NewUsageReleaser panics if the manager can't be used, if the kind is incomplete or
// none of usages, or if an option is nil.
func NewUsageReleaser(m manager.Manager, of schema.GroupVersionKind, o ...UsageReleaserOption) *UsageReleaser {
	mustBeUsable(m)
	mustBeComplete(of, "NewUsageReleaser")
	r := &UsageReleaser{usages: mustFindUsages(m.GetScheme(), m.GetClient(), liveReader(m), of, "NewUsageReleaser")}

	mustHaveNoNil(o, "NewUsageReleaser", 3)
	for _, fn := range o {
		fn(r)
	}
	return r
}

// Reconcile a usage.
func (r *UsageReleaser) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	usage, err := r.usages.get(ctx, r.usages.client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !meta.FinalizerExists(usage, UsageFinalizerName) || !meta.WasDeleted(usage) && !r.all {
		return reconcile.Result{}, nil
	}
	if !r.all {
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
		// The cache will say what was changed.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{}, err
}

// user returns the kind of the managed resource that uses a provider config, in a version that the scheme
// knows, unless it knows none. A user may have written the reference, and must not make the
// cache watch a kind that is none of managed resources.
func (r *UsageReleaser) user(usage resource.ProviderConfigUsage) (schema.GroupVersionKind, bool) {
	ref := usage.GetResourceReference()
	of := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if c := metav1.GetControllerOf(usage); c != nil {
		of = schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	}

	for _, v := range append([]schema.GroupVersion{of.GroupVersion()}, r.usages.scheme.VersionsForGroupKind(of.GroupKind())...) {
		if o, err := r.usages.scheme.New(v.WithKind(of.Kind)); err == nil {
			_, managed := o.(resource.Managed)
			return v.WithKind(of.Kind), managed
		}
	}
	return of, false
}

// needed reports whether the managed resource that uses a provider config may still
// have to connect.
func (r *UsageReleaser) needed(ctx context.Context, usage client.Object, of schema.GroupVersionKind) (bool, error) {
	user := metav1.GetControllerOf(usage)
	if user == nil {
		// Upstream deletes such a usage: it is created again if it is needed.
		return false, nil
	}

	// Absence is believed of the API server alone.
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
			return false, errors.Wrapf(err, "cannot get %s %q, whose usage of a provider config is to be released", of.Kind, user.Name)
		case mg.GetUID() == user.UID && !isLeft(mg):
			return true, nil
		}
	}
	return false, nil
}

// isAbsent reports whether an error of reading an object says that it does not exist, or
// that no version of its kind is served.
func (r *UsageReleaser) isAbsent(err error, of schema.GroupKind) bool {
	var none *kmeta.NoKindMatchError
	if !errors.As(err, &none) || len(none.SearchedVersions) == 0 {
		return seam.IsGone(err) || kmeta.IsNoMatchError(err)
	}
	_, err = r.usages.client.RESTMapper().RESTMapping(of)
	return kmeta.IsNoMatchError(err)
}

// isLeft reports whether a managed resource is being deleted, and has no finalizer left
// but the garbage collector's.
func isLeft(mg client.Object) bool {
	return meta.WasDeleted(mg) && !slices.ContainsFunc(mg.GetFinalizers(), func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
}

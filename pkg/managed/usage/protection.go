package usage

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// Event reasons.
const (
	reasonCannotProtectUsage event.Reason = "CannotProtectUsage"
)

// FinalizerName is the finalizer of a usage that WithProtection protects.
const FinalizerName = "graft.crossplane.io/in-use"

// upstreamUsageFinalizer is the finalizer with which versions of crossplane-runtime after
// v2.4 protect usages (crossplane-runtime#1113).
const upstreamUsageFinalizer = "finalizer.providerconfigusage.crossplane.io"

// WithProtection keeps the ProviderConfigUsage of a managed resource, and with
// it the ProviderConfig, until the managed resource's finalizer is removed. Otherwise, the
// deletion of the namespace or a foreground deletion removes the usage, and then the
// ProviderConfig can be removed, while the managed resource still needs both.
//
// It adds the finalizer FinalizerName to the usage after the provider is connected,
// unless the managed resource is being deleted. The same write clears blockOwnerDeletion in
// the usage's owner reference. Otherwise, a foreground deletion would wait for the usage, the
// usage for the managed resource, and the managed resource for the foreground deletion. If a
// usage can't be protected, the managed resource is still reconciled, an event
// CannotProtectUsage has the error, and the next reconcile tries again. A usage that upstream
// protects, in versions after v2.4, is left to upstream.
//
// It needs a Releaser in the same provider, which releases usages that this reconciler
// can't release. See there for how to remove the protection. The trackers of this package
// keep a usage protected if its ProviderConfig changes; upstream's trackers don't.
//
// The kind is the kind of usages that the connector's tracker records. Usages have the names
// that the trackers of package resource choose, and are read from the manager's cache. The
// protection costs one write for each managed resource, and one when it is removed. It also
// costs a live read while the cache does not have the usage yet, which is in each reconcile
// if no tracker records usages of the kind. The provider needs the permissions get, update
// and patch for usages.
//
// WithProtection panics if the kind is incomplete. NewReconciler panics if it is not a
// kind of usages, or if it is for legacy managed resources and the reconciled kind is not, or
// the reverse.
func WithProtection(of schema.GroupVersionKind) managed.ReconcilerOption {
	mustBeComplete(of, "WithProtection")
	return managed.With(layer.Option{Name: "usage.WithProtection", Layers: []layer.Staged{{
		Stage: layer.Identity,
		New: func(p layer.Parts, next layer.External) layer.Layer {
			e := &usageProtection{
				External: next,
				usages:   mustFindUsages(p.Scheme, p.Client, p.Live, of, "WithProtection"),
				log:      p.Log,
				recorder: p.Recorder,
			}
			e.mustSuit(p.Managed)
			return layer.Layer{
				External: e,
				Finalizer: func(next resource.Finalizer) resource.Finalizer {
					return &protectedFinalizer{Finalizer: next, protection: e}
				},
			}
		},
	}}})
}

// usageProtection protects the usages of managed resources after they connect. It has no
// state.
type usageProtection struct {
	layer.External

	usages   usages
	log      logging.Logger
	recorder event.Recorder
}

// mustSuit panics if mg cannot have usages of this kind.
func (p *usageProtection) mustSuit(mg resource.Managed) {
	usage, err := p.usages.empty()
	if err != nil {
		panic(err)
	}
	//nolint:staticcheck // Deprecated, but most providers use it.
	_, legacy := usage.(resource.LegacyProviderConfigUsage)
	_, is := mg.(resource.LegacyManaged) //nolint:staticcheck // As above.
	if legacy != is {
		panic(errors.Errorf(
			"usage.WithProtection was given %s for %T: one of them is legacy, the other is not; pass the kind that its tracker records",
			p.usages.of, mg,
		))
	}
}

// Connect to the provider, whose connector records the usage, and protect the usage.
func (p *usageProtection) Connect(ctx context.Context, c *layer.Call) error {
	if err := p.External.Connect(ctx, c); err != nil || meta.WasDeleted(c.Managed) {
		return err
	}
	err := p.usages.protect(ctx, p.usages.client, c.Managed)
	if kerrors.IsNotFound(err) || kerrors.IsConflict(err) {
		// The tracker may have written it just now, and the cache may be stale.
		err = p.usages.protect(ctx, p.usages.live, c.Managed)
	}

	if err != nil {
		p.log.Info("Cannot protect the usage of a provider config", "uid", c.Managed.GetUID(), "error", err)
		p.recorder.Event(c.Managed, event.Warning(reasonCannotProtectUsage, err))
	}
	return nil
}

// protectedFinalizer releases the usage of a managed resource whose finalizer is removed. If
// that fails, the Releaser releases it.
type protectedFinalizer struct {
	resource.Finalizer

	protection *usageProtection
}

// RemoveFinalizer from the managed resource.
func (f *protectedFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	p := f.protection
	usage, err := p.usages.get(ctx, p.usages.client, usageKey(o))
	if err == nil {
		err = p.usages.release(ctx, usage)
	}

	if client.IgnoreNotFound(err) != nil {
		p.log.Debug("Cannot release the usage of a provider config yet", "uid", o.GetUID(), "error", err)
	}
	return nil
}

// usages are the ProviderConfigUsages of one kind.
type usages struct {
	of     schema.GroupVersionKind
	scheme *runtime.Scheme
	client client.Client
	live   client.Reader
}

// mustFindUsages returns the usages of a kind. It panics if the kind is not a kind of usages.
func mustFindUsages(
	s *runtime.Scheme, c client.Client, live client.Reader, of schema.GroupVersionKind, caller string,
) usages {
	u := usages{of: of, scheme: s, client: c, live: live}
	if _, err := u.empty(); err != nil {
		panic(errors.Wrapf(
			err,
			"usage.%s was given %s: pass the kind that the connector's tracker records, and add its API package to the manager's scheme with AddToScheme",
			caller, of,
		))
	}
	return u
}

func mustBeComplete(of schema.GroupVersionKind, caller string) {
	if of.Version == "" || of.Kind == "" {
		panic(errors.Errorf(
			"usage.%s was given the kind %q: pass the whole of the one that the connector's tracker records, such as ProviderConfigUsageGroupVersionKind of the provider's API package",
			caller, of,
		))
	}
}

// empty returns a new usage, in the form in which trackers read it.
func (u usages) empty() (resource.ProviderConfigUsage, error) {
	o, err := u.scheme.New(u.of)
	if err != nil {
		return nil, err
	}
	usage, ok := o.(resource.ProviderConfigUsage)
	if !ok {
		return nil, errors.Errorf("%T is not a usage of provider configs", o)
	}
	return usage, nil
}

func (u usages) get(
	ctx context.Context, from client.Reader, key client.ObjectKey,
) (resource.ProviderConfigUsage, error) {
	usage, err := u.empty()
	if err != nil {
		return nil, err
	}
	return usage, errors.Wrapf(from.Get(ctx, key, usage), "cannot get %s %q", u.of.Kind, key.Name)
}

// protect the usage of a managed resource, as the reader returns it.
func (u usages) protect(ctx context.Context, from client.Reader, mg client.Object) error {
	usage, err := u.get(ctx, from, usageKey(mg))
	if err != nil {
		return err
	}
	if meta.WasDeleted(usage) {
		// The API server takes no new finalizers.
		return nil
	}
	before, _ := usage.DeepCopyObject().(client.Object)
	owners := usage.GetOwnerReferences()
	i := slices.IndexFunc(owners, func(r metav1.OwnerReference) bool {
		return r.Controller != nil && *r.Controller && r.UID == mg.GetUID()
	})
	if i < 0 {
		return errors.Errorf("%s %q is not controlled by the managed resource of that UID", u.of.Kind, usage.GetName())
	}
	if meta.FinalizerExists(usage, upstreamUsageFinalizer) {
		// A later version of upstream protects it.
		return nil
	}
	if meta.FinalizerExists(usage, FinalizerName) && (owners[i].BlockOwnerDeletion == nil ||
		!*owners[i].BlockOwnerDeletion) {
		return nil
	}
	meta.AddFinalizer(usage, FinalizerName)
	owners[i].BlockOwnerDeletion = nil
	usage.SetOwnerReferences(owners)

	// A merge patch replaces whole lists, so it must not miss another writer's change.
	err = u.client.Patch(ctx, usage, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return errors.Wrapf(err, "cannot protect %s %q", u.of.Kind, usage.GetName())
}

// release a usage if it has not changed since it was read.
//
// It is an update, not a patch: a patch that removes the last finalizer could delete another
// object that has the same name by then.
func (u usages) release(ctx context.Context, usage client.Object) error {
	if !meta.FinalizerExists(usage, FinalizerName) {
		return nil
	}
	meta.RemoveFinalizer(usage, FinalizerName)
	return errors.Wrapf(
		client.IgnoreNotFound(u.client.Update(ctx, usage)), "cannot release %s %q", u.of.Kind, usage.GetName(),
	)
}

// usageKey returns the key that upstream's trackers choose for a managed resource's usage.
func usageKey(mg client.Object) client.ObjectKey {
	return client.ObjectKey{Namespace: mg.GetNamespace(), Name: string(mg.GetUID())}
}

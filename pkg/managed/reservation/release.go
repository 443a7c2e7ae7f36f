package reservation

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
)

// releaseTimeout is the timeout of the requests that release a lease.
const releaseTimeout = 10 * time.Second

// reservedFinalizer releases the lease of a managed resource when its finalizer is removed.
type reservedFinalizer struct {
	resource.Finalizer

	reservation *reservation
}

// RemoveFinalizer from the managed resource.
func (f *reservedFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	version := o.GetResourceVersion()
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	if mg, ok := o.(resource.Managed); ok {
		f.reservation.release(ctx, mg, version)
	}
	return nil
}

// releaseUnused releases the lease of a managed resource whose creates all failed. It keeps the
// lease if the external resource was observed, or if no create was announced.
func (r *reservation) releaseUnused(ctx context.Context, c *layer.Call) {
	had := r.held.Get(r.store, c.Managed)
	if had.key == "" || had.confirmed == had.key || c.Now().Before(had.inProgress) ||
		creation.Last(c.Managed).Announcement == "" ||
		!r.releaseLease(ctx, c.Managed, had.lease, func(ctx context.Context) bool { return !r.failedAlone(ctx, c.Managed) }) {
		return
	}
	r.held.Update(r.store, c.Managed, func(h *holding) { *h = holding{former: h.former, confirmed: h.confirmed} })
	r.notNeeded(c, messageUnconfirmed)
}

// releaseFormer releases the leases of previous keys, but for the current key: the external name
// may be a previous one again.
func (r *reservation) releaseFormer(ctx context.Context, c *layer.Call, current string) {
	former := r.held.Get(r.store, c.Managed).former
	if len(former) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(former), func(l lease) bool {
		return (current == "" || l.name != leaseName(current)) && r.releaseLease(ctx, c.Managed, l, r.changed(c.Managed))
	})
	r.held.Update(r.store, c.Managed, func(h *holding) { h.former = kept })
}

// failedAlone reports whether the create that failed is the last one. Otherwise, another
// process has taken over, and its create may have succeeded.
func (r *reservation) failedAlone(ctx context.Context, mg resource.Managed) bool {
	was := creation.Last(mg)
	if was.Phase == creation.Created {
		return false
	}
	live := r.live(ctx, mg)
	if live == nil {
		return false
	}
	is := creation.Last(live)
	return is.Announcement == was.Announcement && is.Phase != creation.Created
}

// changed returns a function that reports whether a managed resource may have changed since
// it was read. Then, another process may have taken over and need the lease.
func (r *reservation) changed(mg resource.Managed) func(context.Context) bool {
	return func(ctx context.Context) bool {
		live := r.live(ctx, mg)
		return live == nil || live.GetResourceVersion() != mg.GetResourceVersion()
	}
}

// live reads a managed resource from the API server. It returns nil if that fails.
func (r *reservation) live(ctx context.Context, mg resource.Managed) *metav1.PartialObjectMetadata {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(r.kind)
	if err := r.leases.live.Get(ctx, client.ObjectKeyFromObject(mg), live); err != nil || live.GetUID() != mg.GetUID() {
		return nil
	}
	return live
}

// release the leases of a managed resource. version is its resource version before its
// finalizer was removed.
func (r *reservation) release(ctx context.Context, mg resource.Managed, version string) {
	had := r.held.Get(r.store, mg)
	r.held.Update(r.store, mg, func(h *holding) { *h = holding{released: version} })

	for _, l := range append([]lease{had.lease}, had.former...) {
		if l.name != "" {
			r.releaseLease(ctx, mg, l, neverNeeded)
		}
	}

	// An earlier process may have taken a lease. A lease that stays is taken over once the
	// managed resource no longer exists.
	key, err := r.key(ctx, mg)
	if err != nil && had.key == "" && !had.unneeded {
		r.cannotRelease(mg, err)
	}
	if key != "" && key != had.key && !had.unneeded {
		r.releaseLease(ctx, mg, lease{name: leaseName(key)}, neverNeeded)
	}
}

// releaseLease releases a lease unless it is needed, and reports whether it did. A lease that
// stays is taken over once its holder no longer exists.
func (r *reservation) releaseLease(
	ctx context.Context, mg resource.Managed, l lease, needed func(context.Context) bool,
) bool {
	// The reconcile may have ended because a call took too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	released, err := r.leases.release(ctx, l, r.holder(mg), needed)
	if err != nil {
		r.cannotRelease(mg, err)
	}
	return released
}

func (r *reservation) cannotRelease(mg resource.Managed, err error) {
	r.log.Info("Cannot release the reservation of an external name", "uid", mg.GetUID(), "error", err)
	r.recorder.Event(mg, event.Warning(reasonCannotRelease, err))
}

// neverNeeded is the check for a lease that is released in every case.
func neverNeeded(context.Context) bool { return false }

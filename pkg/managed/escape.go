package managed

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// WithDeletionDeadline sets how long the deletion of a managed resource may take. Past it,
// the reason of the Deleting condition is DeadlineExceeded, and the message still says why
// the managed resource exists. There is one warning event. Then exceeded is called, if it is
// not nil, with the managed resource, which it must not change. It runs in the reconcile: it
// should be quick, and not panic.
//
// A deadline never deletes or orphans anything. By default there is none. WithDeletionDeadline
// panics if d is not positive. It excludes WithoutDeletionStatus.
func WithDeletionDeadline(d time.Duration, exceeded func(ctx context.Context, o client.Object)) ReconcilerOption {
	return withEscape(reconciler.WithDeletionDeadline(d, exceeded))
}

// WithForceOrphan lets operators orphan a managed resource that is being deleted: if they set
// the annotation graft.crossplane.io/force-orphan to the managed resource's UID, the supplied
// finalizers are removed, and no others. The external resource is left as it is. The
// Deleting condition, an event and the log say so. Before, the condition says what the
// annotation would do. Without arguments, the reconciler's default finalizer is removed.
//
// The objects that the managed resource owns are kept. See WithForceOrphan of pkg/reconciler for how,
// and for the permissions that it takes. It excludes WithoutDeletionStatus.
func WithForceOrphan(finalizers ...string) ReconcilerOption {
	if len(finalizers) == 0 {
		finalizers = []string{FinalizerName}
	}
	return withEscape(reconciler.WithForceOrphan(finalizers...))
}

func withEscape(o reconciler.Option) ReconcilerOption {
	return func(r *Reconciler) { r.config.escape = append(r.config.escape, o) }
}

// newEscape returns the layer of WithDeletionDeadline and WithForceOrphan. They report through
// the layer that reports deletions.
func newEscape(p parts, _ external) layer {
	return layer{patch: seam.Patch{Open: p.escape.Open, Close: p.escape.Close, Gone: p.escape.Gone}}
}

func (c *config) escapes() newLayer {
	if len(c.escape) == 0 {
		return nil
	}
	return newEscape
}

// escapeOf returns pkg/reconciler's deadline and way out for managed resources, or nil
// without an option that needs it.
func escapeOf(o []reconciler.Option, p parts) seam.Escape {
	if len(o) == 0 {
		return nil
	}
	o = append([]reconciler.Option{reconciler.WithLogger(p.log), reconciler.WithRecorder(p.record), reconciler.WithLiveReader(p.live)}, o...)
	if p.settings.ownFinalizer != "" {
		o = append(o, reconciler.WithOwnFinalizers(p.settings.ownFinalizer))
	}
	u := &escapeUser{}
	reconciler.New(p.client, p.kind, func(client.Client) reconcile.Reconciler { return u }, o...)
	return u.escape
}

// An escapeUser is given the Escape of the reconciler that it is built for. It reconciles
// nothing.
type escapeUser struct{ escape seam.Escape }

// UseEscape keeps e.
func (u *escapeUser) UseEscape(e seam.Escape) { u.escape = e }

// Reconcile nothing.
func (u *escapeUser) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}

package managed

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithDeletionDeadline sets how long the deletion of a managed resource may take. After that,
// the reason of the Deleting condition is DeadlineExceeded, and the message still has the
// reason why the managed resource exists. One warning event is recorded. Then exceeded is
// called with the managed resource, unless exceeded is nil. It must not change the managed
// resource. It runs in the reconcile, so it should be quick and must not panic.
//
// A deadline never deletes or orphans anything. By default, there is no deadline.
// WithDeletionDeadline panics if d is not positive. It excludes WithoutDeletionStatus.
func WithDeletionDeadline(d time.Duration, exceeded func(ctx context.Context, o client.Object)) ReconcilerOption {
	if err := deletion.CheckDeadline(d); err != nil {
		panic(errors.Wrap(err, "managed.WithDeletionDeadline"))
	}
	return func(r *Reconciler) { r.config.deadline, r.config.exceeded = d, exceeded }
}

// WithForceOrphan lets operators orphan a managed resource that is being deleted: if they set
// the annotation graft.crossplane.io/force-orphan to the managed resource's UID, the supplied
// finalizers are removed, and no others. With FinalizerName among them, the external resource
// is left as it is, once an asynchronous operation that runs on it has ended. Otherwise the
// deletion continues. The Deleting condition, an event and the log report it. Until then, the
// condition explains the effect of the annotation. Without arguments, FinalizerName is removed. If WithFinalizer adds
// another finalizer, name that one: otherwise a request removes nothing, and it may stop the
// deletion until the annotation is removed.
//
// The objects that the managed resource owns are kept. WithForceOrphan of pkg/reconciler has
// the details, and the permissions that it needs. It excludes WithoutDeletionStatus.
func WithForceOrphan(finalizers ...string) ReconcilerOption {
	if len(finalizers) == 0 {
		finalizers = []string{FinalizerName}
	}
	if err := deletion.CheckRemovable(finalizers); err != nil {
		panic(errors.Wrap(err, "managed.WithForceOrphan"))
	}
	return func(r *Reconciler) { r.config.removable = finalizers }
}

// newEscape returns the layer of WithDeletionDeadline and WithForceOrphan. The layer phases
// writes its reports.
func newEscape(p parts, _ external) layer { return layer{patch: p.escape.Patch()} }

// escapes returns newEscape if there is a deadline or force orphan.
func (c *config) escapes() newLayer {
	if c.deadline == 0 && len(c.removable) == 0 {
		return nil
	}
	return newEscape
}

// escapeOf returns the deadline and force orphan of a reconciler, or nil without either.
func (c *config) escapeOf(p parts) *deletion.Escape {
	if c.escapes() == nil {
		return nil
	}
	e := &deletion.Escape{
		Kind:    p.kind,
		Objects: seam.NewKind(p.kind, p.scheme), Client: p.client, Live: p.live, Log: p.log, Record: p.recorder,
		Deadline: c.deadline, Exceeded: c.exceeded, Removable: c.removable,
		Runs: func(o client.Object) creation.Run { return p.runs.of(o, time.Now()).At(time.Now()) },
	}
	e.Own = []string{p.settings.ownFinalizer}
	if p.settings.ownFinalizer == "" {
		// The provider has named its finalizers only here. Without them, upstream would delete
		// the external resource while other controllers hold the managed resource.
		e.Own = c.removable
	}
	return e
}

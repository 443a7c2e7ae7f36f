package escape

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// WithDeadline sets how long the deletion of a managed resource may take. After that,
// the reason of the Deleting condition is DeadlineExceeded, and the message still has the
// reason why the managed resource exists. One warning event is recorded. Then exceeded is
// called with the managed resource, unless exceeded is nil. It must not change the managed
// resource. It runs in the reconcile, so it should be quick and must not panic.
//
// A deadline never deletes or orphans anything. By default, there is no deadline.
// WithDeadline panics if d is not positive. It excludes WithoutDeletionStatus.
func WithDeadline(d time.Duration, exceeded func(ctx context.Context, o client.Object)) managed.ReconcilerOption {
	if err := deletion.CheckDeadline(d); err != nil {
		panic(errors.Wrap(err, "escape.WithDeadline"))
	}
	return withEscape("escape.WithDeadline", func(s *layer.Settings) { s.Deadline, s.Exceeded = d, exceeded })
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
func WithForceOrphan(finalizers ...string) managed.ReconcilerOption {
	if len(finalizers) == 0 {
		finalizers = []string{managed.FinalizerName}
	}
	if err := deletion.CheckFinalizers(finalizers); err != nil {
		panic(errors.Wrap(err, "escape.WithForceOrphan"))
	}
	return withEscape("escape.WithForceOrphan", func(s *layer.Settings) { s.Removable = finalizers })
}

// withEscape returns an option about the deadline of deletions or force orphan. Both are one layer.
func withEscape(name string, set func(s *layer.Settings)) managed.ReconcilerOption {
	return func(r *managed.Reconciler) {
		managed.With(layer.Option{Name: name, Set: set, Check: func(s layer.Settings) error {
			if !s.Reports {
				return errors.New("managed.WithoutDeletionStatus excludes escape.WithDeadline and escape.WithForceOrphan, which report in the Deleting condition: leave one of them out")
			}
			return nil
		}})(r)
		managed.With(layer.Option{Name: "escape", Layers: []layer.Staged{{Stage: layer.Escape, New: newEscape}}})(r)
	}
}

// newEscape returns the layer of WithDeadline and WithForceOrphan, which changes the reports of
// the core.
func newEscape(p layer.Parts, _ layer.External) layer.Layer {
	s := p.Settings
	e := &deletion.Escape{
		Kind:    p.Kind,
		Objects: seam.NewKind(p.Kind, p.Scheme), Client: p.Client, Live: p.Live, Log: p.Log, Record: p.Recorder,
		Deadline: s.Deadline, Exceeded: s.Exceeded, Removable: s.Removable,
		Runs: func(o client.Object, now time.Time) creation.Run { return p.Runs.Of(o, now).At(now) },
		Own:  []string{s.Finalizer},
	}
	if s.Finalizer == "" {
		// The provider has named its finalizers only here. Without them, upstream would delete
		// the external resource while other controllers hold the managed resource.
		e.Own = s.Removable
	}
	return layer.Layer{Patch: e.Patch(), Report: e.Report, Explain: e.Message}
}

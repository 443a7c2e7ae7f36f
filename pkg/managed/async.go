package managed

import (
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
)

// WithAsync runs Create, Update and Delete of the external client as operations that t
// tracks and that outlive the reconcile and the process: see package asyncstate. The external
// client must complete the operation before it returns.
//
// It adds t to the manager, so that a shutdown waits for running operations. Pass
// t.Source() to the controller's WatchesRawSource to reconcile a managed resource as soon as
// its operation ends.
//
// Upstream's annotation external-create-succeeded, or -failed, is set when the create ends,
// not when it starts. A provider without Graft refuses to continue after a create whose
// outcome is unknown.
//
// NewReconciler panics if WithAsync is passed twice, together with
// WithoutExternalNamePersistence, with a connector that has its own Disconnect, or with a
// manager that can't run t. WithAsync panics if t is nil.
func WithAsync(t *asyncstate.Tracker) ReconcilerOption {
	is.MustNotBeNil(t, "managed.WithAsync")
	return func(r *Reconciler) {
		if r.config.tracker != nil {
			panic(errors.New(
				"managed.WithAsync was given twice: a reconciler has one tracker of operations; leave one of them out",
			))
		}
		r.config.tracker = t
		With(layer.Option{
			Name: "WithAsync",
			Layers: []layer.Staged{{
				Stage: layer.Provider,
				New:   func(p layer.Parts, _ layer.External) layer.Layer { return newAsync(t, r.config.connector, p) },
			}},
		})(r)
	}
}

// WithDeterministicExternalName is upstream's option. It continues after a create whose
// outcome is unknown. Together with WithAsync, it does so only if the create has no record;
// the options of the tracker decide about a create that has a record.
func WithDeterministicExternalName(b bool) ReconcilerOption {
	return fromUpstream(upstream.WithDeterministicExternalName(b))
}

// newAsync returns the layer of WithAsync, which calls the provider through the tracker's own
// connector. Upstream must not refuse to continue after an incomplete create, because it
// doesn't read records. Instead, the tracker decides about a create that has a record, and
// resolve.With about a create that has none.
func newAsync(t *asyncstate.Tracker, c *providerConnector, p layer.Parts) layer.Layer {
	if err := p.Run(t); err != nil {
		panic(errors.Wrap(
			err,
			"managed.WithAsync cannot add the tracker of operations to the manager: create the reconciler before the manager is stopped",
		))
	}
	tracked, own := c.track(t)
	p.Runs.Memory = own.RunsUntil
	return layer.Layer{
		External: &providerCalls{connector: tracked},
		Patch:    own.Seam(p.Settings.Grace, !p.Settings.DeterministicExternalName && !p.Settings.Resolves),
		Upstream: []upstream.ReconcilerOption{upstream.WithDeterministicExternalName(true)},
	}
}

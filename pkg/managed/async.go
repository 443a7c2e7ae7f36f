package managed

import (
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// WithAsync makes Create, Update and Delete of the external client operations that
// t knows, and that outlive the reconcile and the process: see package asyncstate.
// It is for connectors whose clients do everything while they are called, and,
// with a tracker created WithOwnGoroutines, for those that don't.
//
// It adds t to the manager, so that a shutdown waits for running operations. Pass
// t.Source() to the controller's WatchesRawSource to have objects reconciled as
// soon as their operations end.
//
// Upstream's annotation external-create-succeeded, or -failed, is set when the
// create has ended, not when it was begun: a provider without Graft that meets a
// create whose outcome is unknown refuses to continue.
//
// NewReconciler panics if it is used twice, together with WithoutExternalNamePersistence,
// with a connector that has a Disconnect of its own, or with a manager that can't run
// t. WithAsync panics if t is nil.
func WithAsync(t *asyncstate.Tracker) ReconcilerOption {
	mustNotBeNil(t, "WithAsync")
	return func(r *Reconciler) {
		if r.config.tracker != nil {
			panic(errors.New("managed.WithAsync was given twice: a reconciler has one tracker of operations; leave one of them out"))
		}
		r.config.tracker = t
		r.config.async = func(p parts, _ external) layer { return newAsync(t, r.config.connector, p) }
	}
}

// WithDeterministicExternalName is the option of upstream. It continues after a create
// whose outcome is unknown. Given together with WithAsync it does so only where
// there is no record of the create; the tracker's options say what is done about a
// create that has a record.
func WithDeterministicExternalName(b bool) ReconcilerOption {
	return fromUpstream(upstream.WithDeterministicExternalName(b))
}

// newAsync returns the layer of WithAsync, which calls the provider through the tracker's own
// connector. Upstream must not refuse to continue after an incomplete create, because it
// knows nothing about records. The tracker decides instead, or WithCreateResolver about a create without a record.
func newAsync(t *asyncstate.Tracker, c *connection, p parts) layer {
	if err := p.run(t); err != nil {
		panic(errors.Wrap(err, "managed.WithAsync cannot add the tracker of operations to the manager: create the reconciler before the manager is stopped"))
	}
	tracked, own := c.track(t)
	return layer{
		external: &providerCalls{connector: tracked},
		patch:    own.Seam(p.settings.grace, !p.settings.deterministicExternalName && !p.settings.resolves),
		upstream: []upstream.ReconcilerOption{upstream.WithDeterministicExternalName(true)},
	}
}

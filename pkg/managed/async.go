package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
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
// NewReconciler panics if it is used together with WithoutExternalNamePersistence,
// with a connector that has a Disconnect of its own, or with a manager that can't run
// t. WithAsync panics if t is nil.
func WithAsync(t *asyncstate.Tracker) ReconcilerOption {
	mustNotBeNil(t, "WithAsync")
	return func(r *Reconciler) {
		r.config.tracker = t
		r.config.layers[slotAsync] = func(p parts) layer { return newAsync(t, p) }
	}
}

// WithDeterministicExternalName is the option of upstream. It continues after a create
// whose outcome is unknown. Given together with WithAsync it does so only where
// there is no record of the create; the tracker's options say what is done about a
// create that has a record.
func WithDeterministicExternalName(b bool) ReconcilerOption {
	return fromUpstream(upstream.WithDeterministicExternalName(b))
}

// newAsync returns the layer of WithAsync. Upstream's own refusal to continue after an
// incomplete create is switched off, since it knows nothing of records, and made up for
// here. The operations themselves are the connector's, next to the provider.
func newAsync(t *asyncstate.Tracker, p parts) layer {
	if err := p.runs(t); err != nil {
		panic(errors.Wrap(err, "managed.WithAsync cannot add the tracker of operations to the manager: create the reconciler before the manager is stopped"))
	}
	l := layer{patch: t.Patch(), upstream: []upstream.ReconcilerOption{upstream.WithDeterministicExternalName(true)}}
	if !p.settings.deterministicExternalName {
		l.external = func(next external) external { return &recordedExternal{external: next} }
	}
	return l
}

// recordedExternal does not connect if a create was announced that has no record.
type recordedExternal struct {
	external
}

// Connect to the provider.
func (e *recordedExternal) Connect(ctx context.Context, c *call) error {
	if !meta.ExternalCreateIncomplete(c.mg) || recorded(c.mg) {
		return e.external.Connect(ctx, c)
	}
	return errors.Wrapf(asyncstate.ErrResultUnknown, "a create was announced (annotation %s) that there is no record of: look for the external resource, set its name if it exists, and remove that annotation", meta.AnnotationKeyExternalCreatePending)
}

package managed

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
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
// create of which nobody knows the result refuses to go on.
//
// NewReconciler panics if it is used together with WithoutExternalNamePersistence,
// or with a connector that has a Disconnect of its own. WithAsync panics if t is
// nil.
func WithAsync(t *asyncstate.Tracker) ReconcilerOption {
	mustNotBeNil(t, "WithAsync")
	return func(r *Reconciler) { r.config.async = &async{tracker: t, config: &r.config} }
}

// WithDeterministicExternalName is the option of upstream. It goes on from a create
// whose result nobody knows. Given together with WithAsync it does so only where
// there is no record of the create; what becomes of those that there are is for
// the tracker's options to say.
func WithDeterministicExternalName(b bool) ReconcilerOption {
	return func(r *Reconciler) {
		r.config.deterministicExternalName = b
		fromUpstream(upstream.WithDeterministicExternalName(b))(r)
	}
}

// async is what WithAsync adds. Upstream's own refusal to go on from an incomplete
// create is switched off, since it knows nothing of records, and made up for here.
type async struct {
	tracker *asyncstate.Tracker
	config  *config
}

func (a *async) mustSuit(c *config) {
	switch {
	case a == nil:
	case c.withoutExternalNamePersistence:
		panic(errors.New("managed.WithAsync and managed.WithoutExternalNamePersistence exclude each other: what an operation learns has to be stored; leave one of them out"))
	case c.connector == nil:
		panic(errors.New("managed.WithAsync was given without an external connector: pass the one whose operations are to be asynchronous, with WithExternalConnector"))
	case c.connector.disconnects:
		panic(errors.New("managed.WithAsync can't wait for operations before it calls a connector's own Disconnect: pass the connector with WithExternalConnector, and disconnect in the external client's Disconnect"))
	}
}

// join the manager. Managers made for tests often embed a nil interface.
func (a *async) join(m manager.Manager) {
	defer func() { _ = recover() }()

	if err := m.Add(a.tracker); err != nil {
		a.config.log.Info("Cannot add the tracker of operations to the manager: a shutdown will not wait for them", "error", err)
	}
}

// connecting refuses to go on if a create was announced that there is no record of.
func (a *async) connecting(s *seam.Session, mg resource.Managed) error {
	if a == nil || a.config.deterministicExternalName || !meta.ExternalCreateIncomplete(mg) {
		return nil
	}

	if _, recorded := mg.GetAnnotations()[asyncstate.AnnotationKeyOperation]; recorded {
		return nil
	}

	// A resolver of creates has more to say.
	if s == nil || s.Reason == "" {
		s.Explain(reconciler.ReasonCreateResultUnknown, messageCreateUnknown)
	}

	return errors.Wrapf(asyncstate.ErrResultUnknown, "a create was announced (annotation %s) that there is no record of: look for the external resource, set its name if it exists, and remove that annotation", meta.AnnotationKeyExternalCreatePending)
}

// inAsync returns c, made asynchronous if a is not nil.
func inAsync[managed resource.Managed](a *async, c TypedExternalConnectDisconnector[managed]) TypedExternalConnectDisconnector[managed] {
	if a == nil {
		return c
	}

	return upstream.NewTypedNopDisconnector(asyncstate.TypedConnector[managed](c, a.tracker))
}

// mayHaveCreated tells whether a create may have succeeded although it returned an
// error. That is asked only where somebody can find out, or says so themselves:
// upstream takes every error to mean that nothing was created.
func (c *config) mayHaveCreated(err error) bool {
	return errors.Is(err, asyncstate.ErrOutcomeUnknown) || c.createResolver != nil && asyncstate.OutcomeUnknown(err)
}

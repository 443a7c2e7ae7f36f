package asyncstate

import (
	"context"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// With runs Create, Update and Delete of the external client as operations that t tracks, and that outlive the
// reconcile and the process. Each is called in the background with a copy of the managed resource, at most one at a
// time for an object. The external client completes the operation before it returns. The annotations that it sets on
// the copy are stored with the result; connection details that it returns are published by a later reconcile, from
// memory, so a crash in between loses them.
//
// While an operation of an object runs, the provider is not connected to and the external resource is not observed:
// Observe returns that it exists and is up to date, and its conditions stay. Disconnect is called once for each client:
// when the operation that was begun with it has ended, or when the reconcile has, if none was begun.
//
// It adds t to the manager, so that a shutdown waits for running operations. Pass t.Source() to the controller's
// WatchesRawSource to reconcile a managed resource as soon as its operation ends.
//
// Upstream's annotation external-create-succeeded, or -failed, is set when the create ends, not when it starts. A
// provider without Graft refuses to continue after a create whose outcome is unknown.
//
// managed.NewReconciler panics if With is passed together with managed.WithoutExternalNamePersistence, without an
// external connector or with one that has its own Disconnect, with a manager that can't run t, or with a tracker that
// another reconciler uses. With panics if t is nil.
func With(t *Tracker) managed.ReconcilerOption {
	is.MustNotBeNil(t, "asyncstate.With")
	return managed.With(layer.Option{
		Name:   "asyncstate.With",
		Layers: []layer.Staged{{Stage: layer.Provider, New: t.newLayer}},
		Set:    func(s *layer.Settings) { s.Async = true },
		Check: func(s layer.Settings) error {
			switch {
			case !s.Persist:
				return errors.New("asyncstate.With and managed.WithoutExternalNamePersistence exclude each other: the external name that an operation sets has to be stored; leave one of them out")
			case s.Disconnects:
				return errors.New("asyncstate.With can't wait for operations before it calls a connector's own Disconnect: pass the connector with WithExternalConnector, and disconnect in the external client's Disconnect")
			}
			return nil
		},
	})
}

// newLayer returns the layer that calls the provider through t. Upstream must not refuse to continue after an
// incomplete create, because it doesn't read records. Instead, the tracker decides about a create that has a record,
// and resolve.With about a create that has none.
func (t *Tracker) newLayer(p layer.Parts, next layer.External) layer.Layer {
	if next == nil {
		panic(errors.New("asyncstate.With was given without an external connector: pass the one whose operations are to be asynchronous, with WithExternalConnector"))
	}
	if t.used.Swap(true) {
		panic(errors.New("another reconciler uses this tracker of operations: create one with asyncstate.NewTracker for each controller"))
	}
	if err := p.Run(t); err != nil {
		panic(errors.Wrap(
			err,
			"asyncstate.With cannot add the tracker of operations to the manager: create the reconciler before the manager is stopped",
		))
	}
	c := &t.config
	c.writer.Client, c.writer.Live, c.events = p.Client, p.Live, eventRecorder{log: p.Log, record: p.Recorder}
	c.gracePeriod = p.Settings.Grace
	c.resolveUnrecorded = !p.Settings.DeterministicExternalName && !p.Settings.Resolves
	p.Runs.Memory = t.runOf
	return layer.Layer{
		External: &external{External: next, tracker: t},
		Patch:    clientPatch{t}.seam(),
		Upstream: []upstream.ReconcilerOption{upstream.WithDeterministicExternalName(true)},
	}
}

// runOf returns the operation of this process on the external resource of o, or the zero Run. It may have
// ended, if its result is not stored yet.
func (t *Tracker) runOf(o client.Object) creation.Run {
	op := t.operation(o.GetUID())
	if op == nil {
		return creation.Run{}
	}
	r := op.stored.snapshot()
	return creation.Run{
		Type:   r.Type,
		Until:  creation.Later(r.Deadline.Time, creation.EndGrace),
		Reason: "see the " + string(TypeOperation) + " condition",
	}
}

// external calls the provider, in the background when that changes the external resource.
type external struct {
	layer.External

	tracker *Tracker
}

// Connect to the provider, unless an operation runs: it may share the client's state.
func (x *external) Connect(ctx context.Context, c *layer.Call) error {
	t, e := x.tracker, &asyncClient{starter: starter{tracker: x.tracker}}
	t.objects.Claim(c.Managed)
	if t.operation(c.Managed.GetUID()) == nil {
		if err := x.External.Connect(ctx, c); err != nil {
			return err
		}
		o, err := optionalOf(layer.ClientOf(c.Client), c.Managed)
		if err != nil {
			_ = c.Client.Disconnect(ctx)
			return err
		}
		e.ExternalClient, e.optional = c.Client, o
	}
	c.Client = e
	return nil
}

// Observe the external resource, unless an operation runs.
func (x *external) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	e := clientOf(c)
	o, err := e.observe(ctx, c.Managed)
	return layer.Observation{ExternalObservation: o, Outcome: e.outcome}, err
}

// Create the external resource in the background.
func (x *external) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	e := clientOf(c)
	err := e.change(ctx, c.Managed, Create)
	return layer.Creation{Outcome: e.outcome}, err
}

// Update the external resource in the background.
func (x *external) Update(ctx context.Context, c *layer.Call) (upstream.ExternalUpdate, error) {
	return upstream.ExternalUpdate{}, clientOf(c).change(ctx, c.Managed, Update)
}

// Delete the external resource in the background.
func (x *external) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	e := clientOf(c)
	err := e.delete(ctx, c.Managed)
	return layer.Deletion{Outcome: e.outcome}, err
}

// clientOf returns the client that Connect has set, without the outcome of its last call.
func clientOf(c *layer.Call) *asyncClient {
	e, _ := c.Client.(*asyncClient)
	e.outcome = seam.Outcome{}
	return e
}

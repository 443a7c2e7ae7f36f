package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// newFreshness returns the layer that changes no external resource for a managed
// resource that is known to have changed since it was read: it may be paused by now,
// or have other policies or another name. It returns a conflict, which makes upstream
// reconcile again.
func newFreshness(_ layer.Parts, next layer.External) layer.Layer {
	decided := &seam.Slot[decision]{}
	return layer.Layer{
		External: &freshness{External: next, decided: decided},
		Initializer: func(next Initializer) Initializer {
			return upstream.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
				d := decided.In(seam.From(ctx))
				d.terms = seam.TermsOf(mg)
				err := next.Initialize(ctx, mg)
				d.incomplete = creation.Last(mg).Incomplete()
				return err
			})
		},
	}
}

// A decision has the inputs of upstream's decisions before it resolves references and
// connects: the policies, and whether the last create is incomplete.
type decision struct {
	terms      seam.Terms
	incomplete bool
}

type freshness struct {
	layer.External

	decided *seam.Slot[decision]
}

const (
	messageOtherTerms = "its policies have changed since it was read"
	messageRenamed    = "its external name has changed since it was read"
	messageAnnounced  = "a create has been announced since it was read"
)

// Connect to the provider, unless the write that stored resolved references has shown that the
// inputs of upstream's decisions have changed.
func (e *freshness) Connect(ctx context.Context, c *layer.Call) error {
	d := e.decided.In(c.Session)

	switch {
	case d.terms.Version == "":
	case d.terms.Changed(c.Managed):
		return seam.Conflict(c.Managed, messageOtherTerms)
	case !d.incomplete && creation.Last(c.Managed).Incomplete():
		return seam.Conflict(c.Managed, messageAnnounced)
	}

	if d.terms.Version != c.Managed.GetResourceVersion() {
		d.terms = seam.TermsOf(c.Managed)
	}
	defer e.notice(c, c.Managed.GetResourceVersion())
	return e.External.Connect(ctx, c)
}

// Observe the external resource.
func (e *freshness) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	version, was, stored := c.Managed.GetResourceVersion(), creation.Last(c.Managed), meta.GetExternalName(c.Base())
	defer e.notice(c, version)
	o, err := e.External.Observe(ctx, c)

	// If a write of the provider's has shown that the managed resource changed, upstream must
	// not decide from the observation, not even to remove the finalizer.
	now := creation.Last(c.Managed)

	switch {
	case err != nil:
	case e.decided.In(c.Session).terms.Changed(c.Managed):
		err = seam.Conflict(c.Managed, messageOtherTerms)
	case version == c.Managed.GetResourceVersion():
	case creation.Renamed(was.Name, now.Name, stored):
		err = seam.Conflict(c.Managed, messageRenamed)
	case now.Announcement != was.Announcement && (c.Announced == "" || now.Announcement != c.Announced):
		err = seam.Conflict(c.Managed, messageAnnounced)
	}
	return o, err
}

// Create the external resource.
func (e *freshness) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	if err := e.stale(c, xpv2.ManagementActionCreate); err != nil {
		return layer.Creation{Outcome: seam.Outcome{State: seam.Untried}}, err
	}
	defer e.notice(c, c.Managed.GetResourceVersion())
	return e.External.Create(ctx, c)
}

// Update the external resource.
func (e *freshness) Update(ctx context.Context, c *layer.Call) (ExternalUpdate, error) {
	if err := e.stale(c, xpv2.ManagementActionUpdate); err != nil {
		return ExternalUpdate{}, err
	}
	defer e.notice(c, c.Managed.GetResourceVersion())
	return e.External.Update(ctx, c)
}

// Delete the external resource.
func (e *freshness) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	if err := e.stale(c, xpv2.ManagementActionDelete); err != nil {
		return layer.Deletion{Outcome: seam.Outcome{State: seam.Untried}}, err
	}
	defer e.notice(c, c.Managed.GetResourceVersion())
	return e.External.Delete(ctx, c)
}

// notice records that the provider wrote the managed resource itself during the call.
func (e *freshness) notice(c *layer.Call, before string) {
	if now := c.Managed.GetResourceVersion(); now != before && !seam.OlderThan(now, before) {
		c.NoteDirectWrite(c.Managed)
	}
}

// stale returns a conflict if the managed resource is known to differ from the API server's.
// The answer to a write, of a provider's own finalizer for instance, may have shown that the
// action is no longer allowed.
func (e *freshness) stale(c *layer.Call, action xpv2.ManagementAction) error {
	var why string

	switch {
	case c.Moved(c.Managed):
		why = "it has changed since it was read, or no longer exists"
	case meta.IsPaused(c.Managed):
		why = "it is paused"
	case e.decided.In(c.Session).terms.Changed(c.Managed):
		why = messageOtherTerms
	case action == xpv2.ManagementActionCreate && meta.WasDeleted(c.Managed):
		why = "it is being deleted"
	default:
		return nil
	}
	return seam.Conflict(c.Managed, why+"; its external resource was left alone")
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// A connector makes the sample's synchronous clients, with the methods that an external
// client can implement for Graft besides.
type connector struct {
	sync *sample.Sync[resource.Managed]

	session *session
	row     row
}

// Connect logs in to the cloud.
func (c *connector) Connect(ctx context.Context, mg resource.Managed) (upstream.ExternalClient, error) {
	e, err := c.sync.Connect(ctx, mg)
	if err != nil {
		return nil, err
	}
	candid := &candidExternal{
		TypedExternalClient: e, session: c.session, row: c.row,
		nameless: c.row.kind == connectClient && meta.GetExternalName(mg) == "",
	}
	if c.row.kind.goesBy() == finderClient {
		return &finderExternal{candid}, nil
	}
	return candid, nil
}

// A candidExternal reports an unknown outcome of a create. It requires of its caller the
// same as clients of its kind do.
type candidExternal struct {
	upstream.TypedExternalClient[resource.Managed]

	session *session
	row     row

	// nameless says that it had no external name when it was connected, and planned that it has
	// made a plan.
	nameless, planned bool
}

// plan panics if there is none, as Terraform's clients do.
func (e *candidExternal) plan() {
	if e.row.kind == planClient && !e.planned {
		panic("there is no plan: this client has not observed")
	}
}

// Observe the external resource, and plan.
func (e *candidExternal) Observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	if e.nameless {
		return upstream.ExternalObservation{}, nil
	}
	o, err := e.TypedExternalClient.Observe(ctx, mg)
	e.planned = err == nil
	return o, err
}

// Create the external resource. In the background, Create doesn't return before the resource is ready.
func (e *candidExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	e.plan()
	c, err := e.TypedExternalClient.Create(ctx, mg)
	if asyncstate.OutcomeUnknown(err) {
		err = fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
	}
	if e.row.mode == syncMode {
		return c, err
	}

	if errors.Is(err, cloud.ErrAlreadyExists) {
		// The only resource of this name is the one of this managed resource.
		_, err = e.session.Get(ctx, meta.GetExternalName(mg))
	}
	if err != nil {
		return upstream.ExternalCreation{}, err
	}

	// If the name can't be stored now it will be with the result.
	id := meta.GetExternalName(mg)
	_ = asyncstate.SetExternalName(ctx, id)
	if e.row.kind == finderClient {
		_ = asyncstate.SetHandle(ctx, id)
	}
	return upstream.ExternalCreation{}, e.await(ctx, id)
}

// await that a resource is ready.
func (e *candidExternal) await(ctx context.Context, id string) error {
	const atMost = time.Minute
	for began := time.Now(); ; {
		r, err := e.session.Get(ctx, id)
		switch {
		case err == nil && r.State != cloud.StateCreating:
			return nil
		case err != nil && !errors.Is(err, cloud.ErrNotFound), time.Since(began) > atMost:
			return fmt.Errorf("cannot wait for the resource: %w", err)
		}

		if err := asyncstate.Progress(ctx, int(100*time.Since(began)/atMost), "waiting for the resource"); err != nil {
			return err
		}
		if err := (cloud.RealClock{}).Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// Update the external resource.
func (e *candidExternal) Update(ctx context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
	e.plan()
	return e.TypedExternalClient.Update(ctx, mg)
}

// Delete the external resource, or nothing.
func (e *candidExternal) Delete(ctx context.Context, mg resource.Managed) (upstream.ExternalDelete, error) {
	e.plan()
	if e.nameless {
		return upstream.ExternalDelete{}, nil
	}
	return e.TypedExternalClient.Delete(ctx, mg)
}

// A finderExternal can look up the resource of a create by its owner, and go on waiting for the
// resource if the create has set a handle.
type finderExternal struct{ *candidExternal }

var (
	_ asyncstate.Finder  = &finderExternal{}
	_ asyncstate.Resumer = &finderExternal{}
)

// Find the external resource.
func (e *finderExternal) Find(
	ctx context.Context, mg resource.Managed, a asyncstate.Attempt,
) (asyncstate.Finding, error) {
	rs, err := e.session.List(ctx, cloud.Filter{Owner: string(mg.GetUID())})

	switch {
	case err != nil:
		return asyncstate.Finding{}, fmt.Errorf("cannot list the owner's resources: %w", err)
	case len(rs) > 0:
		return asyncstate.Found(rs[0].ID), nil
	case time.Since(a.Started) <= e.row.lag:
		// The cloud may not show it yet.
		return asyncstate.Finding{}, nil
	default:
		return asyncstate.Absent(), nil
	}
}

// Resume waiting.
func (e *finderExternal) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	_ = asyncstate.SetExternalName(ctx, a.Handle)
	return e.await(ctx, a.Handle)
}

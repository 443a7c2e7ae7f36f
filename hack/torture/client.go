package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// How a create waits for the resource to be ready.
const (
	lookEvery = 2 * time.Second
	lookFor   = time.Minute
)

var (
	_ asyncstate.Finder  = &finderExternal{}
	_ asyncstate.Resumer = &resumerExternal{}
)

// A connector makes the sample's synchronous clients, with what an external client
// can implement for Graft beside.
type connector struct {
	sync *sample.Sync[resource.Managed]

	world *world
	kind  clientKind
	mode  mode
}

func newConnector(p *process, k clientKind, m mode) *connector {
	return &connector{sync: sample.NewSync[resource.Managed](p.world.cloud, k.options()...), world: p.world, kind: k, mode: m}
}

// Connect logs in to the cloud.
func (c *connector) Connect(ctx context.Context, mg resource.Managed) (upstream.ExternalClient, error) {
	e, err := c.sync.Connect(ctx, mg)
	if err != nil {
		return nil, err
	}

	e = &candidExternal{TypedExternalClient: e}
	finds := finderExternal{TypedExternalClient: e, world: c.world}
	lasts := lastingExternal{TypedExternalClient: e, world: c.world, kind: c.kind}

	switch {
	case c.mode == syncMode && c.kind == finderClient:
		return &finds, nil
	case c.mode == syncMode:
		return e, nil
	case c.kind == finderClient:
		return &resumerExternal{lastingExternal: lasts, finds: finds}, nil
	default:
		return &lasts, nil
	}
}

// A candidExternal says so when it doesn't know whether it created something.
type candidExternal struct {
	upstream.TypedExternalClient[resource.Managed]
}

// Create the external resource.
func (e *candidExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	c, err := e.TypedExternalClient.Create(ctx, mg)
	if asyncstate.OutcomeUnknown(err) {
		err = fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
	}

	return c, err
}

// A finderExternal can look for what a create made, by who owns it.
type finderExternal struct {
	upstream.TypedExternalClient[resource.Managed]

	world *world
}

// Find the external resource.
func (e *finderExternal) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	session, err := e.world.cloud.NewSession(ctx, "")
	if err != nil {
		return asyncstate.Finding{}, err
	}

	rs, err := session.List(ctx, cloud.Filter{Owner: string(mg.GetUID())})

	switch {
	case err != nil:
		return asyncstate.Finding{}, fmt.Errorf("cannot list the owner's resources: %w", err)
	case len(rs) > 0:
		return asyncstate.Found(rs[0].ID), nil
	case time.Since(a.Started) <= e.world.lag:
		// The cloud may not show it yet.
		return asyncstate.Finding{}, nil
	default:
		return asyncstate.Absent(), nil
	}
}

// A lastingExternal is a client whose Create doesn't return before the resource is
// ready. It is for the background.
type lastingExternal struct {
	upstream.TypedExternalClient[resource.Managed]

	world *world
	kind  clientKind
}

// Create the external resource, say its name as soon as it is known, and wait.
func (e *lastingExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	session, err := e.world.cloud.NewSession(ctx, "")
	if err != nil {
		return upstream.ExternalCreation{}, fmt.Errorf("cannot log in to the cloud: %w", err)
	}

	d, ok := mg.(*sample.Database)
	if !ok {
		return upstream.ExternalCreation{}, fmt.Errorf("a %T is not one of this provider's", mg)
	}

	req := cloud.CreateRequest{
		Kind:       sample.DatabaseKind,
		Owner:      string(mg.GetUID()),
		Properties: map[string]string{"size": strconv.FormatInt(d.Spec.ForProvider.Size, 10)},
	}

	switch e.kind {
	case tokenClient:
		req.Token = asyncstate.Token(ctx)
	case namedClient:
		req.Name = meta.GetExternalName(mg)
	case finderClient, blindClient:
	}

	r, err := session.Create(ctx, req)
	if errors.Is(err, cloud.ErrAlreadyExists) {
		// The only resource of this name is the one of this managed resource.
		r, err = session.Get(ctx, req.Name)
	}

	if err != nil {
		return upstream.ExternalCreation{}, fmt.Errorf("cannot create the resource: %w", err)
	}

	// If it can't be stored now it will be with the result.
	_ = asyncstate.SetExternalName(ctx, r.ID)

	if e.kind == finderClient {
		_ = asyncstate.SetHandle(ctx, r.ID)
	}

	return upstream.ExternalCreation{}, await(ctx, session, r.ID)
}

// await that a resource is ready.
func await(ctx context.Context, session *cloud.Session, id string) error {
	for began := time.Now(); ; {
		r, err := session.Get(ctx, id)

		switch {
		case err == nil && r.State != cloud.StateCreating:
			return nil
		case err != nil && !errors.Is(err, cloud.ErrNotFound), time.Since(began) > lookFor:
			return fmt.Errorf("cannot wait for the resource: %w", err)
		}

		if err := asyncstate.Progress(ctx, int(100*time.Since(began)/lookFor), "waiting for the resource"); err != nil {
			return err
		}

		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A resumerExternal can find what a create made, and go on waiting for it.
type resumerExternal struct {
	lastingExternal

	finds finderExternal
}

// Find the external resource.
func (e *resumerExternal) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return e.finds.Find(ctx, mg, a)
}

// Resume waiting.
func (e *resumerExternal) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	session, err := e.world.cloud.NewSession(ctx, "")
	if err != nil {
		return fmt.Errorf("cannot log in to the cloud: %w", err)
	}

	_ = asyncstate.SetExternalName(ctx, a.Handle)

	return await(ctx, session, a.Handle)
}

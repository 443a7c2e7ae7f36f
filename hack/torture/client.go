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
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// How a create waits for the resource to be ready.
const (
	lookEvery = 2 * time.Second
	lookFor   = time.Minute
)

var (
	_ asyncstate.Finder  = &finderExternal{}
	_ asyncstate.Finder  = &lastingFinder{}
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
	candid := &candidExternal{TypedExternalClient: e, kind: c.kind, name: meta.GetExternalName(mg)}
	finds := finderExternal{candidExternal: candid, world: c.world}
	lasts := lastingExternal{candidExternal: candid, world: c.world}

	switch finder := c.kind.goesBy() == finderClient; {
	case c.mode == syncMode && finder:
		return &finds, nil
	case c.mode == syncMode:
		return candid, nil
	case c.kind == finderClient:
		return &resumerExternal{lastingFinder{lastingExternal: lasts, finds: finds}}, nil
	case finder:
		return &lastingFinder{lastingExternal: lasts, finds: finds}, nil
	default:
		return &lasts, nil
	}
}

// A candidExternal says so when it doesn't know whether it created something. It asks
// of its caller what its kind does.
type candidExternal struct {
	upstream.TypedExternalClient[resource.Managed]

	kind clientKind

	// name that it was connected with, and whether it has made a plan.
	name    string
	planned bool
}

// nameless reports whether it knows of no external resource, whatever is known now.
func (e *candidExternal) nameless() bool { return e.kind == connectClient && e.name == "" }

// plan panics if there is none, as Terraform's clients do.
func (e *candidExternal) plan() {
	if e.kind == planClient && !e.planned {
		panic("there is no plan: this client has not observed")
	}
}

// Observe the external resource, and plan.
func (e *candidExternal) Observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	if e.nameless() {
		return upstream.ExternalObservation{}, nil
	}
	o, err := e.TypedExternalClient.Observe(ctx, mg)
	e.planned = err == nil
	return o, err
}

// Create the external resource.
func (e *candidExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	e.plan()
	c, err := e.TypedExternalClient.Create(ctx, mg)
	if asyncstate.OutcomeUnknown(err) {
		err = fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
	}
	return c, err
}

// Update the external resource.
func (e *candidExternal) Update(ctx context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
	e.plan()
	return e.TypedExternalClient.Update(ctx, mg)
}

// Delete the external resource, or nothing.
func (e *candidExternal) Delete(ctx context.Context, mg resource.Managed) (upstream.ExternalDelete, error) {
	e.plan()
	if e.nameless() {
		return upstream.ExternalDelete{}, nil
	}
	return e.TypedExternalClient.Delete(ctx, mg)
}

// A finderExternal can look for what a create made, by who owns it.
type finderExternal struct {
	*candidExternal

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
	*candidExternal

	world *world
}

// Create the external resource, say its name as soon as it is known, and wait.
func (e *lastingExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	e.plan()
	session, err := e.world.cloud.NewSession(ctx, "")
	if err != nil {
		return upstream.ExternalCreation{}, fmt.Errorf("cannot log in to the cloud: %w", err)
	}
	d, ok := mg.(*v1alpha1.Database)
	if !ok {
		return upstream.ExternalCreation{}, fmt.Errorf("a %T is not one of this provider's", mg)
	}
	req := cloud.CreateRequest{
		Kind:       v1alpha1.DatabaseKind,
		Owner:      string(mg.GetUID()),
		Properties: map[string]string{"size": strconv.FormatInt(d.Spec.ForProvider.Size, 10)},
	}

	switch e.kind.goesBy() {
	case tokenClient:
		req.Token = asyncstate.Token(ctx)
	case namedClient:
		req.Name = meta.GetExternalName(mg)
	default:
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

// A lastingFinder can look for what a create made.
type lastingFinder struct {
	lastingExternal

	finds finderExternal
}

// Find the external resource.
func (e *lastingFinder) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return e.finds.Find(ctx, mg, a)
}

// A resumerExternal can go on waiting for it, too.
type resumerExternal struct{ lastingFinder }

// Resume waiting.
func (e *resumerExternal) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	session, err := e.world.cloud.NewSession(ctx, "")
	if err != nil {
		return fmt.Errorf("cannot log in to the cloud: %w", err)
	}
	_ = asyncstate.SetExternalName(ctx, a.Handle)
	return await(ctx, session, a.Handle)
}

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
	candid := &candidExternal{TypedExternalClient: e, kind: c.row.kind, name: meta.GetExternalName(mg)}
	lasts := lastingExternal{candidExternal: candid, session: c.session}
	finds := finder{c.session}

	switch isFinder := c.row.kind.goesBy() == finderClient; {
	case c.row.mode == syncMode && isFinder:
		return &struct {
			*candidExternal
			finder
		}{candid, finds}, nil
	case c.row.mode == syncMode:
		return candid, nil
	case c.row.kind == finderClient:
		return &resumerExternal{lasts, finds}, nil
	case isFinder:
		return &struct {
			lastingExternal
			finder
		}{lasts, finds}, nil
	default:
		return &lasts, nil
	}
}

// A candidExternal reports an unknown outcome of a create. It requires of its caller the
// same as clients of its kind do.
type candidExternal struct {
	upstream.TypedExternalClient[resource.Managed]

	kind clientKind

	// name that it was connected with, and whether it has made a plan.
	name    string
	planned bool
}

// nameless reports whether it had no external name when it was connected.
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

// A finder can look up the resource of a create by its owner.
type finder struct{ session *session }

var _ asyncstate.Finder = finder{}

// Find the external resource.
func (f finder) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	rs, err := f.session.List(ctx, cloud.Filter{Owner: string(mg.GetUID())})

	switch {
	case err != nil:
		return asyncstate.Finding{}, fmt.Errorf("cannot list the owner's resources: %w", err)
	case len(rs) > 0:
		return asyncstate.Found(rs[0].ID), nil
	case time.Since(a.Started) <= f.session.cloud.lag:
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

	session *session
}

// Create the external resource, say its name as soon as it is known, and wait.
func (e *lastingExternal) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	e.plan()
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

	r, err := e.session.Create(ctx, req)
	if errors.Is(err, cloud.ErrAlreadyExists) {
		// The only resource of this name is the one of this managed resource.
		r, err = e.session.Get(ctx, req.Name)
	}

	if err != nil {
		return upstream.ExternalCreation{}, fmt.Errorf("cannot create the resource: %w", err)
	}

	// If it can't be stored now it will be with the result.
	_ = asyncstate.SetExternalName(ctx, r.ID)
	if e.kind == finderClient {
		_ = asyncstate.SetHandle(ctx, r.ID)
	}
	return upstream.ExternalCreation{}, e.await(ctx, r.ID)
}

// await that a resource is ready.
func (e *lastingExternal) await(ctx context.Context, id string) error {
	for began := time.Now(); ; {
		r, err := e.session.Get(ctx, id)
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

// A resumerExternal can look up the resource of a create, and go on waiting for it.
type resumerExternal struct {
	lastingExternal
	finder
}

var _ asyncstate.Resumer = &resumerExternal{}

// Resume waiting.
func (e *resumerExternal) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	_ = asyncstate.SetExternalName(ctx, a.Handle)
	return e.await(ctx, a.Handle)
}

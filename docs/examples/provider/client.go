package main

import (
	"context"
	"errors"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A cloudAPI is what the provider calls of the cloud. crash_test.go has another one.
type cloudAPI interface {
	create(ctx context.Context, d database) (id string, err error)
	list(ctx context.Context, owner string) ([]database, error)
	get(ctx context.Context, id string) (*database, error)
	update(ctx context.Context, d database) error
	delete(ctx context.Context, id string) error
}

// A connector connects to the cloud. Yours reads a ProviderConfig here.
type connector struct{ cloud cloudAPI }

func (c *connector) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return &client{cloud: c.cloud}, nil
}

// A client creates, observes, updates and deletes a database. It is written as if it
// were synchronous: with managed.WithAsync, Create, Update and Delete run in the
// background.
type client struct{ cloud cloudAPI }

var (
	_ managed.ExternalClient = &client{}
	_ asyncstate.Finder      = &client{}
)

func (c *client) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	db, err := asDatabase(mg)
	if err != nil || meta.GetExternalName(db) == "" {
		return managed.ExternalObservation{}, err
	}
	d, err := c.cloud.get(ctx, meta.GetExternalName(db))
	if err != nil || d == nil {
		return managed.ExternalObservation{}, err
	}
	db.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: d.Size == db.Spec.ForProvider.Size}, nil
}

func (c *client) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	db, err := asDatabase(mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	id, err := c.cloud.create(ctx, database{Owner: string(db.GetUID()), Size: db.Spec.ForProvider.Size})
	if err != nil {
		return managed.ExternalCreation{}, err
	}

	// The name is on the API server when this returns.
	return managed.ExternalCreation{}, asyncstate.SetExternalName(ctx, id)
}

// Find looks for what a create made whose process died: by the tag that Create sets.
func (c *client) Find(ctx context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	ds, err := c.cloud.list(ctx, string(mg.GetUID()))
	switch {
	case err != nil:
		return asyncstate.Finding{}, err
	case len(ds) == 0:
		return asyncstate.Absent(), nil // Only if a list is never out of date.
	default:
		return asyncstate.Found(ds[0].ID), nil
	}
}

func (c *client) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	db, err := asDatabase(mg)
	if err != nil {
		return managed.ExternalUpdate{}, err
	}
	return managed.ExternalUpdate{}, c.cloud.update(ctx, database{
		ID: meta.GetExternalName(db), Owner: string(db.GetUID()), Size: db.Spec.ForProvider.Size,
	})
}

func (c *client) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, c.cloud.delete(ctx, meta.GetExternalName(mg))
}

func (c *client) Disconnect(context.Context) error { return nil }

func asDatabase(mg resource.Managed) (*Database, error) {
	db, ok := mg.(*Database)
	if !ok {
		return nil, errors.New("the managed resource is not a Database")
	}
	return db, nil
}

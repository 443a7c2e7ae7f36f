// Package quickstart has a small provider. Its test crashes it with crossplane-runtime's reconciler and with Graft's:
// docs/quickstart.md.
package quickstart

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A Cloud stands in for the external system, which assigns names.
type Cloud struct {
	crashtest.Resources[Row]
}

// A Row is a database of the cloud, with the tag that says whose it is.
type Row struct {
	ID, Tag string
	Size    int
}

// A client is the provider's code. It is the same for both reconcilers: their packages have the same types.
type client struct{ cloud *Cloud }

func (c *client) Observe(_ context.Context, db *Database) (managed.ExternalObservation, error) {
	row, exists := c.cloud.Get(meta.GetExternalName(db))
	if exists {
		db.SetConditions(xpv2.Available())
	}
	return managed.ExternalObservation{ResourceExists: exists, ResourceUpToDate: row.Size == db.Spec.Size}, nil
}

func (c *client) Create(_ context.Context, db *Database) (managed.ExternalCreation, error) {
	id := c.cloud.NewName("db")
	c.cloud.Create(id, Row{ID: id, Tag: string(db.GetUID()), Size: db.Spec.Size})
	meta.SetExternalName(db, id)
	return managed.ExternalCreation{}, nil
}

func (c *client) Update(_ context.Context, db *Database) (managed.ExternalUpdate, error) {
	id := meta.GetExternalName(db)
	c.cloud.Resources.Update(id, Row{ID: id, Tag: string(db.GetUID()), Size: db.Spec.Size})
	return managed.ExternalUpdate{}, nil
}

func (c *client) Delete(_ context.Context, db *Database) (managed.ExternalDelete, error) {
	c.cloud.Resources.Delete(meta.GetExternalName(db))
	return managed.ExternalDelete{}, nil
}

func (c *client) Disconnect(context.Context) error { return nil }

// Find is for Graft alone: it looks for the database of a create whose outcome is unknown.
func (c *client) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	for _, row := range c.cloud.List() {
		if row.Tag == string(mg.GetUID()) {
			return asyncstate.Found(row.ID), nil
		}
	}
	return asyncstate.Absent(), nil
}

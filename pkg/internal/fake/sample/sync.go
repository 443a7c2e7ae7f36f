package sample

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

var (
	_ managed.ExternalConnector                        = &Sync[resource.Managed]{}
	_ managed.TypedExternalConnector[*v1alpha1.Bucket] = &Sync[*v1alpha1.Bucket]{}
	_ managed.TypedExternalClient[*v1alpha1.Bucket]    = &syncClient[*v1alpha1.Bucket]{}
)

// A Sync connector makes clients that do everything while they are called: Create
// waits for the cloud's answer and sets the external name.
type Sync[M resource.Managed] struct {
	Calls

	cloud    *cloud.Cloud
	settings settings
}

// NewSync returns a Sync connector. M is resource.Managed for an
// ExternalConnector, or *Database or *Bucket for a typed one.
func NewSync[M resource.Managed](c *cloud.Cloud, o ...Option) *Sync[M] {
	return &Sync[M]{cloud: c, settings: newSettings(o)}
}

// Connect logs in to the cloud.
func (c *Sync[M]) Connect(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
	session, err := c.settings.connect(ctx, c.cloud, mg)
	if err != nil {
		return nil, err
	}
	return &syncClient[M]{session: session, settings: c.settings, calls: &c.Calls}, nil
}

type syncClient[M resource.Managed] struct {
	session  cloud.Client
	settings settings
	calls    *Calls
}

func (c *syncClient[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	name := meta.GetExternalName(i)
	if name == "" {
		return managed.ExternalObservation{}, nil
	}
	r, err := c.session.Get(ctx, name)
	if errors.Is(err, cloud.ErrNotFound) {
		return managed.ExternalObservation{}, nil
	}
	if err != nil {
		return managed.ExternalObservation{}, fmt.Errorf("cannot get the resource: %w", err)
	}
	return observed(i, r), nil
}

func (c *syncClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	i.SetConditions(xpv2.Creating())
	r, err := c.session.Create(ctx, c.settings.createRequest(i))
	if err != nil {
		return managed.ExternalCreation{}, fmt.Errorf("cannot create the resource: %w", err)
	}
	meta.SetExternalName(i, r.ID)
	return managed.ExternalCreation{
		ConnectionDetails: managed.ConnectionDetails{connectionEndpoint: []byte(r.Endpoint)},
	}, nil
}

func (c *syncClient[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalUpdate{}, err
	}
	if _, err := c.session.Update(ctx, meta.GetExternalName(i), properties(i)); err != nil {
		return managed.ExternalUpdate{}, fmt.Errorf("cannot update the resource: %w", err)
	}
	return managed.ExternalUpdate{}, nil
}

func (c *syncClient[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalDelete{}, err
	}
	i.SetConditions(xpv2.Deleting())
	if err := ignoreNotFound(c.session.Delete(ctx, meta.GetExternalName(i))); err != nil {
		return managed.ExternalDelete{}, fmt.Errorf("cannot delete the resource: %w", err)
	}
	return managed.ExternalDelete{}, nil
}

func (c *syncClient[M]) Disconnect(context.Context) error {
	c.calls.disconnects.Add(1)
	return nil
}

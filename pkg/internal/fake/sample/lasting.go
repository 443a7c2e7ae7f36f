package sample

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// lookAgain is how soon Create looks again whether the resource is ready.
const lookAgain = 100 * time.Millisecond

var (
	_ managed.ExternalConnector                        = &Lasting[resource.Managed]{}
	_ managed.TypedExternalConnector[*v1alpha1.Bucket] = &Lasting[*v1alpha1.Bucket]{}
	_ managed.TypedExternalClient[*v1alpha1.Bucket]    = &lastingClient[*v1alpha1.Bucket]{}
	_ asyncstate.TypedFinder[*v1alpha1.Bucket]         = &findingClient[*v1alpha1.Bucket]{}
)

// A Lasting connector makes clients whose Create returns when the resource is ready,
// however long that takes. They say its name as soon as they know it. They are for
// asyncstate's trackers to run in the background, and all else is as with Sync.
//
// With WithCreateTokens creates carry the token of the operation, so that the
// tracker has to be created WithIdempotentTokens. Without it the clients implement
// asyncstate.Finder, and look for what they created by its owner.
type Lasting[M resource.Managed] struct {
	sync      *Sync[M]
	connected sync.WaitGroup
}

// NewLasting returns a Lasting connector. M is resource.Managed for an
// ExternalConnector, or *Database or *Bucket for a typed one.
func NewLasting[M resource.Managed](c *cloud.Cloud, o ...Option) *Lasting[M] {
	return &Lasting[M]{sync: NewSync[M](c, o...)}
}

// Connect logs in to the cloud.
func (c *Lasting[M]) Connect(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
	session, err := c.sync.settings.connect(ctx, c.sync.cloud, mg)
	if err != nil {
		return nil, err
	}
	c.connected.Add(1)
	client := &lastingClient[M]{
		syncClient:   &syncClient[M]{session: session, settings: c.sync.settings, calls: &c.sync.Calls},
		disconnected: c.connected.Done,
	}
	if c.sync.settings.createTokens {
		return client, nil
	}
	return &findingClient[M]{client}, nil
}

// Disconnects returns how many of the connector's clients were disconnected.
func (c *Lasting[M]) Disconnects() int { return c.sync.Disconnects() }

// Wait returns when all clients are disconnected. A tracker disconnects a client when its operation has ended.
func (c *Lasting[M]) Wait() { c.connected.Wait() }

type lastingClient[M resource.Managed] struct {
	*syncClient[M]

	disconnected func()
}

// Disconnect from the cloud.
func (c *lastingClient[M]) Disconnect(ctx context.Context) error {
	defer c.disconnected()
	return c.syncClient.Disconnect(ctx)
}

// Create the external resource, and wait until it is ready.
func (c *lastingClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	i.SetConditions(xpv2.Creating())
	req := c.settings.createRequest(i)
	if c.settings.createTokens {
		req.Token = asyncstate.Token(ctx)
	}
	r, err := c.session.Create(ctx, req)

	// The spec has changed since the first attempt. Update brings the resource up
	// to date.
	if errors.Is(err, cloud.ErrTokenReused) {
		if rs, lerr := c.session.List(ctx, cloud.Filter{Token: req.Token}); lerr == nil && len(rs) == 1 {
			r, err = rs[0], nil
		}
	}

	if err != nil {
		return managed.ExternalCreation{}, fmt.Errorf("cannot create the resource: %w", err)
	}
	meta.SetExternalName(i, r.ID)

	// What can't be stored now is stored with the result.
	_ = asyncstate.SetExternalName(ctx, r.ID)
	return managed.ExternalCreation{
		ConnectionDetails: managed.ConnectionDetails{connectionEndpoint: []byte(r.Endpoint)},
	}, c.awaitReady(ctx, r)
}

func (c *lastingClient[M]) awaitReady(ctx context.Context, r cloud.Resource) error {
	for r.State == cloud.StateCreating {
		_ = asyncstate.Progress(ctx, 50, "the cloud says "+string(r.State))

		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		}

		var err error
		if r, err = c.session.Get(ctx, r.ID); err != nil {
			return fmt.Errorf("cannot wait for the resource: %w", err)
		}
	}
	return nil
}

// A findingClient is a lastingClient that can look for what it has created.
type findingClient[M resource.Managed] struct{ *lastingClient[M] }

// Find the external resource.
func (c *findingClient[M]) Find(ctx context.Context, mg M, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	return find(ctx, c.session, cloud.Filter{Owner: string(mg.GetUID())})
}

// find a resource in a cloud that shows new ones at once.
func find(ctx context.Context, s cloud.Client, f cloud.Filter) (asyncstate.Finding, error) {
	rs, err := s.List(ctx, f)

	switch {
	case err != nil:
		return asyncstate.Finding{}, fmt.Errorf("cannot look for the resource: %w", err)
	case len(rs) == 0:
		return asyncstate.Absent(), nil
	case len(rs) == 1:
		return asyncstate.Found(rs[0].ID), nil
	default:
		return asyncstate.Finding{}, fmt.Errorf("there are %d resources of the same owner", len(rs))
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	v1 "example.org/provider/apis/v1"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A connector logs in to the account of a managed resource's provider config.
type connector struct {
	kube  kube.Client
	usage resource.ModernTracker
	http  *http.Client
}

func (c *connector) Connect(ctx context.Context, db *v1.Database) (managed.TypedExternalClient[*v1.Database], error) {
	if err := c.usage.Track(ctx, db); err != nil {
		return nil, fmt.Errorf("cannot record the usage of the provider config: %w", err)
	}
	spec, err := configOf(ctx, c.kube, db)
	if err != nil {
		return nil, fmt.Errorf("cannot get the provider config: %w", err)
	}
	from := spec.Credentials
	token, err := resource.CommonCredentialExtractor(ctx, from.Source, c.kube, from.CommonCredentialSelectors)
	if err != nil {
		return nil, fmt.Errorf("cannot get the credentials: %w", err)
	}
	url := spec.Endpoint + "/accounts/" + spec.Account
	return &client{cloud: &cloud{http: c.http, url: url, token: string(token)}}, nil
}

// configOf reads the provider config of a managed resource.
func configOf(ctx context.Context, c kube.Reader, mg resource.Managed) (v1.ProviderConfigSpec, error) {
	db, ok := mg.(resource.ModernManaged)
	if !ok || db.GetProviderConfigReference() == nil {
		return v1.ProviderConfigSpec{}, errors.New("the managed resource has no reference to a provider config")
	}
	switch ref := db.GetProviderConfigReference(); ref.Kind {
	case "ClusterProviderConfig":
		pc := &v1.ClusterProviderConfig{}
		err := c.Get(ctx, kube.ObjectKey{Name: ref.Name}, pc)
		return pc.Spec, err
	case "ProviderConfig":
		pc := &v1.ProviderConfig{}
		err := c.Get(ctx, kube.ObjectKey{Namespace: mg.GetNamespace(), Name: ref.Name}, pc)
		return pc.Spec, err
	default:
		return v1.ProviderConfigSpec{}, fmt.Errorf("there is no kind %q of provider configs", ref.Kind)
	}
}

// A client creates, observes, updates and deletes a database. It is written as if it
// were synchronous: with asyncstate.With, Create, Update and Delete run in the
// background.
type client struct{ cloud *cloud }

var _ asyncstate.Finder = &client{}

func (c *client) Observe(ctx context.Context, db *v1.Database) (managed.ExternalObservation, error) {
	if meta.GetExternalName(db) == "" {
		return managed.ExternalObservation{}, nil
	}
	d, err := c.cloud.get(ctx, meta.GetExternalName(db))
	if isNotFound(err) {
		return managed.ExternalObservation{}, nil
	}
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	db.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: d.Size == db.Spec.ForProvider.Size}, nil
}

func (c *client) Create(ctx context.Context, db *v1.Database) (managed.ExternalCreation, error) {
	id, err := c.cloud.create(ctx, database{Owner: string(db.GetUID()), Size: db.Spec.ForProvider.Size})
	if err != nil {
		return managed.ExternalCreation{}, err
	}

	// The name is on the API server when this returns.
	return managed.ExternalCreation{}, asyncstate.SetExternalName(ctx, id)
}

// Find looks for the database of an interrupted create, by the tag that Create sets.
func (c *client) Find(ctx context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	ds, err := c.cloud.list(ctx, string(mg.GetUID()))
	switch {
	case err != nil:
		return asyncstate.Finding{}, err
	case len(ds) == 0:
		return asyncstate.Absent(), nil // A list may lag: Graft waits until an absence is certain.
	default:
		return asyncstate.Found(ds[0].ID), nil
	}
}

func (c *client) Update(ctx context.Context, db *v1.Database) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, c.cloud.update(ctx, database{
		ID: meta.GetExternalName(db), Owner: string(db.GetUID()), Size: db.Spec.ForProvider.Size,
	})
}

func (c *client) Delete(ctx context.Context, db *v1.Database) (managed.ExternalDelete, error) {
	err := c.cloud.delete(ctx, meta.GetExternalName(db))
	if isNotFound(err) {
		err = nil
	}
	return managed.ExternalDelete{}, err
}

func (c *client) Disconnect(context.Context) error { return nil }

func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == http.StatusNotFound
}

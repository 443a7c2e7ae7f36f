// Package finders finds the external resources of the test provider's interrupted creates.
package finders

import (
	"context"

	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/pkg/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/upjet"
)

// Finder returns the Finder of a resource: none if its name is known before it is
// created, or if it gets no tags.
func Finder(_ ctrl.Manager, r *config.Resource) upjet.Finder {
	if !r.ExternalName.DisableNameInitializer || len(r.InitializerFns) == 0 {
		return nil
	}
	return upjet.NewTagFinder(lister{})
}

// lister lists the resources of the cloud.
type lister struct{}

// ListByTag lists the resources that have the tag.
func (lister) ListByTag(ctx context.Context, s upjet.Search, key, value string) ([]string, error) {
	session, ok := s.Setup.Meta.(terraform.Session)
	if !ok {
		return nil, errors.Errorf("%T is no session of the cloud", s.Setup.Meta)
	}
	rs, err := session.List(ctx, cloud.Filter{Kind: "Server"})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range rs {
		if r.State != cloud.StateDeleting && terraform.Tags(r.Properties)[key] == value {
			names = append(names, r.ID)
		}
	}
	return names, nil
}

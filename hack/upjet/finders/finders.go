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
func Finder(mgr ctrl.Manager, r *config.Resource) upjet.Finder {
	if !r.ExternalName.DisableNameInitializer || len(r.InitializerFns) == 0 {
		return nil
	}
	return upjet.NewTagFinder(lister{}, mgr.GetAPIReader())
}

// lister lists the resources of the cloud.
type lister struct{}

// ListByTags lists the resources that have the tags.
func (lister) ListByTags(ctx context.Context, s upjet.Search, tags map[string]string) ([]upjet.Tagged, error) {
	session, ok := s.Setup.Meta.(terraform.Session)
	if !ok {
		return nil, errors.Errorf("%T is no session of the cloud", s.Setup.Meta)
	}
	rs, err := session.List(ctx, cloud.Filter{Kind: "Server"})
	if err != nil {
		return nil, err
	}
	var out []upjet.Tagged

	for _, r := range rs {
		if r.State != cloud.StateDeleting && has(terraform.Tags(r.Properties), tags) {
			out = append(
				out,
				upjet.Tagged{ExternalName: r.ID, Tags: terraform.Tags(r.Properties), Created: r.CreatedAt},
			)
		}
	}
	return out, nil
}

// has reports whether some tags are among others.
func has(all, some map[string]string) bool {
	for k, v := range some {
		if all[k] != v {
			return false
		}
	}
	return true
}

package upjet

import (
	"context"

	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A Finder looks up the external resource of a create that was interrupted or has failed. It
// must be safe for concurrent use.
//
// It is for resources whose names the external system assigns. Other resources are looked up
// by their names without a Finder.
type Finder interface {
	// Find returns the external name of the resource that s.Attempt created for s.Managed.
	// It must not return a name that another managed resource may own, and must return
	// asyncstate.Absent only if the external system shows no such resource. The zero
	// Finding and an error mean that the answer is unknown.
	Find(ctx context.Context, s Search) (asyncstate.Finding, error)
}

// A FinderFn is a function that is a Finder.
type FinderFn func(ctx context.Context, s Search) (asyncstate.Finding, error)

// Find calls fn.
func (fn FinderFn) Find(ctx context.Context, s Search) (asyncstate.Finding, error) { return fn(ctx, s) }

// A Search describes the create to look up, and the provider to look it up with.
type Search struct {
	// Setup is the configured Terraform provider, as the provider's SetupFn returns
	// it for Managed.
	Setup terraform.Setup

	// Resource is the configuration of the resource.
	Resource *config.Resource

	// Managed is the managed resource, with its kind set. Changes are lost.
	Managed resource.Terraformed

	// Attempt is the create. Its number is 0 if it has just failed.
	Attempt asyncstate.Attempt
}

// find calls the Finder with a Terraform provider that is configured for tr.
func (t Terraform) find(
	ctx context.Context,
	tr resource.Terraformed,
	a asyncstate.Attempt,
) (asyncstate.Finding, error) {
	s, err := t.Setup(ctx, t.Client, tr)
	if err != nil {
		return asyncstate.Finding{}, errors.Wrap(err, "cannot configure the Terraform provider")
	}

	// Answers of the API server leave an object without its kind.
	gvk, err := apiutil.GVKForObject(tr, t.Client.Scheme())
	if err != nil {
		return asyncstate.Finding{}, errors.Wrap(err, "cannot get the kind of the managed resource")
	}
	mg, _ := tr.DeepCopyObject().(resource.Terraformed)
	mg.GetObjectKind().SetGroupVersionKind(gvk)
	return t.Finder.Find(ctx, Search{Setup: s, Resource: t.Resource, Managed: mg, Attempt: a})
}

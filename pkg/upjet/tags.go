package upjet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/fieldpath"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// TagKeyUID is the key of the tag that TagInitializer adds: the UID of the managed
// resource.
const TagKeyUID = "crossplane-uid"

// A TagLister lists external resources by a tag. A cloud's SDK provides one, or its tagging API.
type TagLister interface {
	// ListByTag returns the external names of the external resources of s.Resource that have the
	// tag, on all pages of the list, in the account and region of s.Setup. It leaves out
	// resources that are being deleted.
	ListByTag(ctx context.Context, s Search, key, value string) ([]string, error)
}

// NewTagFinder returns a Finder that looks for the tag that this package's TagInitializer has set, which no other
// external resource has. The answer is unknown, with an error that gives the reason, if the managed resource lacks the
// tag, or if more than one external resource has it. It panics if l is nil.
func NewTagFinder(l TagLister) Finder {
	if is.Nil(l) {
		panic(errors.New("upjet.NewTagFinder was given nil: pass a TagLister"))
	}
	return &tagFinder{lister: l}
}

type tagFinder struct{ lister TagLister }

// Find the external resource with the managed resource's tag.
func (f *tagFinder) Find(ctx context.Context, s Search) (asyncstate.Finding, error) {
	uid := string(s.Managed.GetUID())
	if tagged, err := hasUIDTag(s.Managed); err != nil {
		return asyncstate.Finding{}, errors.Wrap(err, "cannot get the tags of the managed resource")
	} else if !tagged {
		return asyncstate.Finding{}, errors.Errorf(
			"spec.forProvider.tags lacked %s when the create started, by which to find the external resource: add graft's TagInitializer to the InitializerFns of the resource's configuration, and look for this one by hand",
			TagKeyUID,
		)
	}
	names, err := f.lister.ListByTag(ctx, s, TagKeyUID, uid)
	switch {
	case err != nil:
		return asyncstate.Finding{}, errors.Wrap(err, "cannot list external resources by tag")
	case len(names) == 0:
		return asyncstate.Absent(), nil
	case len(names) == 1:
		return asyncstate.Found(names[0]), nil
	}
	return asyncstate.Finding{}, errors.Errorf(
		"%d external resources have the tag of the managed resource: %s. Set the annotation crossplane.io/external-name to the one to keep, and delete the others",
		len(names), strings.Join(slices.Sorted(slices.Values(names)), ", "),
	)
}

// hasUIDTag reports whether the external system was given the tag, without which nothing can be found.
func hasUIDTag(mg resource.Terraformed) (bool, error) {
	parameters, err := mg.GetParameters()
	if err != nil {
		return false, err
	}
	tags, _ := parameters["tags"].(map[string]any)
	return tags[TagKeyUID] == string(mg.GetUID()), nil
}

// TagInitializer is upjet's TagInitializer, and adds the UID of the managed resource
// to spec.forProvider.tags: a tag that no other external resource has. It is a
// config.NewInitializerFn. Its initializer does nothing if management policies allow
// only to observe, and does not add the UID while it is unknown whether a create without it has created something:
// the tag would say that there is nothing.
func TagInitializer(c client.Client) managed.Initializer {
	theirs := config.TagInitializer(c)
	return managed.InitializerFn(func(ctx context.Context, mg xpresource.Managed) error {
		if mayTag(mg) {
			if err := addUIDTag(mg); err != nil {
				return errors.Wrap(err, "cannot add the tag of the UID")
			}
		}

		// It stores the tag above, too.
		return theirs.Initialize(ctx, mg)
	})
}

// mayTag reports whether the tag may be added: the next create is the first that may have created something.
func mayTag(mg xpresource.Managed) bool {
	if policies := mg.GetManagementPolicies(); len(policies) == 1 && policies[0] == "Observe" {
		return false
	}
	last := creation.Last(mg).Phase
	return last == creation.None || last == creation.Created
}

func addUIDTag(mg xpresource.Managed) error {
	p, err := fieldpath.PaveObject(mg)
	if err != nil {
		return err
	}
	if err := p.SetString("spec.forProvider.tags["+TagKeyUID+"]", string(mg.GetUID())); err != nil {
		return err
	}
	b, err := p.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(b, mg)
}

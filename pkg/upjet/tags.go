package upjet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/fieldpath"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/resource"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// TagKeyUID is the key of the tag that TagInitializer adds: the UID of the managed
// resource.
const TagKeyUID = "crossplane-uid"

// clockSkew is how far the clocks of the external system and of the provider may be
// apart.
const clockSkew = time.Minute

// A TagLister lists external resources by their tags. A cloud's SDK provides one, or
// its tagging API.
type TagLister interface {
	// ListByTags returns the external resources of s.Resource that have all of the
	// tags, on all pages of the list, in the account and region of s.Setup. It leaves out
	// resources that are being deleted.
	ListByTags(ctx context.Context, s Search, tags map[string]string) ([]Tagged, error)
}

// Tagged is an external resource.
type Tagged struct {
	// ExternalName that the managed resource has to get.
	ExternalName string

	// Tags of the external resource.
	Tags map[string]string

	// Created is when it was created, by the clock of the external system. It is
	// zero if the external system does not tell.
	Created time.Time
}

// NewTagFinder returns a Finder that looks for the tags that upjet's TagInitializer has
// set: kind, name and provider config of the managed resource. r reads from the API
// server itself: pass a manager's GetAPIReader. It panics if l or r is nil.
//
// External resources of an earlier managed resource with the same name, and of namesakes in
// other namespaces, have the same tags. The answer is unknown, with an error that gives the
// reason, if more than one external resource has the tags, if the external system does not
// show that it was created after the managed resource, or if another namespace has a managed
// resource of the same kind and name. A resource that was created with an earlier provider
// config of the managed resource is not found. With the tag of this package's TagInitializer
// these limits don't apply.
func NewTagFinder(l TagLister, r client.Reader) Finder {
	if is.Nil(l) || is.Nil(r) {
		panic(errors.New("upjet.NewTagFinder was given nil: pass a TagLister and a manager's GetAPIReader"))
	}
	return &tagFinder{lister: l, reader: r}
}

type tagFinder struct {
	lister TagLister
	reader client.Reader
}

// Find the external resource with the managed resource's tags.
func (f *tagFinder) Find(ctx context.Context, s Search) (asyncstate.Finding, error) {
	tags, err := identity(s.Managed)
	if err != nil {
		return asyncstate.Finding{}, err
	}

	// The managed resource may have another provider config by now, and so another tag than
	// its external resource.
	config := tags[xpresource.ExternalResourceTagKeyProvider]
	delete(tags, xpresource.ExternalResourceTagKeyProvider)
	listed, err := f.lister.ListByTags(ctx, s, tags)
	if err != nil {
		return asyncstate.Finding{}, errors.Wrap(err, "cannot list external resources by tags")
	}
	var ours, perhaps []Tagged

	for _, t := range listed {
		had, hasConfig := t.Tags[xpresource.ExternalResourceTagKeyProvider]
		switch uid, ok := t.Tags[TagKeyUID]; {
		case ok && uid == string(s.Managed.GetUID()):
			ours = append(ours, t)
		case !ok && (!hasConfig || had == config):
			perhaps = append(perhaps, t)
		}
	}

	switch {
	case len(ours) == 1:
		return asyncstate.Found(ours[0].ExternalName), nil
	case len(ours) > 1:
		return asyncstate.Finding{}, errors.Errorf(
			"%d external resources have the tags of the managed resource: %s. Set the annotation crossplane.io/external-name to the one to keep, and delete the others",
			len(ours),
			names(ours),
		)
	}
	return f.guess(ctx, s, perhaps)
}

// identity returns the tags that upjet's TagInitializer has set, as the external system
// was given them: without them nothing could be found, and that would mean nothing.
func identity(mg resource.Terraformed) (map[string]string, error) {
	parameters, err := mg.GetParameters()
	if err != nil {
		return nil, errors.Wrap(err, "cannot get the tags of the managed resource")
	}

	// The name of the argument differs from cloud to cloud.
	for _, v := range parameters {
		all, _ := v.(map[string]any)
		tags := map[string]string{}

		for _, k := range []string{
			xpresource.ExternalResourceTagKeyKind, xpresource.ExternalResourceTagKeyName,
			xpresource.ExternalResourceTagKeyProvider,
		} {
			if tag, ok := all[k].(string); ok {
				tags[k] = tag
			}
		}

		if len(tags) == 3 && tags[xpresource.ExternalResourceTagKeyName] == mg.GetName() {
			return tags, nil
		}
	}
	return nil, errors.New(
		"spec.forProvider lacks the tags by which to find the external resource: add a TagInitializer to the InitializerFns of the resource's configuration",
	)
}

// guess which of those that don't say whose they are is the managed resource's.
func (f *tagFinder) guess(ctx context.Context, s Search, perhaps []Tagged) (asyncstate.Finding, error) {
	// Leave out resources of an earlier managed resource with this name.
	since := s.Managed.GetCreationTimestamp().Time
	perhaps = slices.DeleteFunc(perhaps, func(t Tagged) bool {
		return !t.Created.IsZero() && t.Created.Before(since.Add(-clockSkew))
	})

	if len(perhaps) == 0 {
		return asyncstate.Absent(), nil
	}
	namesakes, err := f.namesakes(ctx, s.Managed)

	switch {
	case err != nil:
		return asyncstate.Finding{}, err
	case namesakes:
		// The user may not be allowed to know their names.
		return asyncstate.Finding{}, errors.Errorf(
			"external resources (%d) have the tags of the managed resource, but may be those of its namesake in another namespace",
			len(perhaps),
		)
	case len(perhaps) > 1:
		return asyncstate.Finding{}, errors.Errorf(
			"%d external resources may be the one that was created: %s",
			len(perhaps),
			names(perhaps),
		)
	case perhaps[0].Created.Before(since):
		return asyncstate.Finding{}, errors.Errorf(
			"external resource %q has the tags of the managed resource, but may be older than it",
			perhaps[0].ExternalName,
		)
	}
	return asyncstate.Found(perhaps[0].ExternalName), nil
}

// namesakes reports whether another namespace has a managed resource of the same kind
// and name.
func (f *tagFinder) namesakes(ctx context.Context, mg resource.Terraformed) (bool, error) {
	if mg.GetNamespace() == "" {
		return false, nil
	}
	l := &metav1.PartialObjectMetadataList{}
	gvk := mg.GetObjectKind().GroupVersionKind()
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	if err := f.reader.List(ctx, l, client.MatchingFields{"metadata.name": mg.GetName()}); err != nil {
		return false, errors.Wrap(err, "cannot list managed resources of that name in other namespaces")
	}
	return slices.ContainsFunc(l.Items, func(o metav1.PartialObjectMetadata) bool {
		return o.GetName() == mg.GetName() && o.GetUID() != mg.GetUID()
	}), nil
}

func names(ts []Tagged) string {
	out := make([]string, 0, len(ts))
	for _, t := range ts {
		out = append(out, t.ExternalName)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TagInitializer is upjet's TagInitializer, and adds the UID of the managed resource
// to spec.forProvider.tags: a tag that no other external resource has. It is a
// config.NewInitializerFn. Its initializer does nothing if management policies allow
// only to observe.
func TagInitializer(c client.Client) managed.Initializer {
	theirs := config.TagInitializer(c)
	return managed.InitializerFn(func(ctx context.Context, mg xpresource.Managed) error {
		if err := addUIDTag(mg); err != nil {
			return errors.Wrap(err, "cannot add the tag of the UID")
		}

		// It stores the tag above, too.
		return theirs.Initialize(ctx, mg)
	})
}

func addUIDTag(mg xpresource.Managed) error {
	if policies := mg.GetManagementPolicies(); len(policies) == 1 && policies[0] == "Observe" {
		return nil
	}
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

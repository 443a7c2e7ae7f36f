package cluster

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Categories of Crossplane's kinds.
const (
	Managed   = "managed"
	Composite = "composite"
	Claim     = "claim"

	// Crossplane is the category of Crossplane's own kinds, and of a provider's other kinds.
	Crossplane = "crossplane"
)

// A Kind is a kind that the API server serves, in its preferred version.
type Kind struct {
	schema.GroupVersionKind

	Resource metav1.APIResource
}

// String returns the name that kubectl reads without ambiguity, for example buckets.s3.example.org.
func (k Kind) String() string { return strings.TrimSuffix(k.Resource.Name+"."+k.Group, ".") }

// In reports whether the kind is in one of the categories.
func (k Kind) In(categories ...string) bool {
	return slices.ContainsFunc(categories, func(c string) bool { return slices.Contains(k.Resource.Categories, c) })
}

// Allows reports whether objects of the kind have a verb.
func (k Kind) Allows(verb string) bool { return slices.Contains(k.Resource.Verbs, verb) }

// Kinds are the kinds that the API server serves.
type Kinds struct {
	all []Kind

	// Undiscovered are API groups, with a version, that the API server has but could not describe.
	Undiscovered []string
}

// discoverKinds returns all kinds, ordered by name. It is an error only if none can be discovered.
func discoverKinds(d discovery.DiscoveryInterface) (Kinds, error) {
	lists, err := discovery.ServerPreferredResources(d)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return Kinds{}, errors.Wrap(err, "cannot discover the kinds of the API server")
	}
	out := Kinds{}
	for gv := range failed {
		out.Undiscovered = append(out.Undiscovered, gv.String())
	}
	slices.Sort(out.Undiscovered)

	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			if !strings.Contains(r.Name, "/") {
				out.all = append(out.all, Kind{GroupVersionKind: gv.WithKind(r.Kind), Resource: r})
			}
		}
	}
	slices.SortFunc(out.all, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// Named returns the kind that a person means by s: a plural, a singular, a kind or a short
// name, optionally with its group. It is an error if there is none, or more than one.
func (ks Kinds) Named(s string) (Kind, error) {
	name, group, qualified := strings.Cut(strings.ToLower(s), ".")
	in := func(k Kind) bool {
		return !qualified || group == k.Group || group == strings.TrimSuffix(k.Version+"."+k.Group, ".")
	}
	full := func(k Kind) bool {
		return name == k.Resource.Name || name == k.Resource.SingularName || name == strings.ToLower(k.Kind)
	}
	short := func(k Kind) bool { return slices.Contains(k.Resource.ShortNames, name) }

	for _, means := range []func(Kind) bool{full, short} {
		found := ks.Where(func(k Kind) bool { return means(k) && in(k) })
		// As in kubectl, a name without a group is first one of the core group.
		if core := slices.IndexFunc(found, func(k Kind) bool { return k.Group == "" }); core >= 0 {
			return found[core], nil
		}
		if len(found) == 1 {
			return found[0], nil
		}
		var names []string
		for _, k := range found {
			names = append(names, k.String())
		}
		if len(names) > 0 {
			return Kind{}, errors.Errorf("the kind %q is ambiguous: write %s", s, strings.Join(names, " or "))
		}
	}
	return Kind{}, errors.Errorf("the API server has no kind %q", s)
}

// Selected returns the kinds that a person means by a list of kinds and categories, separated by commas.
func (ks Kinds) Selected(list string) ([]Kind, error) {
	selected := map[schema.GroupKind]bool{}
	for s := range strings.SplitSeq(list, ",") {
		in := ks.InCategories(s)
		if len(in) == 0 {
			k, err := ks.Named(s)
			if err != nil {
				return nil, err
			}
			in = []Kind{k}
		}
		for _, k := range in {
			selected[k.GroupKind()] = true
		}
	}
	return ks.Among(selected), nil
}

// Where returns the kinds for which keep is true.
func (ks Kinds) Where(keep func(Kind) bool) []Kind {
	return slices.DeleteFunc(slices.Clone(ks.all), func(k Kind) bool { return !keep(k) })
}

// Among returns the served kinds of a set.
func (ks Kinds) Among(set map[schema.GroupKind]bool) []Kind {
	return ks.Where(func(k Kind) bool { return set[k.GroupKind()] })
}

// InCategories returns the kinds in any of the categories that can be listed.
func (ks Kinds) InCategories(categories ...string) []Kind {
	return ks.Where(func(k Kind) bool { return k.Allows("list") && k.In(categories...) })
}

// Of returns the served kind of a group and kind, in whichever version.
func (ks Kinds) Of(gk schema.GroupKind) (Kind, bool) {
	if i := slices.IndexFunc(ks.all, func(k Kind) bool { return k.GroupKind() == gk }); i >= 0 {
		return ks.all[i], true
	}
	return Kind{}, false
}

// Hidden returns the groups that the API server could not describe and that may have kinds of Crossplane's. Kubernetes'
// own groups have none, and the group of metrics is often not served.
func (ks Kinds) Hidden() []string {
	var out []string
	for _, gv := range ks.Undiscovered {
		if group, _, _ := strings.Cut(gv, "/"); !strings.HasSuffix(group, ".k8s.io") {
			out = append(out, group)
		}
	}
	return out
}

// Undescribed reports whether the API server could not describe some version of a group, which may have any kind.
func (ks Kinds) Undescribed(group string) bool {
	return slices.ContainsFunc(ks.Undiscovered, func(gv string) bool { return strings.HasPrefix(gv, group+"/") })
}

// RequireCrossplane returns an error if no kind is one of Crossplane's.
func (ks Kinds) RequireCrossplane() error {
	if len(ks.InCategories(Managed, Composite, Claim)) > 0 {
		return nil
	}
	return errors.New("this cluster has no managed resources, composites or claims: " +
		"install Crossplane and a provider, or choose another cluster with --context")
}

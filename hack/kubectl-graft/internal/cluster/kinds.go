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

	// Resource is the plural name, for example buckets.
	Resource string

	singular   string
	shortNames []string
	categories []string
	verbs      []string

	Namespaced bool
}

// String returns the name that kubectl reads without ambiguity, for example
// buckets.s3.example.org.
func (k Kind) String() string { return strings.TrimSuffix(k.Resource+"."+k.Group, ".") }

// In reports whether the kind is in one of the categories.
func (k Kind) In(categories ...string) bool {
	return slices.ContainsFunc(categories, func(c string) bool { return slices.Contains(k.categories, c) })
}

func (k Kind) gvr() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// names reports whether a person who writes s means this kind, and whether s is its full
// name rather than a short one.
func (k Kind) names(s string) (means, full bool) {
	name, group, qualified := strings.Cut(strings.ToLower(s), ".")
	if qualified && group != k.Group && group != strings.TrimSuffix(k.Version+"."+k.Group, ".") {
		return false, false
	}
	full = name == k.Resource || name == k.singular || name == strings.ToLower(k.Kind)
	return full || slices.Contains(k.shortNames, name), full
}

// Kinds are the kinds that the API server serves.
type Kinds struct {
	all []Kind

	// Undiscovered are API groups that the API server has but could not describe.
	Undiscovered []string
}

// discoverKinds returns all kinds. It is an error only if none can be discovered.
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
			if k, ok := kindOf(gv, r); ok {
				out.all = append(out.all, k)
			}
		}
	}
	return out, nil
}

func kindOf(gv schema.GroupVersion, r metav1.APIResource) (Kind, bool) {
	if strings.Contains(r.Name, "/") {
		return Kind{}, false
	}
	singular := r.SingularName
	if singular == "" {
		singular = strings.ToLower(r.Kind)
	}
	return Kind{
		GroupVersionKind: gv.WithKind(r.Kind), Resource: r.Name, Namespaced: r.Namespaced,
		singular: singular, shortNames: r.ShortNames, categories: r.Categories, verbs: r.Verbs,
	}, true
}

// Named returns the kind that a person means by s: a plural, a singular, a kind or a short
// name, optionally with its group. It is an error if there is none, or more than one.
func (ks Kinds) Named(s string) (Kind, error) {
	var full, short []Kind
	for _, k := range ks.all {
		means, isFull := k.names(s)
		switch {
		case isFull:
			full = append(full, k)
		case means:
			short = append(short, k)
		}
	}
	if len(full) == 0 {
		full = short
	}
	switch len(full) {
	case 0:
		return Kind{}, errors.Errorf("the API server has no kind %q", s)
	case 1:
		return full[0], nil
	}
	names := make([]string, 0, len(full))
	for _, k := range full {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return Kind{}, errors.Errorf("the kind %q is ambiguous: write %s", s, strings.Join(names, " or "))
}

// Selected returns the kinds that a person means by a list of kinds and categories,
// separated by commas.
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

// Among returns the served kinds of a set.
func (ks Kinds) Among(set map[schema.GroupKind]bool) []Kind {
	return slices.DeleteFunc(slices.Clone(ks.all), func(k Kind) bool { return !set[k.GroupKind()] })
}

// InCategories returns the kinds in any of the categories that can be listed.
func (ks Kinds) InCategories(categories ...string) []Kind {
	return ks.filter(func(k Kind) bool { return k.In(categories...) })
}

// InNamespaces returns all namespaced kinds that can be listed and deleted.
func (ks Kinds) InNamespaces() []Kind {
	return ks.filter(func(k Kind) bool { return k.Namespaced && slices.Contains(k.verbs, "delete") })
}

// OfGroup returns the kinds of an API group that can be listed.
func (ks Kinds) OfGroup(group string) []Kind {
	return ks.filter(func(k Kind) bool { return k.Group == group })
}

func (ks Kinds) filter(keep func(Kind) bool) []Kind {
	var out []Kind
	for _, k := range ks.all {
		if slices.Contains(k.verbs, "list") && keep(k) {
			out = append(out, k)
		}
	}
	return out
}

// Of returns the served kind of a group and kind, in whichever version.
func (ks Kinds) Of(gk schema.GroupKind) (Kind, bool) {
	i := slices.IndexFunc(ks.all, func(k Kind) bool { return k.GroupKind() == gk })
	if i < 0 {
		return Kind{}, false
	}
	return ks.all[i], true
}

// RequireCrossplane returns an error if no kind is one of Crossplane's.
func (ks Kinds) RequireCrossplane() error {
	if len(ks.InCategories(Managed, Composite, Claim)) > 0 {
		return nil
	}
	return errors.New(
		"this cluster has no managed resources, composites or claims: install Crossplane and a provider, or choose " +
			"another cluster with --context",
	)
}

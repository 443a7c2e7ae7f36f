package crashtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// addCRDs adds the CustomResourceDefinitions of the folder whose kinds are in the scheme, and one for each other kind
// of the provider's objects.
func (s *subject) addCRDs() error {
	if s.CRDs != "" {
		all, err := readCRDs(s.CRDs)
		switch {
		case err != nil:
			return errors.Wrap(err, "crashtest: cannot read Provider.CRDs")
		case len(all) == 0:
			return errors.Errorf(
				"crashtest: Provider.CRDs names folder %q, which has no CustomResourceDefinition", s.CRDs,
			)
		}
		for _, crd := range all {
			names := crd.Spec.Names
			unknown := func(v extv1.CustomResourceDefinitionVersion) bool {
				gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind}
				return !s.Scheme.Recognizes(gvk)
			}
			if crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, unknown); len(crd.Spec.Versions) > 0 {
				s.crds = append(s.crds, crd)
			}
		}
	}
	for i, o := range append([]client.Object{s.Object}, s.Beside...) {
		if is.Nil(o) {
			return errors.Errorf("crashtest: Provider.Beside[%d] is nil", i-1)
		}
		gvk, err := apiutil.GVKForObject(o, s.Scheme)
		if err != nil {
			return errors.Wrapf(
				err, "crashtest: the kind of %T is not in Provider.Scheme: call AddToScheme of its package", o,
			)
		}
		if !slices.ContainsFunc(s.crds, defines(gvk)) && strings.Contains(gvk.Group, ".") &&
			!strings.HasSuffix(gvk.Group, ".k8s.io") {
			s.crds = append(s.crds, crdFor(gvk, o.GetNamespace() != ""))
		}
	}
	return nil
}

// readCRDs reads the CustomResourceDefinitions of a folder and those below it.
func readCRDs(dir string) (out []*extv1.CustomResourceDefinition, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // The author of the test names the folder.
		if err != nil {
			return err
		}
		for _, doc := range bytes.Split(text, []byte("\n---")) {
			crd := &extv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(doc, crd); err != nil {
				return errors.Wrap(err, path)
			}
			if crd.Kind == "CustomResourceDefinition" {
				out = append(out, crd)
			}
		}
		return nil
	})
	return out, err
}

// defines returns a function that reports whether a CRD has a kind.
func defines(gvk schema.GroupVersionKind) func(*extv1.CustomResourceDefinition) bool {
	return func(crd *extv1.CustomResourceDefinition) bool {
		return crd.Spec.Group == gvk.Group && crd.Spec.Names.Kind == gvk.Kind
	}
}

// hasSchema reports whether the CRD of a kind has a schema, and so may have defaults.
func hasSchema(crds []*extv1.CustomResourceDefinition, gvk schema.GroupVersionKind) bool {
	i := slices.IndexFunc(crds, defines(gvk))
	return i >= 0 && slices.ContainsFunc(crds[i].Spec.Versions, func(v extv1.CustomResourceDefinitionVersion) bool {
		return v.Name == gvk.Version && v.Schema != nil
	})
}

// crdFor returns the least CRD for a kind: with a status subresource, and no schema.
func crdFor(gvk schema.GroupVersionKind, namespaced bool) *extv1.CustomResourceDefinition {
	crd := &extv1.CustomResourceDefinition{}
	crd.Spec.Group = gvk.Group
	crd.Spec.Names = extv1.CustomResourceDefinitionNames{Kind: gvk.Kind, Plural: strings.ToLower(gvk.Kind) + "s"}
	crd.Spec.Scope = extv1.ClusterScoped
	if namespaced {
		crd.Spec.Scope = extv1.NamespaceScoped
	}
	crd.Spec.Versions = []extv1.CustomResourceDefinitionVersion{{
		Name: gvk.Version, Served: true, Storage: true,
		Subresources: &extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}},
	}}
	return crd
}

// copyScheme returns a scheme with the same kinds. A provider may add kinds to the scheme of
// its manager, so runs can't share one.
func copyScheme(s *runtime.Scheme) *runtime.Scheme {
	out := runtime.NewScheme()
	for gvk := range s.AllKnownTypes() {
		if o, err := s.New(gvk); err == nil {
			if unversioned, _ := s.IsUnversioned(o); unversioned {
				out.AddUnversionedTypes(gvk.GroupVersion(), o)
				continue
			}
			out.AddKnownTypeWithName(gvk, o)
		}
	}
	_ = out.SetVersionPriority(s.PrioritizedVersionsAllGroups()...)
	return out
}

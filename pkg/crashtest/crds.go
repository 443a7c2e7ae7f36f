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
)

// readCRDs reads the CustomResourceDefinitions of a folder and those below it.
func readCRDs(dir string) ([]*extv1.CustomResourceDefinition, error) {
	if dir == "" {
		return nil, nil
	}
	var out []*extv1.CustomResourceDefinition

	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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

	switch {
	case err != nil:
		return nil, errors.Wrap(err, "crashtest: cannot read Provider.CRDs")
	case len(out) == 0:
		return nil, errors.Errorf(
			"crashtest: Provider.CRDs names folder %q, which has no CustomResourceDefinition", dir,
		)
	default:
		return out, nil
	}
}

// inScheme returns the CRDs with the versions whose types are in the scheme. A provider's
// folder often has more.
func inScheme(crds []*extv1.CustomResourceDefinition, s *runtime.Scheme) []*extv1.CustomResourceDefinition {
	var out []*extv1.CustomResourceDefinition
	for _, crd := range crds {
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v extv1.CustomResourceDefinitionVersion) bool {
			return !s.Recognizes(schema.GroupVersionKind{
				Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind,
			})
		})
		if len(crd.Spec.Versions) > 0 {
			out = append(out, crd)
		}
	}
	return out
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

//go:build integration

package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xcrd"
	apiextv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"golang.org/x/sync/errgroup"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

const lanes = 16

// A platform as Crossplane serves it: a claim with a composite
// resource of the legacy layout, which is cluster scoped, and a namespaced
// composite resource of the layout of Crossplane v2.
const platformGroup = "platform.example.org"

func platformKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: platformGroup, Version: "v1", Kind: kind}
}

func appKind() schema.GroupVersionKind   { return platformKind("App") }
func xappKind() schema.GroupVersionKind  { return platformKind("XApp") }
func stackKind() schema.GroupVersionKind { return platformKind("Stack") }

func platformResource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: platformGroup, Version: "v1", Resource: plural}
}

func platformCRDs() []*extv1.CustomResourceDefinition {
	anything := &apiextv1.CompositeResourceValidation{
		OpenAPIV3Schema: runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object"}}}`)},
	}
	define := func(
		kind, plural string, scope apiextv1.CompositeResourceScope, claim *extv1.CustomResourceDefinitionNames,
	) *apiextv1.CompositeResourceDefinition {
		return &apiextv1.CompositeResourceDefinition{
			// A definition owns the objects that are derived from it.
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + platformGroup, UID: types.UID(plural)},
			Spec: apiextv1.CompositeResourceDefinitionSpec{
				Group:      platformGroup,
				Scope:      ptr.To(scope),
				Names:      extv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
				ClaimNames: claim,
				Versions: []apiextv1.CompositeResourceDefinitionVersion{
					{Name: "v1", Served: true, Referenceable: true, Schema: anything},
				},
			},
		}
	}
	app := define(
		xappKind().Kind,
		"xapps",
		apiextv1.CompositeResourceScopeLegacyCluster,
		&extv1.CustomResourceDefinitionNames{Kind: appKind().Kind, Plural: "apps"},
	)
	stack := define(stackKind().Kind, "stacks", apiextv1.CompositeResourceScopeNamespaced, nil)
	claims, err := xcrd.ForCompositeResourceClaim(app)
	xapps, xerr := xcrd.ForCompositeResource(app)
	stacks, serr := xcrd.ForCompositeResource(stack)
	if err := errors.Join(err, xerr, serr); err != nil {
		panic(err)
	}
	crds := []*extv1.CustomResourceDefinition{claims, xapps, stacks}
	for _, crd := range crds {
		crd.TypeMeta = metav1.TypeMeta{APIVersion: extv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
		// The garbage collector would look for their owners.
		crd.SetOwnerReferences(nil)
	}
	return crds
}

func newPlatform(t *testing.T) server {
	t.Helper()
	s := newServer(t)
	t.Cleanup(func() {
		for _, k := range []schema.GroupVersionKind{appKind(), xappKind(), stackKind()} {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(k)
			must(t, "List()", s.List(context.WithoutCancel(t.Context()), l))
			for i := range l.Items {
				s.erase(t, &l.Items[i])
			}
		}
	})
	return s
}

type app struct {
	claim     *unstructured.Unstructured
	composite *unstructured.Unstructured
	composed  []client.Object
}

func (s server) newApp(t *testing.T, name string, composed ...client.Object) app {
	t.Helper()
	cm, xr := object(appKind(), namespace, name), object(xappKind(), "", name+"-x")
	cm.Object["spec"] = map[string]any{"compositeDeletePolicy": "Foreground", "resourceRef": referenceTo(xr)}
	xr.Object["spec"] = map[string]any{"claimRef": referenceTo(cm)}
	must(t, "Create()", s.Create(t.Context(), cm))
	must(t, "cannot compose", s.compose(t.Context(), xr, composed...))
	return app{claim: cm, composite: xr, composed: composed}
}

func (s server) compose(ctx context.Context, xr *unstructured.Unstructured, composed ...client.Object) error {
	path := []string{"spec", "crossplane", "resourceRefs"}
	if xr.GetKind() == xappKind().Kind {
		path = []string{"spec", "resourceRefs"}
	}
	refs := make([]any, 0, len(composed))
	for _, o := range composed {
		gvk, err := apiutil.GVKForObject(o, s.Scheme())
		if err != nil {
			return err
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		refs = append(refs, referenceTo(o))
	}
	if err := unstructured.SetNestedField(xr.Object, refs, path...); err != nil {
		return err
	}
	if err := s.Create(ctx, xr); err != nil {
		return err
	}
	owners := []metav1.OwnerReference{
		meta.AsController(&xpv2.TypedReference{
			APIVersion: xr.GetAPIVersion(), Kind: xr.GetKind(), Name: xr.GetName(), UID: xr.GetUID(),
		}),
	}
	for _, o := range composed {
		o.SetOwnerReferences(owners)
		if err := s.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func inParallel(t *testing.T, lanes, n int, fn func(i int) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(lanes)
	for i := range n {
		g.Go(func() error { return fn(i) })
	}
	must(t, "in parallel", g.Wait())
}

func objects(fleet []sample.Instance) []client.Object {
	out := make([]client.Object, 0, len(fleet))
	for _, mg := range fleet {
		out = append(out, mg)
	}
	return out
}

func object(k schema.GroupVersionKind, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k)
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

func referenceTo(o client.Object) map[string]any {
	apiVersion, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	ref := map[string]any{"apiVersion": apiVersion, "kind": kind, "name": o.GetName()}
	if o.GetNamespace() != "" {
		ref["namespace"] = o.GetNamespace()
	}
	return ref
}

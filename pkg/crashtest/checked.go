package crashtest

import (
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// secondSuffix is the end of the second managed resource's name.
const secondSuffix = "-second"

// A checked provider has no type parameter.
type checked struct {
	scheme *runtime.Scheme
	object client.Object
	beside []client.Object
	crds   []*extv1.CustomResourceDefinition

	newCloud  func() (Cloud, error)
	start     func(p *Process, c Cloud) (reconcile.Reconciler, error)
	change    func(o client.Object)
	second    func(o client.Object)
	invariant func(o client.Object, c Cloud, api client.Reader) error
	name      func(o client.Object) string
	named     bool // Provider.Name is set.
	status    func(code int) error
	serial    bool

	accept []Verdict
}

// secondObject returns the second managed resource as the user creates it. It has a connection secret of its own,
// because only one managed resource can control a Secret.
func (s *checked) secondObject() client.Object {
	o, _ := s.object.DeepCopyObject().(client.Object)
	o.SetName(o.GetName() + secondSuffix)
	content, path := contentOf(o), []string{"spec", "writeConnectionSecretToRef", "name"}
	if name, found, err := unstructured.NestedString(content, path...); found && err == nil {
		if err := unstructured.SetNestedField(content, name+secondSuffix, path...); err == nil {
			_ = decode(content, o)
		}
	}
	if s.second != nil {
		s.second(o)
	}
	return o
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

package embedded

import (
	"fmt"
	"slices"
	"time"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Options configure a Server.
type Options struct {
	// Scheme of the types that the clients use. Required.
	Scheme *runtime.Scheme

	// CRDs of the custom resources. Their kinds have to be in the scheme. Kinds
	// of the scheme without a CRD are served as namespaced and without any
	// defaults.
	CRDs []*extv1.CustomResourceDefinition

	// Objects that exist from the start, with the UID, status and
	// deletionTimestamp that they have. Each is given a resourceVersion and
	// the defaults of its CRD.
	Objects []client.Object

	// CollectorFinalizers says that a Delete gives an object the finalizer that its
	// propagation policy is for, in place of another. Nothing removes it but a write:
	// nothing is collected. Otherwise policies are ignored.
	CollectorFinalizers bool

	// Now tells the time for metadata. time.Now if nil.
	Now func() time.Time
}

// A Server holds the objects. It is safe for concurrent use.
type Server struct {
	objects *objects
	client  client.WithWatch
	counter counter
}

// kind is what a CRD says about one of its versions.
type kind struct {
	namespaced bool
	status     bool
	schema     *extv1.JSONSchemaProps
}

// New returns an empty server. It returns an error if there is no scheme or if
// the kind of a CRD isn't in it.
func New(o Options) (*Server, error) {
	if o.Scheme == nil {
		return nil, fmt.Errorf("embedded: an API server needs a scheme")
	}
	kinds := kindsOf(o.CRDs)
	for gvk := range kinds {
		if !o.Scheme.Recognizes(gvk) {
			return nil, fmt.Errorf("embedded: add %s, the type of a CRD, to the scheme first", gvk)
		}
	}

	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{objects: &objects{
		scheme: o.Scheme, mapper: restMapper(o.Scheme, kinds), kinds: kinds, now: o.Now,
		collect: o.CollectorFinalizers, latest: map[key]revision{},
	}}
	s.client = interceptor.NewClient(s.objects, Intercept(s.count))

	for _, obj := range o.Objects {
		if err := s.objects.add(obj); err != nil {
			return nil, fmt.Errorf("embedded: cannot store %T %q: %w", obj, obj.GetName(), err)
		}
	}
	return s, nil
}

// Client returns the client to give to what is under test. Its requests are
// counted. Wrap it with an interceptor to make requests fail or reads stale.
func (s *Server) Client() client.WithWatch { return s.client }

// Admin returns a client for the test itself. Its requests aren't counted.
func (s *Server) Admin() client.WithWatch { return s.objects }

// Scheme returns the server's scheme.
func (s *Server) Scheme() *runtime.Scheme { return s.objects.scheme }

// Counts returns the requests so far.
func (s *Server) Counts() Counts { return s.counter.get() }

func kindsOf(crds []*extv1.CustomResourceDefinition) map[schema.GroupVersionKind]kind {
	out := map[schema.GroupVersionKind]kind{}

	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			k := kind{
				namespaced: crd.Spec.Scope == extv1.NamespaceScoped,
				status:     v.Subresources != nil && v.Subresources.Status != nil,
			}
			if v.Schema != nil {
				k.schema = v.Schema.OpenAPIV3Schema
			}
			out[schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}] = k
		}
	}
	return out
}

func restMapper(s *runtime.Scheme, kinds map[schema.GroupVersionKind]kind) meta.RESTMapper {
	// Kinds that have no CRD are Kubernetes' own.
	clusterScoped := []string{
		"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
	}
	mapper := meta.NewDefaultRESTMapper(s.PrioritizedVersionsAllGroups())

	for gvk := range s.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if k, ok := kinds[gvk]; (ok && !k.namespaced) || (!ok && slices.Contains(clusterScoped, gvk.Kind)) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	return mapper
}

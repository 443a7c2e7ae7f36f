package watch

import (
	"context"
	"net/http"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// A Resolver finds out under which resource, and in which scope, the API server
// serves a kind now. It must not answer from memory, since kinds come back with
// another scope or plural. It must return when its context ends, and be safe for
// concurrent use. An error for which meta.IsNoMatchError is true says that the
// API server doesn't serve the kind.
type Resolver interface {
	Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)
}

// A ResolverFunc is a function that is a Resolver.
type ResolverFunc func(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)

// Resolve calls the function.
func (fn ResolverFunc) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return fn(ctx, gvk)
}

// NewDiscoveryResolver returns a Resolver that asks the API server: one request
// for each answer. The HTTP client is made from the config if it is nil.
func NewDiscoveryResolver(cfg *rest.Config, hc *http.Client) (Resolver, error) {
	if hc == nil {
		var err error
		if hc, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.Wrap(err, "cannot create HTTP client")
		}
	}
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create discovery client")
	}
	return &discoveryResolver{client: dc.RESTClient()}, nil
}

type discoveryResolver struct {
	client rest.Interface
}

func (r *discoveryResolver) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}

	// A group and version that nobody serves is answered by 404.
	l := &metav1.APIResourceList{}
	if err := r.client.Get().AbsPath(path).Do(ctx).Into(l); err != nil {
		return nil, errors.Wrapf(err, "cannot discover %s", gvk.GroupVersion())
	}

	// A kind may have more than one resource. That which can be watched counts.
	err := error(&meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}})
	for _, res := range l.APIResources {
		if res.Kind != gvk.Kind || slices.Contains([]byte(res.Name), '/') {
			continue // Subresources have kinds, too.
		}
		if !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "watch") {
			err = &KindError{GVK: gvk, Reason: ErrNotWatchable}
			continue
		}
		m := &meta.RESTMapping{
			GroupVersionKind: gvk,
			Resource:         gvk.GroupVersion().WithResource(res.Name),
			Scope:            meta.RESTScopeRoot,
		}
		if res.Namespaced {
			m.Scope = meta.RESTScopeNamespace
		}
		return m, nil
	}
	return nil, err
}

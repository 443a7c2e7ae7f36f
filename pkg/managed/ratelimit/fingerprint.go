package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"io"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// configTimeout bounds a read of a provider config, which is in the cache.
const configTimeout = 10 * time.Second

// A fingerprint changes if a call that failed with a terminal error may succeed now.
type fingerprint struct {
	generation                  int64
	labels, annotations, config uint64
}

// metadataOf returns the fingerprint of a managed resource without its provider config.
func metadataOf(c *layer.Call) fingerprint {
	return fingerprint{
		generation: c.Managed.GetGeneration(), labels: hashOf(c.Managed.GetLabels()), annotations: storedAnnotations(c),
	}
}

// storedAnnotations returns a hash of the annotations that are stored. What only Observe sets is not,
// so the next reconcile begins without it.
func storedAnnotations(c *layer.Call) uint64 {
	stored := &metav1.PartialObjectMetadata{}
	stored.SetAnnotations(maps.Clone(c.Managed.GetAnnotations()))
	for _, ch := range c.ChangedAnnotations(c.Managed) {
		ch.Undo(stored)
	}
	return hashOfAnnotations(stored.Annotations)
}

// annotationsInMemory returns a hash of the annotations, with those that are not stored yet.
func annotationsInMemory(c *layer.Call) uint64 { return hashOfAnnotations(c.Managed.GetAnnotations()) }

// hashOfAnnotations returns a hash without the annotations that upstream and Graft write.
func hashOfAnnotations(all map[string]string) uint64 {
	annotations := maps.Clone(all)
	maps.DeleteFunc(annotations, func(k, _ string) bool {
		return k == seam.AnnotationKeyRecord || k != meta.AnnotationKeyExternalName && seam.IdentifiesResource(k)
	})
	return hashOf(annotations)
}

func hashOf(vs ...any) uint64 {
	h := fnv.New64a()
	for _, v := range vs {
		data, _ := json.Marshal(v) //nolint:errchkjson // It cannot fail for maps of strings.
		_, _ = h.Write(data)
		_, _ = io.WriteString(h, "\n")
	}
	return h.Sum64()
}

// providerConfigs finds the provider configs of managed resources.
type providerConfigs struct {
	client client.Client
	kinds  map[string]schema.GroupVersionKind
}

// newProviderConfigs finds the kinds of provider configs in a scheme, in the group of the
// managed resources and its parent groups: ec2.aws.example.org uses the provider configs in
// aws.example.org.
func newProviderConfigs(c client.Client, s *runtime.Scheme, group string) providerConfigs {
	providerConfig := reflect.TypeFor[resource.ProviderConfig]()
	p := providerConfigs{client: c, kinds: map[string]schema.GroupVersionKind{}}
	for gvk, t := range s.AllKnownTypes() {
		related := gvk.Group == group || strings.HasSuffix(group, "."+gvk.Group)
		if !related || !reflect.PointerTo(t).Implements(providerConfig) {
			continue
		}
		if had, ok := p.kinds[gvk.Kind]; !ok || len(gvk.Group) > len(had.Group) {
			p.kinds[gvk.Kind] = gvk
		}
	}
	return p
}

// fingerprint of a managed resource and its provider config.
func (p providerConfigs) fingerprint(ctx context.Context, c *layer.Call) fingerprint {
	f := metadataOf(c)
	kind, key := limit.ProviderConfigOf(c.Managed)
	f.config = p.hash(ctx, kind, key)
	return f
}

// hash returns a hash of a provider config, or zero if the provider config cannot be read.
func (p providerConfigs) hash(ctx context.Context, kind string, key client.ObjectKey) uint64 {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	gvk, ok := p.kinds[cmp.Or(kind, limit.KindProviderConfig)]
	if !ok || key.Name == "" {
		return 0
	}
	o, err := p.client.Scheme().New(gvk)
	if err != nil {
		return 0
	}
	pc, ok := o.(client.Object)
	if !ok || p.client.Get(ctx, key, pc) != nil {
		return 0
	}
	return hashOf(pc.GetUID(), pc.GetGeneration(), pc.GetLabels(), pc.GetAnnotations())
}

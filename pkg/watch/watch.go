package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A WatchType tells apart the watches that a controller has on one kind. There
// is one watch for a type and kind: to handle the events of a kind in two ways,
// use two types.
type WatchType string //nolint:revive // It is the name that forks know.

// Watch types that Crossplane uses.
const (
	WatchTypeClaim               WatchType = "Claim"
	WatchTypeCompositeResource   WatchType = "CompositeResource"
	WatchTypeDependency          WatchType = "Dependency"
	WatchTypeCompositionRevision WatchType = "CompositionRevision"
	WatchTypeManagedResource     WatchType = "ManagedResource"

	// WatchTypeComposedResource is what Crossplane called WatchTypeDependency
	// before it watched more than composed resources.
	WatchTypeComposedResource WatchType = "ComposedResource"
)

// A Watch is a kind whose events a controller handles.
type Watch struct {
	obj        client.Object
	wt         WatchType
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

// A WatchID identifies a watch of a controller.
type WatchID struct { //nolint:revive // It is the name that forks know.
	Type WatchType
	GVK  schema.GroupVersionKind
}

// compare orders watches by kind and type.
func (id WatchID) compare(other WatchID) int {
	return strings.Compare(id.GVK.String()+string(id.Type), other.GVK.String()+string(other.Type))
}

// WatchFor returns a watch for objects of the supplied object's kind, in its
// representation: a typed object, an *unstructured.Unstructured, or a
// *metav1.PartialObjectMetadata, which costs least memory. Events that pass all
// predicates are handled by the handler, one at a time.
//
//nolint:revive // It is the name that forks know.
func WatchFor(kind client.Object, wt WatchType, h handler.EventHandler, p ...predicate.Predicate) Watch {
	return Watch{obj: kind, wt: wt, handler: h, predicates: p}
}

// id returns the watch's identity, or why there can't be one.
func (w *Watch) id(s *runtime.Scheme) (WatchID, error) {
	if is.Nil(w.obj) {
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch has no object", w.wt)
	}
	gvk, err := apiutil.GVKForObject(w.obj, s)
	switch {
	case err != nil:
		return WatchID{}, fmt.Errorf(
			"cannot determine group, version, and kind for %T: %w: %w", w.obj, ErrInvalidWatch, err,
		)
	case is.Nil(w.handler):
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has no handler", w.wt, gvk)
	case slices.ContainsFunc(w.predicates, func(p predicate.Predicate) bool { return is.Nil(p) }):
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has a nil predicate", w.wt, gvk)
	}
	return WatchID{Type: w.wt, GVK: gvk}, nil
}

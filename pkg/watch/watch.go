package watch

import (
	"fmt"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// A Watch is what a controller wants to be told about.
type Watch struct {
	kind       client.Object
	wt         WatchType
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

// A WatchID identifies a watch of a controller.
type WatchID struct { //nolint:revive // It is the name that forks know.
	Type WatchType
	GVK  schema.GroupVersionKind
}

// WatchFor returns a watch for objects of the supplied object's kind, in its
// representation: a typed object, an *unstructured.Unstructured, or a
// *metav1.PartialObjectMetadata, which costs least memory. Events that pass all
// predicates are handled by the handler, one at a time.
func WatchFor(kind client.Object, wt WatchType, h handler.EventHandler, p ...predicate.Predicate) Watch { //nolint:revive // It is the name that forks know.
	return Watch{kind: kind, wt: wt, handler: h, predicates: p}
}

// id returns the watch's identity, or why there can't be one.
func (w *Watch) id(s *runtime.Scheme) (WatchID, error) {
	if isNil(w.kind) {
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch has no object", w.wt)
	}
	gvk, err := gvkFor(w.kind, s)
	if err != nil {
		return WatchID{}, fmt.Errorf("cannot determine group, version, and kind for %T: %w: %w", w.kind, ErrInvalidWatch, err)
	}
	if isNil(w.handler) {
		return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has no handler", w.wt, gvk)
	}
	for _, p := range w.predicates {
		if isNil(p) {
			return WatchID{}, errors.Wrapf(ErrInvalidWatch, "%q watch for %q has a nil predicate", w.wt, gvk)
		}
	}
	return WatchID{Type: w.wt, GVK: gvk}, nil
}

// gvkFor is apiutil.GVKForObject without its allocations for objects that know
// their own kind: StartWatches is called at every reconcile.
func gvkFor(o runtime.Object, s *runtime.Scheme) (schema.GroupVersionKind, error) {
	if u, ok := o.(runtime.Unstructured); ok {
		if gvk := u.GetObjectKind().GroupVersionKind(); gvk.Kind != "" && gvk.Version != "" {
			return gvk, nil
		}
	}
	return apiutil.GVKForObject(o, s)
}

// isNil also sees a nil pointer (or map, or function) inside an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() { //nolint:exhaustive // No other kind can be nil.
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return r.IsNil()
	default:
		return false
	}
}

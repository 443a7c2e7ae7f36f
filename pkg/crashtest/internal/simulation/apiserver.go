package simulation

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// An APIServer is the API server in memory, with a watch of managed resources and a garbage collector.
type APIServer struct {
	*embedded.Server

	predicate predicate.Predicate
	tracked   []*trackedObject

	// touched says that writer, a process or 0, has written since the last look. kinds are those that providers write.
	touched bool
	writer  int
	kinds   map[schema.GroupVersionKind]bool
}

// A trackedObject is a managed resource as the watch delivered it.
type trackedObject struct {
	key       client.ObjectKey
	prototype client.Object
	seen      client.Object
}

// A change of a managed resource. delivered says that the watch of a provider delivers it.
type change struct {
	key       client.ObjectKey
	was, is   client.Object
	delivered bool
	process   int
}

func newAPIServer(o Options) (*APIServer, error) {
	server, err := embedded.New(embedded.Options{Scheme: o.Scheme, CRDs: o.CRDs, Objects: o.Objects})
	return &APIServer{
		Server: server, predicate: xpresource.DesiredStateChanged(), kinds: map[schema.GroupVersionKind]bool{},
	}, errors.Wrap(err, "crashtest: cannot start the API server")
}

// Admin returns a client for the user. No fault reaches its requests.
func (a *APIServer) Admin() client.Client {
	return interceptor.NewClient(a.Server.Admin(), embedded.Intercept(func(
		_ context.Context, c embedded.Call, serve func() error,
	) error {
		if c.Writes() {
			a.touched, a.writer = true, 0
		}
		return serve()
	}))
}

// Track a managed resource: its events go to the work queues.
func (a *APIServer) Track(o client.Object) {
	key := client.ObjectKeyFromObject(o)
	if !slices.ContainsFunc(a.tracked, func(t *trackedObject) bool { return t.key == key }) {
		a.tracked = append(a.tracked, &trackedObject{key: key, prototype: o})
	}
}

// Stored returns a managed resource as it is on the API server, or nil.
func (a *APIServer) Stored(prototype client.Object) (client.Object, error) {
	o, _ := prototype.DeepCopyObject().(client.Object)
	err := a.Server.Admin().Get(context.Background(), client.ObjectKeyFromObject(o), o)
	if kerrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	}
	return o, err
}

// objects returns the managed resources as the watch has delivered them.
func (a *APIServer) objects() map[client.ObjectKey]client.Object {
	out := map[client.ObjectKey]client.Object{}
	for _, t := range a.tracked {
		if t.seen != nil {
			out[t.key] = t.seen
		}
	}
	return out
}

// changes returns what happened to managed resources since the last call.
func (a *APIServer) changes() (out []change) {
	if !a.touched {
		return nil
	}
	writer := a.writer
	a.touched = false
	for _, t := range a.tracked {
		is, err := a.Stored(t.prototype)
		was := t.seen
		if err != nil || was == nil && is == nil ||
			was != nil && is != nil && was.GetResourceVersion() == is.GetResourceVersion() {
			continue
		}
		if was != nil && (is == nil || is.GetUID() != was.GetUID()) {
			a.collectGarbage(was.GetUID())
		}
		t.seen = is
		out = append(out, change{key: t.key, was: was, is: is, delivered: a.delivers(was, is), process: writer})
	}
	return out
}

// delivers reports whether the watch of a provider delivers a change.
func (a *APIServer) delivers(was, is client.Object) bool {
	switch {
	case was == nil:
		return a.predicate.Create(event.CreateEvent{Object: is})
	case is == nil:
		return a.predicate.Delete(event.DeleteEvent{Object: was})
	default:
		return a.predicate.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
}

// collectGarbage deletes the dependents of an owner that no longer exists.
func (a *APIServer) collectGarbage(owner types.UID) {
	for gvk := range maps.Clone(a.kinds) {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if a.Server.Admin().List(context.Background(), l) != nil {
			continue
		}
		_ = meta.EachListItem(l, func(r runtime.Object) error {
			o, ok := r.(client.Object)
			owns := func(ref metav1.OwnerReference) bool { return ref.UID == owner }
			if ok && slices.ContainsFunc(o.GetOwnerReferences(), owns) && len(o.GetOwnerReferences()) == 1 {
				_ = a.Server.Admin().Delete(context.Background(), o)
			}
			return nil
		})
	}
}

// clientOf returns a client of a process. A cached one reads typed objects from its cache.
func (a *APIServer) clientOf(p *Process, cached bool) client.WithWatch {
	base := a.Server.Client()
	if cached {
		base = interceptor.NewClient(base, interceptor.Funcs{Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if p.cache != nil && slices.ContainsFunc(a.tracked, func(t *trackedObject) bool {
				return reflect.TypeOf(t.prototype) == reflect.TypeOf(o)
			}) {
				return a.load(p.cache.objects[key], key, o)
			}
			return c.Get(ctx, key, o, opts...)
		}})
	}
	return interceptor.NewClient(base, embedded.Intercept(func(
		ctx context.Context, c embedded.Call, serve func() error,
	) error {
		gvk, err := apiutil.GVKForObject(c.Object, a.Scheme())
		_, untyped := c.Object.(runtime.Unstructured)
		q := history.Request{Verb: c.String(), Kind: gvk.Kind, Name: c.Key.Name, Writes: c.Writes(), Reads: !c.Writes()}
		if err != nil {
			q.Kind = fmt.Sprintf("%T", c.Object)
		}
		q.Cached = cached && q.Reads && !untyped
		had := c.Object.GetObjectKind().GroupVersionKind()
		return p.Pass(ctx, q, func(*Request) error {
			if q.Writes {
				a.touched, a.writer, a.kinds[gvk] = true, p.ID, true
			}
			err := serve()
			a.restoreKind(c.Object, had, gvk, q.Cached && err == nil)
			return err
		})
	}))
}

// restoreKind leaves the kind in an object that a request has read or written as controller-runtime does: a client
// keeps it, and a cache sets it.
func (a *APIServer) restoreKind(o runtime.Object, had, gvk schema.GroupVersionKind, cached bool) {
	l, isList := o.(client.ObjectList)
	switch {
	case isList && cached:
		_ = meta.EachListItem(l, func(item runtime.Object) error {
			of, err := apiutil.GVKForObject(item, a.Scheme())
			if err == nil {
				item.GetObjectKind().SetGroupVersionKind(of)
			}
			return nil
		})
	case isList:
	case cached:
		o.GetObjectKind().SetGroupVersionKind(gvk)
	case !had.Empty():
		o.GetObjectKind().SetGroupVersionKind(had)
	}
}

// load an object of a cache.
func (a *APIServer) load(from client.Object, key client.ObjectKey, into client.Object) error {
	if from == nil {
		gvk, err := apiutil.GVKForObject(into, a.Scheme())
		if err != nil {
			return err
		}
		return kerrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
	return nil
}

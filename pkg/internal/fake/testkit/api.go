package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The requests that an API counts.
const (
	Get          = "get"
	List         = "list"
	LiveGet      = "live get"
	Create       = "create"
	Update       = "update"
	Patch        = "patch"
	Delete       = "delete"
	StatusUpdate = "status update"
	StatusPatch  = "status patch"
)

// A Request to the API server.
type Request struct {
	Verb   string
	Object client.Object

	// Key of the object that is read.
	Key client.ObjectKey

	// Body of a patch, or the propagation policy of a deletion.
	Body string
}

// A Hook is called with a request, which fails with what it returns.
type Hook func(ctx context.Context, r Request) error

// Hooks of requests. They do nothing if they are nil.
type Hooks struct {
	// Before is called before a request is served, which is not if that fails.
	Before Hook

	// After is called with a request that was served. What it returns is
	// returned to the caller as if the answer had been lost.
	After Hook
}

// An API is an API server as far as a managed resource reconciler needs one. Its
// clients are safe for concurrent use, as long as its fields are set before.
type API struct {
	// Hooks of the requests of all controllers.
	Hooks

	server *embedded.Server

	mu       sync.Mutex
	requests []Request
	frozen   map[client.ObjectKey]client.Object
}

// NewAPI returns an API that has the supplied objects, each with a UID.
func NewAPI(objs ...client.Object) *API {
	return newAPI(&extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}}, objs)
}

// NewAPIWithoutStatus returns an API whose kinds have no status subresource.
func NewAPIWithoutStatus(objs ...client.Object) *API { return newAPI(nil, objs) }

func newAPI(subresources *extv1.CustomResourceSubresources, objs []client.Object) *API {
	for i, o := range objs {
		if o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", i+1)))
		}
	}

	crds := v1alpha1.CRDs()
	for _, crd := range crds {
		// Tests say themselves what is in an object.
		crd.Spec.Versions[0].Schema, crd.Spec.Versions[0].Subresources = nil, subresources
	}
	return Serve(Scheme(), crds, objs...)
}

// Serve returns an API of the kinds of CRDs, which has the supplied objects. The
// finalizers of its garbage collector stay until a test removes them.
func Serve(scheme *runtime.Scheme, crds []*extv1.CustomResourceDefinition, objs ...client.Object) *API {
	s, err := embedded.New(embedded.Options{Scheme: scheme, CRDs: crds, Objects: objs, CollectorFinalizers: true})
	if err != nil {
		panic(errors.Wrap(err, "cannot start an API server"))
	}
	return &API{server: s, frozen: map[client.ObjectKey]client.Object{}}
}

// Server returns a client that is neither counted nor made to fail, nor lags:
// another writer's.
func (a *API) Server() client.Client { return a.server.Admin() }

// Client returns the client of a controller, which reads from a cache.
func (a *API) Client() client.Client { return a.client(Get, Hooks{}) }

// Live returns a client that doesn't read from a cache.
func (a *API) Live() client.Client { return a.client(LiveGet, Hooks{}) }

// Manager returns a manager of a controller.
func (a *API) Manager() manager.Manager { return a.Process(Hooks{}) }

// Process returns a manager of one process of several, which has hooks of its own.
func (a *API) Process(h Hooks) manager.Manager {
	return &apiManager{Manager: a.server.ManagerFor(a.client(Get, h)), live: a.client(LiveGet, h)}
}

type apiManager struct {
	manager.Manager

	live client.Reader
}

func (m *apiManager) GetAPIReader() client.Reader { return m.live }

// Freeze makes the cache serve the object as it is now, until it is thawed.
func (a *API) Freeze(ctx context.Context, o client.Object) error {
	c, _ := o.DeepCopyObject().(client.Object)
	if err := a.Server().Get(ctx, client.ObjectKeyFromObject(o), c); err != nil {
		return err
	}
	a.FreezeAs(c)
	return nil
}

// FreezeAs makes the cache serve the supplied object, until it is thawed.
func (a *API) FreezeAs(o client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frozen[client.ObjectKeyFromObject(o)] = o
}

// Thaw makes the cache serve what the server has.
func (a *API) Thaw() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.frozen)
}

// Requests returns the requests that controllers made, without reads from the
// cache.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.requests), func(r Request) bool { return r.Verb == Get || r.Verb == List })
}

// Count returns how many requests of a verb controllers made.
func (a *API) Count(verbs ...string) int {
	return a.CountIf(func(r Request) bool { return slices.Contains(verbs, r.Verb) })
}

// CountIf returns how many requests controllers made for which match is true.
func (a *API) CountIf(match func(r Request) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0

	for _, r := range a.requests {
		if match(r) {
			n++
		}
	}
	return n
}

// Writes returns how many requests that write controllers made.
func (a *API) Writes() int {
	return a.Count(Create, Update, Patch, Delete, StatusUpdate, StatusPatch)
}

// Forget the requests that were made.
func (a *API) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = nil
}

func (a *API) do(ctx context.Context, h Hooks, r Request, serve func() error) error {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, step := range []Hook{a.Before, h.Before, func(context.Context, Request) error {
		return serve()
	}, a.After, h.After} {
		if step == nil {
			continue
		}
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) client(get string, h Hooks) client.Client {
	c := a.server.Admin()
	if get == Get {
		c = interceptor.NewClient(c, interceptor.Funcs{Get: a.read})
	}
	return interceptor.NewClient(
		c,
		embedded.Intercept(func(ctx context.Context, c embedded.Call, serve func() error) error {
			r := Request{Verb: c.String(), Key: c.Key, Body: string(c.Propagation)}
			if r.Verb == Get {
				r.Verb = get
			}
			o, ok := c.Object.(client.Object)
			if !ok {
				of := &metav1.PartialObjectMetadata{}
				of.SetGroupVersionKind(c.Object.GetObjectKind().GroupVersionKind())
				o = of
			}

			if r.Object = o; c.Patch != nil {
				r.Body = body(o, c.Patch)
			}
			return a.do(ctx, h, r, serve)
		}),
	)
}

// read an object from the cache.
func (a *API) read(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	a.mu.Lock()
	f := a.frozen[key]
	a.mu.Unlock()

	if f == nil {
		err = c.Get(ctx, key, o, opts...)
	} else {
		err = into(f, o)
	}

	if err != nil {
		return err
	}

	// A cache says of which kind an object is, an API server doesn't say it of a
	// typed one.
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// into decodes one object into another, as a cache does: nothing of what was in
// it remains.
func into(from, to client.Object) error {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from.DeepCopyObject())
	if err != nil {
		return err
	}
	if o, ok := to.(runtime.Unstructured); ok {
		o.SetUnstructuredContent(u)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u, to); err != nil {
		return err
	}
	to.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

func body(o client.Object, p client.Patch) string {
	data, err := p.Data(o)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

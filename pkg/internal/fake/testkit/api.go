package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

	// Body of a patch.
	Body string
}

// An API is an API server as far as a managed resource reconciler needs one. Its
// clients are safe for concurrent use, as long as its fields are set before.
type API struct {
	// Before is called before a request is served, and fails it with what it
	// returns.
	Before func(ctx context.Context, r Request) error

	// After is called with a request that was served. What it returns is
	// returned to the caller as if the answer had been lost.
	After func(ctx context.Context, r Request) error

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

	s, err := embedded.New(embedded.Options{Scheme: Scheme(), CRDs: crds, Objects: objs})
	if err != nil {
		panic(errors.Wrap(err, "cannot start an API server"))
	}

	return &API{server: s, frozen: map[client.ObjectKey]client.Object{}}
}

// Server returns a client that is neither counted nor made to fail, nor lags:
// another writer's.
func (a *API) Server() client.Client { return a.server.Admin() }

// Client returns the client of a controller, which reads from a cache.
func (a *API) Client() client.Client { return a.client(Get) }

// Live returns a client that doesn't read from a cache.
func (a *API) Live() client.Client { return a.client(LiveGet) }

// Manager returns a manager of a controller.
func (a *API) Manager() manager.Manager {
	return &apiManager{Manager: a.server.ManagerFor(a.Client()), live: a.Live()}
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

	a.mu.Lock()
	defer a.mu.Unlock()

	a.frozen[client.ObjectKeyFromObject(o)] = c

	return nil
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

	return slices.DeleteFunc(slices.Clone(a.requests), func(r Request) bool { return r.Verb == Get })
}

// Count returns how many requests of a verb controllers made.
func (a *API) Count(verbs ...string) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	n := 0

	for _, r := range a.requests {
		if slices.Contains(verbs, r.Verb) {
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

func (a *API) do(ctx context.Context, r Request, serve func() error) error {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()

	if err := ctx.Err(); err != nil {
		return err
	}

	if a.Before != nil {
		if err := a.Before(ctx, r); err != nil {
			return err
		}
	}

	if err := serve(); err != nil || a.After == nil {
		return err
	}

	return a.After(ctx, r)
}

func (a *API) client(get string) client.Client {
	return interceptor.NewClient(a.server.Admin(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return a.do(ctx, Request{Verb: get, Object: o}, func() error {
				a.mu.Lock()
				f := a.frozen[key]
				a.mu.Unlock()

				if get == LiveGet {
					return c.Get(ctx, key, o, opts...)
				}

				gvk, err := c.GroupVersionKindFor(o)
				if err != nil {
					return err
				}

				if f == nil {
					if err := c.Get(ctx, key, o, opts...); err != nil {
						return err
					}
				} else if err := into(f, o); err != nil {
					return err
				}

				// A cache says of which kind an object is, an API server
				// doesn't say it of a typed one.
				o.GetObjectKind().SetGroupVersionKind(gvk)

				return nil
			})
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return a.do(ctx, Request{Verb: Create, Object: o}, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return a.do(ctx, Request{Verb: Update, Object: o}, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return a.do(ctx, Request{Verb: Patch, Object: o, Body: body(o, p)}, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return a.do(ctx, Request{Verb: Delete, Object: o}, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return a.do(ctx, Request{Verb: sub + " update", Object: o}, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return a.do(ctx, Request{Verb: sub + " patch", Object: o, Body: body(o, p)}, func() error {
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			})
		},
	})
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

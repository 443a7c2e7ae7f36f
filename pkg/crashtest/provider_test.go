package crashtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// A vm is a resource of the external system.
type vm struct {
	ID    string `json:"id,omitempty"`
	Owner string `json:"owner,omitempty"`
	Size  int64  `json:"size,omitempty"`
}

// A vmCloud is an external system with an HTTP API: POST /vms creates one with an id of the
// system's, PUT /vms/ID one with a chosen id.
type vmCloud struct{ Resources[vm] }

func newVMCloud() *vmCloud { return &vmCloud{} }

func (c *vmCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/vms/")
	var v vm
	if r.ContentLength != 0 && json.NewDecoder(r.Body).Decode(&v) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var answer any
	ok := true

	switch r.Method {
	case http.MethodPost:
		if name, resizes := strings.CutSuffix(id, "/resize"); resizes {
			old, _ := c.Get(name)
			old.Size = v.Size
			ok = c.Update(name, old)
			break
		}
		v.ID = c.NewName("vm")
		c.Create(v.ID, v)
		answer = v
	case http.MethodPut:
		v.ID = id
		if !c.Create(id, v) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		answer = v
	case http.MethodPatch:
		old, _ := c.Get(id)
		old.ID, old.Size = id, v.Size
		if v.Owner != "" {
			old.Owner = v.Owner
		}
		ok = c.Update(id, old)
	case http.MethodDelete:
		ok = c.Delete(id)
	case http.MethodGet:
		if page, paged := strings.CutPrefix(id, "page/"); paged {
			n, err := strconv.Atoi(page)
			if ok = err == nil && n <= len(c.List()); ok {
				answer = c.List()[n-1]
			}
			break
		}
		if id != "/vms" {
			answer, ok = c.Get(id)
			break
		}
		all := []vm{}
		for _, v := range c.List() {
			if r.URL.Query().Get("owner") == v.Owner {
				all = append(all, v)
			}
		}
		answer = all
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A vmAPI is a client of the external system.
type vmAPI struct{ http *http.Client }

var errNotFound = errors.New("not found")

type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

func (a vmAPI) do(ctx context.Context, method, path string, body, into any) error {
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://cloud"+path, &b)
	if err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // It is in memory.
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return errNotFound
	case resp.StatusCode >= 300:
		return statusError(resp.StatusCode)
	case into != nil:
		return json.NewDecoder(resp.Body).Decode(into)
	}
	return nil
}

// A vmClient is the external client of a provider that is right. named says that the
// external name is the name of the external resource before it exists.
type vmClient struct {
	api   vmAPI
	named bool
}

func sizeOf(mg resource.Managed) int64 {
	if b, ok := mg.(*v1alpha1.Bucket); ok {
		return b.Spec.ForProvider.Size
	}
	return 0
}

func (c *vmClient) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	name := meta.GetExternalName(mg)
	if name == "" {
		return managed.ExternalObservation{}, nil
	}
	var v vm
	err := c.api.do(ctx, http.MethodGet, "/vms/"+name, nil, &v)
	if errors.Is(err, errNotFound) {
		return managed.ExternalObservation{}, nil
	}
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	mg.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: v.Size == sizeOf(mg)}, nil
}

func (c *vmClient) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	mg.SetConditions(xpv2.Creating())
	v := vm{Owner: string(mg.GetUID()), Size: sizeOf(mg)}
	if c.named {
		return managed.ExternalCreation{}, c.api.do(ctx, http.MethodPut, "/vms/"+meta.GetExternalName(mg), v, nil)
	}
	if err := c.api.do(ctx, http.MethodPost, "/vms", v, &v); err != nil {
		return managed.ExternalCreation{}, err
	}
	meta.SetExternalName(mg, v.ID)
	return managed.ExternalCreation{}, nil
}

func (c *vmClient) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, c.api.do(
		ctx, http.MethodPatch, "/vms/"+meta.GetExternalName(mg), vm{Size: sizeOf(mg)}, nil,
	)
}

func (c *vmClient) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	mg.SetConditions(xpv2.Deleting())
	name := meta.GetExternalName(mg)
	if name == "" {
		return managed.ExternalDelete{}, nil
	}
	if err := c.api.do(ctx, http.MethodDelete, "/vms/"+name, nil, nil); err != nil && !errors.Is(err, errNotFound) {
		return managed.ExternalDelete{}, err
	}
	return managed.ExternalDelete{}, nil
}

func (c *vmClient) Disconnect(context.Context) error { return nil }

// Find looks up the resource of a create. The external system shows it late.
func (c *vmClient) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	var all []vm
	err := c.api.do(ctx, http.MethodGet, "/vms?owner="+url.QueryEscape(string(mg.GetUID())), nil, &all)
	switch {
	case err != nil:
		return asyncstate.Finding{}, err
	case len(all) > 0:
		return asyncstate.Found(all[0].ID), nil
	case time.Since(a.Started) < time.Minute:
		return asyncstate.Finding{}, nil
	default:
		return asyncstate.Absent(), nil
	}
}

func bucketScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Wrap(v1alpha1.AddToScheme(s), "cannot add to the scheme"); err != nil {
		t.Fatal(err)
	}
	if err := coordinationv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// vmProvider returns a provider whose reconciler is what start returns.
func vmProvider(t testing.TB, start func(p *Process, a vmAPI) (reconcile.Reconciler, error)) Provider[*vmCloud] {
	t.Helper()
	return Provider[*vmCloud]{
		Scheme: bucketScheme(t),
		Object: v1alpha1.NewBucket("default", "one"),
		Cloud:  newVMCloud,
		Start: func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
			return start(p, vmAPI{http: &http.Client{Transport: p.Transport(c)}})
		},
		Change: func(o client.Object) {
			if b, ok := o.(*v1alpha1.Bucket); ok {
				b.Spec.ForProvider.Size = 5
			}
		},
	}
}

func connect(c managed.ExternalClient) managed.ExternalConnector {
	return managed.ExternalConnectorFn(func(
		context.Context, resource.Managed,
	) (managed.ExternalClient, error) {
		return c, nil
	})
}

// graftNamed and graftFound start providers that are right: of one the external name is
// chosen, of the other it is found.
func graftNamed(p *Process, a vmAPI) (reconcile.Reconciler, error) {
	m := p.Manager()
	return managed.NewReconciler(m, v1alpha1.BucketManagedKind(),
		managed.WithManagementPolicies(),
		managed.WithExternalConnector(connect(&vmClient{api: a, named: true})),
		managed.WithInitializers(managed.NewNameAsExternalName(m.GetClient())),
		managed.WithDeterministicExternalName(true),
		reservation.With("default"),
	), nil
}

func graftFound(p *Process, a vmAPI) (reconcile.Reconciler, error) {
	c := connect(&vmClient{api: a})
	return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(),
		managed.WithManagementPolicies(),
		managed.WithExternalConnector(c),
		managed.WithInitializers(),
		resolve.With(resolve.FindWithConnector(c)),
		reservation.With("default"),
	), nil
}

// upstreamNamed starts a provider with upstream's reconciler.
func upstreamNamed(p *Process, a vmAPI) (reconcile.Reconciler, error) {
	m := p.Manager()
	return upstream.NewReconciler(m, v1alpha1.BucketManagedKind(),
		upstream.WithManagementPolicies(),
		upstream.WithExternalConnector(connect(&vmClient{api: a, named: true})),
		upstream.WithInitializers(upstream.NewNameAsExternalName(m.GetClient())),
		upstream.WithDeterministicExternalName(true),
	), nil
}

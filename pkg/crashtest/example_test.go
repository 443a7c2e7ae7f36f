package crashtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
)

// A provider's test is TestCrashes(t *testing.T), which calls Run. The rest of this file is its fake, and the provider.
func ExampleRun() {
	var t *testing.T // Of TestCrashes.
	crashtest.Run(t, newProvider())
}

func newProvider() crashtest.Provider[*hosting] {
	scheme := runtime.NewScheme()
	utilruntime.Must(addToScheme(scheme))
	blog := &Site{ObjectMeta: metav1.ObjectMeta{Name: "blog"}}
	// Without CRDs, there are no defaults.
	blog.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionAll}

	return crashtest.Provider[*hosting]{
		Scheme: scheme,
		Object: blog,
		Cloud:  func() *hosting { return &hosting{} },
		Start: func(p *crashtest.Process, cloud *hosting) (reconcile.Reconciler, error) {
			api := &http.Client{Transport: p.Transport(cloud)}
			return newReconciler(p, api), nil
		},
		Change: func(o client.Object) { site(o).Spec.Title = "changed" },
	}
}

// hosting is a fake of the external system: the resources, and an HTTP handler.
type hosting struct{ crashtest.Resources[string] }

func (h *hosting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/sites/")
	title, exists := h.Get(name)

	switch {
	case r.Method == http.MethodPut && !h.Update(name, r.URL.Query().Get("title")):
		h.Create(name, r.URL.Query().Get("title"))
	case r.Method == http.MethodDelete:
		h.Delete(name)
	case r.Method == http.MethodGet && !exists:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(title)
	}
}

// The rest is the provider.

func newReconciler(p *crashtest.Process, api *http.Client) reconcile.Reconciler {
	m := p.Manager()
	return managed.NewReconciler(m, resource.ManagedKind(kind()),
		managed.WithExternalConnector(managed.ExternalConnectorFn(func(
			context.Context, resource.Managed,
		) (managed.ExternalClient, error) {
			return &external{api}, nil
		})),
		managed.WithInitializers(managed.NewNameAsExternalName(m.GetClient())),
		managed.WithDeterministicExternalName(true), // It is not created twice.
		managed.WithManagementPolicies(),
		reservation.With("crossplane-system"), // Two managed resources can't have one name.
	)
}

type external struct{ http *http.Client }

func (e *external) do(ctx context.Context, method string, s *Site) (status int, title string, err error) {
	url := fmt.Sprintf("http://hosting/sites/%s?title=%s", meta.GetExternalName(s), s.Spec.Title)
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	if resp.StatusCode == http.StatusOK && method == http.MethodGet {
		err = json.NewDecoder(resp.Body).Decode(&title)
	}
	return resp.StatusCode, title, errors.Join(err, resp.Body.Close())
}

func (e *external) must(ctx context.Context, method string, mg resource.Managed) error {
	status, _, err := e.do(ctx, method, site(mg))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

func (e *external) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	status, title, err := e.do(ctx, http.MethodGet, site(mg))

	switch {
	case err != nil || status == http.StatusNotFound:
		return managed.ExternalObservation{}, err
	case status != http.StatusOK:
		return managed.ExternalObservation{}, fmt.Errorf("status %d", status)
	}
	mg.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: title == site(mg).Spec.Title}, nil
}

func (e *external) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	return managed.ExternalCreation{}, e.must(ctx, http.MethodPut, mg)
}

func (e *external) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, e.must(ctx, http.MethodPut, mg)
}

func (e *external) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, e.must(ctx, http.MethodDelete, mg)
}

func (e *external) Disconnect(context.Context) error { return nil }

func kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Site"}
}

func addToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(kind().GroupVersion(), &Site{})
	metav1.AddToGroupVersion(s, kind().GroupVersion())
	return coordinationv1.AddToScheme(s) // Of the reservations.
}

// A Site is a managed resource. In a provider this is generated.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		xpv2.ManagedResourceSpec `json:",inline"`

		Title string `json:"title,omitempty"`
	} `json:"spec"`

	Status struct {
		xpv2.ManagedResourceStatus `json:",inline"`
	} `json:"status,omitempty"`
}

func site(o client.Object) *Site {
	s, ok := o.(*Site)
	if !ok {
		return &Site{}
	}
	return s
}

func (s *Site) GetCondition(t xpv2.ConditionType) xpv2.Condition { return s.Status.GetCondition(t) }

func (s *Site) SetConditions(c ...xpv2.Condition) { s.Status.SetConditions(c...) }

func (s *Site) GetManagementPolicies() xpv2.ManagementPolicies { return s.Spec.ManagementPolicies }

func (s *Site) SetManagementPolicies(p xpv2.ManagementPolicies) { s.Spec.ManagementPolicies = p }

func (s *Site) GetWriteConnectionSecretToReference() *xpv2.LocalSecretReference {
	return s.Spec.WriteConnectionSecretToReference
}

func (s *Site) SetWriteConnectionSecretToReference(r *xpv2.LocalSecretReference) {
	s.Spec.WriteConnectionSecretToReference = r
}

func (s *Site) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	s.Spec.ManagedResourceSpec.DeepCopyInto(&out.Spec.ManagedResourceSpec)
	s.Status.ManagedResourceStatus.DeepCopyInto(&out.Status.ManagedResourceStatus)
	return &out
}

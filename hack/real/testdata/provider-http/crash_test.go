package request

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-contrib/provider-http/apis"
	"github.com/crossplane-contrib/provider-http/apis/namespaced/request/v1alpha2"
	apisv1alpha2 "github.com/crossplane-contrib/provider-http/apis/namespaced/v1alpha2"
	httpClient "github.com/crossplane-contrib/provider-http/internal/clients/http"
	"github.com/crossplane-graft/graft/pkg/crashtest"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
)

// users is a fake of the API that the Request calls.
type users struct{ crashtest.Resources[user] }

type user struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (u *users) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/users/")
	var v user
	_ = json.NewDecoder(r.Body).Decode(&v)
	v.ID = id
	ok := true
	switch r.Method {
	case http.MethodPost:
		v.ID = u.NewName("user")
		u.Create(v.ID, v)
	case http.MethodGet:
		v, ok = u.Get(id)
	case http.MethodPut:
		ok = u.Update(id, v)
	case http.MethodDelete:
		ok = u.Delete(id)
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

// transported is the provider's HTTP client, with the transport of a process.
type transported struct{ http http.Client }

func (c *transported) SendRequest(
	ctx context.Context, method, url string, body, headers httpClient.Data, _ *httpClient.TLSConfigData,
) (httpClient.HttpDetails, error) {
	out := httpClient.HttpDetails{
		HttpRequest: httpClient.HttpRequest{
			URL: url, Method: method, Body: body.Encrypted.(string), Headers: headers.Encrypted.(map[string][]string),
		},
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body.Decrypted.(string)))
	if err != nil {
		return out, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	out.HttpResponse = httpClient.HttpResponse{Body: string(text), StatusCode: resp.StatusCode, Headers: resp.Header}
	return out, err
}

func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apis.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	one := ".payload.baseUrl + \"/\" + (.response.body.id|tostring)"
	crashtest.Run(t, crashtest.Provider[*users]{
		Scheme: scheme,
		CRDs:   "../../../../package/crds",
		Object: &v1alpha2.Request{
			ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"},
			Spec: v1alpha2.RequestSpec{ForProvider: v1alpha2.RequestParameters{
				Payload: v1alpha2.Payload{BaseUrl: "http://api/users", Body: `{"name": "jane"}`},
				Mappings: []v1alpha2.Mapping{
					{Method: "POST", Body: "{ name: .payload.body.name }", URL: ".payload.baseUrl"},
					{Method: "GET", URL: one},
					{Method: "PUT", Body: "{ name: .payload.body.name }", URL: one},
					{Method: "DELETE", URL: one},
				},
			}},
		},
		Beside: []client.Object{&apisv1alpha2.ClusterProviderConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:       apisv1alpha2.ProviderConfigSpec{Credentials: apisv1alpha2.ProviderCredentials{Source: "None"}},
		}},
		Cloud: func() *users { return &users{} },
		Start: func(p *crashtest.Process, cloud *users) (reconcile.Reconciler, error) {
			m := p.Manager()
			c := &connector{
				logger: logging.NewNopLogger(), kube: m.GetClient(),
				usage: resource.NewProviderConfigUsageTracker(m.GetClient(), &apisv1alpha2.ProviderConfigUsage{}),
				newHttpClientFn: func(logging.Logger, time.Duration, string) (httpClient.Client, error) {
					return &transported{http: http.Client{Transport: p.Transport(cloud)}}, nil
				},
			}
			return managed.NewReconciler(m, resource.ManagedKind(v1alpha2.RequestGroupVersionKind),
				managed.WithExternalConnecter(c), managed.WithManagementPolicies(),
				managed.WithPollInterval(time.Minute)), nil
		},
		Change: func(o client.Object) { o.(*v1alpha2.Request).Spec.ForProvider.Payload.Body = `{"name": "joan"}` },
		Name: func(o client.Object) string {
			var u user
			_ = json.Unmarshal([]byte(o.(*v1alpha2.Request).Status.Response.Body), &u)
			return u.ID
		},
		Accept: []crashtest.Verdict{crashtest.Stopped},
	})
}

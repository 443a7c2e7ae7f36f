package accesstokens

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	v2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	gitlab "gitlab.com/gitlab-org/api/client-go/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-contrib/provider-gitlab/apis/namespaced/projects/v1alpha1"
	"github.com/crossplane-contrib/provider-gitlab/apis/namespaced/v1beta1"
	"github.com/crossplane-contrib/provider-gitlab/pkg/common"
	"github.com/crossplane-contrib/provider-gitlab/pkg/namespaced/clients/projects"
	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// tokens is a fake of GitLab's access tokens of one project.
type tokens struct {
	crashtest.Resources[string]

	last int
}

func (c *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := path.Base(r.URL.Path)
	name, ok := c.Get(id)
	switch {
	case r.Method == http.MethodPost:
		c.last++
		id, ok = fmt.Sprint(c.last), true
		c.Create(id, "ci")
	case r.Method == http.MethodDelete:
		if ok = c.Delete(id); ok {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	case !strings.Contains(r.URL.Path, "access_tokens"):
		return // The client asks for the rate limit.
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": json.Number(id), "name": name, "active": true, "token": "secret-" + id,
		"created_at": "2000-01-01T00:00:00Z", "expires_at": "2040-01-01",
	})
}

// tokenClient is the provider's own, with the transport of a process.
type tokenClient struct {
	gitlab.ProjectAccessTokensServiceInterface
	gitlab.PersonalAccessTokensServiceInterface
}

func (c *tokenClient) RotateSelf(
	o *gitlab.RotatePersonalAccessTokenOptions, opts ...gitlab.RequestOptionFunc,
) (*gitlab.PersonalAccessToken, *gitlab.Response, error) {
	return c.PersonalAccessTokensServiceInterface.RotatePersonalAccessTokenSelf(o, opts...)
}

func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, v1alpha1.SchemeBuilder.AddToScheme, v1beta1.SchemeBuilder.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	project, expires := "7", metav1.NewTime(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
	token := &v1alpha1.AccessToken{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	token.Spec.ForProvider = v1alpha1.AccessTokenParameters{
		ProjectID: &project, Name: "ci", Scopes: []string{"read_registry"}, ExpiresAt: &expires,
	}
	token.Spec.ProviderConfigReference = &v2.ProviderConfigReference{Kind: "ProviderConfig", Name: "default"}
	config := &v1beta1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	config.Spec.BaseURL = "http://gitlab"
	config.Spec.Credentials.Source = v2.CredentialsSourceSecret
	config.Spec.Credentials.SecretRef = &v2.SecretKeySelector{
		SecretReference: v2.SecretReference{Name: "gitlab", Namespace: "default"}, Key: "token",
	}

	crashtest.Run(t, crashtest.Provider[*tokens]{
		Scheme: scheme,
		CRDs:   "../../../../../package/crds",
		Object: token,
		Beside: []client.Object{config, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: "gitlab", Namespace: "default",
			}, Data: map[string][]byte{"token": []byte("t")},
		}},
		Cloud: func() *tokens { return &tokens{} },
		Start: func(p *crashtest.Process, cloud *tokens) (reconcile.Reconciler, error) {
			m := p.Manager()
			c := &connector{kube: m.GetClient(), newGitlabClientFn: func(cfg common.Config) projects.AccessTokenClient {
				git, err := gitlab.NewClient(
					cfg.Token,
					gitlab.WithBaseURL(cfg.BaseURL),
					gitlab.WithHTTPClient(&http.Client{Transport: p.Transport(cloud)}),
				)
				if err != nil {
					panic(err)
				}
				return &tokenClient{git.ProjectAccessTokens, git.PersonalAccessTokens}
			}}
			return managed.NewReconciler(m, resource.ManagedKind(v1alpha1.AccessTokenGroupVersionKind),
				managed.WithInitializers(), managed.WithExternalConnector(c), managed.WithManagementPolicies(),
				managed.WithPollInterval(time.Minute)), nil
		},
		Accept: []crashtest.Verdict{crashtest.Stopped},
	})
}

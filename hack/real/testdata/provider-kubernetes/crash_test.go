package object

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-contrib/provider-kubernetes/apis/namespaced/object/v1alpha1"
	apisv1alpha1 "github.com/crossplane-contrib/provider-kubernetes/apis/namespaced/v1alpha1"
	kubeclient "github.com/crossplane-contrib/provider-kubernetes/pkg/kube/client"
	kconfig "github.com/crossplane-contrib/provider-kubernetes/pkg/kube/config"
	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// cluster is a fake of the API server of another cluster, with config maps.
type cluster struct{ crashtest.Resources[configMap] }

type configMap struct{ corev1.ConfigMap }

func (c configMap) String() string { return fmt.Sprint(c.Data) }

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent configMap
	_ = json.NewDecoder(r.Body).Decode(&sent)
	name := path.Base(r.URL.Path)
	if r.Method == http.MethodPost {
		name = sent.Name
	}
	cm, ok := c.Get(name)
	switch r.Method {
	case http.MethodPost:
		cm, ok = sent, true
		if !c.Create(name, cm) {
			refuse(w, kerrors.NewAlreadyExists(corev1.Resource("configmaps"), name))
			return
		}
	case http.MethodPatch: // A merge patch with all of the config map.
		cm, ok = sent, c.Update(name, sent)
	case http.MethodDelete:
		ok = c.Delete(name)
	}
	if !ok {
		refuse(w, kerrors.NewNotFound(corev1.Resource("configmaps"), name))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(cm)
}

func refuse(w http.ResponseWriter, err *kerrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
}

func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, v1alpha1.SchemeBuilder.AddToScheme, apisv1alpha1.SchemeBuilder.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(size int) runtime.RawExtension {
		return runtime.RawExtension{
			Raw: fmt.Appendf(
				nil,
				`{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": {"name": "one", "namespace": "default"}, "data": {"size": "%d"}}`,
				size,
			),
		}
	}
	one := &v1alpha1.Object{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	one.Spec.ForProvider.Manifest = manifest(1)
	one.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{
		Kind: apisv1alpha1.ProviderConfigKind, Name: "default",
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)

	crashtest.Run(t, crashtest.Provider[*cluster]{
		Scheme: scheme,
		CRDs:   "../../../../package/crds",
		Object: one,
		Beside: []client.Object{
			&apisv1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}},
		},
		Cloud: func() *cluster { return &cluster{} },
		Start: func(p *crashtest.Process, cloud *cluster) (reconcile.Reconciler, error) {
			m := p.Manager()
			c := &connector{
				logger: logging.NewNopLogger(), kube: m.GetClient(),
				usage: resource.NewProviderConfigUsageTracker(m.GetClient(), &apisv1alpha1.ProviderConfigUsage{}),
				clientBuilder: kubeclient.BuilderFn(func(
					context.Context, kconfig.ProviderConfigSpec,
				) (client.Client, *rest.Config, error) {
					rc := &rest.Config{Host: "http://cluster", QPS: -1}
					k, err := client.New(
						rc, client.Options{HTTPClient: &http.Client{Transport: p.Transport(cloud)}, Mapper: mapper},
					)
					return k, rc, err
				}),
			}
			return managed.NewReconciler(m, resource.ManagedKind(v1alpha1.ObjectGroupVersionKind),
				managed.WithExternalConnector(c), managed.WithFinalizer(&objFinalizer{client: m.GetClient()}),
				managed.WithDeterministicExternalName(true), managed.WithManagementPolicies(),
				managed.WithPollInterval(10*time.Minute)), nil
		},
		Change: func(o client.Object) { o.(*v1alpha1.Object).Spec.ForProvider.Manifest = manifest(2) },
		Name:   func(client.Object) string { return "one" },
		Accept: []crashtest.Verdict{crashtest.Stopped},
	})
}

//go:build integration

package controlplane

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The first run builds everything.
const integrationTimeout = 30 * time.Minute

// progress writes what the build says to the test's log.
type progress struct{ t *testing.T }

func (p progress) Write(b []byte) (int, error) {
	p.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestControlPlane(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), integrationTimeout)
	defer cancel()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)

	assets, err := Binaries(ctx, progress{t})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	plane, err := Start(ctx, Options{Assets: assets})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(began).Round(time.Millisecond))
	c, err := client.New(plane.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("Namespace", func(t *testing.T) {
		began := time.Now()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "to-be-deleted"}}
		content := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "content", Namespace: ns.Name}}
		create(ctx, t, c, ns, content)
		if err := c.Delete(ctx, ns); err != nil {
			t.Fatal(err)
		}
		untilGone(ctx, t, c, ns, content)
		t.Logf("gone in %s", time.Since(began).Round(time.Millisecond))
	})

	t.Run("Foreground", func(t *testing.T) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"}}
		testForeground(ctx, t, plane, c, owner, "v1", "ConfigMap")
	})

	began = time.Now()
	if err := plane.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	if err := plane.Stop(); err != nil {
		t.Errorf("A second stop does nothing, got: %v", err)
	}
	if answers(plane.Config()) {
		t.Error("The API server still answers.")
	}
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
	}
}

// testForeground deletes owner in the foreground: it stays until what it owns,
// which a finalizer holds, is gone.
func testForeground(ctx context.Context, t *testing.T, plane *ControlPlane, c client.Client, owner client.Object, apiVersion, kind string) {
	t.Helper()
	began := time.Now()
	create(ctx, t, c, owner)
	block := true
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "owned-", Namespace: owner.GetNamespace(), Finalizers: []string{"example.org/held"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &block,
		}},
	}}
	create(ctx, t, c, owned)

	// An owner goes at once if the collector hears of its deletion before it
	// hears of what it owns. It hears of ConfigMaps in their order, so once it has
	// collected a later one it knows this one.
	if err := plane.manager.waitUntilCollecting(ctx, plane.Config()); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		if err := c.Get(ctx, client.ObjectKeyFromObject(owned), owned); err != nil {
			t.Fatal(err)
		}
		return !owned.GetDeletionTimestamp().IsZero()
	})
	if err := c.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
		t.Fatalf("The owner waits for what it owns: %v", err)
	}
	if diff := cmp.Diff([]string{metav1.FinalizerDeleteDependents}, owner.GetFinalizers()); diff != "" {
		t.Errorf("The owner waits for what it owns: -want, +got:\n%s", diff)
	}
	owned.Finalizers = nil
	if err := c.Update(ctx, owned); err != nil {
		t.Fatal(err)
	}
	untilGone(ctx, t, c, owned, owner)
	t.Logf("gone in %s", time.Since(began).Round(time.Millisecond))
}

func create(ctx context.Context, t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
}

func untilGone(ctx context.Context, t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		until(t, func() bool {
			err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
			if err != nil && !kerrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err != nil
		})
	}
}

// answers reports whether an API server answers.
func answers(config *rest.Config) bool {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	response, err := h.Get(config.Host + "healthz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

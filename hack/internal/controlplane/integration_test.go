//go:build integration

package controlplane

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
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
	if !answers(plane.Config()) {
		t.Error("The API server doesn't answer.")
	}
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

// A controller manager that ends early is an error that has its last words.
func TestControlPlaneWithoutManager(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), integrationTimeout)
	defer cancel()
	built, err := Binaries(ctx, progress{t})
	if err != nil {
		t.Fatal(err)
	}
	assets := t.TempDir()
	for _, name := range []string{etcd, apiServer} {
		if err := os.Symlink(filepath.Join(built, name), filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	script(t, filepath.Join(assets, controllerManager), "echo 'not today' >&2; exit 7")
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)

	_, err = Start(ctx, Options{Assets: assets})
	want := "the controller manager has ended by itself (exit status 7)\nkube-controller-manager said last:\n\tnot today"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("A manager that dies early is shown with its last words: want %q, got: %v", want, err)
	}
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
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

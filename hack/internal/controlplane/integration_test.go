//go:build integration

package controlplane

import (
	"context"
	"net/http"
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
	if answers(plane.Config()) {
		t.Error("The API server still answers.")
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

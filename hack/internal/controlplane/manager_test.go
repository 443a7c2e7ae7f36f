package controlplane

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// fakeManager starts a shell script as the controller manager.
func fakeManager(t *testing.T, text string) *manager {
	t.Helper()
	dir := t.TempDir()
	script(t, filepath.Join(dir, controllerManager), text)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	m, err := startManager(exec.Command(filepath.Join(dir, controllerManager)), log)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestManagerDies(t *testing.T) {
	cases := map[string]struct {
		reason string
		script string
		want   string
	}{
		"Error": {
			reason: "The exit code and the last words are in the error.",
			script: "echo 'unknown flag: --what' >&2; exit 3",
			want:   "the controller manager has ended by itself (exit status 3)\nkube-controller-manager said last:\n\tunknown flag: --what",
		},
	}
	// An API server that takes the object and never has it collected.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"graft-probe-x","namespace":"default"}}`
		switch r.URL.Path {
		case "/api":
			body = `{"kind":"APIVersions","versions":["v1"]}`
		case "/apis":
			body = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		case "/api/v1":
			body = `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]}]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer api.Close()

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := fakeManager(t, tc.script)
			err := m.waitUntilCollecting(context.Background(), &rest.Config{Host: api.URL})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nwaiting: want %q, got: %v", tc.reason, tc.want, err)
			}
			err = m.stop()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nstopping: want %q, got: %v", tc.reason, tc.want, err)
			}
		})
	}
}

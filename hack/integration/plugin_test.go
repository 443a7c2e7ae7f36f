//go:build integration

package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A plugin is kubectl-graft, built.
type plugin string

// newPlugin links the plugin once, because the go command leaves a program that is up to date as it is.
func newPlugin(t *testing.T) plugin {
	t.Helper()
	path := filepath.Join("..", "..", "bin", "kubectl-graft")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "kubectl-graft")
	out, err := cmd.CombinedOutput()
	must(t, "go build: "+string(out), err)
	return plugin(path)
}

// run the plugin, and return its output and exit status.
func (p plugin) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(p), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// says fails the test unless the plugin exits with a status, and its output has all words.
func (p plugin) says(t *testing.T, line string, status int, words ...string) {
	t.Helper()
	out, code := p.run(t, strings.Fields(line)...)
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("kubectl graft %s: want %q, got:\n%s", line, w, out)
		}
	}
	if code != status {
		t.Errorf("kubectl graft %s: want exit status %d, got %d:\n%s", line, status, code, out)
	}
}

// A tenant sees no more than the API server lets the tenant read.
func TestPlugin_Forbidden(t *testing.T) {
	s, p := newPlatform(t), newPlugin(t)
	part := v1alpha1.NewDatabase("plugin-part")
	shop := s.newApp(t, "plugin", part)
	must(
		t,
		"Patch()",
		s.Patch(
			t.Context(),
			shop.claim,
			mergePatch(`{"metadata":{"finalizers":["finalizer.apiextensions.crossplane.io"]}}`),
		),
	)
	must(t, "Delete()", s.Delete(t.Context(), shop.claim))
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{platformGroup}, Resources: []string{"apps"}, Verbs: []string{"get", "list"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "plugin-tenant"}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plugin-tenant"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}},
	}
	s.createFor(t, role, binding)
	eventually(t, "jane may read the claim", func() (bool, string) {
		out, code := p.run(t, "why", "app/plugin", "--as", "jane")
		return code == 1, out
	})
	p.says(t, "why app/plugin", 1, "App/plugin in "+namespace+"  Deleting", "XApp/plugin-x")
	p.says(t, "why app/plugin --as jane", 1, "XApp/plugin-x  Unknown\n     You may not read it.")
	p.says(
		t,
		"why database/plugin-part --as jane",
		2,
		`error: databases.sample.graft.crossplane.io "plugin-part" is forbidden: User "jane" cannot get resource`,
	)
}

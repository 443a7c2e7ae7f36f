//go:build real

package real

import "testing"

// TestKubernetes adopts Graft in provider-kubernetes, and runs the provider's own tests.
func TestKubernetes(t *testing.T) {
	dir := provider{
		path: "github.com/crossplane-contrib/provider-kubernetes", version: "v1.3.1", runtime: "v2.4.0", graft: "v0.24.0",
	}.adopted(t)

	run(t, dir, "go", "build", "./...")
	t.Log(run(t, dir, "go", "test", "./..."))
}

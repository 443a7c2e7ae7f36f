//go:build integration

package integration

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// Upstream needs no permission to patch, so a provider may have none. A managed
// resource must be created and deleted without it, too.
func TestWithoutPermissionToPatch(t *testing.T) {
	const user = "provider"

	s := newServer(t)
	s.allow(t, user,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"buckets", "databases"}, Verbs: []string{"get", "list", "watch", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"buckets/status", "databases/status"}, Verbs: []string{"update"}})

	for name, style := range map[string]func(world *cloud.Cloud) connectors{
		"Sync":  syncConnectors,
		"Async": func(world *cloud.Cloud) connectors { return asyncConnectors(world) },
	} {
		t.Run(name, func(t *testing.T) {
			world := cloud.New(cloud.Options{RequestLatency: time.Millisecond})
			all := fleet("unpatched", 2)
			s.create(t, all...)

			start(t, graft, setup{connectors: style(world), poll: 250 * time.Millisecond, user: user})
			s.until(t, "all show Available", all, isAvailable)
			s.owned(t, world, len(all))

			s.remove(t, all...)
			s.untilGone(t)

			if left := world.Inventory(); len(left) != 0 {
				t.Errorf("want no external resource left, got %v", left)
			}
		})
	}
}

//go:build integration

package integration

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// Upstream needs no permission to patch, so a provider may have none. A managed
// resource must be created and deleted without it, too.
func TestWithoutPermissionToPatch(t *testing.T) {
	const user = "provider"

	s := newServer(t)
	meta := metav1.ObjectMeta{Name: user}

	must(t, "AddToScheme()", rbacv1.AddToScheme(s.Scheme()))

	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{sample.Group}, Resources: []string{"buckets", "databases"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{sample.Group}, Resources: []string{"buckets/status", "databases/status"}, Verbs: []string{"update"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}

	for _, o := range []client.Object{role, binding} {
		must(t, "Create()", s.Create(t.Context(), o))
		t.Cleanup(func() { must(t, "Delete()", s.Delete(context.WithoutCancel(t.Context()), o)) })
	}

	styles := map[string]func(world *cloud.Cloud) connectors{
		"Sync":  func(world *cloud.Cloud) connectors { return syncConnectors(world) },
		"Async": asyncConnectors,
	}

	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			world := cloud.New(cloud.Options{RequestLatency: time.Millisecond})

			all := fleet("unpatched", 2)
			s.create(t, all...)

			start(t, graft, setup{
				connectors:  style(world),
				poll:        250 * time.Millisecond,
				impersonate: rest.ImpersonationConfig{UserName: user},
			})
			s.until(t, "all show Available", all, isAvailable)

			owners := idsByOwner(world)
			for uid, mg := range s.list(t.Context(), t) {
				if want := owners[uid]; externalName(mg) != want || len(world.Inventory()) != len(all) {
					t.Errorf("%T: want external name %q, got %q; external resources: %v", mg, want, externalName(mg), world.Inventory())
				}
			}

			s.remove(t, all...)
			s.untilGone(t)

			if left := world.Inventory(); len(left) != 0 {
				t.Errorf("want no external resource left, got %v", left)
			}
		})
	}
}

//go:build integration

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// latency is how long a call of the contested resource takes.
const latency = 5 * time.Millisecond

// A contested external resource is one that all managed resources mean. It is
// gone after every fifth call to delete it.
type contested struct {
	mu      sync.Mutex
	there   bool
	owner   types.UID
	inside  types.UID
	deletes int

	// collisions are the calls that were made while another managed resource
	// owned the external resource, or called.
	collisions []string
}

// holder returns the UID of the managed resource that owns the external resource.
func (c *contested) holder() types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.owner
}

// lose removes the external resource, whose owner no longer exists, unless a call is
// in progress. It reports whether it did.
func (c *contested) lose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.inside != "" {
		return false
	}

	c.there, c.owner = false, ""

	return true
}

func (c *contested) act(what string, mg resource.Managed, fn func()) {
	c.mu.Lock()
	if c.inside != "" && c.inside != mg.GetUID() || c.owner != "" && c.owner != mg.GetUID() {
		c.collisions = append(c.collisions, what+" by "+mg.GetName())
	}

	c.inside = mg.GetUID()
	c.mu.Unlock()

	// The call takes a while, in which another one may come in.
	_ = cloud.RealClock{}.Sleep(context.Background(), latency)

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.inside == mg.GetUID() {
		c.inside = ""
	}

	fn()
}

func (c *contested) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return c, nil
}

func (c *contested) Disconnect(context.Context) error { return nil }

func (c *contested) Observe(context.Context, resource.Managed) (managed.ExternalObservation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return managed.ExternalObservation{ResourceExists: c.there, ResourceUpToDate: true}, nil
}

func (c *contested) Create(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	c.act("create", mg, func() { c.there, c.owner = true, mg.GetUID() })
	return managed.ExternalCreation{}, nil
}

func (c *contested) Update(_ context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	c.act("update", mg, func() {})
	return managed.ExternalUpdate{}, nil
}

func (c *contested) Delete(_ context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	c.act("delete", mg, func() {
		if c.deletes++; c.deletes%5 == 0 {
			c.there, c.owner = false, ""
		}
	})

	return managed.ExternalDelete{}, nil
}

// 40 managed resources of two kinds mean the same external resource. Its owner is
// deleted, or killed, one after the other. Without a reservation they act on
// it at the same time.
func TestNameCollision(t *testing.T) {
	byName := managed.WithReservationKey(func(mg resource.Managed) string { return externalName(mg) })

	for _, tc := range []struct {
		name string
		opts []managed.ReconcilerOption
	}{
		{name: "Unreserved"},
		{name: "Reserved", opts: []managed.ReconcilerOption{managed.WithExternalNameReservation("leases", byName)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := newServer(t), &contested{}
			must(t, "Create", client.IgnoreAlreadyExists(s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leases"}})))

			all := fleet("wants", 20, func(mg sample.Instance) { meta.SetExternalName(mg, "shared") })
			s.create(t, all...)

			build := func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
				return managed.NewReconciler(m, of, append([]managed.ReconcilerOption{
					managed.WithManagementPolicies(),
					managed.WithInitializers(),
					managed.WithCreationGracePeriod(s.grace()),
					managed.WithPollInterval(s.pollInterval()),
					managed.WithExternalConnector(c),
				}, tc.opts...)...)
			}
			start(t, flavour{name: tc.name, graft: true, build: build}, setup{connectors: connectors{wait: func() {}}, poll: 300 * time.Millisecond})

			eventually(t, "a managed resource has it", func() (bool, string) { return c.holder() != "", "it has no owner" })

			if tc.opts != nil {
				for turn := range 6 {
					c.handOver(t, s, turn%2 == 1)
				}
			}

			for _, mg := range s.list(t.Context(), t) {
				must(t, "Delete", client.IgnoreNotFound(s.Delete(t.Context(), mg)))
			}

			s.untilGone(t)

			c.mu.Lock()
			defer c.mu.Unlock()

			t.Logf("%d collisions", len(c.collisions))

			if reserved := tc.opts != nil; reserved != (len(c.collisions) == 0) {
				t.Errorf("collisions: want none only with a reservation, got %v", c.collisions)
			}
		})
	}
}

// handOver deletes the owner of the external resource, and waits until another one
// has it. If kill is true it removes the finalizer, too, so that the reservation is
// never released.
func (c *contested) handOver(t *testing.T, s server, kill bool) {
	t.Helper()

	l := &coordinationv1.LeaseList{}
	must(t, "List", s.List(t.Context(), l, client.InNamespace("leases")))

	if len(l.Items) != 1 || l.Items[0].Spec.HolderIdentity == nil {
		t.Fatalf("leases: want one that is held, got %v", l.Items)
	}

	had := types.UID(*l.Items[0].Spec.HolderIdentity)
	mg := s.list(t.Context(), t)[had]

	must(t, "Delete", s.Delete(t.Context(), mg))

	if kill {
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		must(t, "Patch", client.IgnoreNotFound(s.Patch(t.Context(), mg, none)))
		eventually(t, "its last call returns", func() (bool, string) { return c.lose(), "it calls" })
	}

	eventually(t, "another one has it", func() (bool, string) {
		now := c.holder()
		return now != "" && now != had, fmt.Sprintf("%q has it", now)
	})
}

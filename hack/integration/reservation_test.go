//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
)

// sharedName is the external name that all contenders have.
const sharedName, leaseNamespace = "shared", "leases"

// 200 managed resources of two kinds have one external name, and one in three requests
// for Leases fails. The one that holds the external resource is deleted, or removed
// without releasing its reservation, and the next one takes over. Two never act on it at
// the same time. `make demo` shows that they do without a reservation.
func TestReservation(t *testing.T) {
	const contenders, turns = 100, 4 // contenders of each kind
	s := newServer(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaseNamespace}}
	must(t, "Create()", client.IgnoreAlreadyExists(s.Create(t.Context(), ns)))
	must(t, "DeleteAllOf()", s.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(leaseNamespace)))
	r := &referee{world: cloud.New(cloud.Options{RequestLatency: 2 * time.Millisecond}), inside: map[types.UID]int{}}
	d := newDice(33, refuseForbidden, refuseInternal, loseRequest, refuseConflict, loseAnswer)
	tr := &traffic{fault: func(c call, _ []byte) fault {
		if c.Resource != "leases" {
			return noFault
		}
		return d.throw()
	}}

	// Each is of another size: none would leave the external resource of another as it is.
	size := int64(0)
	s.create(t, fleet("wants", contenders, func(mg sample.Instance) {
		size++
		mg.GetForProvider().Size = size
		meta.SetExternalName(mg, sharedName)
	})...)
	start(t, r.provider(), setup{wrap: tr.wrap})
	for turn := range turns {
		var has sample.Instance
		eventually(t, "a managed resource holds it", func() (bool, string) {
			has = s.list(t.Context(), t)[r.owner()]

			// One that is available does nothing more: it isn't looked at for an hour.
			return has != nil && isAvailable(has), fmt.Sprintf("%q has it", r.owner())
		})
		if turn%2 == 1 {
			// It is removed without releasing its reservation.
			must(t, "Delete()", r.world.Session("").Delete(t.Context(), sharedName))
			s.merge(t, `{"metadata":{"finalizers":null}}`, has)
		}
		s.remove(t, has)
		eventually(t, "it is another one's", func() (bool, string) {
			return !slices.Contains([]types.UID{"", has.GetUID()}, r.owner()), fmt.Sprintf("%q has it", r.owner())
		})
	}
	for _, mg := range s.list(t.Context(), t) {
		s.remove(t, mg)
	}
	s.untilGone(t)
	if len(r.fouls) > 0 || len(r.world.Inventory()) > 0 || d.count() == 0 {
		t.Errorf(
			"want no fouls, no external resource left and faults, got %v, %v, %d",
			r.fouls,
			r.world.Inventory(),
			d.count(),
		)
	}
}

// A referee watches the cloud, in which one name is contested. It notes a foul if a
// managed resource changes an external resource of another one, or while another one does.
type referee struct {
	world *cloud.Cloud

	mu     sync.Mutex
	inside map[types.UID]int
	fouls  []string
}

func (r *referee) enter(by types.UID, op cloud.Op) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.inside {
		if other != by {
			r.fouls = append(r.fouls, fmt.Sprintf("%s by %s while %s is at it", op, by, other))
		}
	}

	// To ask for a name that is taken changes nothing.
	for _, is := range r.world.Inventory() {
		if is.Owner != string(by) && op != cloud.OpCreate {
			r.fouls = append(r.fouls, fmt.Sprintf("%s by %s of what is %s's", op, by, is.Owner))
		}
	}
	r.inside[by]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.inside[by]--; r.inside[by] == 0 {
			delete(r.inside, by)
		}
	}
}

func (r *referee) provider() flavour {
	inner := sample.NewSync[resource.Managed](r.world, sample.WithDeterministicNames())
	connect := managed.ExternalConnectorFn(func(
		ctx context.Context, mg resource.Managed,
	) (managed.ExternalClient, error) {
		c, err := inner.Connect(ctx, mg)
		if err != nil {
			return nil, err
		}
		return managed.ExternalClientFns{
			ObserveFn: c.Observe, CreateFn: refereed(r, cloud.OpCreate, c.Create),
			UpdateFn: refereed(r, cloud.OpUpdate, c.Update),
			DeleteFn: refereed(r, cloud.OpDelete, c.Delete), DisconnectFn: c.Disconnect,
		}, nil
	})
	return flavour{build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		s.connectors = connectors{untyped: connect}
		return newGraft(m, of, s, managed.WithDeterministicExternalName(true),
			reservation.With(leaseNamespace),
			reservation.WithKey(func(_ context.Context, mg resource.Managed) (string, error) {
				return meta.GetExternalName(mg), nil
			}))
	}}
}

func (r *referee) owner() types.UID {
	for _, is := range r.world.Inventory() {
		return types.UID(is.Owner)
	}
	return ""
}

func refereed[T any](
	r *referee, op cloud.Op, call func(ctx context.Context, mg resource.Managed) (T, error),
) func(ctx context.Context, mg resource.Managed) (T, error) {
	return func(ctx context.Context, mg resource.Managed) (T, error) {
		defer r.enter(mg.GetUID(), op)()
		return call(ctx, mg)
	}
}

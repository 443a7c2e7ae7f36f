//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	// sharedName is the external name that all contenders have.
	sharedName = "shared"

	leaseNamespace = "leases"
)

// An act is a call that changes the external resource, by a managed resource's
// UID, which a process of the provider made.
type act struct {
	process string
	by      types.UID
	op      cloud.Op
}

// A referee stands at the cloud, in which one name is contested. It sees every
// call that changes something, and the managed resource that it is for. It notes a
// foul if another call is in progress, or if another one owns the external resource.
type referee struct {
	world *cloud.Cloud

	// hold is called before each act takes effect.
	hold func(a act)

	mu     sync.Mutex
	inside map[types.UID]int
	acts   []act
	fouls  []string
}

func newReferee(world *cloud.Cloud) *referee {
	r := &referee{world: world, hold: func(act) {}, inside: map[types.UID]int{}}
	world.SetHooks(cloud.Hooks{Before: r.before})
	return r
}

// actorKey is where a context has the act that is made with it.
type actorKey struct{}

// before a call takes effect.
func (r *referee) before(ctx context.Context, c cloud.Call) error {
	a, ok := ctx.Value(actorKey{}).(act)
	if !ok || c.Op != a.op {
		return nil
	}
	r.hold(a)
	for _, is := range r.world.Inventory() {
		// To ask for a name that is taken changes nothing.
		if is.Owner != string(a.by) && a.op != cloud.OpCreate {
			r.mu.Lock()
			r.fouls = append(r.fouls, fmt.Sprintf("%v of what is %s's", a, is.Owner))
			r.mu.Unlock()
		}
	}
	return nil
}

// enter notes that a managed resource acts, until leave is called.
func (r *referee) enter(a act) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.inside {
		if other != a.by {
			r.fouls = append(r.fouls, fmt.Sprintf("%v while %s is at it", a, other))
		}
	}
	r.inside[a.by]++
	r.acts = append(r.acts, a)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.inside[a.by]--; r.inside[a.by] == 0 {
			delete(r.inside, a.by)
		}
	}
}

// acted returns the acts so far for which match is true.
func (r *referee) acted(match func(a act) bool) []act {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.acts), func(a act) bool { return !match(a) })
}

// seen returns the fouls so far.
func (r *referee) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fouls)
}

// check that nothing went wrong, and nothing is left.
func (r *referee) check(t *testing.T) {
	t.Helper()
	if fouls := r.seen(); len(fouls) > 0 {
		t.Errorf("want no fouls, got %v", fouls)
	}
	if left := r.world.Inventory(); len(left) > 0 {
		t.Errorf("want no external resource left, got %v", left)
	}
}

// owner returns whose the external resource is.
func (r *referee) owner(t *testing.T) types.UID {
	t.Helper()
	switch all := r.world.Inventory(); len(all) {
	case 0:
		return ""
	case 1:
		return types.UID(all[0].Owner)
	default:
		t.Fatalf("want one external resource, got %v", all)
		return ""
	}
}

// lose the external resource, as if its owner had deleted it by hand.
func (r *referee) lose(t *testing.T) {
	t.Helper()
	session, err := r.world.NewSession(t.Context(), "")
	must(t, "NewSession()", err)
	must(t, "Delete()", session.Delete(t.Context(), sharedName))
}

// provider returns how to build a process of a provider of which the referee sees
// what it does.
func (r *referee) provider(process string, o ...managed.ReconcilerOption) flavour {
	inner := sample.NewSync[resource.Managed](r.world, sample.WithDeterministicNames())
	connect := managed.ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (managed.ExternalClient, error) {
		c, err := inner.Connect(ctx, mg)
		if err != nil {
			return nil, err
		}
		return &refereed{ExternalClient: c, referee: r, process: process}, nil
	})
	return flavour{name: process, build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		s.connectors = connectors{untyped: connect}
		return newGraft(m, of, s, append([]managed.ReconcilerOption{managed.WithDeterministicExternalName(true)}, o...)...)
	}}
}

// reserved is a provider of two kinds that share their external resources.
func (r *referee) reserved(process string) flavour {
	return r.provider(process, managed.WithExternalNameReservation(leaseNamespace,
		managed.WithReservationKey(func(mg resource.Managed) string { return meta.GetExternalName(mg) })))
}

// A refereed client reports each call and its managed resource to the referee.
type refereed struct {
	managed.ExternalClient

	referee *referee
	process string
}

func (c *refereed) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	ctx, leave := c.act(ctx, mg, cloud.OpCreate)
	defer leave()
	return c.ExternalClient.Create(ctx, mg)
}

func (c *refereed) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	ctx, leave := c.act(ctx, mg, cloud.OpUpdate)
	defer leave()
	return c.ExternalClient.Update(ctx, mg)
}

func (c *refereed) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	ctx, leave := c.act(ctx, mg, cloud.OpDelete)
	defer leave()
	return c.ExternalClient.Delete(ctx, mg)
}

func (c *refereed) act(ctx context.Context, mg resource.Managed, op cloud.Op) (_ context.Context, leave func()) {
	a := act{process: c.process, by: mg.GetUID(), op: op}
	return context.WithValue(ctx, actorKey{}, a), c.referee.enter(a)
}

// contenders returns n Databases and as many Buckets that want the name, each of
// another size: none would leave the external resource of another as it is.
func contenders(n int) []sample.Instance {
	size := int64(0)
	return fleet("wants", n, func(mg sample.Instance) {
		size++
		mg.GetForProvider().Size = size
		meta.SetExternalName(mg, sharedName)
	})
}

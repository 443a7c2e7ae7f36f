package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

const (
	backupFinalizer = "example.org/backup"  // Of a controller that has work to do before the object is deleted.
	lookEvery       = 50 * time.Millisecond // How often a user, and a composite's controller, look again.
	maxRounds       = 20                    // How often an object is reconciled at most until it comes to rest.
)

// A story shows one failure of upstream. The same code plays it with upstream and with Graft.
type story struct {
	name       string // Selects the story. The part before a slash selects all variants.
	about      string // What happens, in plain words.
	difference string // What Graft does differently, in one line.
	baseline   string // The title of upstream's column if its code only has the shape of upstream's.

	simulated bool          // Whether time is simulated.
	cloud     cloud.Options // Of the external system.

	// play lets the story happen, and returns its findings, in the same order for either side. An error ends it: see
	// check.
	play func(s *scene) []finding
}

// A scene has users, a cloud, and a provider of one side. The story and the provider see
// the same things with either reconciler.
type scene struct {
	stage
	*recorder

	ctx   context.Context // Of the story, which is over in good time.
	side  side
	cloud *cloud.Cloud

	kind  resource.ManagedKind // Of the managed resources.
	objs  []sample.Instance    // The managed resources, as they were created.
	stops []func() error       // These end the managers that run.

	// onCall is called before a call of the cloud takes effect, in the caller's
	// goroutine. Set it while no provider runs or nothing is called.
	onCall func(ctx context.Context, c cloud.Call)
}

func newScene(ctx context.Context, sd side, st stage, r *recorder, of story) *scene {
	of.cloud.Clock = r.clock
	s := &scene{stage: st, recorder: r, ctx: ctx, side: sd, cloud: cloud.New(of.cloud)}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called})
	return s
}

func (s *scene) called(ctx context.Context, c cloud.Call) error {
	if c.Op != cloud.OpGet && c.Op != cloud.OpLogin {
		s.add("the cloud", strings.TrimSpace(fmt.Sprintf("is called: %s %s", c.Op, cmp.Or(c.ID, c.Kind))))
	}
	if s.onCall != nil {
		s.onCall(ctx, c)
	}
	return nil
}

// create lets a user create a managed resource.
func (s *scene) create(like sample.Instance) {
	gvk := must(apiutil.GVKForObject(like, s.user.Scheme()))
	s.kind = resource.ManagedKind(gvk)
	o, _ := like.DeepCopyObject().(sample.Instance)
	o.SetName(fmt.Sprintf("example-%02d", len(s.objs)+1))
	s.add(byUser, "creates "+o.GetName())
	s.watch(s.user, gvk, client.ObjectKeyFromObject(o))
	check(s.user.Create(s.ctx, o))
	s.objs = append(s.objs, o)
	s.refresh(s.ctx)
}

// createAtRest creates a managed resource and starts a provider, which comes to rest.
func (s *scene) createAtRest(like sample.Instance) *running {
	s.create(like)
	p := s.start(s.side.newReconciler, s.sync())
	p.settle()
	return p
}

// act lets a user do something with the managed resource.
func (s *scene) act(what string, do func(o sample.Instance)) {
	o := s.objs[len(s.objs)-1]
	s.add(byUser, what+" "+o.GetName())
	do(o)
	s.refresh(s.ctx)
	check(s.ctx.Err())
}

// delete lets a user delete the managed resource.
func (s *scene) delete() {
	s.act("deletes", func(o sample.Instance) { check(s.user.Delete(s.ctx, o)) })
}

// removeBackupFinalizer does so if the object still exists.
func (s *scene) removeBackupFinalizer(by string) {
	s.act(by, func(o sample.Instance) {
		v := s.view(o)
		if v.found && controllerutil.RemoveFinalizer(v, backupFinalizer) {
			check(s.user.Update(s.ctx, v.GetUnstructured()))
		}
	})
}

// happens adds an event that no managed resource shows.
func (s *scene) happens(what string) { s.add("", what) }

// look at the managed resource that was created last, as a user does.
func (s *scene) look() view { return s.view(s.objs[len(s.objs)-1]) }

func (s *scene) view(o sample.Instance) view {
	v := must(see(s.ctx, s.user, schema.GroupVersionKind(s.kind), client.ObjectKeyFromObject(o)))
	for _, r := range s.cloud.Inventory() {
		if r.Owner == string(o.GetUID()) {
			v.external = append(v.external, r)
		}
	}
	return v
}

// until waits for something to become true.
func (s *scene) until(done func() bool) { check(poll(s.ctx, done)) }

func poll(ctx context.Context, done func() bool) error {
	return wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) { return done(), nil })
}

// end stops all that was started.
func (s *scene) end() (err error) {
	for _, stop := range s.stops {
		err = errors.Join(err, stop())
	}
	return err
}

// reconcile objects, or all, n times more. It returns an error if one wants to be reconciled again at once.
func (r *running) reconcile(n int, objs ...sample.Instance) (again error) {
	if objs == nil {
		objs = r.objs
	}
	for range n {
		again = nil
		for _, o := range objs {
			check(r.ctx.Err())
			out, err := r.reconciler.Reconcile(r.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			if err == nil && out.Requeue { //nolint:staticcheck // Upstream's reconciler returns it.
				err = errors.New("it asked for another reconcile at once")
			}
			again = errors.Join(again, err)
		}
	}
	return again
}

// settle waits until the provider has nothing to do with any of the managed resources before its
// next poll.
func (r *running) settle() {
	versions := func() (out []string) {
		for _, o := range r.objs {
			out = append(out, r.view(o).GetResourceVersion())
		}
		return out
	}
	var again error
	for range maxRounds {
		before := versions()
		if again = r.reconcile(1); !slices.Equal(before, versions()) {
			again = errors.New("the managed resources change")
		}
		if again == nil {
			return
		}
	}
	check(fmt.Errorf("the provider doesn't come to rest in %d rounds: %w", maxRounds, again))
}

// untilGone reconciles until the managed resource no longer exists. meanwhile, if given, is called before each round.
func (r *running) untilGone(meanwhile func()) {
	for range maxRounds {
		if meanwhile != nil {
			meanwhile()
		}
		_ = r.reconcile(1)
		if !r.look().found {
			return
		}
	}
	check(errors.New("the managed resource still exists"))
}

// sync returns the connector of a provider that does everything while it is called.
func (s *scene) sync(o ...sample.Option) managed.ExternalConnector {
	return sample.NewSync[resource.Managed](s.cloud, o...)
}

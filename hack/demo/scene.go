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
	"sigs.k8s.io/controller-runtime/pkg/manager"
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

	single    bool          // Whether the story is about single objects in every environment.
	simulated bool          // Whether time is simulated, where the environment can do so.
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

	ctx      context.Context // Of the story, which is over in good time.
	story    story
	side     side
	replicas int
	cloud    *cloud.Cloud

	kind  resource.ManagedKind // Of the managed resources.
	objs  []sample.Instance    // The managed resources, as they were created.
	stops []func() error       // These end all that was started.

	// onCall is called before a call of the cloud takes effect, in the caller's
	// goroutine. Set it while no provider runs or nothing is called.
	onCall func(ctx context.Context, c cloud.Call)
}

func newScene(ctx context.Context, sd side, st stage, r *recorder, of story, replicas int) *scene {
	of.cloud.Clock = r.clock
	if of.single {
		replicas = 1
	}
	s := &scene{
		stage: st, recorder: r, ctx: ctx, story: of, side: sd, replicas: replicas, cloud: cloud.New(of.cloud),
	}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called})
	return s
}

func (s *scene) called(ctx context.Context, c cloud.Call) error {
	if c.Op != cloud.OpGet && c.Op != cloud.OpLogin && s.shows(ctx, c) {
		s.add("the cloud", strings.TrimSpace(fmt.Sprintf("is called: %s %s", c.Op, cmp.Or(c.ID, c.Kind))))
	}
	if s.onCall != nil {
		s.onCall(ctx, c)
	}
	return nil
}

// shows reports whether the timeline is about the managed resource that a call is for: the first one is enough.
func (s *scene) shows(ctx context.Context, c cloud.Call) bool {
	if s.story.single || len(s.objs) == 0 {
		return s.story.single
	}
	for _, r := range s.cloud.Inventory() {
		if r.ID == c.ID {
			c.Owner = r.Owner
		}
	}
	return reconciled(ctx) == s.objs[0].GetName() || c.Owner == string(s.objs[0].GetUID())
}

// create lets a user create the managed resources, which are alike.
func (s *scene) create(like sample.Instance) {
	gvk := must(apiutil.GVKForObject(like, s.user.Scheme()))
	s.kind = resource.ManagedKind(gvk)
	for i := range s.replicas {
		o, _ := like.DeepCopyObject().(sample.Instance)

		// Names have to sort like numbers.
		o.SetName(fmt.Sprintf("%s-%02d", s.prefix, len(s.objs)+1))
		o.SetLabels(s.labels)
		if i == 0 {
			s.add(byUser, "creates "+o.GetName())
			s.watch(s.user, gvk, client.ObjectKeyFromObject(o))
		}
		check(s.user.Create(s.ctx, o))
		s.objs = append(s.objs, o)
	}
	s.refresh(s.ctx)
}

// createAtRest creates the managed resources and starts a provider, which comes to rest.
func (s *scene) createAtRest(like sample.Instance) *running {
	s.create(like)
	p := s.start(s.side.newReconciler, s.sync())
	p.settle()
	return p
}

// act lets a user do something with every managed resource.
func (s *scene) act(what string, do func(o sample.Instance)) {
	s.add(byUser, what+" "+s.objs[0].GetName())
	for _, o := range s.objs {
		do(o)
	}
	s.refresh(s.ctx)
	check(s.ctx.Err())
}

// delete lets a user delete the managed resources.
func (s *scene) delete() {
	s.act("deletes", func(o sample.Instance) { check(s.user.Delete(s.ctx, o)) })
}

// removeBackupFinalizer does so with the objects that still exist.
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

// look at all managed resources as a user does.
func (s *scene) look() []view {
	out := make([]view, len(s.objs))
	for i, o := range s.objs {
		out[i] = s.view(o)
	}
	return out
}

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

// A running provider reconciles managed resources: those given, or all of its scene.
type running struct {
	*scene
	process
}

// start a provider, which reconciles each managed resource once.
func (s *scene) start(build newReconciler, c managed.ExternalConnector) *running {
	return s.startWith(func(m manager.Manager) reconcile.Reconciler { return build(m, s.kind, c) })
}

func (s *scene) startWith(build newProvider) *running {
	p := s.stage.start(s.ctx, s.kind, build, s.objs)
	s.stops = append(s.stops, p.stop)
	return &running{s, p}
}

// reconcile waits until each object as it now is was reconciled n times more.
func (r *running) reconcile(n int, objs ...sample.Instance) {
	if objs == nil {
		objs = r.objs
	}
	for range n {
		r.round(r.ctx, objs)
	}
}

// settle waits until the provider has nothing to do with any of the managed resources before its
// next poll.
func (r *running) settle() {
	versions := func() (out []string) {
		for _, v := range r.look() {
			out = append(out, v.GetResourceVersion())
		}
		return out
	}
	var again error
	for range maxRounds {
		before := versions()
		r.reconcile(1)
		again = nil
		if !slices.Equal(before, versions()) {
			again = errors.New("the managed resources change")
		}
		for _, o := range r.objs {
			again = errors.Join(again, r.runs(o).again)
		}
		if again == nil {
			return
		}
	}
	check(fmt.Errorf("the provider doesn't come to rest in %d rounds: %w", maxRounds, again))
}

// untilGone reconciles until no managed resource is left. meanwhile, if given, is called before each round.
func (r *running) untilGone(meanwhile func()) {
	for range maxRounds {
		if meanwhile != nil {
			meanwhile()
		}
		r.reconcile(1)
		if !slices.ContainsFunc(r.look(), func(v view) bool { return v.found }) {
			return
		}
	}
	check(errors.New("the managed resources still exist"))
}

// sync returns the connector of a provider that does everything while it is called.
func (s *scene) sync(o ...sample.Option) managed.ExternalConnector {
	return sample.NewSync[resource.Managed](s.cloud, o...)
}

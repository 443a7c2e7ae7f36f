package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// backupFinalizer belongs to a controller that has work to do before the object is deleted.
const backupFinalizer = "example.org/backup"

// A story shows one failure of upstream. The same code plays it with upstream and with Graft.
type story struct {
	// name selects the story. The part before a slash selects all variants.
	name string

	// about says in plain words what happens.
	about string

	// difference says in one line what Graft does differently.
	difference string

	// baseline is the title of upstream's column if its code only has the shape of upstream's.
	baseline string

	// single means that the story is about single objects in every environment.
	single bool

	// simulated means that time is simulated, where the environment is in memory.
	simulated bool

	// cloud configures the external system of the story.
	cloud cloud.Options

	// play lets the story happen, and returns its findings, in the same order for either side. An error ends it: see
	// check.
	play func(ctx context.Context, s *scene) []finding
}

// A failure ends a story.
type failure struct{ error }

// check ends the story if there is an error. So a story is a list of events, without an error after each.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// findings plays the story.
func (st story) findings(ctx context.Context, s *scene) (out []finding, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return st.play(ctx, s), nil
}

// A scene has users, a cloud, and a provider of one side. The
// story and the provider see the same things with either reconciler.
type scene struct {
	side     side
	stage    stage
	replicas int
	single   bool
	recorder *recorder

	// simulated means that time.Sleep takes no time.
	simulated bool

	cloud *cloud.Cloud
	clock *cloud.ManualClock

	// objs are the managed resources, as they were created, of one kind. mu is held to add to them,
	// and by calls of the cloud to read them.
	kind resource.ManagedKind
	mu   sync.Mutex
	objs []sample.Instance

	// owners are managed resources by the ids of their external resources.
	owners sync.Map

	started []interface{ stop() error }

	// onCall is called before a call of the cloud takes effect, in the caller's
	// goroutine. Set it while no provider runs or nothing is called.
	onCall func(ctx context.Context, c cloud.Call, owner sample.Instance)
}

func newScene(sd side, st stage, r *recorder, of story, replicas int, simulated bool) *scene {
	o := of.cloud
	clock := cloud.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.Clock = clock
	s := &scene{
		side: sd, stage: st, replicas: replicas, single: of.single, recorder: r, cloud: cloud.New(o), clock: clock,
		simulated: simulated,
	}
	if s.single {
		s.replicas = 1
	}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called})
	return s
}

func (s *scene) called(ctx context.Context, c cloud.Call) error {
	owner := s.ownerOf(c)
	if owner == nil {
		return nil
	}
	if s.watches(owner) && c.Op != cloud.OpGet {
		s.recorder.timeline.add(byCloud, fmt.Sprintf("is called: %s %s", c.Op, cmp.Or(c.ID, c.Kind)))
	}
	if s.onCall != nil {
		s.onCall(ctx, c, owner)
	}
	return nil
}

// ownerOf returns the managed resource that a call is for, or nil if that is unknown.
func (s *scene) ownerOf(c cloud.Call) sample.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The id tells it also when the external resource no longer exists.
	if o, ok := s.owners.Load(c.ID); ok {
		owner, _ := o.(sample.Instance)
		return owner
	}
	uid := c.Owner
	for _, r := range s.cloud.Inventory() {
		if uid == "" && r.ID == c.ID {
			uid = r.Owner
		}
	}
	for _, o := range s.objs {
		if uid != "" && string(o.GetUID()) == uid || c.ID != "" && meta.GetExternalName(o) == c.ID {
			if c.ID != "" {
				s.owners.Store(c.ID, o)
			}
			return o
		}
	}
	return nil
}

// watches reports whether the timeline is about an object: the first one is enough.
func (s *scene) watches(o sample.Instance) bool {
	return s.single || len(s.objs) > 0 && o.GetName() == s.objs[0].GetName()
}

// create lets a user create the managed resources, each as newOne returns it.
func (s *scene) create(ctx context.Context, newOne func() sample.Instance) {
	user, timeline := s.stage.user(), &s.recorder.timeline
	for i := range s.replicas {
		o := newOne()
		s.stage.place(o, len(s.objs))
		if i == 0 {
			timeline.add(byUser, "creates "+o.GetName())
		}
		check(user.Create(ctx, o))
		if i == 0 {
			gvk, err := apiutil.GVKForObject(o, user.Scheme())
			check(err)
			s.kind = resource.ManagedKind(gvk)
			timeline.watch(user, gvk, client.ObjectKeyFromObject(o))
			timeline.look(ctx)
		}
		s.mu.Lock()
		s.objs = append(s.objs, o)
		s.mu.Unlock()
	}
}

// createAtRest creates the managed resources and starts a provider, which comes to rest.
func (s *scene) createAtRest(ctx context.Context, newOne func() sample.Instance, c managed.ExternalConnector) *running {
	s.create(ctx, newOne)
	p := s.start(ctx, s.side.newReconciler, c)
	p.settle(ctx)
	return p
}

// delete lets a user delete the managed resources.
func (s *scene) delete(ctx context.Context) {
	s.act(ctx, "deletes", func(o sample.Instance) { check(s.stage.user().Delete(ctx, o)) })
}

// act lets a user do something with every managed resource.
func (s *scene) act(ctx context.Context, what string, do func(o sample.Instance)) {
	s.recorder.timeline.add(byUser, what+" "+s.objs[0].GetName())
	for _, o := range s.objs {
		do(o)
	}
	s.recorder.timeline.look(ctx)
	check(ctx.Err())
}

// removeBackupFinalizer does so with the objects that still exist.
func (s *scene) removeBackupFinalizer(ctx context.Context, by string) {
	s.act(ctx, by, func(o sample.Instance) {
		now, found, err := read(ctx, s.stage.user(), o)
		check(err)
		if found && controllerutil.RemoveFinalizer(now, backupFinalizer) {
			check(s.stage.user().Update(ctx, now))
		}
	})
}

// happens adds an event that no managed resource shows.
func (s *scene) happens(what string) {
	s.recorder.timeline.add(byWorld, what)
}

// advance lets the cloud's time pass.
func (s *scene) advance(d time.Duration) {
	s.recorder.timeline.skip(d)
	s.clock.Advance(d)
}

// pause lets simulated time pass. On a real control plane the story continues at once.
func (s *scene) pause(d time.Duration) {
	if s.simulated {
		time.Sleep(d)
	}
}

// A running provider reconciles managed resources: those given, or all of its scene.
type running struct {
	process process
	scene   *scene
}

// start a provider.
func (s *scene) start(ctx context.Context, build newReconciler, c managed.ExternalConnector) *running {
	return s.startWith(ctx, func(m manager.Manager) reconcile.Reconciler { return build(m, s.kind, c) })
}

func (s *scene) startWith(ctx context.Context, build func(m manager.Manager) reconcile.Reconciler) *running {
	p, err := s.stage.start(ctx, provider{kind: s.kind, build: build})
	check(err)
	s.started = append(s.started, p)
	return &running{process: p, scene: s}
}

func (r *running) of(objs []sample.Instance) []sample.Instance {
	if objs == nil {
		return r.scene.objs
	}
	return objs
}

func (r *running) first(ctx context.Context) { check(r.process.first(ctx, r.scene.objs)) }

func (r *running) reconcile(ctx context.Context, n int, objs ...sample.Instance) {
	check(r.process.reconcile(ctx, n, r.of(objs)))
}

func (r *running) settle(ctx context.Context, objs ...sample.Instance) {
	check(r.process.settle(ctx, r.of(objs)))
}

func (r *running) stop() { check(r.process.stop()) }

// untilGone reconciles until no managed resource is left. meanwhile, if given, is called before each round.
func (r *running) untilGone(ctx context.Context, meanwhile func()) {
	for range maxRounds {
		if meanwhile != nil {
			meanwhile()
		}
		r.reconcile(ctx, 1)
		left := 0
		for _, v := range r.scene.look(ctx) {
			if v.found {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	check(errors.New("the managed resources still exist"))
}

// end stops all that was started.
func (s *scene) end() error {
	errs := make([]error, 0, len(s.started))
	for _, p := range s.started {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// look at all managed resources as a user does.
func (s *scene) look(ctx context.Context) []view {
	out := make([]view, len(s.objs))
	for i, o := range s.objs {
		var err error
		out[i], err = s.lookAt(ctx, o)
		check(err)
	}
	return out
}

func (s *scene) lookAt(ctx context.Context, o sample.Instance) (view, error) {
	now, found, err := read(ctx, s.stage.user(), o)
	if err != nil {
		return view{}, err
	}
	v := view{Instance: now, found: found}
	for _, r := range s.cloud.Inventory() {
		if r.Owner == string(o.GetUID()) {
			v.external = append(v.external, r)
		}
	}
	return v, nil
}

func newBucket() sample.Instance { return v1alpha1.NewBucket(namespace, "") }

func newDatabase() sample.Instance { return v1alpha1.NewDatabase("") }

// databaseWith returns a function that makes Databases with finalizers.
func databaseWith(finalizers ...string) func() sample.Instance {
	return func() sample.Instance {
		d := newDatabase()
		d.SetFinalizers(finalizers)
		return d
	}
}

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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const namespace = "default"

// A scene is what a story is played with: users, a cloud, and a provider of one
// side. The story and the provider see the same things with either reconciler.
type scene struct {
	side     side
	stage    stage
	replicas int
	single   bool
	recorder *recorder

	cloud *cloud.Cloud
	clock *cloud.ManualClock

	// objs are the managed resources, as they were created. mu is held to add to them,
	// and by calls of the cloud to read them.
	mu   sync.Mutex
	objs []sample.Instance

	// owners are managed resources by the ids of their external resources.
	owners sync.Map

	started []interface{ stop() error }

	// onCall is called before a call of the cloud takes effect, in the caller's
	// goroutine. Set it while no provider runs or nothing is called.
	onCall func(ctx context.Context, c cloud.Call, owner sample.Instance)
}

func newScene(sd side, env environment, st stage, r *recorder, of story) *scene {
	o := of.cloud
	clock := cloud.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.Clock = clock
	s := &scene{side: sd, stage: st, replicas: env.replicas(), single: of.single, recorder: r, cloud: cloud.New(o), clock: clock}
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

// ownerOf returns the managed resource that a call is about, nil if that can't be
// told.
func (s *scene) ownerOf(c cloud.Call) sample.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The id says it also when the resource is gone.
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
func (s *scene) create(ctx context.Context, newOne func() (sample.Instance, error)) error {
	for i := range s.replicas {
		o, err := newOne()
		if err != nil {
			return err
		}
		s.stage.place(o, len(s.objs))
		if i == 0 {
			s.recorder.timeline.add(byUser, "creates "+o.GetName())
		}

		if err := s.stage.user().Create(ctx, o); err != nil {
			return fmt.Errorf("cannot create a managed resource: %w", err)
		}
		if i == 0 {
			gvk, err := apiutil.GVKForObject(o, s.stage.user().Scheme())
			if err != nil {
				return err
			}
			s.recorder.timeline.watch(s.stage.user(), gvk, client.ObjectKeyFromObject(o))
			s.recorder.timeline.look(ctx)
		}

		s.mu.Lock()
		s.objs = append(s.objs, o)
		s.mu.Unlock()
	}
	return nil
}

// delete lets a user delete the managed resources.
func (s *scene) delete(ctx context.Context) error {
	return s.act(ctx, "deletes", func(o sample.Instance) error {
		return s.stage.user().Delete(ctx, o)
	})
}

// act lets a user do something with every managed resource.
func (s *scene) act(ctx context.Context, what string, do func(o sample.Instance) error) error {
	s.recorder.timeline.add(byUser, what+" "+s.objs[0].GetName())
	for _, o := range s.objs {
		if err := do(o); err != nil {
			return fmt.Errorf("a user who %s: %w", what, err)
		}
	}
	s.recorder.timeline.look(ctx)
	return ctx.Err()
}

// happens notes something that no managed resource is told of.
func (s *scene) happens(what string) {
	s.recorder.timeline.add(byWorld, what)
}

// advance lets the cloud's time pass.
func (s *scene) advance(d time.Duration) {
	s.recorder.timeline.skip(d)
	s.clock.Advance(d)
}

// start a provider.
func (s *scene) start(ctx context.Context, of resource.ManagedKind, c managed.ExternalConnector) (process, error) {
	p, err := s.stage.start(ctx, provider{kind: of, build: func(m manager.Manager) reconcile.Reconciler {
		return s.side.newReconciler(m, of, c)
	}})
	if err != nil {
		return nil, err
	}
	s.started = append(s.started, p)
	return p, nil
}

// createAtRest creates the managed resources and starts a provider, which comes to rest.
func (s *scene) createAtRest(ctx context.Context, newOne func() (sample.Instance, error), of resource.ManagedKind, c managed.ExternalConnector) (process, error) {
	if err := s.create(ctx, newOne); err != nil {
		return nil, err
	}
	return s.startAtRest(ctx, of, c)
}

// databaseWith returns what makes Databases with finalizers.
func databaseWith(finalizers ...string) func() (sample.Instance, error) {
	return func() (sample.Instance, error) {
		d := v1alpha1.NewDatabase("")
		d.SetFinalizers(finalizers)
		return d, nil
	}
}

// startAtRest starts a provider, and lets it come to rest.
func (s *scene) startAtRest(ctx context.Context, of resource.ManagedKind, c managed.ExternalConnector) (process, error) {
	p, err := s.start(ctx, of, c)
	if err != nil {
		return nil, err
	}
	return p, p.settle(ctx, s.objs)
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
func (s *scene) look(ctx context.Context) ([]view, error) {
	out := make([]view, len(s.objs))
	for i, o := range s.objs {
		var err error
		if out[i], err = s.lookAt(ctx, o); err != nil {
			return nil, err
		}
	}
	return out, nil
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

// untilGone waits until no managed resource is left. Before each round meanwhile,
// if given, is called.
func (s *scene) untilGone(ctx context.Context, p process, meanwhile func(context.Context) error) error {
	for range maxRounds {
		if meanwhile != nil {
			if err := meanwhile(ctx); err != nil {
				return err
			}
		}

		if err := p.reconcile(ctx, 1, s.objs); err != nil {
			return err
		}
		vs, err := s.look(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, v := range vs {
			if v.found {
				left++
			}
		}

		if left == 0 {
			return nil
		}
	}
	return errors.New("the managed resources don't go away")
}

// read returns an object as it now is, and whether there still is one.
func read(ctx context.Context, c client.Reader, o sample.Instance) (sample.Instance, bool, error) {
	now, ok := o.DeepCopyObject().(sample.Instance)
	if !ok {
		return nil, false, fmt.Errorf("a copy of %T is of another type", o)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(o), now)
	if kerrors.IsNotFound(err) {
		return o, false, nil
	}
	return now, err == nil, err
}

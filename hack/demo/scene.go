package main

import (
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

const namespace = "default"

// A scene is what a story is told with: users, a cloud, and a provider of one
// side. The story and the provider see the same things with either reconciler.
type scene struct {
	side     side
	stage    stage
	replicas int
	recorder *recorder

	cloud *cloud.Cloud
	clock *cloud.ManualClock

	// objs are the managed resources, as they were created. That is before the
	// first provider starts.
	objs []sample.Instance

	// owners are managed resources by the ids of their external resources.
	owners sync.Map

	started []process

	// onCall is called before a call of the cloud takes effect, in the caller's
	// goroutine. Set it while no provider runs or nothing is called.
	onCall func(ctx context.Context, c cloud.Call, owner sample.Instance)
}

func newScene(sd side, env environment, st stage, r *recorder, o cloud.Options) *scene {
	clock := cloud.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.Clock = clock

	s := &scene{side: sd, stage: st, replicas: env.replicas(), recorder: r, cloud: cloud.New(o), clock: clock}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called})

	return s
}

func (s *scene) called(ctx context.Context, c cloud.Call) error {
	owner := s.ownerOf(c)
	if owner == nil {
		return nil
	}

	s.recorder.call(owner.GetName(), c)

	if s.onCall != nil {
		s.onCall(ctx, c, owner)
	}

	return nil
}

// ownerOf returns the managed resource that a call is about, nil if that can't be
// told.
func (s *scene) ownerOf(c cloud.Call) sample.Instance {
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

// create lets a user create the managed resources, each as newOne returns it.
func (s *scene) create(ctx context.Context, newOne func() (sample.Instance, error)) error {
	for i := range s.replicas {
		o, err := newOne()
		if err != nil {
			return err
		}

		s.stage.place(o, i)

		if i == 0 {
			s.recorder.journal.open(o.GetName())
			s.recorder.journal.add(o.GetName(), "user", "creates the managed resource")
		}

		if err := s.stage.user().Create(ctx, o); err != nil {
			return fmt.Errorf("cannot create a managed resource: %w", err)
		}

		s.objs = append(s.objs, o)
	}

	return nil
}

// delete lets a user delete the managed resources.
func (s *scene) delete(ctx context.Context) error {
	return s.act(ctx, "deletes the managed resource", func(o sample.Instance) error {
		return s.stage.user().Delete(ctx, o)
	})
}

// act lets a user do something with every managed resource.
func (s *scene) act(ctx context.Context, what string, do func(o sample.Instance) error) error {
	for _, o := range s.objs {
		s.recorder.journal.add(o.GetName(), "user", what)

		if err := do(o); err != nil {
			return fmt.Errorf("a user who %s: %w", what, err)
		}
	}

	return ctx.Err()
}

// happens notes something that no managed resource is told of.
func (s *scene) happens(what string) {
	if len(s.objs) > 0 {
		s.recorder.journal.add(s.objs[0].GetName(), "world", what)
	}
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

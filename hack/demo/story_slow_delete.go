package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// slowDelete: deleting the external resource takes long. Upstream writes status
// when the call of Delete has returned. Until then users see what was there
// before: Ready=True.
func slowDelete() story {
	const goneAfter = time.Minute
	return story{
		name: "silent-deletion/slow-delete",
		about: "A user deletes a managed resource. The cloud takes its time: first to answer the delete call, and " +
			"then to really delete the resource.",
		difference: "It says that it is being deleted before the cloud is even called, and why it is still there.",
		cloud:      cloud.Options{GoneAfter: goneAfter},
		play: func(ctx context.Context, s *scene) ([]finding, error) {
			return playSlowDelete(ctx, s, goneAfter)
		},
	}
}

func playSlowDelete(ctx context.Context, s *scene, goneAfter time.Duration) ([]finding, error) {
	// While the cloud is at its first delete of a resource we look at what
	// users see. It is what they see for as long as the call takes.
	during := &snapshots{scene: s}
	s.onCall = during.take
	p, err := s.createAtRest(ctx, newBucket, v1alpha1.BucketManagedKind(), sample.NewSync[resource.Managed](s.cloud))
	if err != nil {
		return nil, err
	}
	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := p.reconcile(ctx, 3, s.objs); err != nil {
		return nil, err
	}
	vs, err := during.all()
	if err != nil {
		return nil, err
	}
	findings := []finding{
		deleting("READY while the delete call runs", vs).knownToFail().headline("READY %s"),
		why(vs, reconciler.ReasonExternalDeleteRequested, ""),
	}

	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	findings = append(findings,
		deleting("READY while the resource goes", vs),
		why(vs, reconciler.ReasonWaitingForExternalResource, ""),
	)

	s.advance(goneAfter)
	s.happens("the cloud has deleted the resource")
	if err := s.untilGone(ctx, p, nil); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, gone(vs)), nil
}

func newBucket() (sample.Instance, error) { return v1alpha1.NewBucket(namespace, ""), nil }

func newDatabase() (sample.Instance, error) { return v1alpha1.NewDatabase(""), nil }

// snapshots are of managed resources at the time of the first delete call.
type snapshots struct {
	scene *scene

	mu    sync.Mutex
	views []view
	taken map[string]bool
	err   error
}

func (s *snapshots) take(ctx context.Context, c cloud.Call, owner sample.Instance) {
	if c.Op != cloud.OpDelete {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[owner.GetName()] || s.err != nil {
		return
	}
	v, err := s.scene.lookAt(ctx, owner)
	s.views, s.err = append(s.views, v), err
	if s.taken == nil {
		s.taken = map[string]bool{}
	}
	s.taken[owner.GetName()] = true
}

// all returns a snapshot of each managed resource.
func (s *snapshots) all() ([]view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && len(s.views) != len(s.scene.objs) {
		return nil, errors.New("the cloud wasn't asked to delete every resource")
	}
	return s.views, s.err
}

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// slowDelete: deleting the external resource takes long. Upstream writes status
// when the call of Delete has returned. Until then users see the status from
// before: Ready=True.
func slowDelete() story {
	const goneAfter = time.Minute
	return story{
		name: "silent-deletion/slow-delete",
		about: "A user deletes a managed resource. The cloud takes its time: first to answer the delete call, and " +
			"then to really delete the resource.",
		difference: "It says that it is being deleted before the cloud is even called, and why it is still there.",
		cloud:      cloud.Options{GoneAfter: goneAfter},
		play: func(ctx context.Context, s *scene) []finding {
			during := &snapshots{scene: s, views: map[string]view{}}
			s.onCall = during.take
			p := s.createAtRest(ctx, newBucket, sample.NewSync[resource.Managed](s.cloud))
			s.delete(ctx)
			p.reconcile(ctx, 3)
			calling, goes := during.all(), s.look(ctx)
			s.advance(goneAfter)
			s.happens("the cloud has deleted the resource")
			p.untilGone(ctx, nil)
			return []finding{
				deleting("READY while the delete call runs", calling).knownToFail().headline("READY %s"),
				why(calling, reconciler.ReasonExternalDeleteRequested, ""),
				deleting("READY while the resource goes", goes),
				why(goes, reconciler.ReasonWaitingForExternalResource, ""),
				gone(s.look(ctx)),
			}
		},
	}
}

// snapshots show managed resources as users see them during the first call of Delete, however long it takes.
type snapshots struct {
	scene *scene

	mu    sync.Mutex
	views map[string]view
	err   error
}

func (s *snapshots) take(ctx context.Context, c cloud.Call, owner sample.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.views[owner.GetName()]; taken || c.Op != cloud.OpDelete {
		return
	}
	v, err := s.scene.lookAt(ctx, owner)
	s.views[owner.GetName()], s.err = v, errors.Join(s.err, err)
}

// all returns a snapshot of each managed resource.
func (s *snapshots) all() []view {
	s.mu.Lock()
	defer s.mu.Unlock()
	check(s.err)
	if len(s.views) != len(s.scene.objs) {
		check(errors.New("the cloud was not called to delete every resource"))
	}
	out := make([]view, 0, len(s.views))
	for _, v := range s.views {
		out = append(out, v)
	}
	return out
}

package main

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// forgottenOperation: the provider dies while a create runs in the background.
// Upstream has recorded long ago that the create succeeded, since it returned at
// once, and creates again when the grace period is over.
func forgottenOperation() story {
	return story{
		name: "forgotten-operation",
		about: "A provider creates a resource in the background. The cloud has made it, and the provider dies " +
			"before the answer comes. The next process starts when the grace period is over. Later the user " +
			"deletes the managed resource. (Here the columns differ in more than an import: with Graft the " +
			"provider tells a tracker when an operation begins and ends, and can look for what it has created.)",
		difference: "A record of the operation outlives the process, and the next one finds what was created.",
		play: func(ctx context.Context, s *scene) []finding {
			s.create(ctx, newDatabase)

			// The answers to the first process arrive after it has stopped.
			made, until := make(chan struct{}, len(s.objs)), make(chan struct{})
			s.cloud.SetHooks(cloud.Hooks{Before: s.called, After: func(_ context.Context, c cloud.Call) error {
				if c.Op != cloud.OpCreate {
					return nil
				}
				made <- struct{}{}
				<-until
				return errors.New("the connection was lost")
			}})
			first, wait := backgroundProcess(ctx, s)
			defer func() {
				close(until)
				wait()
			}()
			for range s.objs {
				select {
				case <-made:
				case <-ctx.Done():
					check(ctx.Err())
				}
			}
			s.happens("the provider dies")
			first.stop()
			s.cloud.SetHooks(cloud.Hooks{Before: s.called})
			p, wait2 := backgroundProcess(ctx, s)

			// The operations that it has begun, if any, end.
			wait2()
			p.settle(ctx)
			vs := s.look(ctx)
			s.delete(ctx)
			p.untilGone(ctx, wait2)
			return []finding{
				inCloud("external resources", vs, 1).knownToFail().headline("%s in the cloud"),
				named(vs),
				available("READY", vs),
				inCloud("left in the cloud after deletion", s.look(ctx), 0).knownToFail(),
			}
		},
	}
}

// backgroundProcess starts a provider with an empty memory whose operations run in
// the background, and lets it come to rest. The function waits for the operations.
func backgroundProcess(ctx context.Context, s *scene) (*running, func()) {
	var wait func()
	p := s.startWith(ctx, func(m manager.Manager) (r reconcile.Reconciler) {
		r, wait = s.side.newAsync(m, s.kind, s.cloud)
		return r
	})
	p.settle(ctx)
	return p, wait
}

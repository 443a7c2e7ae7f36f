package main

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// lostExternalName: an asynchronous provider learns the external name when Create
// has returned long ago, and says so by "late initialized". Without a policy that
// allows late initialization upstream doesn't store the name. It is in the
// provider's memory alone, and the next process creates the resource again.
func lostExternalName() story {
	return story{
		name: "lost-external-name",
		about: "A provider of upjet's shape creates a resource in the background, and learns its id from the " +
			"cloud after Create has returned. The policies are Observe, Create, Update and Delete. The provider " +
			"is restarted. Later the user deletes the managed resource.",
		difference: "The external name is stored as soon as it is known, whatever the policies say.",
		play: func(ctx context.Context, s *scene) []finding {
			s.create(ctx, func() sample.Instance {
				d := newDatabase()
				d.SetManagementPolicies(xpv2.ManagementPolicies{
					xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
					xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
				})
				return d
			})
			first, _ := asyncProcess(ctx, s)
			first.stop()
			s.happens("the provider is restarted")
			p, finish := asyncProcess(ctx, s)
			vs := s.look(ctx)
			s.delete(ctx)
			p.untilGone(ctx, finish)
			return []finding{
				inCloud("external resources", vs, 1).knownToFail().headline("%s in the cloud"),
				named(vs).knownToFail(),
				available("READY", vs),
				inCloud("left in the cloud after deletion", s.look(ctx), 0).knownToFail(),
			}
		},
	}
}

// asyncProcess starts a provider with an empty memory and lets it come to rest:
// before its operations end, and after. The function waits for further ones.
func asyncProcess(ctx context.Context, s *scene) (*running, func()) {
	c := sample.NewAsync[resource.Managed](s.cloud)
	finish := func() { check(c.Finish(ctx)) }
	p := s.start(ctx, s.side.newReconciler, c)
	p.settle(ctx)
	s.happens("what the provider has begun in the background ends")
	finish()
	p.settle(ctx)
	return p, finish
}

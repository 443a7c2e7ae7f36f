package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// nameCollision: a new managed resource has the external name of one that is still
// being deleted. The old one's delete hits the new one's external resource.
func nameCollision() story {
	const goneAfter = time.Minute
	return story{
		name:   "name-collision",
		single: true,
		about: "A user deletes a managed resource, which takes a minute, and meanwhile creates another one with " +
			"the same external name. The provider comes to the new one first. (Here the columns differ in an " +
			"option, too: with Graft the provider reserves external names.)",
		difference: "One managed resource at a time acts on an external resource, and the other one says which it " +
			"waits for.",
		cloud: cloud.Options{GoneAfter: goneAfter},
		play: func(ctx context.Context, s *scene) []finding {
			named := func() sample.Instance {
				d := newDatabase()
				meta.SetExternalName(d, "orders")
				return d
			}
			s.create(ctx, named)
			first := s.objs[0]

			// The old one is held back where the provider has other work to do first.
			var hold atomic.Pointer[chan struct{}]
			hits := atomic.Int32{}
			s.onCall = func(ctx context.Context, c cloud.Call, _ sample.Instance) {
				if ch := hold.Load(); ch != nil && reconciled(ctx) == first.GetName() {
					<-*ch
				}
				for _, r := range s.cloud.Inventory() {
					if c.Op == cloud.OpDelete && r.ID == c.ID && r.Owner != string(first.GetUID()) {
						hits.Add(1)
					}
				}
			}
			connector := sample.NewSync[resource.Managed](s.cloud, sample.WithDeterministicNames())
			p := s.start(ctx, s.side.newReserved, connector)
			p.settle(ctx)
			s.delete(ctx)
			p.reconcile(ctx, 2)
			held := make(chan struct{})
			hold.Store(&held)
			release := func() {
				if hold.Swap(nil) != nil {
					close(held)
				}
			}
			defer release()
			s.advance(goneAfter)
			s.happens("the cloud has deleted the resource")
			s.create(ctx, named)
			old, replacement := s.objs[:1], s.objs[1:]
			p.reconcile(ctx, 2, replacement...)
			release()
			waits := each("does the new one wait?", s.look(ctx)[1:], "yes, and says for which: see SYNCED",
				"no: it acts on the same external resource", func(v view) bool {
					c := v.GetCondition(xpv2.TypeSynced)
					return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, first.GetName())
				})
			p.reconcile(ctx, 2, old...)
			s.advance(goneAfter)
			for range 3 {
				p.reconcile(ctx, 1)
			}
			p.settle(ctx, replacement...)
			vs, n := s.look(ctx)[1:], int(hits.Load())
			return []finding{
				waits.knownToFail(),
				finding{Where: "deletes of the new one's external resource", Seen: fmt.Sprint(n), Good: n == 0}.
					knownToFail().headline("%s wrong deletes"),
				available("READY of the new one", vs),
				inCloud("its external resources", vs, 1),
			}
		},
	}
}

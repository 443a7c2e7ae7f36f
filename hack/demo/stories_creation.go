package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
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
		play: func(s *scene) []finding {
			// newProcess starts a provider with an empty memory and lets it come to rest: before its operations
			// end, and after. The function ends further ones.
			newProcess := func() (*running, func()) {
				c := sample.NewAsync[resource.Managed](s.cloud)
				finish := func() { check(c.Finish(s.ctx)) }
				p := s.start(s.side.newReconciler, c)
				p.settle()
				s.happens("what the provider has begun in the background ends")
				finish()
				p.settle()
				return p, finish
			}
			d := v1alpha1.NewDatabase("")
			d.SetManagementPolicies(xpv2.ManagementPolicies{
				xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
				xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
			})
			s.create(d)
			newProcess()
			s.happens("the provider is restarted")
			p, finish := newProcess()
			return p.existOnce(named(s.look()).knownToFail(), finish)
		},
	}
}

// forgottenOperation: the provider dies while a create runs in the background.
// Upstream has recorded long ago that the create succeeded, since it returned at
// once, and creates again when the grace period is over.
func forgottenOperation() story {
	return story{
		name: "forgotten-operation",
		about: "A provider creates a resource in the background. The cloud has made it, and the provider dies " +
			"before the answer comes. The next process starts when the grace period is over. Later the user " +
			"deletes the managed resource. (Here the columns differ in more than an import: with Graft a tracker " +
			"runs the provider's own Create, which waits for the cloud, and the provider can look for what it has created.)",
		difference: "A record of the operation outlives the process, and the next one finds what was created.",
		play: func(s *scene) []finding {
			// newProcess starts a provider with an empty memory and lets it come to rest. The function waits for
			// its operations.
			newProcess := func() (p *running, wait func()) {
				p = s.startWith(func(m manager.Manager) (r reconcile.Reconciler) {
					r, wait = s.side.newAsync(m, s.kind, s.cloud)
					return r
				})
				p.settle()
				return p, wait
			}
			s.create(v1alpha1.NewDatabase(""))

			// The answers to the first process arrive after it has stopped.
			over := make(chan struct{})
			s.cloud.SetHooks(cloud.Hooks{Before: s.called, After: func(_ context.Context, c cloud.Call) error {
				if c.Op != cloud.OpCreate {
					return nil
				}
				<-over
				return errors.New("the connection was lost")
			}})
			_, waitForFirst := newProcess()
			defer waitForFirst()
			defer close(over)
			s.until(func() bool { return len(s.cloud.Inventory()) > 0 })
			s.happens("the provider dies")
			s.cloud.SetHooks(cloud.Hooks{Before: s.called})
			p, wait := newProcess()
			wait()
			p.settle()
			return p.existOnce(named(s.look()), wait)
		},
	}
}

// existOnce finds whether the external resources exist once, and no longer when a user has deleted the managed
// resources. finish ends the provider's work in the background.
func (r *running) existOnce(name finding, finish func()) []finding {
	v := r.look()
	r.delete()
	r.untilGone(finish)
	return []finding{
		inCloud("external resources", v, 1).headline("%s in the cloud"),
		name,
		available("READY", v),
		inCloud("left in the cloud after deletion", r.look(), 0).knownToFail(),
	}
}

// nameCollision: a new managed resource has the external name of one that is still
// being deleted. The old one's delete hits the new one's external resource.
func nameCollision() story {
	const goneAfter = time.Minute
	return story{
		name: "name-collision",
		about: "A user deletes a managed resource, which takes a minute, and meanwhile creates another one with " +
			"the same external name. The provider comes to the new one first. (Here the columns differ in an " +
			"option, too: with Graft the provider reserves external names.)",
		difference: "One managed resource at a time acts on an external resource, and the other one says which it " +
			"waits for.",
		cloud: cloud.Options{GoneAfter: goneAfter},
		play: func(s *scene) []finding {
			orders := v1alpha1.NewDatabase("")
			meta.SetExternalName(orders, "orders")
			s.create(orders)
			first := s.objs[0]

			// The old one is held back where the provider has other work to do first.
			var hold sync.RWMutex
			hits := atomic.Int32{}
			s.onCall = func(ctx context.Context, c cloud.Call) {
				if reconciled(ctx) == first.GetName() {
					hold.RLock()
					defer hold.RUnlock()
				}
				for _, r := range s.cloud.Inventory() {
					if c.Op == cloud.OpDelete && r.ID == c.ID && r.Owner != string(first.GetUID()) {
						hits.Add(1)
					}
				}
			}
			p := s.start(s.side.newReserved, s.sync(sample.WithDeterministicNames()))
			p.settle()
			s.delete()
			_ = p.reconcile(2)
			hold.Lock()
			release := sync.OnceFunc(hold.Unlock)
			defer release()
			s.clock.Advance(goneAfter)
			s.happens("the cloud has deleted the resource")
			s.create(orders)
			old, replacement := s.objs[:1], s.objs[1:]
			_ = p.reconcile(2, replacement...)
			release()
			synced := s.look().GetCondition(xpv2.TypeSynced)
			waits := either("does the new one wait?",
				synced.Status == corev1.ConditionFalse && strings.Contains(synced.Message, first.GetName()),
				"yes, and says for which: see SYNCED", "no: it acts on the same external resource")
			_ = p.reconcile(2, old...)
			s.clock.Advance(goneAfter)
			_ = p.reconcile(3)
			p.settle()
			v := s.look()
			return []finding{
				waits.knownToFail(),
				number("deletes of the new one's external resource", int(hits.Load()), 0, 0).
					headline("%s wrong deletes"),
				available("READY of the new one", v),
				inCloud("its external resources", v, 1),
			}
		},
	}
}

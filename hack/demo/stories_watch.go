package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	soon    = reconcileTimeout / 2 // Longer than a stop that waits for nothing takes.
	aWhile  = 4 * time.Second      // Longer than an informer that fails waits at first.
	forEver = 1 << 20              // More looks than any story has.
)

func undeadInformer() story {
	return story{
		name:     "undead-informer",
		baseline: "v2.4.0's shape",
		about: fmt.Sprintf("A provider is uninstalled, and the kind that an XDatabase is composed of goes. Its "+
			"controller reads that kind again: a reconcile may take %s. Meanwhile a user creates an XBucket, "+
			"which has nothing to do with it. Then the XDatabase's definition is deleted, and its controller "+
			"stopped.", reconcileTimeout),
		difference: "A kind that is gone delays no other, and nothing asks for it any more.",
		play: func(s *scene) []finding {
			p := s.startPlatform("undead", "XDatabase", "Instance", "XBucket", "Store")
			databases, buckets := p.compositor("XDatabase", "Instance"), p.compositor("XBucket", "Store")
			for name, c := range map[string]*compositor{"orders": databases, "logs": buckets} {
				c.start(nil)
				c.create(name)
				c.becomesReady(name, forEver)
			}
			s.happens("the provider of Instances is uninstalled")
			p.undefine("Instance")
			gone := time.Now()

			// It waits for a read, or says why not. An error may come before a read that waits.
			p.until(func() bool {
				since, later := databases.waiting.Load(), time.Since(gone) > aWhile/2
				return since > 0 && time.Since(time.Unix(0, since)) > 4*lookEvery || since == 0 && later &&
					databases.view("orders").GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcileError
			})
			buckets.create("images")
			bucket := buckets.isReady("READY of the XBucket", "images")
			s.add(byUser, "deletes the definition of XDatabases")
			began := time.Now()
			databases.stop()
			took := time.Since(began)
			p.undefine("XDatabase")
			s.refresh(s.ctx)
			listed := p.stillListed("Instance", gone)
			buckets.stop()
			return []finding{
				bucket.headline("READY %s"),
				either("stop of its controller", took < soon, "at once", took.String()),
				either("requests for the kind that is gone, afterwards", !listed, "none", "it is still listed").
					knownToFail(),
			}
		},
	}
}

// stillListed reports whether a kind that no longer exists is still listed. An informer doubles its wait.
func (p *platform) stillListed(kind string, gone time.Time) bool {
	before := p.requestsFor(kind)
	ctx, cancel := context.WithTimeout(p.ctx, max(aWhile, 2*time.Since(gone)))
	defer cancel()
	return poll(ctx, func() bool { return p.requestsFor(kind) > before }) == nil
}

// collectedAlive: the collector of watches stops one that is in use.
func collectedAlive() story {
	return story{
		name:     "collected-alive",
		baseline: "from before #6395",
		about: fmt.Sprintf("Crossplane collects watches that are not used, once a minute, here every %s. A user "+
			"creates the first composite of a kind when the collector has run. Later Crossplane is restarted. "+
			"(Fixed upstream by crossplane#6395: the first column is code of the shape from before.)", collectEvery),
		difference: "A watch that is in use is never collected.",
		play: func(s *scene) []finding {
			p := s.startPlatform("collected", "XDatabase", "Instance")
			c := p.compositor("XDatabase", "Instance")
			calls := atomic.Int32{}
			c.start(func(ctx context.Context) ([]schema.GroupVersionKind, error) {
				defer calls.Add(1)
				xrs := &unstructured.UnstructuredList{}
				xrs.SetGroupVersionKind(p.kind("XDatabaseList"))
				if err := p.live.List(ctx, xrs); err != nil || len(xrs.Items) == 0 {
					return nil, err
				}
				return []schema.GroupVersionKind{c.composed}, nil
			})

			// At the third call after the watch began two collections are over.
			began := calls.Load()
			p.until(func() bool { return calls.Load() > began+2 })
			s.happens("the collector has run twice")
			c.create("orders")
			before := c.isReady("READY of the composite", "orders")
			s.happens("Crossplane is restarted")
			c.stop()
			c.start(nil)
			after := available("READY after a restart", c.becomesReady("orders", forEver))
			c.stop()
			return []finding{before.headline("READY %s"), after}
		},
	}
}

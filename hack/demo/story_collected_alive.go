package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// collectedAlive: the collector of watches stops one that is in use.
func collectedAlive() story {
	return story{
		name:     "collected-alive",
		baseline: "from before #6395",
		about: fmt.Sprintf("Crossplane collects watches that are not used, once a minute, here every %s. A user "+
			"creates the first composite of a kind when the collector has run. Later Crossplane is restarted. "+
			"(Fixed upstream by crossplane#6395: the first column is code of the shape from before.)", collectEvery),
		difference: "A watch that is in use is never collected.",
		play: func(ctx context.Context, s *scene) []finding {
			p := s.startPlatform(ctx, "collected")
			p.define(ctx, "XDatabase", "Instance")
			c := p.compositor("XDatabase", "Instance")
			calls := atomic.Int32{}
			c.start(ctx, func(ctx context.Context) ([]schema.GroupVersionKind, error) {
				defer calls.Add(1)
				xrs := &unstructured.UnstructuredList{}
				xrs.SetGroupVersionKind(p.kind("XDatabaseList"))
				if err := p.live.List(ctx, xrs); err != nil || len(xrs.Items) == 0 {
					return nil, err
				}
				return []schema.GroupVersionKind{c.composed}, nil
			})

			// At the third call the second collection is over.
			p.until(ctx, func(context.Context) bool { return calls.Load() > 2 })
			s.happens("the collector has run twice")
			c.create(ctx, "orders")
			before := c.isReady(ctx, "READY of the composite", "orders")
			s.happens("Crossplane is restarted")
			check(p.Stop(ctx, c.name()))
			c.start(ctx, nil)
			c.becomesReady(ctx, "orders")
			after := c.isReady(ctx, "READY after a restart", "orders")
			check(p.Stop(ctx, c.name()))
			return []finding{before.knownToFail().headline("READY %s"), after}
		},
	}
}

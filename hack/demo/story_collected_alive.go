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
		about: fmt.Sprintf("Crossplane collects watches that are not used, once a minute, here every %s. A user creates the first composite of "+
			"a kind when the collector has run. Later Crossplane is restarted. (Fixed upstream by crossplane#6395: the first column is "+
			"code of the shape from before.)", collectEvery),
		difference: "A watch that is in use is never collected.",
		play:       playCollectedAlive,
	}
}

func playCollectedAlive(ctx context.Context, s *scene) ([]finding, error) {
	p, err := s.startPlatform(ctx, "collected")
	if err != nil {
		return nil, err
	}
	if err := p.define(ctx, "XDatabase", "Instance"); err != nil {
		return nil, err
	}
	c := p.compositor("XDatabase", "Instance")
	asked := atomic.Int32{}

	used := func(ctx context.Context) ([]schema.GroupVersionKind, error) {
		defer asked.Add(1)
		xrs := &unstructured.UnstructuredList{}
		xrs.SetGroupVersionKind(p.kind("XDatabaseList"))
		if err := p.live.List(ctx, xrs); err != nil || len(xrs.Items) == 0 {
			return nil, err
		}
		return []schema.GroupVersionKind{c.composed}, nil
	}

	if err := c.start(ctx, used); err != nil {
		return nil, err
	}

	// When it is asked for the third time, the second collection is over.
	if err := p.until(ctx, func(context.Context) bool { return asked.Load() > 2 }); err != nil {
		return nil, err
	}
	s.happens("the collector has run twice")
	if err := c.create(ctx, "orders"); err != nil {
		return nil, err
	}
	findings := []finding{c.isReady(ctx, "READY of the composite", "orders").knownToFail().headline("READY %s")}
	s.happens("Crossplane is restarted")
	if err := p.Stop(ctx, c.name()); err != nil {
		return nil, err
	}
	if err := c.start(ctx, nil); err != nil {
		return nil, err
	}
	if err := c.becomesReady(ctx, "orders"); err != nil {
		return nil, err
	}
	return append(findings, c.isReady(ctx, "READY after a restart", "orders")), p.Stop(ctx, c.name())
}

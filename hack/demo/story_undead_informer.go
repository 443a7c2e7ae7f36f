package main

import (
	"context"
	"fmt"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

const (
	// soon is longer than what waits for nothing takes.
	soon = reconcileTimeout / 2

	// aWhile is longer than an informer that fails waits at first.
	aWhile = 4 * time.Second
)

// undeadInformer: a provider is uninstalled, and with it the kind that a composite is
// composed of. Then the composite's own definition goes.
func undeadInformer() story {
	return story{
		name:     "undead-informer",
		baseline: "v2.4.0's shape",
		about: fmt.Sprintf("A provider is uninstalled, and the kind that an XDatabase is composed of goes. Its controller reads that kind "+
			"again: a reconcile may take %s. Meanwhile a user creates an XBucket, which has nothing to do with it. Then "+
			"the XDatabase's definition is deleted, and its controller stopped.", reconcileTimeout),
		difference: "A kind that is gone delays no other, and nothing asks for it any more.",
		play:       playUndeadInformer,
	}
}

func playUndeadInformer(ctx context.Context, s *scene) ([]finding, error) {
	p, err := s.startPlatform(ctx, "undead")
	if err != nil {
		return nil, err
	}
	if err := p.define(ctx, "XDatabase", "Instance", "XBucket", "Store"); err != nil {
		return nil, err
	}
	databases, buckets := p.compositor("XDatabase", "Instance"), p.compositor("XBucket", "Store")

	for name, c := range map[string]*compositor{"orders": databases, "logs": buckets} {
		if err := c.start(ctx, nil); err != nil {
			return nil, err
		}
		if err := c.create(ctx, name); err != nil {
			return nil, err
		}
		if err := c.becomesReady(ctx, name); err != nil {
			return nil, err
		}
	}

	s.happens("the provider of Instances is uninstalled")
	if err := p.undefine(ctx, "Instance"); err != nil {
		return nil, err
	}
	gone := time.Now()

	// It waits for a read, or says why not.
	err = p.until(ctx, func(ctx context.Context) bool {
		since := databases.waiting.Load()
		return since > 0 && time.Since(time.Unix(0, since)) > 4*lookEvery || databases.synced(ctx, "orders").Reason == xpv2.ReasonReconcileError
	})
	if err != nil {
		return nil, err
	}
	if err := buckets.create(ctx, "images"); err != nil {
		return nil, err
	}
	findings := []finding{buckets.isReady(ctx, "READY of the XBucket", "images").knownToFail().headline("READY %s")}
	p.line.add(byUser, "deletes the definition of XDatabases")
	began := time.Now()
	err = p.Stop(ctx, databases.name())
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	if err := p.undefine(ctx, "XDatabase"); err != nil {
		return nil, err
	}
	p.line.look(ctx)

	// What an informer waits doubles. The discovery of a real API server may have the kind
	// for a moment longer than it is served: one more request is not yet one too many.
	looks := []time.Duration{2}
	if s.replicas > 1 {
		looks = append(looks, 4)
	}
	listed := true
	for _, times := range looks {
		before := p.requestsFor("Instance")
		listed = p.within(ctx, max(aWhile, times*time.Since(gone)), func(context.Context) bool { return p.requestsFor("Instance") > before })
		if !listed {
			break
		}
	}

	stopped := finding{Where: "stop of its controller", Seen: "at once", Good: took < soon}
	if !stopped.Good {
		stopped.Seen = took.String()
	}
	asked := finding{Where: "requests for the kind that is gone, afterwards", Seen: "none", Good: !listed}
	if !asked.Good {
		asked.Seen = "it is still listed"
	}
	return append(findings, stopped, asked.knownToFail()), p.Stop(ctx, buckets.name())
}

package main

import (
	"context"
	"fmt"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

const (
	// soon is longer than a stop that waits for nothing takes.
	soon = reconcileTimeout / 2

	// aWhile is longer than an informer that fails waits at first.
	aWhile = 4 * time.Second
)

// undeadInformer: a provider is uninstalled, and with it the composed kind of a
// composite. Then the composite's own definition is deleted.
func undeadInformer() story {
	return story{
		name:     "undead-informer",
		baseline: "v2.4.0's shape",
		about: fmt.Sprintf("A provider is uninstalled, and the kind that an XDatabase is composed of goes. Its "+
			"controller reads that kind again: a reconcile may take %s. Meanwhile a user creates an XBucket, "+
			"which has nothing to do with it. Then the XDatabase's definition is deleted, and its controller "+
			"stopped.", reconcileTimeout),
		difference: "A kind that is gone delays no other, and nothing asks for it any more.",
		play: func(ctx context.Context, s *scene) []finding {
			p := s.startPlatform(ctx, "undead")
			p.define(ctx, "XDatabase", "Instance", "XBucket", "Store")
			databases, buckets := p.compositor("XDatabase", "Instance"), p.compositor("XBucket", "Store")
			for name, c := range map[string]*compositor{"orders": databases, "logs": buckets} {
				c.start(ctx, nil)
				c.create(ctx, name)
				c.becomesReady(ctx, name)
			}
			s.happens("the provider of Instances is uninstalled")
			p.undefine(ctx, "Instance")
			gone := time.Now()

			// It waits for a read, or says why not.
			p.until(ctx, func(ctx context.Context) bool {
				since := databases.waiting.Load()
				return since > 0 && time.Since(time.Unix(0, since)) > 4*lookEvery ||
					databases.condition(ctx, "orders", xpv2.TypeSynced).Reason == xpv2.ReasonReconcileError
			})
			buckets.create(ctx, "images")
			bucket := buckets.isReady(ctx, "READY of the XBucket", "images")
			p.line.add(byUser, "deletes the definition of XDatabases")
			began := time.Now()
			check(p.Stop(ctx, databases.name()))
			took := time.Since(began)
			p.undefine(ctx, "XDatabase")
			p.line.look(ctx)
			listed := p.stillListed(ctx, "Instance", gone, s.replicas > 1)
			check(p.Stop(ctx, buckets.name()))
			return []finding{
				bucket.knownToFail().headline("READY %s"),
				either("stop of its controller", took < soon, "at once", took.String()),
				either("requests for the kind that is gone, afterwards", !listed, "none", "it is still listed").
					knownToFail(),
			}
		},
	}
}

// stillListed reports whether a kind that no longer exists is still listed. An informer doubles its wait. The
// discovery of a real API server may have the kind for a moment longer than it is served: one more request is
// allowed there.
func (p *platform) stillListed(ctx context.Context, kind string, gone time.Time, twice bool) bool {
	looks := []time.Duration{2}
	if twice {
		looks = append(looks, 4)
	}
	for _, times := range looks {
		before := p.requestsFor(kind)
		wait := max(aWhile, times*time.Since(gone))
		if !p.within(ctx, wait, func(context.Context) bool { return p.requestsFor(kind) > before }) {
			return false
		}
	}
	return true
}

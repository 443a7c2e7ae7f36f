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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// nameCollision: a new managed resource has the external name of one that is still
// being deleted. The old one's delete hits the new one's external resource.
func nameCollision() story {
	const goneAfter = time.Minute
	return story{
		name:   "name-collision",
		single: true,
		about: "A user deletes a managed resource, which takes a minute, and meanwhile creates another one with the same external " +
			"name. The provider comes to the new one first. (Here the columns differ in an option, too: with Graft the provider " +
			"reserves external names.)",
		difference: "One managed resource at a time acts on an external resource, and the other one says which it waits for.",
		cloud:      cloud.Options{GoneAfter: goneAfter},
		play: func(ctx context.Context, s *scene) ([]finding, error) {
			return playNameCollision(ctx, s, goneAfter)
		},
	}
}

func playNameCollision(ctx context.Context, s *scene, goneAfter time.Duration) ([]finding, error) {
	named := func() (sample.Instance, error) {
		d := v1alpha1.NewDatabase("")
		meta.SetExternalName(d, "orders")
		return d, nil
	}

	// The old one is held back where the provider has other work to do first.
	var hold atomic.Pointer[chan struct{}]
	hits := atomic.Int32{}

	// The first is known before the provider starts, which calls onCall.
	var first sample.Instance

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

	if err := s.create(ctx, named); err != nil {
		return nil, err
	}
	first = s.objs[0]
	connector := sample.NewSync[resource.Managed](s.cloud, sample.WithDeterministicNames())
	p, err := s.stage.start(ctx, provider{kind: v1alpha1.DatabaseManagedKind(), build: func(m manager.Manager) reconcile.Reconciler {
		return s.side.newReserved(m, v1alpha1.DatabaseManagedKind(), connector)
	}})
	if err != nil {
		return nil, err
	}
	s.started = append(s.started, p)
	if err := p.settle(ctx, s.objs); err != nil {
		return nil, err
	}
	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := p.reconcile(ctx, 2, s.objs); err != nil {
		return nil, err
	}
	held := make(chan struct{})
	hold.Store(&held)
	s.advance(goneAfter)
	s.happens("the cloud has deleted the resource")
	if err := s.create(ctx, named); err != nil {
		return nil, err
	}
	old, replacement := s.objs[:1], s.objs[1:]
	err = p.reconcile(ctx, 2, replacement)
	hold.Store(nil)
	close(held)
	if err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	waits := func(v view) bool {
		c := v.GetCondition(xpv2.TypeSynced)
		return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, old[0].GetName())
	}

	findings := []finding{found("does the new one wait?", vs[1:],
		func(v view) string {
			if waits(v) {
				return "yes, and says for which: see SYNCED"
			}
			return "no: it acts on the same external resource"
		}, waits).knownToFail()}

	if err := p.reconcile(ctx, 2, old); err != nil {
		return nil, err
	}
	s.advance(goneAfter)

	for range 3 {
		if err := p.reconcile(ctx, 1, s.objs); err != nil {
			return nil, err
		}
	}

	if err := p.settle(ctx, replacement); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	n := int(hits.Load())
	return append(findings,
		finding{Where: "deletes of the new one's external resource", Seen: fmt.Sprint(n), Good: n == 0}.knownToFail().headline("%s wrong deletes"),
		ready("READY of the new one", vs[1:], corev1.ConditionTrue, xpv2.ReasonAvailable),
		inCloud("its external resources", vs[1:], 1),
	), nil
}

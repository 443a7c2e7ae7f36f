package main

import (
	"context"
	"errors"
	"fmt"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// forgottenOperation: the provider dies while a create runs in the background.
// Upstream has recorded long ago that the create succeeded, since it returned at
// once, and creates again when the grace period is over.
func forgottenOperation() story {
	return story{
		name: "forgotten-operation",
		about: "A provider creates a resource in the background. The cloud has made it, and the provider dies before " +
			"the answer comes. The next process starts when the grace period is over. Later the user deletes the " +
			"managed resource. (Here the columns differ in more than an import: with Graft the provider tells a " +
			"tracker when an operation begins and ends, and can look for what it has created.)",
		difference: "A record of the operation outlives the process, and the next one finds what was created.",
		play:       playForgottenOperation,
	}
}

func playForgottenOperation(ctx context.Context, s *scene) (findings []finding, err error) {
	if err := s.create(ctx, newDatabase); err != nil {
		return nil, err
	}

	// The answers to the first process arrive after it has stopped.
	answers := &held{until: make(chan struct{}), made: make(chan struct{}, len(s.objs))}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called, After: answers.hold})
	first, wait, err := backgroundProcess(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		close(answers.until)
		wait()
	}()

	if err := answers.await(ctx, len(s.objs)); err != nil {
		return nil, err
	}
	s.happens("the provider dies")
	if err := first.stop(); err != nil {
		return nil, err
	}
	s.cloud.SetHooks(cloud.Hooks{Before: s.called})
	p, wait2, err := backgroundProcess(ctx, s)
	if err != nil {
		return nil, err
	}

	// What it has begun, if anything, ends.
	wait2()
	if err := p.settle(ctx, s.objs); err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings = []finding{
		inCloud("external resources", vs, 1).knownToFail().headline("%s in the cloud"),
		found("external-name annotation", vs, view.storedName, func(v view) bool { return v.storedName() == "stored" }),
		ready("READY", vs, corev1.ConditionTrue, xpv2.ReasonAvailable),
	}

	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := s.untilGone(ctx, p, func(context.Context) error { wait2(); return nil }); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, inCloud("left in the cloud after deletion", vs, 0).knownToFail()), nil
}

// backgroundProcess starts a provider with an empty memory whose operations run in
// the background, and lets it come to rest. The function waits for the operations.
func backgroundProcess(ctx context.Context, s *scene) (process, func(), error) {
	var wait func()

	p, err := s.stage.start(ctx, provider{kind: v1alpha1.DatabaseManagedKind(), build: func(m manager.Manager) reconcile.Reconciler {
		var r reconcile.Reconciler
		r, wait = s.side.newAsync(m, v1alpha1.DatabaseManagedKind(), s.cloud)
		return r
	}})
	if err != nil {
		return nil, nil, err
	}
	s.started = append(s.started, p)
	return p, wait, p.settle(ctx, s.objs)
}

// held are answers to creates that don't come.
type held struct {
	made  chan struct{}
	until chan struct{}
}

func (h *held) hold(_ context.Context, c cloud.Call) error {
	if c.Op != cloud.OpCreate {
		return nil
	}
	h.made <- struct{}{}
	<-h.until
	return errors.New("the connection was lost")
}

// await that n resources are made.
func (h *held) await(ctx context.Context, n int) error {
	for range n {
		select {
		case <-h.made:
		case <-ctx.Done():
			return fmt.Errorf("waiting for resources to be made: %w", ctx.Err())
		}
	}
	return nil
}

//go:build integration

package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// The provider is told to stop while the external system creates. The answer
// still comes, and with it the only chance to learn the external name.
func TestStoppedDuringCreate(t *testing.T) {
	const objects = 4

	s := newServer(t)
	world := cloud.New(cloud.Options{})

	var created atomic.Int32

	// Answers come when the reconcile's context has ended.
	world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
		if c.Op == cloud.OpCreate {
			created.Add(1)
			<-ctx.Done()
		}

		return nil
	}})

	all := fleet("stopped", objects/2)
	s.create(t, all...)

	p := start(t, graft, setup{connectors: syncConnectors(world)})
	eventually(t, "all were created", func() (bool, string) { return created.Load() == objects, fmt.Sprint(created.Load()) })
	p.stop()
	s.owned(t, world, objects)

	world.SetHooks(cloud.Hooks{})
	s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, "after-restart", all...)
	start(t, graft, setup{connectors: syncConnectors(world)})
	s.until(t, "all are fine with the new process", all, func(mg sample.Instance) bool {
		return isAvailable(mg) && lastHandled(t, mg) == "after-restart"
	})
	s.owned(t, world, objects)
}

// While the external system creates, a user removes the managed resource and its
// finalizer, and creates another of the same name. The result of the first create
// must not be written to the second.
func TestReplacedDuringCreate(t *testing.T) {
	const objects = 4

	s := newServer(t)
	world := cloud.New(cloud.Options{})
	answers := newBarrier(world, cloud.OpCreate)

	all := fleet("replaced", objects/2)
	s.create(t, all...)

	start(t, graft, setup{connectors: syncConnectors(world), poll: 250 * time.Millisecond})
	answers.await(t, cloud.OpCreate, objects)

	s.merge(t, `{"metadata":{"finalizers":null}}`, all...)
	s.remove(t, all...)
	s.untilGone(t)

	successors := fleet("replaced", objects/2)
	s.create(t, successors...)
	answers.open(cloud.OpCreate)
	s.until(t, "all successors show Available", successors, isAvailable)

	// Nothing refers to what the predecessors have created.
	owners := idsByOwner(world)
	for _, mg := range successors {
		if got := externalName(read(t, s, mg)); got == "" || got != owners[mg.GetUID()] || world.Stats(string(mg.GetUID())).Created != 1 {
			t.Errorf("%T %s: want the name of its one external resource, %q, got %q", mg, mg.GetName(), owners[mg.GetUID()], got)
		}
	}
}

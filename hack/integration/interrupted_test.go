//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// The provider is told to stop while the external system creates. The answer
// still comes, and with it the only chance to learn the external name.
func TestStoppedDuringCreate(t *testing.T) {
	type outcome struct {
		// Named managed resources have the external name of their resource.
		Named int
		// Stuck ones wait until an operator has determined the outcome of their
		// creation.
		Stuck     int
		Resources int
	}

	const objects = 4

	cases := []struct {
		flavour
		want outcome
	}{
		{flavour: upstream, want: outcome{Stuck: objects, Resources: objects}},
		{flavour: graft, want: outcome{Named: objects, Resources: objects}},
	}

	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{})

			var created atomic.Int32

			// Answers come when the reconcile's context has ended.
			world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
				if c.Op != cloud.OpCreate {
					return nil
				}

				created.Add(1)
				<-ctx.Done()

				return nil
			}})

			all := fleet("stopped", objects/2)
			s.create(t, all...)

			p := start(t, tc.flavour, setup{connectors: syncConnectors(world)})
			eventually(t, "all were created", func() (bool, string) { return created.Load() == objects, fmt.Sprint(created.Load()) })
			p.stop()

			world.SetHooks(cloud.Hooks{})
			s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, "after-restart", all...)

			start(t, tc.flavour, setup{connectors: syncConnectors(world)})
			s.until(t, "all were reconciled by the new process", all, func(mg sample.Instance) bool {
				return lastHandled(t, mg) == "after-restart"
			})

			got := outcome{Resources: len(world.Inventory())}
			owners := idsByOwner(world)

			for uid, mg := range s.list(t.Context(), t) {
				if externalName(mg) == owners[uid] {
					got.Named++
				}

				if meta.ExternalCreateIncomplete(mg) {
					got.Stuck++
				}
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// While the external system creates, a user removes the managed resource and its
// finalizer, and creates another of the same name. The result of the first create
// must not be written to the second.
func TestReplacedDuringCreate(t *testing.T) {
	s := newServer(t)
	world := cloud.New(cloud.Options{})

	const objects = 4

	var first atomic.Int32

	replaced := make(chan struct{})

	world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
		if c.Op != cloud.OpCreate || first.Add(1) > objects {
			return nil
		}

		select {
		case <-replaced:
			return nil
		case <-ctx.Done():
			return errors.New("the managed resources were not replaced")
		}
	}})

	all := fleet("replaced", objects/2)
	s.create(t, all...)

	start(t, graft, setup{connectors: syncConnectors(world), poll: 250 * time.Millisecond})
	eventually(t, "all were created", func() (bool, string) { return first.Load() == objects, fmt.Sprint(first.Load()) })

	s.merge(t, `{"metadata":{"finalizers":null}}`, all...)
	s.remove(t, all...)
	s.untilGone(t)

	successors := fleet("replaced", objects/2)
	s.create(t, successors...)
	close(replaced)

	s.until(t, "all successors show Available", successors, isAvailable)

	owners := idsByOwner(world)

	for uid, mg := range s.list(t.Context(), t) {
		if want := owners[uid]; want == "" || externalName(mg) != want {
			t.Errorf("%T %s: want the name of its own external resource, %q, got %q", mg, mg.GetName(), want, externalName(mg))
		}

		if st := world.Stats(string(uid)); st.Created != 1 {
			t.Errorf("%T %s: want one external resource, got %+v", mg, mg.GetName(), st)
		}
	}
}

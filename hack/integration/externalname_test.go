//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// A provider that learns external names after Create has returned keeps them
// whatever the policies, across restarts: unchanged, and if it begins and ends its
// operations with a tracker. There are objects with each of the sets of policies that
// upstream supports and that allow to create.
func TestNamesAreKept(t *testing.T) {
	policies := sample.CreatingPolicies()

	for name, tracked := range map[string]bool{"Unchanged": false, "BeginEnd": true} {
		t.Run(name, func(t *testing.T) {
			s, w := newServer(t), cloud.New(cloud.Options{RequestLatency: 10 * time.Millisecond})

			all := fleet("kept", len(policies))
			for i, mg := range all {
				mg.SetManagementPolicies(policies[i/2])
			}

			s.create(t, all...)

			for n := range 3 {
				request := fmt.Sprint("process ", n)
				f, c := graft, asyncConnectors(w)

				if tracked {
					// The manager waits for what is running, since the tracker does.
					f, c = beginEnd(w), connectors{}
				}

				p := start(t, f, setup{connectors: c, poll: time.Second})

				s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, request, all...)
				s.until(t, "all were reconciled by this process", all, func(mg sample.Instance) bool {
					return isAvailable(mg) && lastHandled(t, mg) == request
				})
				p.stop()
			}

			s.owned(t, w, len(all))
		})
	}
}

// beginEnd is Graft with a provider that begins and ends its operations with a
// tracker.
func beginEnd(w *cloud.Cloud) flavour {
	return flavour{build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		return newAsync(m, of, s, func(t *asyncstate.Tracker) connectors { return asyncConnectors(w, sample.WithOperations(t)) }, asyncstate.WithOwnGoroutines())
	}}
}

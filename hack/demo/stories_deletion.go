package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// slowDelete: deleting the external resource takes long. Upstream writes status
// when the call of Delete has returned. Until then users see the status from
// before: Ready=True.
func slowDelete() story {
	const goneAfter = time.Minute
	return story{
		name: "silent-deletion/slow-delete",
		about: "A user deletes a managed resource. The cloud takes its time: first to answer the delete call, and " +
			"then to really delete the resource.",
		difference: "It says that it is being deleted before the cloud is even called, and why it is still there.",
		cloud:      cloud.Options{GoneAfter: goneAfter},
		play: func(s *scene) []finding {
			var calling *view // What users see during the first call of Delete, however long it takes.
			s.onCall = func(_ context.Context, c cloud.Call) {
				if c.Op == cloud.OpDelete && calling == nil {
					v := s.look()
					calling = &v
				}
			}
			p := s.createAtRest(v1alpha1.NewBucket(namespace, ""))
			s.delete()
			_ = p.reconcile(3)
			goes := s.look()
			if calling == nil {
				check(errors.New("the cloud was not called to delete the resource"))
			}
			s.clock.Advance(goneAfter)
			s.happens("the cloud has deleted the resource")
			p.untilGone(nil)
			return []finding{
				deleting("READY while the delete call runs", *calling).headline("READY %s"),
				why(*calling, reconciler.ReasonExternalDeleteRequested, ""),
				deleting("READY while the resource goes", goes),
				why(goes, reconciler.ReasonWaitingForExternalResource, ""),
				gone(s.look()),
			}
		},
	}
}

func silentClaim() story {
	return story{
		name:     "silent-deletion/claim",
		baseline: "v2.4.0's shape",
		about: fmt.Sprintf("A user deletes a claim whose compositeDeletePolicy is Foreground. The composite "+
			"resource can't go: it has the finalizer %s. The claim is reconciled, and once more after the "+
			"backoff. Later that finalizer is removed.", backupFinalizer),
		difference: "It says at once that it is being deleted, and which object it waits for, and why.",
		play: func(s *scene) []finding {
			key := client.ObjectKey{Namespace: namespace, Name: "shop-" + s.side.key}
			cm := objectOf(platformKind("App"), key)
			xr := objectOf(platformKind("XApp"), client.ObjectKey{Name: key.Name})
			cm.Object["spec"] = map[string]any{
				"compositeDeletePolicy": string(xpv2.CompositeDeleteForeground),
				"resourceRef": map[string]any{
					"apiVersion": xr.GetAPIVersion(), "kind": xr.GetKind(), "name": xr.GetName(),
				},
			}
			xr.Object["spec"] = map[string]any{"claimRef": map[string]any{
				"apiVersion": cm.GetAPIVersion(), "kind": cm.GetKind(), "namespace": key.Namespace, "name": key.Name,
			}}
			xr.SetFinalizers([]string{backupFinalizer})
			s.watch(s.user, platformKind("App"), key)
			check(s.user.Create(s.ctx, xr))
			check(s.user.Create(s.ctx, cm))
			r := s.side.newClaimant(s.program)
			reconciled := func() view {
				must(r.Reconcile(s.ctx, reconcile.Request{NamespacedName: key}))
				return must(see(s.ctx, s.user, platformKind("App"), key))
			}
			reconciled()
			s.add(byUser, "deletes "+key.Name)
			check(s.user.Delete(s.ctx, cm))
			first := reconciled()
			s.clock.Advance(time.Second) // A work queue waits so long at first.
			second := reconciled()
			s.add(byUser, "has a backup, which removes its finalizer from the composite resource")
			check(s.user.Patch(s.ctx, xr, mergePatch(`{"metadata":{"finalizers":null}}`)))
			last := reconciled()
			s.refresh(s.ctx)
			return []finding{
				deleting("READY after the first reconcile", first).headline("READY %s"),
				why(second, reconciler.ReasonWaitingForDependents, backupFinalizer),
				either("in the end", !last.found, "gone", "the claim is still there"),
			}
		},
	}
}

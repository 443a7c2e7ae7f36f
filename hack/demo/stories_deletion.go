package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
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
			// What users see during the first call of Delete, however long it takes. The calls are concurrent.
			var mu sync.Mutex
			during := map[string]view{}
			s.onCall = func(ctx context.Context, c cloud.Call) {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range s.objs {
					name := o.GetName()
					if _, seen := during[name]; !seen && c.Op == cloud.OpDelete && name == reconciled(ctx) {
						during[name] = s.view(o)
					}
				}
			}
			p := s.createAtRest(newBucket, s.sync())
			s.delete()
			p.reconcile(3)
			goes := s.look()
			mu.Lock()
			calling := slices.Collect(maps.Values(during))
			mu.Unlock()
			if len(calling) != len(goes) {
				check(errors.New("the cloud was not called to delete every resource"))
			}
			s.advance(goneAfter)
			s.happens("the cloud has deleted the resource")
			p.untilGone(nil)
			return []finding{
				deleting("READY while the delete call runs", calling).headline("READY %s"),
				why(calling, reconciler.ReasonExternalDeleteRequested, ""),
				deleting("READY while the resource goes", goes),
				why(goes, reconciler.ReasonWaitingForExternalResource, ""),
				gone(s.look()),
			}
		},
	}
}

// otherFinalizer: another controller's finalizer blocks the deletion. Upstream waits,
// and reports nothing meanwhile: not even that the object is being deleted.
func otherFinalizer() story {
	const reconciles = 10
	return story{
		name: "silent-deletion/other-finalizer",
		about: fmt.Sprintf("A user deletes a managed resource that also has the finalizer %s. It is reconciled %d "+
			"times. Later that finalizer is removed.", backupFinalizer, reconciles),
		difference: "It says that it is being deleted, and names the finalizer that it waits for.",
		play: func(s *scene) []finding {
			p := s.createAtRest(databaseWith(backupFinalizer), s.sync())
			s.delete()
			p.reconcile(reconciles)
			vs := s.look()
			s.removeBackupFinalizer("removes the other finalizer of")
			p.untilGone(nil)
			return []finding{
				deleting(fmt.Sprintf("READY after %d reconciles", reconciles), vs).headline("READY %s"),
				why(vs, reconciler.ReasonWaitingForFinalizers, backupFinalizer),
				gone(s.look()),
			}
		},
	}
}

// brokenCredentials: the provider can't log in any more when a managed resource
// is deleted. Upstream sets Synced and leaves Ready as it was.
func brokenCredentials() story {
	const token = "valid"
	return story{
		name: "silent-deletion/broken-credentials",
		about: "The provider's credentials expire. A user deletes a managed resource. Later the credentials are " +
			"valid again.",
		difference: "It says that it is being deleted, and that the provider can't be connected to.",
		cloud:      cloud.Options{Token: token},
		play: func(s *scene) []finding {
			p := s.createAtRest(newBucket, s.sync(sample.WithToken(token)))
			s.happens("the provider's credentials expire")
			s.cloud.SetToken("another one")
			s.delete()
			p.reconcile(3)
			vs := s.look()
			s.happens("the provider's credentials are valid again")
			s.cloud.SetToken(token)
			p.untilGone(nil)
			return []finding{
				deleting("READY", vs).headline("READY %s"),
				says("SYNCED", vs, xpv2.TypeSynced, corev1.ConditionFalse, xpv2.ReasonReconcileError),
				why(vs, reconciler.ReasonConnectFailed, ""),
				gone(s.look()),
			}
		},
	}
}

// silentClaim: a claim is deleted in the foreground, and its composite resource
// can't go.
func silentClaim() story {
	const backoff = time.Second // A work queue waits so long at first.
	return story{
		name:     "silent-deletion/claim",
		baseline: "v2.4.0's shape",
		single:   true,
		about: fmt.Sprintf("A user deletes a claim whose compositeDeletePolicy is Foreground. The composite "+
			"resource can't go: it has the finalizer %s. The claim is reconciled, and once more after the "+
			"backoff. Later that finalizer is removed.", backupFinalizer),
		difference: "It says at once that it is being deleted, and which object it waits for, and why.",
		play: func(s *scene) []finding {
			key := client.ObjectKey{Namespace: namespace, Name: "shop-" + s.side.key}
			cm, xr := claimAndComposite(key)
			s.watch(s.user, platformKind("App"), key)
			check(s.user.Create(s.ctx, xr))
			check(s.user.Create(s.ctx, cm))
			r := s.side.newClaimant(s.program)
			reconciled := func() []view {
				_, err := r.Reconcile(s.ctx, requestFor(cm))
				check(err)
				v, err := see(s.ctx, s.user, platformKind("App"), key)
				check(err)
				return []view{v}
			}
			reconciled()
			s.add(byUser, "deletes "+key.Name)
			check(s.user.Delete(s.ctx, cm))
			first := reconciled()
			s.advance(backoff)
			second := reconciled()
			s.add(byUser, "has a backup, which removes its finalizer from the composite resource")
			check(s.user.Patch(s.ctx, xr, mergePatch(`{"metadata":{"finalizers":null}}`)))
			last := reconciled()
			s.refresh(s.ctx)
			return []finding{
				deleting("READY after the first reconcile", first).headline("READY %s"),
				why(second, reconciler.ReasonWaitingForDependents, backupFinalizer),
				each("in the end", last, "gone", "the claim is still there", func(v view) bool { return !v.found }),
			}
		},
	}
}

// claimAndComposite returns a claim that is deleted in the foreground, and its composite resource, which has a
// finalizer.
func claimAndComposite(key client.ObjectKey) (cm, xr client.Object) {
	const apiVersion = platformGroup + "/v1"
	c, x := objectOf(platformKind("App"), key), objectOf(platformKind("XApp"), client.ObjectKey{Name: key.Name})
	c.Object["spec"] = map[string]any{
		"compositeDeletePolicy": string(xpv2.CompositeDeleteForeground),
		"resourceRef":           map[string]any{"apiVersion": apiVersion, "kind": "XApp", "name": key.Name},
	}
	x.Object["spec"] = map[string]any{"claimRef": map[string]any{
		"apiVersion": apiVersion, "kind": "App", "namespace": key.Namespace, "name": key.Name,
	}}
	x.SetFinalizers([]string{backupFinalizer})
	return c, x
}

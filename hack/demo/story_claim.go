package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// reconcileBackoff is how long a work queue waits at first.
const reconcileBackoff = time.Second

// silentClaim: a claim is deleted in the foreground, and its composite resource
// can't go.
func silentClaim() story {
	return story{
		name:     "silent-deletion/claim",
		baseline: "v2.4.0's shape",
		single:   true,
		about: fmt.Sprintf("A user deletes a claim whose compositeDeletePolicy is Foreground. The composite "+
			"resource can't go: it has the finalizer %s. The claim is reconciled, and once more after the "+
			"backoff. Later that finalizer is removed.", backupFinalizer),
		difference: "It says at once that it is being deleted, and which object it waits for, and why.",
		play: func(ctx context.Context, s *scene) []finding {
			user, timeline := s.stage.user(), &s.recorder.timeline
			key := client.ObjectKey{Namespace: namespace, Name: "shop-" + s.side.key}
			cm, xr := claimAndComposite(key)
			timeline.watch(user, platformKind("App"), key)
			check(user.Create(ctx, xr))
			check(user.Create(ctx, cm))
			c, err := s.stage.program()
			check(err)
			r := s.side.newClaimant(c)
			pass := func() (now *claim.Unstructured, there bool) {
				_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
				check(err)
				now = claim.New(claim.WithGroupVersionKind(platformKind("App")))
				err = user.Get(ctx, key, now.GetUnstructured())
				check(client.IgnoreNotFound(err))
				return now, err == nil
			}
			pass()
			timeline.add(byUser, "deletes "+key.Name)
			check(user.Delete(ctx, cm))
			first, _ := pass()
			s.advance(reconcileBackoff)
			second, _ := pass()
			timeline.add(byUser, "has a backup, which removes its finalizer from the composite resource")
			none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			check(user.Patch(ctx, xr, none))
			_, there := pass()
			timeline.look(ctx)
			ready, why := first.GetCondition(xpv2.TypeReady), second.GetCondition(reconciler.TypeDeleting)
			return []finding{
				finding{
					Where: "READY after the first reconcile", Seen: fmt.Sprintf("%s (%s)", ready.Status, ready.Reason),
					Good: ready.Status == corev1.ConditionFalse,
				}.knownToFail().headline("READY %s"),
				either(whyRow, why.Reason == reconciler.ReasonWaitingForDependents &&
					strings.Contains(second.GetCondition(xpv2.TypeReady).Message, backupFinalizer),
					string(why.Reason), "no condition says why").knownToFail(),
				either("in the end", !there, "gone", "the claim is still there"),
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

package reconciler_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// compositeShaped does what Crossplane's reconciler of composite resources does.
func compositeShaped(c client.Client) reconcile.Reconciler {
	return crossplane.NewCompositeReconciler(c, composites, composite.SchemaLegacy)
}

// A claim, its composite resource and five composed ones, as Crossplane has them,
// with the policy to delete in the foreground.
func claimWithFive() (cm, x *unstructured.Unstructured, composed []*unstructured.Unstructured) {
	x = of(composites, "", "x", held(crossplane.FinalizerComposite), being(xpv2.Available(), xpv2.ReconcileSuccess()))

	x.SetCreationTimestamp(metav1.Unix(1, 0))

	refs := []any{}

	for i := range 5 {
		o := of(things, "", fmt.Sprintf("t%d", i), ownedBy(x), held("example.org/provider"))
		composed, refs = append(composed, o), append(refs, ref(o))
	}

	with(at("spec", "resourceRefs"), refs)(x)
	with(at("spec", "claimRef"), ref(of(claims, "default", "a")))(x)
	annotated(meta.AnnotationKeyReconciliationPaused, "true")(composed[1])
	protected(composed[2])

	cm = of(claims, "default", "a",
		with(at("spec", "resourceRef"), ref(x)),
		with(at("spec", "compositeDeletePolicy"), "Foreground"),
		held(crossplane.FinalizerClaim),
		being(xpv2.Available(), xpv2.ReconcileSuccess()))

	return cm, x, composed
}

// The story of a claim whose deletion says nothing, with reconcilers that behave
// as Crossplane's do.
func TestClaimIsDeleted(t *testing.T) {
	cm, x, composed := claimWithFive()
	c := newCluster(append([]*unstructured.Unstructured{cm, x}, composed...)...)
	m := reconciler.NewMetrics()

	var first said

	forClaims := reconciler.New(c, claims, func(cl client.Client) reconcile.Reconciler {
		inner := crossplane.NewClaimReconciler(cl, claims, composites)

		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			result, err := inner.Reconcile(ctx, req)
			if first == (said{}) {
				// It is still busy as far as anybody can tell.
				first = c.says(t, cm, xpv2.TypeReady)
			}

			return result, err
		})
	}, reconciler.WithDependents(reconciler.CompositeOfClaim(composites)), reconciler.WithOwnFinalizers(crossplane.FinalizerClaim), reconciler.WithMetrics(m))

	forComposites := reconciler.New(c, composites, compositeShaped,
		reconciler.WithDependents(reconciler.ComposedResources()), reconciler.WithOwnFinalizers(crossplane.FinalizerComposite), reconciler.WithMetrics(m))

	// round lets everybody do what there is to do.
	round := func() {
		t.Helper()

		for range 3 {
			pass(t, forClaims, cm)
			pass(t, forComposites, x)
			c.collect(t, append(composed, x)...)
		}

		pass(t, forComposites, x)
		pass(t, forClaims, cm)
	}

	c.delete(t, cm)
	round()

	if want := (said{"False", "Deleting", "Deletion was requested."}); first != want {
		t.Errorf("Ready while the first reconcile runs: want %+v, got %+v", want, first)
	}

	steps := []struct {
		reason string
		do     func()
		xr     said
		claim  string
	}{
		{
			reason: "The claim says what blocks at the bottom, protection first.",
			do:     func() {},
			xr: said{"True", "BlockedByProtection", "0 of 5 dependents deleted, 0%. Thing/t2: protected by a Usage. Thing/t1 since T: its reconciliation is paused. " +
				"Thing/t0 since T: held by example.org/provider. And 2 more."},
			claim: "0 of 1 dependents deleted, 0%. XApp/x since T: BlockedByProtection: 0 of 5 dependents deleted, 0%. Thing/t2: protected by a Usage. Thing/t1 since T: its reconciliation is paused. " +
				"Thing/t0 since T: held by example.org/provider. And 2 more.",
		},
		{
			reason: "Numbers move as things go.",
			do: func() {
				for _, o := range []*unstructured.Unstructured{composed[0], composed[3], composed[4]} {
					c.change(t, o, held())
				}
			},
			xr:    said{"True", "BlockedByProtection", "3 of 5 dependents deleted, 60%. Thing/t2: protected by a Usage. Thing/t1 since T: its reconciliation is paused."},
			claim: "0 of 1 dependents deleted, 0%. XApp/x since T: BlockedByProtection: 3 of 5 dependents deleted, 60%. Thing/t2: protected by a Usage. Thing/t1 since T: its reconciliation is paused.",
		},
		{
			reason: "What is protected no more is deleted.",
			do: func() {
				c.change(t, composed[2], func(u *unstructured.Unstructured) { u.SetLabels(nil); u.SetFinalizers(nil) })
			},
			xr:    said{"True", "WaitingForDependents", "4 of 5 dependents deleted, 80%. Thing/t1 since T: its reconciliation is paused."},
			claim: "0 of 1 dependents deleted, 0%. XApp/x since T: WaitingForDependents: 4 of 5 dependents deleted, 80%. Thing/t1 since T: its reconciliation is paused.",
		},
	}

	for _, s := range steps {
		s.do()
		round()

		if diff := cmp.Diff(s.xr, c.says(t, x, reconciler.TypeDeleting)); diff != "" {
			t.Errorf("\n%s\ncomposite resource: -want, +got:\n%s", s.reason, diff)
		}

		if diff := cmp.Diff(said{"True", s.xr.Reason, s.claim}, c.says(t, cm, reconciler.TypeDeleting)); diff != "" {
			t.Errorf("\n%s\nclaim: -want, +got:\n%s", s.reason, diff)
		}

		// What the trace command shows while Synced is True.
		if diff := cmp.Diff(said{"False", "Deleting", s.claim}, c.says(t, cm, xpv2.TypeReady)); diff != "" {
			t.Errorf("\n%s\nReady of the claim: -want, +got:\n%s", s.reason, diff)
		}

		c.forget()

		for range 3 {
			pass(t, forClaims, cm)
			pass(t, forComposites, x)
		}

		if n := c.writes(); n != 0 {
			t.Errorf("\n%s\nwrites while nothing changes: want 0, got %d", s.reason, n)
		}
	}

	if diff := cmp.Diff(map[string]int{"WaitingForDependents": 2}, blocked(t, m)); diff != "" {
		t.Errorf("blocked: -want, +got:\n%s", diff)
	}

	c.change(t, composed[1], held())
	round()

	for _, o := range append(composed, cm, x) {
		if c.has(o) {
			t.Errorf("%s %s should be gone", o.GetKind(), o.GetName())
		}
	}

	pass(t, forClaims, cm)

	if diff := cmp.Diff(map[string]int{}, blocked(t, m)); diff != "" {
		t.Errorf("blocked in the end: -want, +got:\n%s", diff)
	}

	if n := counter(t, m, duration); n != 2 {
		t.Errorf("durations: want 2, got %d", n)
	}

	if n := reconciler.Kept(forClaims, m) + reconciler.Kept(forComposites, m); n != 0 {
		t.Errorf("objects remembered in the end: want 0, got %d", n)
	}
}

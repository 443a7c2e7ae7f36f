//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Ten composite resources are composed of each other, and the last of a bucket that
// the cloud won't delete. The first says so, and names everything in between; when
// the cloud relents all of them go.
func TestDeepDeletion(t *testing.T) {
	const (
		levels   = 10
		interval = 50 * time.Millisecond
	)
	s := newPlatform(t)
	tr := &traffic{}
	x := startCrossplane(t, crossplaneSetup{interval: interval, requests: tr})
	w := watchKind(t, platformResource("stacks"))
	world := cloud.New(cloud.Options{})
	world.SetHooks(refusing(cloud.OpDelete, "access denied by policy P-17"))
	bucket := v1alpha1.NewBucket(namespace, "bottom")
	s.create(t, bucket)
	start(t, graft, setup{connectors: syncConnectors(world)})
	s.until(t, "it is Available", []sample.Instance{bucket}, isAvailable)
	var (
		below  client.Object = bucket
		stacks []*unstructured.Unstructured
	)
	for i := range levels {
		xr := object(stackKind(), namespace, fmt.Sprintf("level-%d", levels-i))
		must(t, "cannot compose", s.compose(t.Context(), xr, below))
		w.until(t, xr.GetName(), "it is Available", isReady)
		stacks, below = append(stacks, xr), xr
	}
	top := stacks[levels-1]
	must(t, "Delete()", s.Delete(t.Context(), top, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	first := w.until(t, stacks[0].GetName(), "what is above the bucket quotes it", quotes("P-17")).at
	last := w.until(t, top.GetName(), "the first quotes the bucket", quotes("P-17"))
	t.Logf("the cause took %s through %d levels, of which each looks every %s:\n%s", last.at.Sub(first).Round(time.Millisecond), levels-1, interval, saysOf(last.Unstructured, reconciler.TypeDeleting).Message)
	for _, xr := range stacks[:levels-1] {
		if m := saysOf(last.Unstructured, reconciler.TypeDeleting).Message; !strings.Contains(m, "Stack/"+xr.GetName()+" in default since T: WaitingForDependents: 0 of 1 dependents deleted, 0%.") {
			t.Errorf("want the first to name %s, and what it waits for, got %q", xr.GetName(), m)
		}
	}

	// The bucket's failure is written by its provider alone, once.
	x.wait(t, 2, top)
	before, rounds := tr.Counted(), x.count(top)
	x.wait(t, 10, top, stacks[0])
	if n := tr.Counted().Writes() - before.Writes(); n != 0 {
		t.Errorf("want no write while nothing changes, got %d", n)
	}
	t.Logf("%d more reports of the first", x.count(top)-rounds)
	world.SetHooks(cloud.Hooks{})
	w.until(t, top.GetName(), "it is gone", isGone)
}

// A composite resource of which five hundred hold on reads all of them from the
// cache.
func TestWideDeletion(t *testing.T) {
	const (
		dependents = 500
		reports    = 20
	)
	s := newPlatform(t)
	tr := &traffic{}
	x := startCrossplane(t, crossplaneSetup{interval: 100 * time.Millisecond, requests: tr})
	w := watchKind(t, platformResource("xapps"))
	composed := make([]client.Object, dependents)
	inParallel(t, lanes, dependents, func(i int) error {
		composed[i] = database(fmt.Sprintf("wide-%03d", i), withFinalizers(otherFinalizer))
		return s.Create(t.Context(), composed[i])
	})
	xr := object(xappKind(), "", "wide")
	must(t, "cannot compose", s.compose(t.Context(), xr, composed...))
	w.until(t, "wide", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), xr, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	const want = "0 of 500 dependents deleted, 0%. Database/wide-000 since T: held by example.org/other. " +
		"Database/wide-001 since T: held by example.org/other. Database/wide-002 since T: held by example.org/other. And 497 more."
	w.until(t, "wide", want, func(s sight) bool { return saysOf(s.Unstructured, reconciler.TypeDeleting).Message == want })
	x.wait(t, 2, xr)
	before, first := tr.Counted(), len(x.times(xappKind()))
	x.wait(t, reports, xr)
	if made := tr.Since(before); len(made) > 0 {
		t.Errorf("nothing changes: want no request, got %v", made)
	}
	took := x.times(xappKind())[first:]
	t.Logf("a reconcile with %d dependents takes %s, and no request", dependents, latencies(took))

	// Numbers rise with each that goes.
	inParallel(t, lanes, dependents, func(i int) error {
		return s.Patch(t.Context(), composed[i], mergePatch(`{"metadata":{"finalizers":null}}`))
	})
	w.until(t, "wide", "it is gone", isGone)
	progressed(t, "composite resource", w.of("wide"), dependents)
}

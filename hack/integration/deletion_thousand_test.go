//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A thousand composite resources are deleted at once. None of them can go for
// a while. Each is written to as often as what it shows changes.
func TestThousandDeletions(t *testing.T) {
	const n = 1000
	s := newPlatform(t)
	tr := &traffic{}
	x := startCrossplane(t, crossplaneSetup{interval: 2 * time.Second, requests: tr})
	w := watchKind(t, platformResource("xapps"))
	xrs, composed := make([]client.Object, n), make([]client.Object, n)
	inParallel(t, lanes, n, func(i int) error {
		xr := object(xappKind(), "", fmt.Sprintf("many-%d", i))
		xrs[i], composed[i] = xr, database(fmt.Sprintf("many-%d", i), withFinalizers(otherFinalizer))
		return s.compose(t.Context(), xr, composed[i])
	})
	for _, xr := range xrs {
		w.until(t, xr.GetName(), "it is Available", isReady)
	}

	// Nothing happens any more to what is as it should be, once the answers have come.
	eventually(t, "all answers have come", func() (bool, string) {
		writes := statusWrites(tr.Counted())
		for _, xr := range xrs {
			if writes[xr.GetName()] == 0 {
				return false, "not that of " + xr.GetName()
			}
		}
		return true, ""
	})
	wrote, began := tr.Counted(), time.Now()
	inParallel(t, lanes, n, func(i int) error {
		return s.Delete(t.Context(), object(xappKind(), "", xrs[i].GetName()), client.PropagationPolicy(metav1.DeletePropagationForeground))
	})
	for _, xr := range xrs {
		w.until(t, xr.GetName(), "it says what it waits for", func(s sight) bool {
			return saysOf(s.Unstructured, reconciler.TypeDeleting).Message == "0 of 1 dependents deleted, 0%. Database/"+xr.GetName()+" since T: held by example.org/other."
		})
	}
	t.Logf("%d objects were deleted, and all say why after %s", n, time.Since(began).Round(time.Millisecond))

	// They stay as they are, and are looked at every now and then.
	states := w.len()
	x.wait(t, 2, xrs...)
	if n := w.len() - states; n != 0 {
		t.Errorf("%d writes while nothing changes", n)
	}
	inParallel(t, lanes, n, func(i int) error {
		return s.Patch(t.Context(), composed[i], mergePatch(`{"metadata":{"finalizers":null}}`))
	})
	for _, xr := range xrs {
		w.until(t, xr.GetName(), "it is gone", isGone)
	}

	// Graft's and the inner reconciler's, as far as it can be told.
	all, writes := 0, statusWrites(tr.Since(wrote))
	for _, xr := range xrs {
		made, shown := writes[xr.GetName()], changesOf(w.of(xr.GetName()))
		all += made
		if made > shown {
			t.Errorf("%s: %d writes of status, of which %d changed anything", xr.GetName(), made, shown)
		}
	}
	t.Logf("of %d objects in %s: %.2f status writes each", n, time.Since(began).Round(time.Millisecond), float64(all)/n)
}

// statusWrites that the API server accepted, by the name of a composite resource.
func statusWrites(c counts) map[string]int {
	out := map[string]int{}
	for k, n := range c {
		if !k.Reads() && !k.Refused && k.Resource == "xapps" && k.Subresource == "status" {
			out[k.Name] += n
		}
	}
	return out
}

// changesOf counts how often what an object shows changed since it was deleted.
func changesOf(seen []sight) (n int) {
	var was *unstructured.Unstructured
	for _, now := range seen {
		if meta.WasDeleted(now.Unstructured) && !gocmp.Equal(was.Object["status"], now.Object["status"]) {
			n++
		}
		was = now.Unstructured
	}
	return n
}

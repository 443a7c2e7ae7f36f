//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
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
// a while. Each is written to as often as what it shows changes, and reconciled as
// often as something happens to it.
func TestThousandDeletions(t *testing.T) {
	const (
		n        = 1000
		interval = 2 * time.Second
	)

	s := newPlatform(t)
	tr := &traffic{}
	x := startCrossplane(t, crossplaneSetup{interval: interval, requests: tr})
	w := watchKind(t, platformResource("xapps"))

	// The first report makes the cache watch what is composed. How long that takes, of
	// a thousand, is not what this is about.
	first := object(xappKind(), "", "first")
	must(t, "cannot compose", s.compose(t.Context(), first, database("first", withFinalizers(otherFinalizer))))
	w.until(t, "first", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), first.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.until(t, "first", "it says what it waits for", quotes("held by "+otherFinalizer))

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
		writes := writesOf(tr.Counted())
		for _, xr := range xrs {
			if w := writes[xr.GetName()]; w.status == 0 || w.metadata == 0 {
				return false, "not that of " + xr.GetName()
			}
		}

		return true, ""
	})

	wrote := tr.Counted()

	before := map[client.Object]int{}
	for _, xr := range xrs {
		before[xr] = x.count(xr)
	}

	began := time.Now()
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
	var accepted []int

	elapsed, writes := time.Since(began), writesOf(tr.Since(wrote))

	for _, xr := range xrs {
		name := xr.GetName()
		made := writes[name]
		shown, happened, said := shownSince(w.of(name))
		passes := x.count(xr) - before[xr]

		accepted = append(accepted, made.status)

		if want := saidOf(name); !isSubsequence(said, want) || shown != len(said) {
			t.Errorf("%s: want each of these said once, if at all, and in this order:\n%s\ngot %d changes, to:\n%s", name, strings.Join(want, "\n"), shown, strings.Join(said, "\n"))
		}

		if made.status > shown {
			t.Errorf("%s: %d writes of status, of which %d changed anything", name, made.status, shown)
		}

		if most := happened + made.refused + int(elapsed/interval) + 1; passes > most {
			t.Errorf("%s: %d reconciles, want at most %d: of %d events, %d refusals, and every %s in %s", name, passes, most, happened, made.refused, interval, elapsed)
		}

		if made.metadata != 1 {
			t.Errorf("%s: want 1 write to remove the finalizer, got %d", name, made.metadata)
		}
	}

	t.Logf("of %d objects in %s: %.2f status writes each, at most %d", n, elapsed.Round(time.Millisecond), float64(sum(accepted))/n, slices.Max(accepted))
}

func sum(list []int) int {
	out := 0
	for _, n := range list {
		out += n
	}

	return out
}

// A written counts the writes of an object's metadata and status, and those refused.
type written struct{ metadata, status, refused int }

// writesOf objects, by name.
func writesOf(c counts) map[string]written {
	out := map[string]written{}

	for k, n := range c {
		w := out[k.Name]

		switch {
		case k.Reads() || k.Resource != "xapps":
		case k.Refused:
			w.refused += n
		case k.Subresource == "status":
			w.status += n
		default:
			w.metadata += n
		}

		out[k.Name] = w
	}

	return out
}

// saidOf is what may be said of one of the thousand, in this order.
func saidOf(name string) []string {
	return []string{
		"Deletion was requested.",
		"0 of 1 dependents deleted, 0%. Database/" + name + ": its deletion was not requested yet.",
		"0 of 1 dependents deleted, 0%. Database/" + name + " since T: held by " + otherFinalizer + ".",
		"1 of 1 dependents deleted, 100%. Waiting for other controllers to remove their finalizers: foregroundDeletion.",
	}
}

func isSubsequence(list, of []string) bool {
	for _, s := range of {
		if len(list) > 0 && list[0] == s {
			list = list[1:]
		}
	}

	return len(list) == 0
}

// shownSince counts how often what an object shows changed since it was deleted,
// and what happened to it altogether; and returns what it said on the way.
func shownSince(seen []sight) (changes, events int, said []string) {
	var was *unstructured.Unstructured

	for _, now := range seen {
		if meta.WasDeleted(now.Unstructured) {
			events++

			if !gocmp.Equal(was.Object["status"], now.Object["status"]) {
				changes++
			}

			if m := saysOf(now.Unstructured, reconciler.TypeDeleting).Message; m != "" && (len(said) == 0 || said[len(said)-1] != m) {
				said = append(said, m)
			}
		}

		was = now.Unstructured
	}

	return changes, events, said
}

//go:build integration

package integration

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	latencyDeletions = 100

	// latencyEnv names the environment variable with the time in which 99 of 100
	// deletions must be seen. It depends on the machine, so there is no default.
	latencyEnv = "GRAFT_LATENCY"

	// latencyGoal and latencyRatio are for half of the deletions: the longer of it,
	// and so many times what it takes without Graft.
	latencyGoal  = 100 * time.Millisecond
	latencyRatio = 10
)

// A gated client lets the reconciler of a claim see for the first time that it is being
// deleted when the test says so.
type gated struct {
	client.Client

	// at is sent the name of the claim, and open received from.
	at   chan string
	open chan struct{}
	seen map[string]bool
}

func (c *gated) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, opts...); err != nil || !meta.WasDeleted(o) || c.seen[key.Name] || o.GetObjectKind().GroupVersionKind() != appKind() {
		return err
	}
	c.seen[key.Name] = true
	select {
	case c.at <- key.Name:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-c.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A watch of a claim shows that it is being deleted before the reconciler that does
// the work has done anything. It shows so soon, as one patch is enough.
// GRAFT_LATENCY=100ms sets the limit for 99 of 100 deletions.
func TestClaimDeletionIsSeenAtOnce(t *testing.T) {
	limit, err := time.ParseDuration(cmp.Or(os.Getenv(latencyEnv), "0s"))
	must(t, latencyEnv, err)
	s := newPlatform(t)
	g, tr := &gated{at: make(chan string), open: make(chan struct{}), seen: map[string]bool{}}, &traffic{}
	startCrossplane(t, crossplaneSetup{requests: tr, claims: func(c client.Client) reconcile.Reconciler {
		g.Client = c
		return newClaims(g)
	}})
	claims, composites, databases := watchKind(t, platformResource("apps")), watchKind(t, platformResource("xapps")), watchKind(t, databaseResource())
	var graft, bare latencies
	for i := range latencyDeletions {
		name := fmt.Sprintf("seen-%d", i)
		a := s.newApp(t, name)
		claims.until(t, name, "it is Available", isReady)
		composites.until(t, a.composite.GetName(), "it is Available", isReady)
		began := time.Now()
		must(t, "Delete()", s.Delete(t.Context(), a.claim))
		graft = append(graft, claims.until(t, name, "it is being deleted", isDeleting).at.Sub(began))
		select {
		case <-g.at: // Of the only claim there is.
		case <-time.After(patience):
			t.Fatalf("%s was not reconciled", name)
		}

		// The gate is still closed.
		if got := saysOf(read(t, s, a.claim), reconciler.TypeDeleting); got.String() != "True/DeletionRequested" {
			t.Fatalf("%s: while its reconciler runs: want Deleting to be True/DeletionRequested, got %s", name, got)
		}
		if xr := read(t, s, a.composite); meta.WasDeleted(xr) {
			t.Fatalf("%s: its reconciler should not have done anything yet", name)
		}

		// The claimant makes none.
		if n := tr.Counted().Sum(func(c call) bool { return c.Method == http.MethodPatch && c.Subresource == "status" && c.Name == name }); n != 1 {
			t.Errorf("%s: want one patch before its reconciler sees the deletion, got %d", name, n)
		}
		g.open <- struct{}{}
		claims.until(t, name, "it is gone", isGone)
		bare = append(bare, s.sayDeleting(t, databases, name))
	}
	t.Logf("from the call until Ready=False/Deleting is seen, of %d deletions: %s; with nothing but a watch and a patch: %s", latencyDeletions, graft, bare)

	// Both were measured in turns, so that whatever else the machine does was in the
	// way of both.
	if got, most := graft.of(0.5), max(latencyGoal, latencyRatio*bare.of(0.5)); got > most {
		t.Errorf("want half of %d within %s, got %s", latencyDeletions, most, got)
	}
	if got := graft.of(0.99); limit > 0 && got > limit {
		t.Errorf("want 99 of %d within %s, got %s", latencyDeletions, limit, got)
	}
}

// sayDeleting deletes an object of a kind without a reconciler, and sets Deleting as
// soon as the deletion is seen. It returns the time until the condition is seen,
// which is the least that this machine needs.
func (s server) sayDeleting(t *testing.T, w *witness, name string) time.Duration {
	t.Helper()
	d := database(name, withFinalizers(otherFinalizer))
	must(t, "Create()", s.Create(t.Context(), d))
	began := time.Now()
	must(t, "Delete()", s.Delete(t.Context(), d))
	w.until(t, name, "it is being deleted", func(s sight) bool { return meta.WasDeleted(s.Unstructured) })
	must(t, "Patch()", s.Status().Patch(t.Context(), d, mergePatch(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Deleting","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)))
	took := w.until(t, name, "it is said", func(s sight) bool { return saysOf(s.Unstructured, xpv2.TypeReady).Status == "False" }).at.Sub(began)
	must(t, "Patch()", s.Patch(t.Context(), d, mergePatch(`{"metadata":{"finalizers":null}}`)))
	return took
}

// latencies of things of one sort.
type latencies []time.Duration

// of returns what that part of them, which is at most 1, doesn't exceed.
func (l latencies) of(part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(l))
	return sorted[int(math.Ceil(part*float64(len(sorted))))-1]
}

func (l latencies) String() string {
	short := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("median %s, p99 %s, at most %s", short(l.of(0.5)), short(l.of(0.99)), short(l.of(1)))
}

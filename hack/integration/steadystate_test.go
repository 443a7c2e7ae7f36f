//go:build integration

package integration

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// 50 managed resources of which nothing changes are reconciled 100 times each: with
// not one request, be it to read. `make demo` shows what upstream does.
func TestSteadyState(t *testing.T) {
	const (
		objects    = 50
		reconciles = 100
	)

	s := newServer(t)
	tr := &traffic{}
	c := syncConnectors(cloud.New(cloud.Options{}))

	all := fleet("steady", objects/2)
	s.create(t, all...)
	start(t, graft, setup{connectors: c, poll: 10 * time.Millisecond, wrap: tr.wrap})
	s.until(t, "all show Available", all, isAvailable)

	reconciled := func(n int) {
		t.Helper()

		before := c.disconnects()
		eventually(t, "they are reconciled", func() (bool, string) {
			got := c.disconnects() - before
			return got >= n*objects, fmt.Sprintf("%d of %d", got, n*objects)
		})
	}

	versions := func() map[types.UID]string {
		out := map[types.UID]string{}
		for uid, mg := range s.list(t.Context(), t) {
			out[uid] = mg.GetResourceVersion()
		}

		return out
	}

	// What made them so is over.
	reconciled(10)

	before, was := tr.Counted(), versions()

	reconciled(reconciles)

	if made := tr.Since(before); len(made) > 0 {
		t.Errorf("want no request, got %v", made)
	}

	if now := versions(); !maps.Equal(now, was) {
		t.Errorf("want no write, but of %v came %v", was, now)
	}
}

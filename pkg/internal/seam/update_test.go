package seam_test

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// The status of an object that was read past the seam, and is newer than what the
// session knows, is not known: a status write is made even if it is what the session
// read first.
func TestUpdateOfObjectReadLive(t *testing.T) {
	ctx := context.Background()
	stored := newBucket()
	stored.Status.AtProvider.ID = "old"

	a := testkit.NewAPI(stored)
	must(t, "Freeze", a.Freeze(ctx, newBucket()))

	theirs := newBucket()
	must(t, "Get", a.Server().Get(ctx, key(), theirs))
	theirs.Status.AtProvider.ID = "new"
	must(t, "another writer", a.Server().Status().Update(ctx, theirs))

	must(t, "Reconcile", run(t, over(a, func(ctx context.Context, c client.Client) error {
		read(ctx, t, c, newBucket())

		o := newBucket()
		must(t, "live Get", a.Live().Get(ctx, key(), o))
		o.SetAnnotations(map[string]string{"k": "v"})
		must(t, "Update", c.Update(ctx, o))

		if o.Status.AtProvider.ID != "new" {
			t.Errorf("status after Update: want new, got %q", o.Status.AtProvider.ID)
		}

		o.Status.AtProvider.ID = "old"

		return c.Status().Update(ctx, o)
	})))

	got := newBucket()
	must(t, "Get", a.Server().Get(ctx, key(), got))

	if got.Status.AtProvider.ID != "old" {
		t.Errorf("status: want the last write's, old; got %q", got.Status.AtProvider.ID)
	}
}

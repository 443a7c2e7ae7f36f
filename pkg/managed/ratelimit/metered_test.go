package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// TestWith_LookUpOfACreate proves that a call of a Finder is a call like others.
func TestWith_LookUpOfACreate(t *testing.T) {
	cases := map[string]struct {
		reason string
		burst  int // a look-up, an observation and a create take three
		err    error
	}{
		"Charged": {reason: "A look-up should take a token, so none should be left for a neighbour.", burst: 3},
		"Throttled": {
			reason: "A look-up that is throttled should close the account.",
			burst:  100,
			err:    Throttled(errors.New("slow down"), time.Hour),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(
					kit.NewBucket(kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "1999-01-01T00:00:00Z")),
					kit.NewBucket(kit.WithName("neighbour"), kit.WithExternalName("n")),
				)
				ext, finds := &kit.CountingClient{Absent: true}, 0
				find := asyncstate.FinderFn(
					func(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
						finds++
						return asyncstate.Absent(), tc.err
					},
				)
				r := kit.NewBucketReconciler(api, ext.Connect(), With(New(0.001, tc.burst)), resolve.With(find))
				_, _ = r.Reconcile(t.Context(), kit.RequestFor("b"))
				kit.ExpectEqual(t, tc.reason, "look-ups", 1, finds)
				before := ext.Count("observe")
				_, _ = r.Reconcile(t.Context(), kit.RequestFor("neighbour"))
				kit.ExpectEqual(t, tc.reason, "observations", before, ext.Count("observe"))
			})
		})
	}
}

package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// firstStatus: adding the finalizer makes upstream forget the status that was
// observed just before, because the API server answers with the stored status,
// which is empty.
func firstStatus() story {
	return story{
		name: "first-status",
		about: "A managed resource is made for an external resource that exists and is ready. The provider " +
			"reconciles it once, and then not until its next poll.",
		difference: "What the first reconcile has observed is stored.",
		play: func(ctx context.Context, s *scene) []finding {
			s.create(ctx, func() sample.Instance {
				b := newBucket()
				r, err := s.cloud.Session("").Create(ctx, cloud.CreateRequest{
					Kind:       v1alpha1.BucketKind,
					Properties: map[string]string{"size": fmt.Sprint(b.GetForProvider().Size)},
				})
				check(err)
				meta.SetExternalName(b, r.ID)
				return b
			})
			p := s.start(ctx, s.side.newReconciler, sample.NewSync[resource.Managed](s.cloud))
			p.first(ctx)
			vs := s.look(ctx)
			s.happens("the provider polls")
			p.reconcile(ctx, 1)
			return []finding{
				available("READY after the first reconcile", vs).knownToFail().headline("READY %s"),
				each("status.atProvider", vs, "id, endpoint and state", "empty", func(v view) bool {
					return v.GetAtProvider().ID == meta.GetExternalName(v)
				}).knownToFail(),
				available("READY after the next poll", s.look(ctx)),
			}
		},
	}
}

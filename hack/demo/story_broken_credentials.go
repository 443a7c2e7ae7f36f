package main

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// brokenCredentials: the provider can't log in any more when a managed resource
// is deleted. Upstream sets Synced and leaves Ready as it was.
func brokenCredentials() story {
	const token = "valid"
	return story{
		name: "silent-deletion/broken-credentials",
		about: "The provider's credentials expire. A user deletes a managed resource. Later the credentials are " +
			"valid again.",
		difference: "It says that it is being deleted, and that the provider can't be connected to.",
		cloud:      cloud.Options{Token: token},
		play: func(ctx context.Context, s *scene) []finding {
			p := s.createAtRest(ctx, newBucket, sample.NewSync[resource.Managed](s.cloud, sample.WithToken(token)))
			s.happens("the provider's credentials expire")
			s.cloud.SetToken("another one")
			s.delete(ctx)
			p.reconcile(ctx, 3)
			vs := s.look(ctx)
			s.happens("the provider's credentials are valid again")
			s.cloud.SetToken(token)
			p.untilGone(ctx, nil)
			return []finding{
				deleting("READY", vs).knownToFail().headline("READY %s"),
				says("SYNCED", vs, xpv2.TypeSynced, corev1.ConditionFalse, xpv2.ReasonReconcileError),
				why(vs, reconciler.ReasonConnectFailed, ""),
				gone(s.look(ctx)),
			}
		},
	}
}

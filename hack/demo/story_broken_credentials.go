package main

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
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
		play: func(ctx context.Context, s *scene) ([]finding, error) {
			return playBrokenCredentials(ctx, s, token)
		},
	}
}

func playBrokenCredentials(ctx context.Context, s *scene, token string) ([]finding, error) {
	c := sample.NewSync[resource.Managed](s.cloud, sample.WithToken(token))
	p, err := s.createAtRest(ctx, newBucket, v1alpha1.BucketManagedKind(), c)
	if err != nil {
		return nil, err
	}
	s.happens("the provider's credentials expire")
	s.cloud.SetToken("another one")
	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := p.reconcile(ctx, 3, s.objs); err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings := []finding{
		deleting("READY", vs).knownToFail().headline("READY %s"),
		found("SYNCED", vs,
			func(v view) string { return v.condition(xpv2.TypeSynced) },
			func(v view) bool { return v.has(xpv2.TypeSynced, corev1.ConditionFalse, xpv2.ReasonReconcileError) }),
		why(vs, reconciler.ReasonConnectFailed, ""),
	}

	s.happens("the provider's credentials are valid again")
	s.cloud.SetToken(token)
	if err := s.untilGone(ctx, p, nil); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, gone(vs)), nil
}

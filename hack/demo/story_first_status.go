package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// firstStatus: adding the finalizer makes upstream forget the status that was
// observed just before: the API server answers with the status that it has, which
// is none.
func firstStatus() story {
	return story{
		name: "first-status",
		about: "A managed resource is made for an external resource that exists and is ready. The provider " +
			"reconciles it once, and then not until its next poll.",
		difference: "What the first reconcile has observed is stored.",
		play:       playFirstStatus,
	}
}

func playFirstStatus(ctx context.Context, s *scene) ([]finding, error) {
	session, err := s.cloud.NewSession(ctx, "")
	if err != nil {
		return nil, err
	}
	err = s.create(ctx, func() (sample.Instance, error) {
		b := v1alpha1.NewBucket(namespace, "")

		r, err := session.Create(ctx, cloud.CreateRequest{
			Kind:       v1alpha1.BucketKind,
			Properties: map[string]string{"size": fmt.Sprint(b.GetForProvider().Size)},
		})
		if err != nil {
			return nil, fmt.Errorf("cannot make an external resource: %w", err)
		}
		meta.SetExternalName(b, r.ID)
		return b, nil
	})
	if err != nil {
		return nil, err
	}
	p, err := s.start(ctx, v1alpha1.BucketManagedKind(), sample.NewSync[resource.Managed](s.cloud))
	if err != nil {
		return nil, err
	}
	if err := p.first(ctx, s.objs); err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings := []finding{
		ready("READY after the first reconcile", vs, corev1.ConditionTrue, xpv2.ReasonAvailable).knownToFail().headline("READY %s"),
		found("status.atProvider", vs,
			func(v view) string {
				if v.GetAtProvider().ID == "" {
					return "empty"
				}
				return "id, endpoint and state"
			},
			func(v view) bool { return v.GetAtProvider().ID == meta.GetExternalName(v) }).knownToFail(),
	}

	s.happens("the provider polls")
	if err := p.reconcile(ctx, 1, s.objs); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, ready("READY after the next poll", vs, corev1.ConditionTrue, xpv2.ReasonAvailable)), nil
}

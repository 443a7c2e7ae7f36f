package sample

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// WithProviderConfigs makes the connector log in to the cloud with the token of
// the ProviderConfig or ClusterProviderConfig that a managed resource refers to,
// once its usage is tracked. This is what most providers do. It is for Buckets
// alone.
func WithProviderConfigs(c client.Reader, t resource.ModernTracker) Option {
	return func(s *settings) { s.configs, s.tracker = c, t }
}

// login returns the token to log in to the cloud with. Without provider configs there is none.
func (s settings) login(ctx context.Context, mg resource.Managed) (string, error) {
	if s.configs == nil {
		return "", nil
	}
	b, ok := mg.(resource.ModernManaged)
	if !ok {
		return "", fmt.Errorf("a managed resource of type %T refers to no provider config of this provider's", mg)
	}
	if err := s.tracker.Track(ctx, b); err != nil {
		return "", fmt.Errorf("cannot track the usage of the provider config: %w", err)
	}
	ref := b.GetProviderConfigReference()

	if ref.Kind == v1alpha1.ClusterProviderConfigKind {
		pc := &v1alpha1.ClusterProviderConfig{}
		if err := s.configs.Get(ctx, client.ObjectKey{Name: ref.Name}, pc); err != nil {
			return "", fmt.Errorf("cannot get the cluster provider config: %w", err)
		}
		return pc.Spec.Token, nil
	}

	pc := &v1alpha1.ProviderConfig{}
	if err := s.configs.Get(ctx, client.ObjectKey{Namespace: b.GetNamespace(), Name: ref.Name}, pc); err != nil {
		return "", fmt.Errorf("cannot get the provider config: %w", err)
	}
	return pc.Spec.Token, nil
}

package main

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// lostExternalName: an asynchronous provider learns the external name when Create
// has returned long ago, and says so by "late initialized". Without a policy that
// allows late initialization upstream doesn't store the name. It is in the
// provider's memory alone, and the next process creates the resource again.
func lostExternalName() story {
	return story{
		name: "lost-external-name",
		about: "A provider of upjet's shape creates a resource in the background, and learns its id from the cloud " +
			"after Create has returned. The policies are Observe, Create, Update and Delete. The provider is " +
			"restarted. Later the user deletes the managed resource.",
		difference: "The external name is stored as soon as it is known, whatever the policies say.",
		play:       playLostExternalName,
	}
}

func playLostExternalName(ctx context.Context, s *scene) ([]finding, error) {
	err := s.create(ctx, func() (sample.Instance, error) {
		d := v1alpha1.NewDatabase("")
		d.SetManagementPolicies(xpv2.ManagementPolicies{
			xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
			xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
		})
		return d, nil
	})
	if err != nil {
		return nil, err
	}
	if p, _, err := asyncProcess(ctx, s); err != nil {
		return nil, err
	} else if err := p.stop(); err != nil {
		return nil, err
	}

	s.happens("the provider is restarted")
	p, c, err := asyncProcess(ctx, s)
	if err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings := []finding{
		inCloud("external resources", vs, 1).knownToFail().headline("%s in the cloud"),
		found("external-name annotation", vs, view.storedName,
			func(v view) bool { return v.storedName() == "stored" }).knownToFail(),
		ready("READY", vs, corev1.ConditionTrue, xpv2.ReasonAvailable),
	}

	if err := s.delete(ctx); err != nil {
		return nil, err
	}
	if err := s.untilGone(ctx, p, c.Finish); err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings, inCloud("left in the cloud after deletion", vs, 0).knownToFail()), nil
}

// asyncProcess starts a provider with an empty memory and lets it come to rest:
// before what it has begun ends, and after.
func asyncProcess(ctx context.Context, s *scene) (process, *sample.Async[resource.Managed], error) {
	c := sample.NewAsync[resource.Managed](s.cloud)
	p, err := s.startAtRest(ctx, v1alpha1.DatabaseManagedKind(), c)
	if err != nil {
		return nil, nil, err
	}
	s.happens("what the provider has begun in the background ends")
	if err := c.Finish(ctx); err != nil {
		return nil, nil, err
	}
	return p, c, p.settle(ctx, s.objs)
}

package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// steadyState: nothing changes. Upstream writes the same status at every poll.
func steadyState() story {
	const reconciles = 100
	return story{
		name: "steady-state-writes",
		about: fmt.Sprintf("Nothing changes, neither in the cluster nor in the cloud. Polls cause %d reconciles.",
			reconciles),
		difference: "What hasn't changed isn't written.",
		play: func(ctx context.Context, s *scene) ([]finding, error) {
			return playSteadyState(ctx, s, reconciles)
		},
	}
}

func playSteadyState(ctx context.Context, s *scene, reconciles int) ([]finding, error) {
	p, err := s.createAtRest(ctx, newDatabase, v1alpha1.DatabaseManagedKind(), sample.NewSync[resource.Managed](s.cloud))
	if err != nil {
		return nil, err
	}
	s.recorder.reset()
	if err := p.reconcile(ctx, reconciles/len(s.objs), s.objs); err != nil {
		return nil, err
	}
	n := s.recorder.reset()
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	number := func(where string, n, want int) finding {
		return finding{Where: where, Seen: fmt.Sprint(n), Good: n == want}
	}
	return []finding{
		number("reconciles", n.reconciles, reconciles),
		number("status writes", n.statusWrites, 0).knownToFail().headline("%s writes"),
		number("other writes", n.otherWrites, 0),
		ready("READY", vs, corev1.ConditionTrue, xpv2.ReasonAvailable),
	}, nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// endlessUpdate: late initialization and another writer undo each other.
func endlessUpdate() story {
	// Of the writes one a minute is allowed after the first six.
	const rounds, most = 600, 6 + 10
	return story{
		name:      "endless-update",
		single:    true,
		simulated: true,
		about: fmt.Sprintf("Late initialization fills in spec.forProvider.region, and a GitOps tool removes it "+
			"each time. Providers that upjet generates do so with initProvider. There are %d rounds, one a "+
			"second: ten minutes, in simulated time.", rounds),
		difference: "After five rounds the field is set once a minute, and a condition names the field.",
		play: func(ctx context.Context, s *scene) []finding {
			p := s.createAtRest(ctx, func() sample.Instance {
				d := newDatabase()
				d.GetForProvider().Region = "north"
				return d
			}, sample.NewSync[resource.Managed](s.cloud))
			s.recorder.reset()
			for range rounds {
				removeRegion(ctx, s)
				p.reconcile(ctx, 1)
				s.pause(time.Second)
			}
			n := s.recorder.reset().otherWrites
			return []finding{
				{Where: "rounds", Seen: fmt.Sprint(rounds), Good: true},
				finding{Where: "writes of the field", Seen: fmt.Sprint(n), Good: n <= most}.
					knownToFail().headline("%s writes"),
				each("is it reported?", s.look(ctx), "yes: ConflictingWrites names the field", "no", func(v view) bool {
					return v.GetCondition(managed.TypeConflictingWrites).Status == corev1.ConditionTrue
				}).knownToFail(),
			}
		},
	}
}

// removeRegion lets the GitOps tool apply its manifest, which has no region.
func removeRegion(ctx context.Context, s *scene) {
	for _, o := range s.objs {
		now, _, err := read(ctx, s.stage.user(), o)
		check(err)
		now.GetForProvider().Region = ""
		check(s.stage.user().Update(ctx, now))
	}
}

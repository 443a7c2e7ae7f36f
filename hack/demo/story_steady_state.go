package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// steadyState: nothing changes. Upstream writes the same status at every poll.
func steadyState() story {
	const reconciles = 100
	number := func(where string, n, want int) finding {
		return finding{Where: where, Seen: fmt.Sprint(n), Good: n == want}
	}
	return story{
		name: "steady-state-writes",
		about: fmt.Sprintf("Nothing changes, neither in the cluster nor in the cloud. Polls cause %d reconciles.",
			reconciles),
		difference: "What hasn't changed isn't written.",
		play: func(ctx context.Context, s *scene) []finding {
			p := s.createAtRest(ctx, newDatabase, sample.NewSync[resource.Managed](s.cloud))
			s.recorder.reset()
			p.reconcile(ctx, reconciles/len(s.objs))
			n := s.recorder.reset()
			return []finding{
				number("reconciles", n.reconciles, reconciles),
				number("status writes", n.statusWrites, 0).knownToFail().headline("%s writes"),
				number("other writes", n.otherWrites, 0),
				available("READY", s.look(ctx)),
			}
		},
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/contested"
)

// steadyState: nothing changes. Upstream writes the same status at every poll.
func steadyState() story {
	const reconciles = 100
	return story{
		name: "steady-state-writes",
		about: fmt.Sprintf("Nothing changes, neither in the cluster nor in the cloud. Polls cause %d reconciles.",
			reconciles),
		difference: "What hasn't changed isn't written.",
		play: func(s *scene) []finding {
			p := s.createAtRest(v1alpha1.NewDatabase(""))
			s.reset()
			_ = p.reconcile(reconciles)
			n := s.reset()
			return []finding{
				number("reconciles", n.reconciles, reconciles, reconciles),
				number("status writes", n.statusWrites, 0, 0).headline("%s writes"),
				number("other writes", n.otherWrites, 0, 0),
				available("READY", s.look()),
			}
		},
	}
}

func endlessUpdate() story {
	// Of the writes one a minute is allowed after the first six.
	const rounds, most = 600, 6 + 10
	return story{
		name:      "endless-update",
		simulated: true,
		about: fmt.Sprintf("Late initialization fills in spec.forProvider.region, and a GitOps tool removes it "+
			"each time. Providers that upjet generates do so with initProvider. There are %d rounds, one a "+
			"second: ten minutes, in simulated time.", rounds),
		difference: "With the option contested the field is set once a minute after five rounds, and a condition names it.",
		play: func(s *scene) []finding {
			d := v1alpha1.NewDatabase("")
			d.GetForProvider().Region = "north"
			p := s.createAtRest(d)
			manifest := mergePatch(`{"spec":{"forProvider":{"region":null}}}`)
			s.reset()
			for range rounds {
				check(s.user.Patch(s.ctx, s.look().GetUnstructured(), manifest))
				_ = p.reconcile(1)
				time.Sleep(time.Second)
			}
			reported := s.look().GetCondition(contested.TypeConflictingWrites)
			return []finding{
				number("rounds", rounds, rounds, rounds),
				number("writes of the field", s.reset().otherWrites, 0, most).headline("%s writes"),
				either("is it reported?", reported.Status == corev1.ConditionTrue,
					"yes: ConflictingWrites names the field", "no").knownToFail(),
			}
		},
	}
}

// auditFinalizer belongs to a controller that adds it whenever it is missing.
const auditFinalizer = "example.org/audit"

func finalizerRace() story {
	return story{
		name:     "finalizer-race",
		baseline: "the usual order",
		about: fmt.Sprintf("A managed resource moves to another cluster. Here it is to go, and its external "+
			"resource is to stay. A mover removes it: by pause, finalizers and delete, in this order, or by "+
			"Graft's Release. Before each request of the mover a controller adds its finalizer %s if it is "+
			"missing. The finalizer %s is not the mover's to remove: that controller removes it when its work is "+
			"done.", auditFinalizer, backupFinalizer),
		difference: "Delete comes first: from then on the API server refuses finalizers. Finalizers of other " +
			"controllers stay.",
		play: func(s *scene) []finding {
			d := v1alpha1.NewDatabase("")
			d.SetFinalizers([]string{backupFinalizer, auditFinalizer})
			s.createAtRest(d)
			mover := interceptor.NewClient(s.program, embedded.Intercept(
				func(ctx context.Context, c embedded.Call, serve func() error) error {
					if c.Writes() {
						s.audit()
					}
					return serve()
				}))
			s.act("moves", func(o sample.Instance) {
				now := s.view(o).GetUnstructured()
				check(s.side.release(s.ctx, mover, now, []string{managed.FinalizerName, auditFinalizer}))
			})
			s.audit()
			moved := s.look()
			s.removeBackupFinalizer("has a backup, which removes its finalizer from")
			v := s.look()
			return []finding{
				either("the finalizer of another controller",
					moved.found && slices.Contains(moved.GetFinalizers(), backupFinalizer),
					"still there", "removed").knownToFail(),
				found("the object in the end", v, func(v view) (string, bool) {
					if v.found {
						return "stuck\nheld by " + strings.Join(v.GetFinalizers(), ", "), false
					}
					return "gone", true
				}).headline("%s"),
				inCloud("external resources", v, 1),
			}
		},
	}
}

// audit lets a controller add its finalizer if it is missing, as crossplane-runtime
// does it.
func (s *scene) audit() {
	v := s.look()
	if !v.found || slices.Contains(v.GetFinalizers(), auditFinalizer) {
		return
	}
	err := resource.NewAPIFinalizer(s.user, auditFinalizer).AddFinalizer(s.ctx, v.GetUnstructured())
	if kerrors.IsInvalid(err) {
		s.happens("the API server refuses the finalizer " + auditFinalizer)
		return
	}
	check(err)
	s.happens("a controller adds its finalizer " + auditFinalizer)
}

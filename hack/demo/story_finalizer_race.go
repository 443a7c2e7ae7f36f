package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

const (
	providerFinalizer = "finalizer.managedresource.crossplane.io"

	// auditFinalizer belongs to a controller that adds it whenever it is missing.
	auditFinalizer = "example.org/audit"
)

// finalizerRace: an object is moved to another cluster, while a controller adds its
// finalizer back.
func finalizerRace() story {
	return story{
		name:     "finalizer-race",
		baseline: "the usual order",
		single:   true,
		about: fmt.Sprintf("A managed resource moves to another cluster. Here it is to go, and its external "+
			"resource is to stay. A mover removes it: by pause, finalizers and delete, in this order, or by "+
			"Graft's Release. Before each request of the mover a controller adds its finalizer %s if it is "+
			"missing. The finalizer %s is not the mover's to remove: that controller removes it when its work is "+
			"done.", auditFinalizer, backupFinalizer),
		difference: "Delete comes first: from then on the API server refuses finalizers. Finalizers of other " +
			"controllers stay.",
		play: func(ctx context.Context, s *scene) []finding {
			held := databaseWith(backupFinalizer, auditFinalizer)
			p := s.createAtRest(ctx, held, sample.NewSync[resource.Managed](s.cloud))
			p.stop()
			c, err := s.stage.program()
			check(err)
			s.act(ctx, "moves", func(o sample.Instance) {
				now, _, err := read(ctx, s.stage.user(), o)
				check(err)
				check(s.side.release(ctx, s.audited(c), now, []string{providerFinalizer, auditFinalizer}))
			})
			check(s.audit(ctx))
			moved := s.look(ctx)
			s.removeBackupFinalizer(ctx, "has a backup, which removes its finalizer from")
			vs := s.look(ctx)
			return []finding{
				each("the finalizer of another controller", moved, "still there", "removed", func(v view) bool {
					return v.found && slices.Contains(v.GetFinalizers(), backupFinalizer)
				}).knownToFail(),
				found("the object in the end", vs,
					func(v view) string {
						if v.found {
							return "stuck\nheld by " + strings.Join(v.GetFinalizers(), ", ")
						}
						return "gone"
					},
					func(v view) bool { return !v.found }).knownToFail().headline("%s"),
				inCloud("external resources", vs, 1),
			}
		},
	}
}

// audit lets a controller add its finalizer if it is missing, as crossplane-runtime
// does it.
func (s *scene) audit(ctx context.Context) error {
	now, there, err := read(ctx, s.stage.user(), s.objs[0])
	if err != nil || !there || slices.Contains(now.GetFinalizers(), auditFinalizer) {
		return err
	}
	err = resource.NewAPIFinalizer(s.stage.user(), auditFinalizer).AddFinalizer(ctx, now)
	if kerrors.IsInvalid(err) {
		s.happens("the API server refuses the finalizer " + auditFinalizer)
		return nil
	}
	s.happens("a controller adds its finalizer " + auditFinalizer)
	return err
}

// audited returns a client before whose writes that controller acts.
func (s *scene) audited(c client.WithWatch) client.Client {
	before := func(ctx context.Context, c embedded.Call, serve func() error) error {
		if c.Writes() {
			if err := s.audit(ctx); err != nil {
				return err
			}
		}
		return serve()
	}
	return interceptor.NewClient(c, embedded.Intercept(before))
}

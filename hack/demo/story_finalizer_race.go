package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	providerFinalizer = "finalizer.managedresource.crossplane.io"

	// auditFinalizer belongs to a controller that adds it whenever it is missing.
	auditFinalizer = "example.org/audit"
)

// A release removes an object from a cluster without the cleanup that finalizers
// stand for.
type release func(ctx context.Context, c client.Client, o client.Object, finalizers []string) error

// usualOrder is what movers do: pause, remove finalizers, delete.
func usualOrder(ctx context.Context, c client.Client, o client.Object, _ []string) error {
	for _, body := range []string{
		`{"metadata":{"annotations":{"crossplane.io/paused":"true"}}}`,
		`{"metadata":{"finalizers":null}}`,
	} {
		if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			return err
		}
	}
	return c.Delete(ctx, o)
}

// graftsOrder deletes before it removes finalizers, and removes only those given.
func graftsOrder(ctx context.Context, c client.Client, o client.Object, finalizers []string) error {
	_, err := reconciler.Release(ctx, c, o, finalizers)
	return err
}

// finalizerRace: an object is moved to another cluster, while a controller adds its
// finalizer back.
func finalizerRace() story {
	return story{
		name:     "finalizer-race",
		baseline: "the usual order",
		single:   true,
		about: fmt.Sprintf("A managed resource moves to another cluster. Here it is to go, and its external resource is to stay. "+
			"A mover removes it: by pause, finalizers and delete, in this order, or by Graft's Release. Before each request of "+
			"the mover a controller adds its finalizer %s if it is missing. The finalizer %s is not the mover's to remove: "+
			"that controller removes it when its work is done.", auditFinalizer, backupFinalizer),
		difference: "Delete comes first: from then on the API server refuses finalizers. Finalizers of other controllers stay.",
		play:       playFinalizerRace,
	}
}

func playFinalizerRace(ctx context.Context, s *scene) ([]finding, error) {
	p, err := s.createAtRest(ctx, databaseWith(backupFinalizer, auditFinalizer), v1alpha1.DatabaseManagedKind(), sample.NewSync[resource.Managed](s.cloud))
	if err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	c, err := s.stage.program()
	if err != nil {
		return nil, err
	}
	err = s.act(ctx, "moves", func(o sample.Instance) error {
		now, _, err := read(ctx, s.stage.user(), o)
		if err != nil {
			return err
		}
		return s.side.release(ctx, s.audited(c), now, []string{providerFinalizer, auditFinalizer})
	})
	if err := errors.Join(err, s.audit(ctx)); err != nil {
		return nil, err
	}
	vs, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	findings := []finding{found("the finalizer of another controller", vs,
		func(v view) string {
			if slices.Contains(v.GetFinalizers(), backupFinalizer) {
				return "still there"
			}
			return "removed"
		},
		func(v view) bool { return v.found && slices.Contains(v.GetFinalizers(), backupFinalizer) }).knownToFail()}

	err = s.act(ctx, "has a backup, which removes its finalizer from", func(o sample.Instance) error {
		now, there, err := read(ctx, s.stage.user(), o)
		if err != nil || !there {
			return err
		}
		now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == backupFinalizer }))
		return s.stage.user().Update(ctx, now)
	})
	if err != nil {
		return nil, err
	}
	if vs, err = s.look(ctx); err != nil {
		return nil, err
	}
	return append(findings,
		found("the object in the end", vs,
			func(v view) string {
				if v.found {
					return "stuck\nheld by " + strings.Join(v.GetFinalizers(), ", ")
				}
				return "gone"
			},
			func(v view) bool { return !v.found }).knownToFail().headline("%s"),
		inCloud("external resources", vs, 1),
	), nil
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
	return interceptor.NewClient(c, embedded.Intercept(func(ctx context.Context, c embedded.Call, serve func() error) error {
		if c.Writes() {
			if err := s.audit(ctx); err != nil {
				return err
			}
		}
		return serve()
	}))
}

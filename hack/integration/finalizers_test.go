//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/answers"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Objects are released while another writer adds the finalizer back as fast as
// possible. One in four has another controller's finalizer, too. One in four is
// replaced by an object of the same name at the same time.
func TestFinalizerRace(t *testing.T) {
	const rounds = 1000
	r := &race{server: newServer(t), theirs: newServer(t)}
	inParallel(t, 4, rounds, func(i int) error { return r.round(t, i) })
	t.Logf(
		"in %d rounds the finalizer was refused %d times, %d objects were replaced",
		rounds,
		r.refused.Load(),
		r.replaced.Load(),
	)
	if r.refused.Load() == 0 || r.replaced.Load() == 0 {
		t.Error("want the finalizer refused when it was to be added, and objects replaced")
	}
}

type race struct {
	server, theirs    server // Release's, and the one of all other writers.
	refused, replaced atomic.Int64
}

func racer(n int, finalizers ...string) sample.Instance {
	o := fleet(fmt.Sprintf("race-%d", n), 1)[n/4%2]
	o.SetFinalizers(finalizers)
	o.SetAnnotations(map[string]string{"example.org/annotation": "kept"})
	return o
}

func (r *race) round(t *testing.T, n int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	held, replaced := n%4 == 0, n%4 == 1

	// The garbage collector is no party to a replacement: it patches its finalizer
	// away, which may hit the successor.
	o, propagation := racer(n, managedFinalizer), metav1.DeletePropagationOrphan
	switch {
	case held:
		o = racer(n, otherFinalizer, managedFinalizer)
	case replaced:
		propagation = metav1.DeletePropagationBackground
	}
	if err := r.theirs.Create(ctx, o); err != nil {
		return err
	}

	// Release gets its own copy, and so do the other writers.
	another := func() sample.Instance {
		c, _ := o.DeepCopyObject().(sample.Instance)
		return c
	}
	var successor sample.Instance
	var others errgroup.Group
	stop := make(chan struct{})
	others.Go(func() error { return r.addFinalizer(ctx, t, stop, another()) })
	if replaced {
		others.Go(func() error {
			r.replaced.Add(1)
			successor = racer(n, otherFinalizer, managedFinalizer)
			return errors.Join(answers.Erase(t, r.theirs, o), r.theirs.Create(ctx, successor))
		})
	}
	out, err := reconciler.Release(
		ctx, r.server, another(), []string{managedFinalizer}, reconciler.WithPropagation(propagation),
	)
	if err == nil && !out.Gone && len(out.Holding) == 0 {
		err = errors.New("it is neither gone nor held by anything")
	}
	close(stop)
	if err := errors.Join(err, others.Wait()); err != nil {
		return err
	}
	got := another()
	err = r.theirs.Get(ctx, client.ObjectKeyFromObject(o), got)
	there := err == nil && got.GetUID() == o.GetUID()
	for what, is := range map[string]bool{
		"it is stuck": there && slices.Contains(got.GetFinalizers(), managedFinalizer),
		"a finalizer of another controller was removed": held && (!there ||
			!slices.Contains(got.GetFinalizers(), otherFinalizer)),
		"a finalizer of another controller not reported": held && !slices.Contains(out.Holding, otherFinalizer),
		"an annotation was removed": there &&
			got.GetAnnotations()["example.org/annotation"] != "kept",
		"the object that has the name was written to": successor != nil && (got.GetUID() != successor.GetUID() ||
			got.GetResourceVersion() != successor.GetResourceVersion()),
	} {
		if is {
			t.Errorf("%s: %s", o.GetName(), what)
		}
	}
	return client.IgnoreNotFound(err)
}

func (r *race) addFinalizer(ctx context.Context, t *testing.T, stop <-chan struct{}, o client.Object) error {
	t.Helper()
	for uid := o.GetUID(); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := r.theirs.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.GetUID() != uid {
			return client.IgnoreNotFound(err)
		}
		if meta.FinalizerExists(o, managedFinalizer) {
			continue
		}
		meta.AddFinalizer(o, managedFinalizer)
		switch err := r.theirs.Update(ctx, o); {
		case err == nil:
			t.Errorf("%s: the finalizer was added during the deletion", o.GetName())
		case kerrors.IsInvalid(err):
			r.refused.Add(1)
		case !kerrors.IsConflict(err) && !kerrors.IsNotFound(err):
			return err
		}
	}
}

// Managed resources of a provider that is running are released: all are gone, and
// all external resources are there.
func TestRelease_KeepsExternalResources(t *testing.T) {
	for _, f := range []flavour{upstream, graft} {
		t.Run(f.name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{})
			all := fleet("released", 25)
			s.create(t, all...)
			start(t, f, setup{connectors: syncConnectors(world), poll: 50 * time.Millisecond})
			s.until(t, "all show Available", all, isAvailable)
			s.all(t, all, func(mg sample.Instance) error {
				out, err := reconciler.Release(t.Context(), s, mg, []string{managedFinalizer})
				if err == nil && !out.Gone {
					err = fmt.Errorf("%s is held by %v", mg.GetName(), out.Holding)
				}
				return err
			})
			if left := s.list(t.Context(), t); len(left) != 0 {
				t.Errorf("want no managed resource left, got %d", len(left))
			}
			for _, mg := range all {
				if st := world.Stats(string(mg.GetUID())); st.Existing != 1 || st.Created != 1 {
					t.Errorf("%s: want the external resource that was created, got %+v", mg.GetName(), st)
				}
			}
		})
	}
}

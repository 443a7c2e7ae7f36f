//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Objects are released while another writer adds the finalizer back as fast as
// possible. One in four has another controller's finalizer, too. One in four is
// replaced by an object of the same name at the same time.
func TestFinalizerRace(t *testing.T) {
	const rounds = 1000
	newServer(t) // It cleans up.
	config := plane.Config()
	config.QPS = -1
	r := &race{lost: map[string]int{}}
	for _, c := range []*client.Client{&r.client, &r.theirs} {
		var err error
		*c, err = client.New(config, client.Options{Scheme: newScheme()})
		must(t, "client.New()", err)
	}
	inParallel(t, 4, rounds, func(i int) error { return r.round(t.Context(), i) })
	t.Logf("in %d rounds the finalizer was refused %d times, %d objects were replaced", rounds, r.refused.Load(), r.replaced.Load())
	if len(r.lost) > 0 {
		t.Errorf("want nothing lost in any round, got %v", r.lost)
	}
	if r.refused.Load() == 0 || r.replaced.Load() == 0 {
		t.Error("want the finalizer refused when it was to be added, and objects replaced")
	}
}

type race struct {
	// client is Release's, and theirs is the one of all other writers.
	client, theirs client.Client

	refused, replaced atomic.Int64

	mu   sync.Mutex
	lost map[string]int // by what was, in so many rounds; `make demo` shows what another order loses
}

// racer returns the object of a round. Kinds alternate.
func racer(n int, finalizers ...string) sample.Instance {
	o := sample.Instance(v1alpha1.NewBucket(namespace, fmt.Sprintf("race-%d", n)))
	if n/4%2 == 0 {
		o = v1alpha1.NewDatabase(o.GetName())
	}
	o.SetFinalizers(finalizers)
	o.SetAnnotations(map[string]string{"example.org/annotation": "kept"})
	return o
}

func (r *race) round(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	var (
		successor sample.Instance
		others    sync.WaitGroup
		errs      [2]error
	)
	stop := make(chan struct{})
	others.Go(func() { errs[0] = r.addFinalizer(ctx, stop, another()) })
	if replaced {
		others.Go(func() { successor, errs[1] = r.replace(ctx, n, another()) })
	}
	out, err := reconciler.Release(ctx, r.client, another(), []string{managedFinalizer}, reconciler.WithPropagation(propagation))
	if err == nil && !out.Gone && len(out.Holding) == 0 {
		err = errors.New("it is neither gone nor held by anything")
	}
	close(stop)
	others.Wait()
	if err := errors.Join(err, errs[0], errs[1]); err != nil {
		return err
	}
	got := another()
	err = r.theirs.Get(ctx, client.ObjectKeyFromObject(o), got)
	there := err == nil && got.GetUID() == o.GetUID()
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, is := range map[string]bool{
		"it is stuck": there && slices.Contains(got.GetFinalizers(), managedFinalizer),
		"a finalizer of another controller was removed":  held && (!there || !slices.Contains(got.GetFinalizers(), otherFinalizer)),
		"a finalizer of another controller not reported": held && !slices.Contains(out.Holding, otherFinalizer),
		"an annotation was removed":                      there && got.GetAnnotations()["example.org/annotation"] != "kept",
		"the object that has the name was written to":    successor != nil && (got.GetUID() != successor.GetUID() || got.GetResourceVersion() != successor.GetResourceVersion()),
	} {
		if is {
			r.lost[what]++
		}
	}
	return client.IgnoreNotFound(err)
}

// addFinalizer adds the finalizer whenever the object lacks it, until it is told
// to stop or the object no longer exists.
func (r *race) addFinalizer(ctx context.Context, stop <-chan struct{}, o client.Object) error {
	uid := o.GetUID()
	for {
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
			r.mu.Lock()
			r.lost["the finalizer was added during the deletion"]++
			r.mu.Unlock()
		case kerrors.IsInvalid(err):
			r.refused.Add(1)
		case kerrors.IsConflict(err), kerrors.IsNotFound(err):
		default:
			return err
		}
	}
}

// replace the object by another of the same name, whatever holds it.
func (r *race) replace(ctx context.Context, n int, o client.Object) (sample.Instance, error) {
	uid := o.GetUID()
	err := errors.Join(
		client.IgnoreNotFound(r.theirs.Delete(ctx, o, client.Preconditions{UID: &uid})),
		client.IgnoreNotFound(r.theirs.Patch(ctx, o, mergePatch(fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, uid)))))
	if err != nil {
		return nil, err
	}
	r.replaced.Add(1)
	out := racer(n, otherFinalizer, managedFinalizer)
	return out, r.theirs.Create(ctx, out)
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

package main

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	// wantedSize is the size after the user's change.
	wantedSize = 5

	// throttledCreates is how many creates the cloud throttles.
	throttledCreates = 3
)

// A life is one of crashtest's in a cloud that may be slow to show resources, or that
// throttles creates.
type life struct {
	crashtest.Life

	lag       time.Duration
	throttles int
}

// A row is a life with one kind of client.
type row struct {
	life life
	mode mode
	kind clientKind
}

func (r row) name() string { return r.life.Name + "/" + string(r.mode) + "/" + string(r.kind) }

// rows returns all rows. lag is how long the cloud hides new resources in the lives that end
// in late.
func rows(lag time.Duration) (out []row) {
	of := func(suffix string, l life, names ...string) {
		for _, name := range names {
			all := crashtest.Lives()
			l.Life = all[slices.IndexFunc(all, func(o crashtest.Life) bool { return o.Name == name })]
			l.Name += suffix
			for _, m := range []mode{syncMode, asyncMode} {
				for _, k := range clientKinds() {
					out = append(out, row{life: l, mode: m, kind: k})
				}
			}
		}
	}
	of("", life{}, "create", "update", "delete", "delete-in-create", "delete-in-update")
	of("-late", life{lag: lag}, "create", "delete-in-create")
	of("-throttled", life{throttles: throttledCreates}, "create")
	return out
}

// provider of a row with the reconciler of a side.
func (r row) provider(side string, seed uint64) (crashtest.Provider[*externalCloud], error) {
	scheme := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme))
	return crashtest.Provider[*externalCloud]{
		Scheme: scheme,
		Object: v1alpha1.NewDatabase("one"),
		Cloud:  func() *externalCloud { return newCloud(r.life.lag, r.life.throttles) },
		Start: func(p *crashtest.Process, cloud *externalCloud) (reconcile.Reconciler, error) {
			return r.build(side, newSession(p, cloud, r.mode == asyncMode, seed))
		},
		Change: func(o client.Object) {
			if d, ok := o.(*v1alpha1.Database); ok {
				d.Spec.ForProvider.Size = wantedSize
			}
		},
		Invariant: misled,
		Status:    status,
		Lives:     []crashtest.Life{r.life.Life},
	}, err
}

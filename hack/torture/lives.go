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

// wantedSize is the size after the user's change.
const wantedSize = 5

// throttledCreates is how many creates the cloud throttles.
const throttledCreates = 3

// A life is one of crashtest's in a cloud that may be slow to show resources, or that
// throttles creates.
type life struct {
	crashtest.Life

	lag       time.Duration
	throttles int
}

// lives returns all lives. lag is how long the cloud hides new resources in those that end
// in late.
func lives(lag time.Duration) []life {
	var out []life
	of := func(name, suffix string, l life) {
		all := crashtest.Lives()
		l.Life = all[slices.IndexFunc(all, func(o crashtest.Life) bool { return o.Name == name })]
		l.Name += suffix
		out = append(out, l)
	}
	for _, name := range []string{"create", "update", "delete", "delete-in-create", "delete-in-update"} {
		of(name, "", life{})
	}
	for _, name := range []string{"create", "delete-in-create"} {
		of(name, "-late", life{lag: lag})
	}
	of("create", "-throttled", life{throttles: throttledCreates})
	return out
}

// A row is a life with one kind of client.
type row struct {
	life life
	mode mode
	kind clientKind
}

func (r row) name() string { return r.life.Name + "/" + string(r.mode) + "/" + string(r.kind) }

// rows returns all rows.
func rows(lag time.Duration) []row {
	var out []row
	for _, l := range lives(lag) {
		for _, m := range []mode{syncMode, asyncMode} {
			for _, k := range clientKinds() {
				out = append(out, row{life: l, mode: m, kind: k})
			}
		}
	}
	return out
}

// provider of a row whose reconciler a column builds.
func (r row) provider(c column, scheme *runtime.Scheme, seed uint64) crashtest.Provider[*externalCloud] {
	return crashtest.Provider[*externalCloud]{
		Scheme: scheme,
		Object: v1alpha1.NewDatabase("one"),
		Cloud:  func() *externalCloud { return newCloud(r.life.lag, r.life.throttles) },
		Start: func(p *crashtest.Process, cloud *externalCloud) (reconcile.Reconciler, error) {
			return c.build(newSession(p, cloud, r.mode == asyncMode, seed), r.kind)
		},
		Change: func(o client.Object) {
			if d, ok := o.(*v1alpha1.Database); ok {
				d.Spec.ForProvider.Size = wantedSize
			}
		},
		Invariant: misled,
		Status:    status,
		Lives:     []crashtest.Life{r.life.Life},
	}
}

// newScheme returns a scheme with the sample's kinds.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(v1alpha1.AddToScheme(s), corev1.AddToScheme(s))
}

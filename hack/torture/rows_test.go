package torture

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A row is one of crashtest's scenarios with one kind of client.
type row struct {
	scenario crashtest.Scenario
	mode     mode
	kind     clientKind

	// lag is how long the cloud hides new resources, and throttles how many creates it throttles.
	lag       time.Duration
	throttles int
}

func (r row) name() string { return r.scenario.Name + "/" + string(r.mode) + "/" + string(r.kind) }

// rows returns all rows. lag is how long the cloud hides new resources in the runs that end
// in late.
func rows(lag time.Duration) (out []row) {
	of := func(suffix string, r row, names ...string) {
		all := crashtest.Scenarios()
		for _, name := range names {
			r.scenario = all[slices.IndexFunc(all, func(l crashtest.Scenario) bool { return l.Name == name })]
			r.scenario.Name += suffix
			for _, m := range []mode{syncMode, asyncMode} {
				for _, k := range clientKinds() {
					r.mode, r.kind = m, k
					out = append(out, r)
				}
			}
		}
	}
	of("", row{}, "create", "update", "delete", "delete-in-create", "delete-in-update")
	of("-late", row{lag: lag}, "create", "delete-in-create")
	of("-throttled", row{throttles: 3}, "create")
	return out
}

// provider of a row with the reconciler of a side.
func (r row) provider(side string, seed uint64) crashtest.Provider[*externalCloud] {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	return crashtest.Provider[*externalCloud]{
		Scheme: scheme,
		Object: v1alpha1.NewDatabase("one"),
		Cloud:  func() *externalCloud { return newCloud(r.lag, r.throttles) },
		Start: func(p *crashtest.Process, cloud *externalCloud) (reconcile.Reconciler, error) {
			return r.build(side, newSession(p, cloud, r.mode == asyncMode, seed))
		},
		Change: func(o client.Object) {
			if d, ok := o.(*v1alpha1.Database); ok {
				d.Spec.ForProvider.Size = 5
			}
		},
		Invariant: misled,
		Status:    status,
		Scenarios: []crashtest.Scenario{r.scenario},
	}
}

package crashtest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A badInput is a change of a provider after which it can't be tested.
type badInput struct {
	reason string
	change func(p *Provider[*vmCloud])
	want   string
}

// badProviders are wrong in a field.
func badProviders(t *testing.T) map[string]badInput {
	t.Helper()
	return map[string]badInput{
		"NoScheme": {
			"Without a scheme there is no API server.",
			func(p *Provider[*vmCloud]) { p.Scheme = nil },
			"Provider.Scheme is nil: set it",
		},
		"NoObject": {
			"A scenario is that of an object.",
			func(p *Provider[*vmCloud]) { p.Object = nil },
			"Provider.Object is nil: set it",
		},
		"NilObject": {
			"A nil pointer is no object either.",
			func(p *Provider[*vmCloud]) { p.Object = (*v1alpha1.Bucket)(nil) },
			"Provider.Object is nil: set it",
		},
		"NoName": {
			"Nothing generates a name.",
			func(p *Provider[*vmCloud]) { p.Object = &v1alpha1.Bucket{} },
			"set metadata.name",
		},
		"NoStart": {
			"Nothing can be started.", func(p *Provider[*vmCloud]) { p.Start = nil }, "Provider.Start is nil: set it",
		},
		"NoCloud": {
			"Nothing can be judged.", func(p *Provider[*vmCloud]) { p.Cloud = nil }, "Provider.Cloud is nil: set it",
		},
		"NilCloud": {
			"A fake is needed for each run.",
			func(p *Provider[*vmCloud]) { p.Cloud = func() *vmCloud { return nil } },
			"Provider.Cloud returned nil",
		},
		"SharedCloud": {
			"Runs would see each other's resources.",
			func(p *Provider[*vmCloud]) {
				shared := newVMCloud()
				p.Cloud = func() *vmCloud { return shared }
			},
			"Provider.Cloud returned the same fake twice",
		},
		"NilCloudLater": {
			"A run needs a fake.",
			func(p *Provider[*vmCloud]) {
				var made atomic.Int64
				p.Cloud = func() *vmCloud {
					if made.Add(1) > 2 {
						return nil
					}
					return newVMCloud()
				}
			},
			"Provider.Cloud returned nil",
		},
		"NewCloudPanics": {
			"The panic is reported.",
			func(p *Provider[*vmCloud]) { p.Cloud = func() *vmCloud { panic("ouch") } },
			"Provider.Cloud panicked: ouch",
		},
		"EmptyScheme": {
			"The kind is needed to read the object.",
			func(p *Provider[*vmCloud]) { p.Scheme = runtime.NewScheme() },
			"call AddToScheme of its package",
		},
		"NilBeside": {
			"The entry is named.",
			func(p *Provider[*vmCloud]) { p.Beside = []client.Object{nil} },
			"Provider.Beside[0] is nil",
		},
		"NoCRDs": {
			"The folder is named.",
			func(p *Provider[*vmCloud]) { p.CRDs = t.TempDir() },
			"has no CustomResourceDefinition",
		},
		"Accept": {
			"A verdict with a typing error would accept nothing.",
			func(p *Provider[*vmCloud]) { p.Accept = []Verdict{"leaks"} },
			`"leaks", which is not a verdict`,
		},
		"NilReconciler": {
			"A process without a reconciler does nothing.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(*Process, *vmCloud) (reconcile.Reconciler, error) { return nil, nil }
			},
			"Provider.Start failed: it returned a nil reconciler and no error",
		},
	}
}

// badScenarios have a wrong function, or a wrong scenario.
func badScenarios(t *testing.T) map[string]badInput {
	t.Helper()
	return map[string]badInput{
		"StartFails": {
			"An error without a fault is the author's.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(*Process, *vmCloud) (reconcile.Reconciler, error) { return nil, errors.New("no flag") }
			},
			"Provider.Start failed: no flag",
		},
		"StartPanics": {
			"What the manager doesn't have is named.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					p.Manager().GetWebhookServer()
					return nil, nil
				}
			},
			"Provider.Start failed: panic: ",
		},
		"StartPanicsInAStep": {
			"A panic of Start is the author's in a step, too.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					return nil, p.Step(p.sim.Context(), "log in", func() error { panic("ouch") })
				}
			},
			"Provider.Start failed: panic in call",
		},
		"TwoControllers": {
			"One controller is that of the managed resource.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					return p.Controller(func(manager.Manager) error { return nil })
				}
			},
			"setup added 0 controllers",
		},
		"CloudPanics": {
			"The call is named.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					fake := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("ouch") })
					return graftNamed(p, vmAPI{http: &http.Client{Transport: p.Transport(fake)}})
				}
			},
			`the fake of the external system panicked in call "GET /vms/one": ouch`,
		},
		"NoStatus": {
			"A fault without an error would have no effect.",
			func(p *Provider[*vmCloud]) {
				p.Status = func(code int) error {
					if code == http.StatusInternalServerError {
						return errors.New("server error")
					}
					return nil
				}
			},
			"Provider.Status returned nil for status 401",
		},
		"NamelessScenario": {
			"The name is part of a subtest's.",
			func(p *Provider[*vmCloud]) { p.Scenarios = []Scenario{{}} },
			"the name of a scenario is",
		},
		"SlashInScenario": {
			"A slash would end the name.",
			func(p *Provider[*vmCloud]) { p.Scenarios = []Scenario{{Name: "a/b"}} },
			"use letters, digits and hyphens",
		},
		"ScenariosOfOneName": {
			"A replay makes one run.",
			func(p *Provider[*vmCloud]) { p.Scenarios = append(Scenarios(), Scenarios()[0]) },
			`two scenarios are named "create"`,
		},
		"NoActs": {
			"A scenario without acts tells nothing.",
			func(p *Provider[*vmCloud]) { p.Scenarios = []Scenario{{Name: "a"}} },
			"has no acts",
		},
		"NoDo": {
			"The act is named.",
			func(p *Provider[*vmCloud]) { p.Scenarios = []Scenario{{Name: "a", Acts: []Act{{}}}} },
			`act 1 of scenario "a" has no Do`,
		},
		"NoChange": {
			"A run that leaves out all scenarios proves nothing.",
			func(p *Provider[*vmCloud]) { p.Change, p.Scenarios = nil, Scenarios()[1:2] },
			"set Provider.Change",
		},
		"RenameWithName": {
			"An annotation renames nothing if the name is elsewhere.",
			func(p *Provider[*vmCloud]) {
				p.Name = func(o client.Object) string { return o.GetName() }
				p.Scenarios = slices.DeleteFunc(Scenarios(), func(l Scenario) bool { return l.Name != "rename" })
			},
			"no annotation sets the external name",
		},
		"ChangePanics": {
			"A function of the author's is no part of the provider.",
			func(p *Provider[*vmCloud]) { p.Change = func(client.Object) { panic("ouch") } },
			"a function of Provider panicked: ouch",
		},
		"LateActFails": {
			"An act that waits for a call in vain is done afterwards, and may fail.",
			func(p *Provider[*vmCloud]) {
				fails := func(*User) error { return errors.New("crashtest: no luck") }
				p.Scenarios = []Scenario{{
					Name: "a", Setup: []Act{{Do: Create}},
					Acts: []Act{{Do: Restart}, {Do: fails, DuringCall: true}},
				}}
			},
			"no luck",
		},
		"RenameFirst": {
			"There is nothing to rename it to.",
			func(p *Provider[*vmCloud]) { p.Scenarios = []Scenario{{Name: "a", Acts: []Act{{Do: Rename}}}} },
			"call AbandonSecond before",
		},
	}
}

// TestRun_BadInput proves that a provider or a fake that cannot be tested ends the test with a remedy.
func TestRun_BadInput(t *testing.T) {
	cases := badProviders(t)
	maps.Copy(cases, badScenarios(t))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, graftNamed)
			tc.change(&p)
			s, err := newSweep(t, p, []Option{Runs(1)})
			if err == nil {
				_, _, err = s.run()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "crashtest: ") {
				t.Errorf("\n%s\nRun(...): want an error with %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

package crashtest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func bucketOf(o client.Object) *v1alpha1.Bucket {
	b, ok := o.(*v1alpha1.Bucket)
	if !ok {
		return &v1alpha1.Bucket{}
	}
	return b
}

func resize(size int64) func(u *User) error {
	return func(u *User) error {
		return u.Edit(func(o client.Object) { bucketOf(o).Spec.ForProvider.Size = size })
	}
}

// TestRun_OwnLives proves that a provider that is right has no finding in scenarios that its author wrote.
func TestRun_OwnLives(t *testing.T) {
	create, remove, change := Act{Do: Create}, Act{Do: Delete}, Act{Do: Change}
	pause, resume := Act{Do: Pause}, Act{Do: Resume}
	during := func(a Act) Act {
		a.DuringCall = true
		return a
	}
	policies := func(p ...xpv2.ManagementAction) func(u *User) error {
		return func(u *User) error {
			return u.Edit(func(o client.Object) { bucketOf(o).Spec.ManagementPolicies = p })
		}
	}
	wait := func(d time.Duration) Act { return Act{Do: func(u *User) error { return u.Wait(d) }} }
	forbid := Act{Do: ForbidDelete}
	theirs := func() *vmCloud {
		c := newVMCloud()
		c.Create("theirs", vm{ID: "theirs", Size: 3})
		return c
	}
	observed := func(b *v1alpha1.Bucket) {
		meta.SetExternalName(b, "theirs")
		b.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionObserve}
	}
	cases := map[string]struct {
		reason   string
		scenario Scenario
		object   func(b *v1alpha1.Bucket)
		cloud    func() *vmCloud
	}{
		"CreateAgain": {
			reason:   "A managed resource that is created again should not have to be gone.",
			scenario: Scenario{Setup: []Act{create, change}, Acts: []Act{remove, create}},
		},
		"ChangeLabel": {
			reason: "A label should not have to show in the external system.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: func(u *User) error {
				return u.Edit(func(o client.Object) { meta.AddLabels(o, map[string]string{"a": "b"}) })
			}}}},
		},
		"ChangeBack": {
			reason:   "A change that the user takes back should not have to show.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: resize(1)}}},
		},
		"ChangeBackOfAddedFields": {
			reason: "The fields of spec that the provider has added should be part of what the user changes back to.",
			scenario: Scenario{Setup: []Act{create, {Do: func(u *User) error {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"forProvider":{"region":"eu"}}}`))
				return u.Client().Patch(context.Background(), v1alpha1.NewBucket("default", "one"), patch)
			}}}, Acts: []Act{change, {Do: ChangeBack}}},
		},
		"ObserveOnly": {
			reason:   "A change should not have to show if the policies forbid updates.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: policies(xpv2.ManagementActionObserve)}, change}},
		},
		"ChangeThenOrphan": {
			reason:   "An external resource that has to stay may be updated while its managed resource exists.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{forbid, change, remove}},
		},
		"OrphanInCreate": {
			reason:   "An external resource should be no leak if its name was not known yet when it had to stay.",
			scenario: Scenario{Acts: []Act{create, during(forbid), remove}},
		},
		"OrphanObserved": {
			reason:   "Policies that don't have Delete should stay as they are.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{forbid, remove}},
			object:   observed,
			cloud:    theirs,
		},
		"DeleteWithoutPolicy": {
			reason: "An external resource should be no leak if the policies of its managed resource never had " +
				"Delete.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{remove}},
			object: func(b *v1alpha1.Bucket) {
				b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
					xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
				}
			},
		},
		"PauseAndResumeInCreate": {
			reason:   "Each of two acts during calls should happen.",
			scenario: Scenario{Acts: []Act{create, during(pause), during(resume)}},
		},
		"PauseInCreate": {
			reason:   "A managed resource that stays paused should not have to be ready.",
			scenario: Scenario{Acts: []Act{create, during(pause)}},
		},
		"Wait": {
			reason:   "Polls while the user waits should be no hot loop.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{wait(50 * time.Minute)}},
		},
		"WaitLong": {
			reason:   "A user may wait longer than a provider may take.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{wait(5 * time.Hour)}},
		},
		"ForeignFinalizer": {
			reason:   "Another controller should remove its own finalizer.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{remove}},
			object:   func(b *v1alpha1.Bucket) { b.SetFinalizers([]string{"example.org/theirs"}) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, graftFound)
			b := v1alpha1.NewBucket("default", "one")
			if tc.object != nil {
				tc.object(b)
			}
			p.Object = b
			if tc.cloud != nil {
				p.Cloud = tc.cloud
			}
			tc.scenario.Name = "own"
			p.Scenarios = []Scenario{tc.scenario}
			for _, r := range findings(t, p, Runs(8)) {
				t.Errorf("%s %s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}

// logsIn makes each reconcile log in and out with calls that change nothing.
func logsIn(in, out string) func(p *Process, r *plain) {
	return func(p *Process, r *plain) {
		sessions := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		api := vmAPI{http: &http.Client{Transport: p.Transport(sessions)}}
		ensure := r.ensure
		r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
			if err := api.do(ctx, http.MethodPost, in, nil, nil); err != nil {
				return err
			}
			defer api.do(ctx, http.MethodDelete, out, nil, nil) //nolint:errcheck // The session ends by itself, too.
			return ensure(ctx, b)
		}
	}
}

// losesUpdates makes a plain reconciler poll in vain for each update, and once a minute otherwise.
func losesUpdates(every time.Duration) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		r.update = func(context.Context, *v1alpha1.Bucket) error { return nil }
		r.done = func(b *v1alpha1.Bucket, err error) (reconcile.Result, error) {
			if sizeOf(b) == 7 {
				return reconcile.Result{RequeueAfter: every}, err
			}
			return reconcile.Result{RequeueAfter: time.Minute}, err
		}
	}
}

// pollsOften makes a plain reconciler poll as often as it may.
func pollsOften(_ *Process, r *plain) {
	r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: shortestPoll}, err
	}
}

// An ownCase is a scenario that the author of a provider wrote. A provider that is right has no verdict.
type ownCase struct {
	reason   string
	scenario Scenario
	change   func(p *Process, r *plain)
	want     Verdict
}

func ownCases() map[string]ownCase {
	create, pause := Act{Do: Create}, Act{Do: Pause}
	during := func(a Act) Act {
		a.DuringCall = true
		return a
	}
	loopsUntilResized := func(_ *Process, r *plain) {
		r.done = func(b *v1alpha1.Bucket, err error) (reconcile.Result, error) {
			if sizeOf(b) != 7 {
				return reconcile.Result{RequeueAfter: time.Second}, err
			}
			return reconcile.Result{RequeueAfter: time.Minute}, err
		}
	}
	return map[string]ownCase{
		"EditIsLost": {
			reason:   "A change of the spec has to show.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: resize(7)}}},
			change: func(_ *Process, r *plain) {
				r.update = func(context.Context, *v1alpha1.Bucket) error { return nil }
			},
			want: LostUpdate,
		},
		"SecondActDuringACall": {
			reason: "The third act happens during the update.",
			scenario: Scenario{Acts: []Act{
				create, during(Act{Do: resize(7)}), during(Act{Do: Delete}),
			}},
			change: func(_ *Process, r *plain) {
				r.remove = func(context.Context, *v1alpha1.Bucket) error { return nil }
			},
			want: Leak,
		},
		"ActsWhilePausedAfterAnActDuringACall": {
			reason:   "No call is under way when the managed resource is paused.",
			scenario: Scenario{Acts: []Act{create, during(Act{Do: resize(7)}), pause}},
			change: func(_ *Process, r *plain) {
				r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
					if meta.IsPaused(b) {
						return true, r.remove(ctx, b)
					}
					return false, nil
				}
			},
			want: ActsWhilePaused,
		},
		"LoopsBeforeAnotherAct": {
			reason:   "A provider that comes to rest only after the last act is not at rest before.",
			scenario: Scenario{Acts: []Act{create, {Do: resize(7)}}},
			change:   loopsUntilResized,
			want:     HotLoop,
		},
		"LoopsAfterALostUpdate": {
			reason: "A provider that reconciles each second is not at rest, although the next act removes a " +
				"lost update.",
			scenario: Scenario{
				Setup: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: Delete}},
			},
			change: losesUpdates(time.Second),
			want:   HotLoop,
		},
		"RefusedSpec": {
			reason:   "A spec that the external system refuses may be retried until the user changes it.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: resize(1000)}, {Do: resize(7)}}},
			change: func(_ *Process, r *plain) {
				update := r.update
				r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
					if sizeOf(b) == 1000 {
						return errors.New("too large")
					}
					return update(ctx, b)
				}
			},
		},
		"LostUpdate": {
			reason:   "Polls in vain for an update should be no hot loop, because the next act removes it.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: Delete}}},
			change:   losesUpdates(shortestPoll),
		},
		"RefusedDelete": {
			reason:   "A delete may be retried while the external system refuses it.",
			scenario: Scenario{Setup: []Act{create}, Acts: []Act{{Do: DenyAccess}, {Do: Delete}}},
			change:   func(*Process, *plain) {},
		},
	}
}

// TestRun_OwnScenarios proves that a provider that is wrong is found in scenarios that its author wrote, and that no
// provider that is right is a hot loop in any act.
func TestRun_OwnScenarios(t *testing.T) {
	for name, tc := range ownCases() {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, tc.change)
			tc.scenario.Name = "own"
			p.Scenarios = []Scenario{tc.scenario}
			found := findings(t, p, Runs(8))
			if len(found) == 0 && tc.want == "" {
				return
			}
			if len(found) != 1 || !oracleHas(found[0], tc.want) {
				t.Errorf("%s Want verdict %q, got %v", tc.reason, tc.want, found)
			}
		})
	}
}

// TestRun_UniqueField proves that no scenario expects two external resources of a kind with a unique field.
func TestRun_UniqueField(t *testing.T) {
	create := Act{Do: Create}
	cases := map[string]struct {
		reason string
		lives  []Scenario
	}{
		"Default": {"A default life that the kind has nothing for should be left out.", nil},
		"Appended": {
			"A life that is appended to the default lives should not change which of those are left out.",
			append(Scenarios(), Scenario{Name: "own", Acts: []Act{create}}),
		},
		"Own": {
			"A second external resource that does not exist after the first act should be no error of the life.",
			[]Scenario{{Name: "own", Acts: []Act{create, {Do: CreateSecond}, {Do: AbandonSecond}}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, nil)
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				unique := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPut && len(c.List()) > 0 {
						w.WriteHeader(http.StatusBadRequest)
						return
					}
					c.ServeHTTP(w, r)
				})
				return graftNamed(p, vmAPI{http: &http.Client{Transport: p.Transport(unique)}})
			}
			p.Scenarios = tc.lives
			for _, r := range findings(t, p, Runs(0)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}

// TestRun_StateWithoutAFault proves that an external resource has to end as it does without a fault.
func TestRun_StateWithoutAFault(t *testing.T) {
	p := plainProvider(t, func(_ *Process, r *plain) {
		size := int64(0)
		r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
			if v, err := r.observe(ctx, b); v != nil || err != nil {
				return err
			}
			size++
			return r.api.do(
				ctx, http.MethodPut, "/vms/"+meta.GetExternalName(b), vm{Owner: string(b.GetUID()), Size: size}, nil,
			)
		}
	})
	p.Scenarios = Scenarios()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r *Result) bool { return oracleHas(r, LostUpdate) }) {
		t.Errorf("An external resource whose size is that of a second attempt should be found, got %v", found)
	}
}

// TestRun_WithoutDefaults proves that a life that ends badly because its object lacks defaults says so.
func TestRun_WithoutDefaults(t *testing.T) {
	cases := map[string]struct {
		reason string
		object client.Object
		kind   resource.ManagedKind
		want   string
	}{
		"ManagementPolicies": {
			reason: "Upstream's reconciler is paused without management policies.",
			object: &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}},
			kind:   v1alpha1.BucketManagedKind(),
			want:   "set spec.managementPolicies in Provider.Object, or Provider.CRDs",
		},
		"DeletionPolicy": {
			reason: "Upstream's reconciler orphans an external resource without a deletion policy.",
			object: func() client.Object {
				d := v1alpha1.NewDatabase("one")
				d.Spec.DeletionPolicy, d.Spec.ManagementPolicies = "", xpv2.ManagementPolicies{xpv2.ManagementActionAll}
				return d
			}(),
			kind: v1alpha1.DatabaseManagedKind(),
			want: "set spec.deletionPolicy in Provider.Object, or Provider.CRDs",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				return upstream.NewReconciler(p.Manager(), tc.kind,
					upstream.WithManagementPolicies(),
					upstream.WithExternalConnector(connect(&vmClient{api: a, named: true})),
					upstream.WithInitializers(upstream.NewNameAsExternalName(p.Manager().GetClient())),
				), nil
			})
			p.Object = tc.object
			p.Scenarios = []Scenario{{Name: "own", Acts: []Act{{Do: Create}, {Do: Delete}}}}
			if name == "ManagementPolicies" {
				p.Scenarios = Scenarios()[:1]
			}
			found := findings(t, p, Runs(0))
			if len(found) != 1 || !strings.Contains(found[0].Violations[0].Text, tc.want) {
				t.Errorf("%s Want a finding with %q, got %v", tc.reason, tc.want, found)
			}
		})
	}
}

// TestRun_GeneratedName proves that a generated name is the same in each run.
func TestRun_GeneratedName(t *testing.T) {
	p := plainProvider(t, func(_ *Process, r *plain) {
		r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
			if meta.WasDeleted(b) || meta.GetExternalName(b) != "" {
				return false, nil
			}
			l := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "of-" + b.GetName() + "-", Namespace: b.GetNamespace()},
			}
			if err := r.kube.Create(ctx, l); err != nil {
				return false, err
			}
			return false, r.kube.Delete(ctx, l)
		}
	})
	p.Scenarios = Scenarios()[:1]
	for _, r := range findings(t, p, Runs(20)) {
		t.Errorf("%s: %v", r.Name, r.Violations)
	}
}

// TestRun_TerminalError proves that a reconcile that fails with a terminal error is not repeated, as a controller does
// not repeat it.
func TestRun_TerminalError(t *testing.T) {
	p := plainProvider(t, func(_ *Process, r *plain) {
		r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
			if err != nil {
				return reconcile.Result{}, reconcile.TerminalError(err)
			}
			return reconcile.Result{RequeueAfter: time.Minute}, nil
		}
	})
	p.Scenarios = Scenarios()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r *Result) bool { return oracleHas(r, NeverReady) }) {
		t.Errorf("A provider that takes a passing error for a terminal one should be found, got %v", found)
	}
}

// TestProcess_ControllerPanics proves that a panic is found although a controller recovers from it.
func TestProcess_ControllerPanics(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		return p.Controller(func(m manager.Manager) error {
			r := rightPlain(p, a)
			observed := r.ensure
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if err := observed(ctx, b); err != nil {
					panic(err)
				}
				return nil
			}
			return ctrl.NewControllerManagedBy(m).Named("bucket").For(&v1alpha1.Bucket{}).Complete(r)
		})
	})
	p.Scenarios = Scenarios()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r *Result) bool { return oracleHas(r, Panicked) }) {
		t.Errorf("A panic should be found, got %v", found)
	}
}

// TestProcess_ControllerSetup proves that a Setup function may use recorders and checks of the manager.
func TestProcess_ControllerSetup(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		return p.Controller(func(m manager.Manager) error {
			m.GetEventRecorder("bucket").Eventf(&v1alpha1.Bucket{}, nil, "Normal", "Started", "Start", "started")
			if err := errors.Wrap(m.AddHealthzCheck("ping", healthz.Ping), "cannot add a check"); err != nil {
				return err
			}
			if err := errors.Wrap(m.AddReadyzCheck("ping", healthz.Ping), "cannot add a check"); err != nil {
				return err
			}
			if err := m.AddMetricsServerExtraHandler("/debug", http.NotFoundHandler()); err != nil {
				return err
			}
			return ctrl.NewControllerManagedBy(m).Named("bucket").For(&v1alpha1.Bucket{}).Complete(rightPlain(p, a))
		})
	})
	p.Scenarios = Scenarios()[:1]
	for _, r := range findings(t, p, Runs(0)) {
		t.Errorf("%s: %v", r.Name, r.Violations)
	}
}

package crashtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A secretCloud gives each vm a password, which only the answer to the create or a rotation has.
type secretCloud struct {
	vmCloud

	passwords map[string]string
}

// ConnectionDetails implements [Detailed].
func (c *secretCloud) ConnectionDetails(name string) map[string]string {
	return map[string]string{"password": c.passwords[name]}
}

// withSecret returns a provider with a connection secret. resets says that Observe sets a password again that
// the secret lacks, rotates that each update sets a new one.
func withSecret(t testing.TB, resets, rotates bool) Provider[*secretCloud] {
	t.Helper()
	base := vmProvider(t, nil)
	if err := corev1.AddToScheme(base.Scheme); err != nil {
		t.Fatal(err)
	}
	b := v1alpha1.NewBucket("default", "one")
	b.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: "details"}
	return Provider[*secretCloud]{
		Scheme: base.Scheme, Object: b, Change: base.Change,
		Scenarios: slices.DeleteFunc(Scenarios(), func(s Scenario) bool {
			return !slices.Contains([]string{"create", "update", "delete", "restart", "two"}, s.Name)
		}),
		Cloud: func() *secretCloud { return &secretCloud{passwords: map[string]string{}} },
		Start: func(p *Process, c *secretCloud) (reconcile.Reconciler, error) {
			api := vmAPI{http: &http.Client{Transport: p.Transport(&c.vmCloud)}}
			cl := newChanged(p, api, true)
			set := func(ctx context.Context, name string) (managed.ConnectionDetails, error) {
				err := p.Step(ctx, "SetPassword "+name, func() error {
					c.passwords[name] = fmt.Sprintf("secret-%d", len(c.passwords[name]))
					return nil
				})
				return managed.ConnectionDetails{"password": []byte(c.passwords[name])}, err
			}
			cl.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				if e, err := cl.vmClient.Create(ctx, mg); err != nil {
					return e, err
				}
				d, err := set(ctx, meta.GetExternalName(mg))
				return managed.ExternalCreation{ConnectionDetails: d}, err
			}
			if rotates {
				cl.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
					if u, err := cl.vmClient.Update(ctx, mg); err != nil {
						return u, err
					}
					d, err := set(ctx, meta.GetExternalName(mg))
					return managed.ExternalUpdate{ConnectionDetails: d}, err
				}
			}
			if resets {
				cl.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
					o, err := cl.vmClient.Observe(ctx, mg)
					if err != nil || !o.ResourceExists {
						return o, err
					}
					s, key := &corev1.Secret{}, client.ObjectKey{Namespace: "default", Name: "details"}
					if mg.GetName() != "one" {
						key.Name += secondSuffix
					}
					if err := p.Manager().GetAPIReader().Get(ctx, key, s); client.IgnoreNotFound(err) != nil {
						return o, err
					}
					had := string(s.Data["password"])
					if had == "" || had != c.passwords[meta.GetExternalName(mg)] {
						o.ConnectionDetails, err = set(ctx, meta.GetExternalName(mg))
					}
					return o, err
				}
			}
			return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(), append(chosenNames(p),
				managed.WithExternalConnector(connect(cl)))...), nil
		},
	}
}

// chosenNames returns the options of a reconciler whose external names are chosen beforehand.
func chosenNames(p *Process) []managed.ReconcilerOption {
	return []managed.ReconcilerOption{
		managed.WithManagementPolicies(),
		managed.WithInitializers(managed.NewNameAsExternalName(p.Manager().GetClient())),
		managed.WithDeterministicExternalName(true),
	}
}

// posts makes an update a POST.
func posts(r *plain) {
	r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
		return r.api.do(ctx, http.MethodPost, "/vms/"+meta.GetExternalName(b)+"/resize", vm{Size: sizeOf(b)}, nil)
	}
}

// sharing makes two managed resources share an external resource by their names.
func sharing(name func(b *v1alpha1.Bucket) string) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		r.name = name
		create := r.create
		r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
			if err := create(ctx, b); !onStatus(http.StatusConflict)(err) {
				return err
			}
			return nil
		}
	}
}

// paged makes a plain reconciler look for its external resource in a list with one entry a page.
func paged(endsOn func(error) bool) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		postsThenStores(r)
		find := func(ctx context.Context, b *v1alpha1.Bucket) (*vm, error) {
			for page := 1; ; page++ {
				v := &vm{}
				err := r.api.do(ctx, http.MethodGet, fmt.Sprintf("/vms/page/%d", page), nil, v)
				switch {
				case errors.Is(err, errNotFound) || err != nil && page > 1 && endsOn(err):
					return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
				case err != nil || v.Owner == string(b.GetUID()):
					return v, err
				}
			}
		}
		ensure := r.ensure
		r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
			v, err := find(ctx, b)
			if err != nil {
				return err
			}
			if name := ""; v == nil || v.ID != meta.GetExternalName(b) {
				if v != nil {
					name = v.ID
				}
				meta.SetExternalName(b, name)
				if err := r.kube.Update(ctx, b); name != "" && err != nil {
					return err
				}
			}
			return ensure(ctx, b)
		}
	}
}

// plantedOutside returns faults that were planted from outside.
func plantedOutside() []planted {
	out := []planted{
		{"NamesCutToThreeLetters", "two/undisturbed", []Verdict{SharedResource}, plainWith(sharing(
			func(b *v1alpha1.Bucket) string { return b.GetName()[:3] },
		))},
		{"NameOfTheNamespace", "two/undisturbed", []Verdict{SharedResource}, plainWith(sharing(
			func(b *v1alpha1.Bucket) string { return b.GetNamespace() },
		))},
		{"UpdatesByPostForEver", "update/undisturbed", []Verdict{HotLoop}, plainWith(func(_ *Process, r *plain) {
			posts(r)
			ensure := r.ensure
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if v, err := r.observe(ctx, b); err != nil || v == nil {
					return ensure(ctx, b)
				}
				return r.update(ctx, b)
			}
		})},
		{"UpdatesByStepForEver", "update/undisturbed", []Verdict{HotLoop}, func(t testing.TB) Provider[*vmCloud] {
			t.Helper()
			p := vmProvider(t, nil)
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				r := rightPlain(p, vmAPI{http: &http.Client{Transport: p.Transport(c)}})
				ensure := r.ensure
				r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
					name := meta.GetExternalName(b)
					if v, err := r.observe(ctx, b); err != nil || v == nil {
						return ensure(ctx, b)
					}
					return p.Step(ctx, "Resize "+name, func() error {
						c.Update(name, vm{ID: name, Owner: string(b.GetUID()), Size: sizeOf(b)})
						return nil
					})
				}
				return r, nil
			}
			return p
		}},
		{"SecondChangeIsLost", "update-in-update/undisturbed", []Verdict{LostUpdate}, plainWith(func(
			_ *Process, r *plain,
		) {
			update, done := r.update, map[int64]bool{}
			r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if done[sizeOf(b)] || sizeOf(b) == 1 {
					return nil
				}
				done[sizeOf(b)] = true
				return update(ctx, b)
			}
		})},
		{"AllFinalizersRemoved", "delete-finalizer/undisturbed", []Verdict{ForeignFinalizer}, plainWith(func(
			_ *Process, r *plain,
		) {
			r.confirm = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				b.SetFinalizers(nil)
				return true, client.IgnoreNotFound(r.kube.Update(ctx, b))
			}
		})},
		{"DeletesWhilePaused", "pause-delete/undisturbed", []Verdict{
			ActsWhilePaused,
		}, plainWith(func(_ *Process, r *plain) {
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if !meta.IsPaused(b) || !meta.WasDeleted(b) {
					return false, nil
				}
				return true, r.remove(ctx, b)
			}
		})},
		{"DriftIsNotRepaired", "drift/undisturbed", []Verdict{NeverReady}, plainWith(func(_ *Process, r *plain) {
			ensure, done := r.ensure, false
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if done {
					return nil
				}
				err := ensure(ctx, b)
				done = err == nil
				return err
			}
		})},
		{"ErrorOfTheSecondPageEndsTheList", "two/503-before", []Verdict{
			SecondResource, Leak,
		}, plainWith(paged(onStatus(503)))},
		{"WaitIgnoresItsContext", "create/stop-after", []Verdict{Escaped}, plainWith(func(_ *Process, r *plain) {
			create := r.create
			r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
				err := create(ctx, b)
				time.Sleep(time.Minute)
				return err
			}
		})},
		{"AdoptedByAnyFinder", "two/reset-after", []Verdict{
			SharedResource, LostName, NeverReady, Leak,
		}, graftWith(false, func(c *changed) {
			c.find = func(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
				return asyncstate.Found("vm-1"), nil
			}
		})},
	}
	for _, code := range []int{403, 503} {
		out = append(out, planted{
			fmt.Sprintf("AbsentOn%d", code), fmt.Sprintf("delete/%d-before", code),
			[]Verdict{Leak, Stopped},
			upstreamWith(true, takesForAbsent(onStatus(code))),
		})
	}
	return out
}

// TestRun_ConnectionSecret proves that a lost or outdated password is a finding, and that a right provider has
// none.
func TestRun_ConnectionSecret(t *testing.T) {
	cases := map[string]struct {
		reason          string
		resets, rotates bool
		want            bool
	}{
		"Lost":    {"A password that only the answer to the create has should be found lost.", false, false, true},
		"Rotated": {"A password that an update rotates should be found outdated.", false, true, true},
		"Right":   {"A password that is set again is right.", true, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := withSecret(t, tc.resets, tc.rotates)
			found := slices.ContainsFunc(findings(t, p, Runs(60), Pairs(0)), func(r *Result) bool {
				if !oracleHas(r, LostSecret) {
					t.Errorf("%s: %v", r.Name, r.Violations)
				}
				return true
			})
			if found != tc.want {
				t.Errorf("\n%s\nRun(...): want %t, got %t", tc.reason, tc.want, found)
			}
		})
	}
}

// A lazyCloud ends a delete when the resource is read for the second time.
type lazyCloud struct {
	vmCloud

	reads map[string]int
}

func (c *lazyCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/vms/")
	_, deleting := c.reads[id]
	switch {
	case r.Method == http.MethodDelete && !deleting:
		if _, exists := c.Get(id); exists {
			c.reads[id] = 0
		}
		return
	case r.Method == http.MethodGet && deleting:
		if c.reads[id]++; c.reads[id] > 1 {
			delete(c.reads, id)
			c.Delete(id)
		}
	}
	c.vmCloud.ServeHTTP(w, r)
}

// lazyProvider returns a provider that is right, with a fake whose GET changes something.
func lazyProvider(t testing.TB) Provider[*lazyCloud] {
	t.Helper()
	base := vmProvider(t, nil)
	return Provider[*lazyCloud]{
		Scheme: base.Scheme, Object: base.Object, Change: base.Change, Scenarios: base.Scenarios,
		Cloud: func() *lazyCloud { return &lazyCloud{reads: map[string]int{}} },
		Start: func(p *Process, c *lazyCloud) (reconcile.Reconciler, error) {
			return graftNamed(p, vmAPI{http: &http.Client{Transport: p.Transport(c)}})
		},
	}
}

// TestRun_LazyFake proves that a fake whose GET changes something causes no finding.
func TestRun_LazyFake(t *testing.T) {
	for _, r := range findings(t, lazyProvider(t), Runs(60)) {
		t.Errorf("%s: %v", r.Name, r.Violations)
	}
}

// TestRun_MapOrder proves that runs of a provider that ranges over a map are made, and counted.
func TestRun_MapOrder(t *testing.T) {
	p := plainProvider(t, inMapOrder)
	p.Scenarios = Scenarios()[:3]
	s, err := newSweep(t, p, []Option{Runs(100)})
	if err != nil {
		t.Fatal(err)
	}
	rs, _, err := s.run()
	if err != nil || len(rs) < 100 || !slices.ContainsFunc(rs, func(r *Result) bool { return r.diverged }) {
		t.Fatalf("run(): want 100 runs of which some have other requests, got %d and error %v", len(rs), err)
	}
	for _, r := range rs {
		if len(r.Violations) > 0 {
			t.Errorf("%s: %v", r.Name, r.Violations)
		}
	}
}

// TestRun_UsageTracker proves that reads have the kind that a usage tracker needs, and that the API server's
// refusals in a run without a fault are noticed.
func TestRun_UsageTracker(t *testing.T) {
	cases := map[string]struct {
		reason string
		clear  bool
		want   int
	}{
		"Right":   {"An object that is read should have its kind, as from a cache of controller-runtime.", false, 0},
		"Refused": {"A request that the API server refuses should be noticed.", true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, func(_ *Process, r *plain) {
				r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
					if meta.WasDeleted(b) {
						return false, nil
					}
					gvk := b.GetObjectKind().GroupVersionKind()
					if tc.clear {
						gvk.Version, gvk.Group = "", ""
					}
					cm := &corev1.ConfigMap{}
					cm.SetNamespace(b.GetNamespace())
					cm.SetName("usage-" + b.GetName())
					_ = r.kube.Create(ctx, cm)
					meta.AddOwnerReference(cm, meta.AsController(meta.TypedReferenceTo(b, gvk)))
					if err := r.kube.Update(ctx, cm); !tc.clear {
						return false, err
					}
					return false, nil
				}
			})
			if err := corev1.AddToScheme(p.Scheme); err != nil {
				t.Fatal(err)
			}
			p.Scenarios = Scenarios()[:1]
			s, err := newSweep(t, p, []Option{Runs(0)})
			if err != nil {
				t.Fatal(err)
			}
			rs, _, err := s.run()
			if err != nil || len(rs) != 1 || len(rs[0].Violations) > 0 || min(len(s.notices), 1) != tc.want {
				t.Errorf("\n%s\nrun(): %v, error %v, notices %v", tc.reason, rs, err, s.notices)
			}
		})
	}
}

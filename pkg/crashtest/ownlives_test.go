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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
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

// TestRun_OwnLives proves that a provider that is right has no finding in lives that its author wrote.
func TestRun_OwnLives(t *testing.T) {
	create, remove, change := Act{Do: (*User).Create}, Act{Do: (*User).Delete}, Act{Do: (*User).Change}
	pause, resume := Act{Do: (*User).Pause}, Act{Do: (*User).Resume}
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
	forbid, another := Act{Do: (*User).ForbidDelete}, Act{Do: (*User).CreateAnother}
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
		reason string
		life   Life
		object func(b *v1alpha1.Bucket)
		cloud  func() *vmCloud
	}{
		"CreateAgain": {
			reason: "A managed resource that is created again should not have to be gone.",
			life:   Life{Before: []Act{create, change}, Acts: []Act{remove, create}, Creates: 2},
		},
		"ChangeLabel": {
			reason: "A label should not have to show in the external system.",
			life: Life{Before: []Act{create}, Acts: []Act{{Do: func(u *User) error {
				return u.Edit(func(o client.Object) { meta.AddLabels(o, map[string]string{"a": "b"}) })
			}}}},
		},
		"ChangeBack": {
			reason: "A change that the user takes back should not have to show.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: resize(1)}}},
		},
		"ObserveOnly": {
			reason: "A change should not have to show if the policies forbid updates.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: policies(xpv2.ManagementActionObserve)}, change}},
		},
		"ChangeThenOrphan": {
			reason: "An external resource that has to stay may be updated while its managed resource exists.",
			life:   Life{Before: []Act{create}, Acts: []Act{forbid, change, remove}},
		},
		"OrphanInCreate": {
			reason: "An external resource should be no leak if its name was not known yet when it had to stay.",
			life:   Life{Acts: []Act{create, during(forbid), remove}},
		},
		"OrphanObserved": {
			reason: "Policies that don't have Delete should stay as they are.",
			life:   Life{Before: []Act{create}, Acts: []Act{forbid, remove}},
			object: observed,
			cloud:  theirs,
		},
		"DeleteWithoutPolicy": {
			reason: "An external resource should be no leak if the policies of its managed resource never had Delete.",
			life:   Life{Before: []Act{create}, Acts: []Act{remove}},
			object: func(b *v1alpha1.Bucket) {
				b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
					xpv2.ManagementActionObserve, xpv2.ManagementActionCreate,
				}
			},
		},
		"PauseAndResumeInCreate": {
			reason: "Each of two acts during calls should happen.",
			life:   Life{Acts: []Act{create, during(pause), during(resume)}},
		},
		"PauseInCreate": {
			reason: "A managed resource that stays paused should not have to be ready.",
			life:   Life{Acts: []Act{create, during(pause)}},
		},
		"PauseAndDelete": {
			reason: "A managed resource that stays paused should not have to be gone.",
			life:   Life{Before: []Act{create}, Acts: []Act{pause, remove}},
		},
		"PauseOneOfTwo": {
			reason: "The external resource of another managed resource may change.",
			life:   Life{Before: []Act{create}, Acts: []Act{pause, another}, Creates: 2},
		},
		"DenyAccess": {
			reason: "A managed resource should not have to be ready while the external system refuses all calls.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: (*User).DenyAccess}}},
		},
		"Wait": {
			reason: "Polls while the user waits should be no hot loop.",
			life:   Life{Before: []Act{create}, Acts: []Act{wait(50 * time.Minute)}},
		},
		"WaitLong": {
			reason: "A user may wait longer than a provider may take.",
			life:   Life{Before: []Act{create}, Acts: []Act{wait(5 * time.Hour)}},
		},
		"ForeignFinalizer": {
			reason: "Another controller should remove its own finalizer.",
			life:   Life{Before: []Act{create}, Acts: []Act{remove}},
			object: func(b *v1alpha1.Bucket) { b.SetFinalizers([]string{"example.org/theirs"}) },
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
			tc.life.Name = "own"
			p.Lives = []Life{tc.life}
			for _, r := range findings(t, p, Points(15)) {
				t.Errorf("%s %s: %v", tc.reason, r.point.name(), r.finding.violations)
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

// logsOutLate changes a provider to log in at the start of a reconcile, and to log out after the write of the status.
func logsOutLate(p *Process, r *plain) {
	sessions := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	api := vmAPI{http: &http.Client{Transport: p.Transport(sessions)}}
	r.before = func(ctx context.Context, _ *v1alpha1.Bucket) (bool, error) {
		return false, api.do(ctx, http.MethodPost, "/session", nil, nil)
	}
	r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
		if out := api.do(context.Background(), http.MethodDelete, "/session", nil, nil); err == nil {
			err = out
		}
		return reconcile.Result{RequeueAfter: 10 * time.Minute}, err
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

// TestRun_OwnLivesOfWrongProviders proves that a provider that is wrong is found in lives that its author wrote.
func TestRun_OwnLivesOfWrongProviders(t *testing.T) {
	create, pause := Act{Do: (*User).Create}, Act{Do: (*User).Pause}
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
	cases := map[string]struct {
		reason string
		life   Life
		change func(p *Process, r *plain)
		want   Verdict
	}{
		"EditIsLost": {
			reason: "A change of the spec has to show.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: resize(7)}}},
			change: func(_ *Process, r *plain) {
				r.update = func(context.Context, *v1alpha1.Bucket) error { return nil }
			},
			want: LostUpdate,
		},
		"SecondActDuringACall": {
			reason: "The third act happens during the update.",
			life: Life{Acts: []Act{
				create, during(Act{Do: resize(7)}), during(Act{Do: (*User).Delete}),
			}},
			change: func(_ *Process, r *plain) {
				r.remove = func(context.Context, *v1alpha1.Bucket) error { return nil }
			},
			want: Leak,
		},
		"DeletesWithoutPolicy": {
			reason: "The policies forbid to delete the external resource.",
			life: Life{Before: []Act{create}, Acts: []Act{
				{Do: (*User).ForbidDelete}, {Do: (*User).Delete},
			}},
			change: func(_ *Process, r *plain) { r.orphans = func(*v1alpha1.Bucket) bool { return false } },
			want:   ActsOnAnothers,
		},
		"CreatedAgainIsNotReady": {
			reason: "A managed resource that was created again has to be ready.",
			life: Life{
				Before: []Act{create}, Acts: []Act{{Do: (*User).Delete}, create}, Creates: 2,
			},
			change: func(_ *Process, r *plain) {
				first := true
				create := r.create
				r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
					if !first {
						return errors.New("no more")
					}
					first = false
					return create(ctx, b)
				}
			},
			want: NeverReady,
		},
		"ActsOnOneOfTwoWhilePaused": {
			reason: "The external resource of the paused one changes.",
			life: Life{
				Before: []Act{create, {Do: (*User).CreateAnother}},
				Acts:   []Act{pause, {Do: resize(7)}}, Creates: 2,
			},
			change: func(p *Process, r *plain) {
				r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
					if meta.IsPaused(b) {
						return true, r.update(ctx, b)
					}
					return false, nil
				}
			},
			want: ActsWhilePaused,
		},
		"ActsWhilePausedAfterAnActDuringACall": {
			reason: "No call is under way when the managed resource is paused.",
			life:   Life{Acts: []Act{create, during(Act{Do: resize(7)}), pause}},
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
		"LoopsAfterTheUserWaited": {
			reason: "A provider that reconciles each second is not at rest.",
			life: Life{Before: []Act{create}, Acts: []Act{{Do: func(u *User) error {
				return u.Wait(10 * time.Minute)
			}}}},
			change: func(_ *Process, r *plain) {
				r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
					return reconcile.Result{RequeueAfter: time.Second}, err
				}
			},
			want: HotLoop,
		},
		"DeletesAtEachPoll": {
			reason: "A DELETE that undoes no POST of its path is a call in vain.",
			life:   Life{Acts: []Act{create}},
			change: logsIn("/login", "/session"),
			want:   HotLoop,
		},
		"LoopsBeforeAnotherAct": {
			reason: "A provider that comes to rest only after the last act is not at rest before.",
			life:   Life{Acts: []Act{create, {Do: resize(7)}}},
			change: loopsUntilResized,
			want:   HotLoop,
		},
		"LoopsAfterALostUpdate": {
			reason: "A provider that reconciles each second is not at rest, although the next act removes a lost update.",
			life: Life{
				Before: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: (*User).Delete}},
			},
			change: losesUpdates(time.Second),
			want:   HotLoop,
		},
		"LoopsBeforeTheFaults": {
			reason: "A provider that comes to rest only after the last act is not at rest before any fault either.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: resize(7)}}},
			change: loopsUntilResized,
			want:   HotLoop,
		},
		"LoopsWithoutAccess": {
			reason: "A provider that retries each second while each call is refused is a hot loop.",
			life: Life{Acts: []Act{
				{Do: (*User).DenyAccess}, create, {Do: (*User).GrantAccess},
			}},
			change: func(_ *Process, r *plain) {
				r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
					if err != nil {
						return reconcile.Result{RequeueAfter: time.Second}, nil
					}
					return reconcile.Result{RequeueAfter: time.Minute}, nil
				}
			},
			want: HotLoop,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, tc.change)
			tc.life.Name = "own"
			p.Lives = []Life{tc.life}
			found := findings(t, p, Points(0))
			if len(found) != 1 || !found[0].finding.has(tc.want) {
				t.Errorf("%s Want verdict %q, got %v", tc.reason, tc.want, found)
			}
		})
	}
}

// pollsOften makes a plain reconciler poll as often as it may.
func pollsOften(_ *Process, r *plain) {
	r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: shortestPoll}, err
	}
}

// TestRun_NoHotLoop proves that a provider that is right is no hot loop in any act of lives that its author wrote.
func TestRun_NoHotLoop(t *testing.T) {
	create, restart := Act{Do: (*User).Create}, Act{Do: (*User).Restart}
	cases := map[string]struct {
		reason string
		life   Life
		change func(p *Process, r *plain)
	}{
		"RefusedSpec": {
			reason: "A spec that the external system refuses may be retried until the user changes it.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: resize(1000)}, {Do: resize(7)}}},
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
		"PollsInEachAct": {
			reason: "Polls should be counted for each act by itself.",
			life:   Life{Before: []Act{create}, Acts: []Act{restart, restart, restart}},
			change: pollsOften,
		},
		"LogsOut": {
			reason: "A log-out at each poll should be no call in vain, because it undoes the log-in.",
			life:   Life{Acts: []Act{create, {Do: (*User).CreateAnother}}, Creates: 2},
			change: logsIn("/session", "/session"),
		},
		"LogsOutLate": {
			reason: "The log-outs of two managed resources should be no calls in vain if one of those changes before.",
			life:   Life{Acts: []Act{create, {Do: (*User).CreateAnother}}, Creates: 2},
			change: logsOutLate,
		},
		"LostUpdate": {
			reason: "Polls in vain for an update should be no hot loop, because the next act removes it.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: resize(7)}, {Do: (*User).Delete}}},
			change: losesUpdates(shortestPoll),
		},
		"RefusedDelete": {
			reason: "A delete may be retried while the external system refuses it.",
			life:   Life{Before: []Act{create}, Acts: []Act{{Do: (*User).DenyAccess}, {Do: (*User).Delete}}},
			change: func(*Process, *plain) {},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, tc.change)
			tc.life.Name = "own"
			p.Lives = []Life{tc.life}
			for _, r := range findings(t, p, Points(50)) {
				t.Errorf("%s %s: %v", tc.reason, r.point.name(), r.finding.violations)
			}
		})
	}
}

// TestRun_PollsOfTwo proves that polls are counted for each managed resource and each process by itself.
func TestRun_PollsOfTwo(t *testing.T) {
	create, another := Act{Do: (*User).Create}, Act{Do: (*User).CreateAnother}
	cases := map[string]struct {
		reason string
		life   Life
		only   string
	}{
		"Failover": {
			reason: "Two processes may poll two managed resources while the life is at rest.",
			life:   Life{Before: []Act{another}, Acts: []Act{create}},
			only:   "own/failover",
		},
		"Wait": {
			reason: "Two managed resources may be polled all the time that the user waits.",
			life: Life{
				Before: []Act{another, create},
				Acts:   []Act{{Do: func(u *User) error { return u.Wait(2 * time.Hour) }}},
			},
			only: "own/undisturbed",
		},
		"WaitForAStart": {
			reason: "Polls should be counted while no process is alive, because its start has failed.",
			life: Life{
				Before: []Act{another, create},
				Acts:   []Act{{Do: func(u *User) error { return u.Wait(2 * time.Hour) }}},
			},
			only: "own/crash-before/900/reset-before/901",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, pollsOften)
			start := p.Start
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				r, err := start(p, c)
				if err == nil {
					err = p.Step(p.ctx, "log in", func() error { return nil })
				}
				return r, err
			}
			tc.life.Name, tc.life.Creates = "own", 2
			p.Lives = []Life{tc.life}
			for _, r := range findings(t, p, Only(tc.only)) {
				t.Errorf("%s %s: %v", tc.reason, r.point.name(), r.finding.violations)
			}
		})
	}
}

// TestRun_Two proves that a life of two managed resources finds a Finder that adopts another's external resource.
func TestRun_Two(t *testing.T) {
	two := Life{
		Name: "two", Creates: 2, Before: []Act{{Do: (*User).CreateAnother}}, Acts: []Act{{Do: (*User).Create}},
	}
	right := vmProvider(t, graftFound)
	right.Lives = []Life{two}
	for _, r := range findings(t, right, Points(50)) {
		t.Errorf("A provider that is right should have no finding: %s: %v", r.point.name(), r.finding.violations)
	}

	wrong := graftWith(false, func(c *changed) {
		shared := func(mg resource.Managed) resource.Managed {
			o, _ := mg.DeepCopyObject().(resource.Managed)
			o.SetUID("any")
			return o
		}
		c.find = func(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
			return c.vmClient.Find(ctx, shared(mg), a)
		}
		c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			o := shared(mg)
			created, err := c.vmClient.Create(ctx, o)
			if err == nil {
				meta.SetExternalName(mg, meta.GetExternalName(o))
			}
			return created, err
		}
	})(t)
	wrong.Lives = []Life{two}
	if len(findings(t, wrong, Points(50))) == 0 {
		t.Error("A provider that adopts the external resource of another managed resource should have a finding.")
	}
}

// TestRun_UniqueField proves that no life expects two external resources of a kind with a field that has to be unique.
func TestRun_UniqueField(t *testing.T) {
	create := Act{Do: (*User).Create}
	cases := map[string]struct {
		reason string
		lives  []Life
	}{
		"Default": {"A default life that the kind has nothing for should be left out.", nil},
		"Appended": {
			"A life that is appended to the default lives should not change which of those are left out.",
			append(Lives(), Life{Name: "own", Acts: []Act{create}}),
		},
		"Own": {
			"A second external resource that does not exist after the first act should be no error of the life.",
			[]Life{{Name: "own", Acts: []Act{create, {Do: (*User).CreateAnother}, {Do: (*User).AbandonAnother}}}},
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
			p.Lives = tc.lives
			for _, r := range findings(t, p, Points(0)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.point.name(), r.finding.violations)
			}
		})
	}
}

// TestRun_ConnectionSecret proves that a second managed resource can have a connection secret, too, and that the one
// of a managed resource that is gone is deleted.
func TestRun_ConnectionSecret(t *testing.T) {
	p := vmProvider(t, graftFound)
	if err := corev1.AddToScheme(p.Scheme); err != nil {
		t.Fatal(err)
	}
	b := v1alpha1.NewBucket("default", "one")
	b.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: "details"}
	p.Object = b
	p.Lives = slices.DeleteFunc(Lives(), func(l Life) bool { return l.Name != "rename" && l.Name != "same-name" })
	create := Act{Do: (*User).Create}
	p.Lives = append(p.Lives, Life{
		Name: "again", Creates: 2, Before: []Act{create}, Acts: []Act{{Do: (*User).Delete}, create},
	})
	for _, r := range findings(t, p, Points(10)) {
		t.Errorf("%s: %v", r.point.name(), r.finding.violations)
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
	p.Lives = Lives()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r result) bool { return r.finding.has(LostUpdate) }) {
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
				d.Spec.DeletionPolicy, d.Spec.ManagementPolicies = "", xpv2.ManagementPolicies{allActions}
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
			p.Lives = []Life{{Name: "own", Acts: []Act{{Do: (*User).Create}, {Do: (*User).Delete}}}}
			if name == "ManagementPolicies" {
				p.Lives = Lives()[:1]
			}
			found := findings(t, p, Points(0))
			if len(found) != 1 || !strings.Contains(found[0].finding.violations[0].Text, tc.want) {
				t.Errorf("%s Want a finding with %q, got %v", tc.reason, tc.want, found)
			}
		})
	}
}

// TestExplain_ReplayOfASubtest proves that the printed command selects a life of a test whose name has characters that
// a pattern and a shell read.
func TestExplain_ReplayOfASubtest(t *testing.T) {
	t.Run("v1 (it's new)", func(t *testing.T) {
		s := &sweep{t: t}
		got := s.explain(result{point: point{life: Life{Name: "create"}}}, nil)
		want := `replay   go test -run '^TestExplain_ReplayOfASubtest$/^v1_\(it'\''s_new\)$/^create$/^undisturbed$' -v`
		if !strings.Contains(got, want) {
			t.Errorf("explain(...): want %s in\n%s", want, got)
		}
	})
}

// TestRun_GeneratedName proves that a generated name is the same each time that a life is led.
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
	p.Lives = Lives()[:1]
	for _, r := range findings(t, p, Points(20)) {
		t.Errorf("%s: %v", r.point.name(), r.finding.violations)
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
	p.Lives = Lives()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r result) bool { return r.finding.has(NeverReady) }) {
		t.Errorf("A provider that takes a passing error for a terminal one should be found, got %v", found)
	}
}

// TestPairs_WithoutPoints proves that a number of pairs does not depend on how many points -short leaves.
func TestPairs_WithoutPoints(t *testing.T) {
	for _, n := range []int{shortPoints + 1, 10 * defaultPoints} {
		if _, err := newSweep(t, vmProvider(t, upstreamNamed), []Option{Pairs(n)}); err != nil {
			t.Errorf("At most all points should have two faults: %v", err)
		}
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
	p.Lives = Lives()[:1]
	found := findings(t, p, Only("create/500-before"))
	if !slices.ContainsFunc(found, func(r result) bool { return r.finding.has(Panicked) }) {
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
	p.Lives = Lives()[:1]
	for _, r := range findings(t, p, Points(0)) {
		t.Errorf("%s: %v", r.point.name(), r.finding.violations)
	}
}

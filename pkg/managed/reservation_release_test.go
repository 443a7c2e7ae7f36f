package managed

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// What an asynchronous create that keeps failing reserves while it waits to be
// tried again.
func TestAsyncCreateThatKeepsFailingReserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(of("mine", in("attacker")), of("theirs", in("victim")))
		c := &tenancy{fails: "attacker", err: errors.New("quota exceeded")}
		tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
		r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(c.client()), WithAsync(tr))

		do := func(ns, n string) {
			t.Helper()

			if _, err := r.Reconcile(context.Background(), requestIn(ns, n)); err != nil {
				t.Fatal(err)
			}

			synctest.Wait()
		}

		do("attacker", "mine")
		do("attacker", "mine")
		do("attacker", "mine")

		if diff := cmp.Diff(map[string]string{}, holders(t, a)); diff != "" {
			t.Errorf("holders while the failed create waits: -want, +got:\n%s", diff)
		}

		do("victim", "theirs")

		if diff := cmp.Diff([]string{"attacker", "victim"}, c.creates); diff != "" {
			t.Errorf("creates: -want, +got:\n%s", diff)
		}
	})
}

// A create without an answer (a timeout) has an unknown outcome. The reservation
// promises to hold the name then. The external system shows what was created late.
func TestTimeoutGivesReservationBack(t *testing.T) {
	a := testkit.NewAPI(of("one"), of("two"))
	creates := []string{}

	r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
		ObserveFn: absent, // Eventually consistent.
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			creates = append(creates, mg.GetName())
			return ExternalCreation{}, errors.Wrap(context.DeadlineExceeded, "created, but no answer")
		},
	}))

	run(t, r, "one", "two")

	if diff := cmp.Diff([]string{"one"}, creates); diff != "" {
		t.Errorf("creates: -want, +got:\n%s", diff)
	}
}

// Found to exist, so held until the finalizer is removed. One wrong not-found.
func TestFoundThenFlaky(t *testing.T) {
	cases := map[string][]func(*v1alpha1.Bucket){
		"Everything":    nil,
		"ObserveUpdate": {policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)},
	}

	for name, mods := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(of("one", mods...), of("two"))
			flaky := false
			acts := []string{}

			r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
				ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
					return ExternalObservation{ResourceExists: !flaky, ResourceUpToDate: flaky}, nil
				},
				CreateFn: returns(ExternalCreation{}, errors.New("already exists")),
				UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
					acts = append(acts, mg.GetName())
					return ExternalUpdate{}, nil
				},
			}))

			run(t, r, "one")

			if diff := cmp.Diff(map[string]string{sharedKey: "one"}, holders(t, a)); diff != "" {
				t.Fatalf("holders: -want, +got:\n%s", diff)
			}

			flaky = true
			run(t, r, "one")
			flaky = false

			run(t, r, "two", "one")

			if diff := cmp.Diff([]string{"one", "one"}, acts); diff != "" {
				t.Errorf("updates: -want, +got:\n%s", diff)
			}
		})
	}
}

// Two processes; the create of the old one fails because that of the new one won.
func TestOldProcessGivesAwayLease(t *testing.T) {
	a := testkit.NewAPI(of("b"), of("other"))
	c := &shared{}

	fns := c.client()
	create := fns.CreateFn

	second := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(fns), WithDeterministicExternalName(true))

	fns.CreateFn = func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
		if mg.GetName() != "b" {
			return create(ctx, mg)
		}

		run(t, second, "b")

		return ExternalCreation{}, errors.New("already exists")
	}

	first := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(fns), WithDeterministicExternalName(true))

	_, err := first.Reconcile(context.Background(), requestFor("b"))
	if err != nil {
		t.Logf("Reconcile of the old process: %v", err)
	}

	if diff := cmp.Diff(map[string]string{sharedKey: "b"}, holders(t, a)); diff != "" {
		t.Errorf("holders: -want, +got:\n%s", diff)
	}

	run(t, second, "b", "other")

	if diff := cmp.Diff(map[string]string{sharedKey: "b"}, holders(t, a)); diff != "" {
		t.Errorf("holders after both were reconciled: -want, +got:\n%s", diff)
	}
}

// Policies are taken away while an asynchronous create runs.
func TestReservationGivenBackWhileCreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(of("b"), of("other"))
		tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
		inside, most := 0, 0

		r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), WithAsync(tr), connects(upstream.ExternalClientFns{
			ObserveFn: absent,
			CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
				inside++
				most = max(most, inside)

				time.Sleep(time.Minute)

				inside--

				return ExternalCreation{}, nil
			},
		}))

		run(t, r, "b")
		synctest.Wait()

		edit(t, a, "b", policies(xpv2.ManagementActionObserve))

		run(t, r, "b", "other")
		synctest.Wait()

		if most != 1 {
			t.Errorf("creates of one external resource at the same time: %d", most)
		}

		time.Sleep(5 * time.Minute)
	})
}

// What is said of a reservation that is not held.
func TestReservedThoughNot(t *testing.T) {
	a := testkit.NewAPI(of("mine", in("attacker")), of("theirs", in("victim")))
	c := &tenancy{fails: "attacker", err: errors.Wrap(asyncstate.ErrOutcomeUnknown, "timeout")}
	r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(c.client()))

	runIn(t, r, "attacker", "mine")
	runIn(t, r, "victim", "theirs") // Blocked.

	// It is settled: nothing was created, and no longer wanted.
	b := &v1alpha1.Bucket{}
	must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "attacker", Name: "mine"}, b))

	b.SetFinalizers(nil)

	must(t, a.Server().Update(context.Background(), b))

	must(t, a.Server().Delete(context.Background(), b))

	c.fails, c.err = "victim", errors.New("quota exceeded")

	runIn(t, r, "victim", "theirs")

	must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "victim", Name: "theirs"}, b))

	held := len(leasesIn(t, a)) > 0
	if said := b.GetCondition(TypeExternalNameReserved); (said.Status == "True") != held {
		t.Errorf("condition: %s/%s, while the lease is held: %t", said.Status, said.Reason, held)
	}
}

// A create that runs into its deadline gives the reservation back with the
// context that has ended.
func TestLetGoAfterDeadline(t *testing.T) {
	a, h := testkit.NewAPI(of("b")), &recorder{}

	r := newBucketReconciler(a, WithRecorder(h), WithTimeout(10*time.Millisecond), WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
		ObserveFn: absent,
		CreateFn: func(ctx context.Context, _ resource.Managed) (ExternalCreation, error) {
			<-ctx.Done()
			return ExternalCreation{}, errors.New("quota exceeded")
		},
	}))

	run(t, r, "b")

	if ms := h.messages(reasonCannotRelease); len(ms) > 0 || len(leasesIn(t, a)) > 0 {
		t.Errorf("leases: %d; events: %s", len(leasesIn(t, a)), strings.Join(ms, "; "))
	}
}

// Right after a create the cache is still without it, and the external system, too.
func TestStaleReadGivesReservationBack(t *testing.T) {
	a := testkit.NewAPI(of("one", finalizers(FinalizerName)), of("two"))
	creates := []string{}

	r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
		ObserveFn: absent, // Eventually consistent.
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			creates = append(creates, mg.GetName())
			return ExternalCreation{}, nil
		},
	}))

	must(t, a.Freeze(context.Background(), bucketNamed(t, a, "one")))

	run(t, r, "one", "one", "two")

	if diff := cmp.Diff([]string{"one"}, creates); diff != "" {
		t.Errorf("creates: -want, +got:\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{sharedKey: "one"}, holders(t, a)); diff != "" {
		t.Errorf("holders: -want, +got:\n%s", diff)
	}
}

// A user writes what says that a create succeeded (or copies a manifest to another
// namespace), and never creates anything.
func TestForgedCreateReservesAcrossNamespaces(t *testing.T) {
	for _, key := range []string{meta.AnnotationKeyExternalCreateSucceeded} {
		a := testkit.NewAPI(of("mine", in("attacker"), annotated(key, "2026-01-02T03:04:05Z")), of("theirs", in("victim")))
		c := &tenancy{fails: "attacker", err: errors.New("quota exceeded")}
		r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(c.client()))

		runIn(t, r, "attacker", "mine")
		runIn(t, r, "attacker", "mine")
		runIn(t, r, "victim", "theirs")

		if diff := cmp.Diff([]string{"attacker", "attacker", "victim"}, c.creates); diff != "" {
			t.Errorf("%s: creates: -want, +got:\n%s", key, diff)
		}
	}
}

// A name that the managed resource was given after its create succeeded under
// another is confirmed by no create.
func TestRenamedReservesAcrossNamespaces(t *testing.T) {
	a := testkit.NewAPI(of("mine", in("attacker"), named("own")), of("theirs", in("victim")))
	exists, creates := map[string]bool{}, []string{}

	r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: exists[meta.GetExternalName(mg)], ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			if mg.GetNamespace() == "attacker" && meta.GetExternalName(mg) == "shared" {
				return ExternalCreation{}, errors.New("invalid: region does not exist")
			}

			creates = append(creates, mg.GetNamespace()+"/"+meta.GetExternalName(mg))
			exists[meta.GetExternalName(mg)] = true

			return ExternalCreation{}, nil
		},
	}))

	runIn(t, r, "attacker", "mine")

	b := &v1alpha1.Bucket{}
	must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "attacker", Name: "mine"}, b))

	meta.SetExternalName(b, "shared")

	must(t, a.Server().Update(context.Background(), b))

	runIn(t, r, "attacker", "mine")
	runIn(t, r, "attacker", "mine")
	runIn(t, r, "victim", "theirs")

	if diff := cmp.Diff([]string{"attacker/own", "victim/shared"}, creates); diff != "" {
		t.Errorf("creates: -want, +got:\n%s", diff)
	}
}

// A process that has lost its leadership still reads the create that failed before the
// one that another process has begun since.
func TestStaleProcessKeepsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c, answered := testkit.NewAPI(of("b"), of("other")), &shared{}, false

		fns := c.client()
		create := fns.CreateFn
		fns.CreateFn = func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
			if !answered {
				answered = true
				return ExternalCreation{}, errors.Wrap(context.DeadlineExceeded, "no answer")
			}

			return create(ctx, mg)
		}

		first := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(fns))
		second := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(fns))

		run(t, first, "b")
		must(t, a.Freeze(context.Background(), bucketNamed(t, a, "b")))
		time.Sleep(time.Minute)

		c.during = func() {
			c.during = nil

			run(t, first, "b")
			run(t, second, "other")
		}

		run(t, second, "b")
		c.mustBeInnocent(t)
	})
}

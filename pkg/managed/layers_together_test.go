package managed

import (
	"context"
	"fmt"
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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func requestIn(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

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
	cases := map[string][]func(*testkit.Bucket){
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

		b := bucketNamed(t, a, "b")
		b.Spec.ManagementPolicies = xpv2.ManagementPolicies{xpv2.ManagementActionObserve}

		must(t, a.Server().Update(context.Background(), b))

		run(t, r, "b", "other")
		synctest.Wait()

		if most != 1 {
			t.Errorf("creates of one external resource at the same time: %d", most)
		}

		time.Sleep(5 * time.Minute)
	})
}

// A provider that writes its status itself in Observe, with what changes each time
// (a Date header), and WithPreCreateObserve.
func TestPreCreateLivelock(t *testing.T) {
	a := testkit.NewAPI(bucket(named("id-1")))
	n, created := 0, 0

	r := newBucketReconciler(a, WithPreCreateObserve(), connects(upstream.ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			n++
			bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

			return ExternalObservation{ResourceExists: created > 0, ResourceUpToDate: true}, a.Server().Status().Update(ctx, mg)
		},
		CreateFn: counts[ExternalCreation](&created),
	}))

	for range 10 {
		_, _ = r.Reconcile(context.Background(), request())
	}

	if created != 1 {
		t.Errorf("creates in 10 reconciles: want 1, got %d; Synced: %s", created, get(t, a).GetCondition(xpv2.TypeSynced).Message)
	}
}

// A provider that writes the managed resource in Connect.
func TestWrittenInConnect(t *testing.T) {
	for name, mods := range map[string][]func(*testkit.Bucket){
		"Update": {named("id-1"), finalizers(FinalizerName)},
		"Delete": {named("id-1"), finalizers(FinalizerName), deleting},
	} {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(mods...))
			n, acts := 0, 0

			fns := clientOf(upstream.ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
				UpdateFn:  counts[ExternalUpdate](&acts),
				DeleteFn:  counts[ExternalDelete](&acts),
			})

			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				n++
				bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

				return &fns, a.Server().Status().Update(ctx, mg)
			})))

			for range 10 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			if acts == 0 {
				t.Errorf("%ss in 10 reconciles: none; Synced: %s", name, get(t, a).GetCondition(xpv2.TypeSynced).Message)
			}
		})
	}
}

// The session knows that what it read is older than its own last write, which met
// the pause.
func TestKnownStaleRead(t *testing.T) {
	for name, o := range map[string]*testkit.Bucket{
		"Update": bucket(named("id-1"), finalizers(FinalizerName)),
		"Delete": bucket(named("id-1"), finalizers(FinalizerName), deleting),
	} {
		t.Run(name, func(t *testing.T) {
			a, acted, n := testkit.NewAPI(o), 0, 0

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					n++

					switch n {
					case 1:
						// Reported from here on.
						return ExternalObservation{ResourceExists: true}, nil
					case 2:
						meta.AddAnnotations(mg, map[string]string{"learned": "now"})
						rewrite(t, a, annotated(meta.AnnotationKeyReconciliationPaused, "true"))
					}

					return ExternalObservation{ResourceExists: true}, nil
				},
				UpdateFn: counts[ExternalUpdate](&acted),
				DeleteFn: counts[ExternalDelete](&acted),
			}))

			run(t, r, "b")
			acted = 0

			must(t, a.Freeze(context.Background(), get(t, a)))

			run(t, r, "b") // Meets the pause, and writes.
			run(t, r, "b") // The cache still has the state before.

			if acted > 0 {
				t.Errorf("%s was called %d times for what is paused, and known to be read from before our own last write", name, acted)
			}
		})
	}
}

// An annotation that is held back and that Observe sets once.
func TestHeldBackAnnotationIsLost(t *testing.T) {
	a, c, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), 0

	r := newBucketReconciler(a, c.option(), connects(upstream.ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		n++
		o := ExternalObservation{ResourceExists: true, ResourceUpToDate: true}

		// What is learned is learned once, and said so.
		if n <= 7 {
			meta.AddAnnotations(mg, map[string]string{"example.org/state": fmt.Sprint(n)})
			o.ResourceLateInitialized = true
		}

		return o, nil
	}}))

	for range 100 {
		run(t, r, "b")
		c.now = c.now.Add(10 * time.Second)
	}

	if got := get(t, a).GetAnnotations()["example.org/state"]; got != "7" {
		t.Errorf("annotation: want 7, got %s", got)
	}
}

// The rate of writes of an annotation that changes each time, where each reconcile
// ends in Update or Delete.
func TestUnstableAnnotationAndUpdate(t *testing.T) {
	cases := map[string]struct {
		mods    []func(*testkit.Bucket)
		observe bool
	}{
		"ObserveThenUpdate": {mods: []func(*testkit.Bucket){named("id-0"), finalizers(FinalizerName)}, observe: true},
		"Update":            {mods: []func(*testkit.Bucket){named("id-0"), finalizers(FinalizerName)}},
		"ObserveThenDelete": {mods: []func(*testkit.Bucket){named("id-0"), finalizers(FinalizerName), deleting}, observe: true},
		"Delete":            {mods: []func(*testkit.Bucket){named("id-0"), finalizers(FinalizerName), deleting}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, c, n := testkit.NewAPI(bucket(tc.mods...)), newClock(), 0
			etag := func(mg resource.Managed) {
				n++
				meta.AddAnnotations(mg, map[string]string{"example.org/etag": fmt.Sprint(n)})
			}

			r := newBucketReconciler(a, c.option(), connects(upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					if tc.observe {
						etag(mg)
					}

					return ExternalObservation{ResourceExists: true}, nil
				},
				UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
					if !tc.observe {
						etag(mg)
					}

					return ExternalUpdate{}, nil
				},
				DeleteFn: func(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
					if !tc.observe {
						etag(mg)
					}

					return ExternalDelete{}, nil
				},
			}))

			for range 50 {
				run(t, r, "b")
				c.now = c.now.Add(time.Second)
			}

			if got := a.Count(testkit.Patch); got > 10 {
				t.Errorf("patches of annotations in 50 s: want 10 at most, got %d", got)
			}
		})
	}
}

// A refusal is forgotten after one wrong not-found, without the option.
func TestRefusalForgotten(t *testing.T) {
	a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), annotated(AnnotationKeyCreateRefused, "id-1")))
	there, deleted := false, 0

	r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: there, ResourceUpToDate: true}, nil
		},
		CreateFn: returns(ExternalCreation{}, errors.New("already exists")),
		DeleteFn: counts[ExternalDelete](&deleted),
	}))

	run(t, r, "b") // One wrong not-found.

	there = true

	run(t, r, "b")
	remove(t, a, "b")
	run(t, r, "b")

	if deleted > 0 {
		t.Error("the external resource that was refused, and never created, was deleted")
	}
}

// What is said of a reservation that is not held.
func TestReservedThoughNot(t *testing.T) {
	a := testkit.NewAPI(of("mine", in("attacker")), of("theirs", in("victim")))
	c := &tenancy{fails: "attacker", err: errors.Wrap(asyncstate.ErrOutcomeUnknown, "timeout")}
	r := newBucketReconciler(a, WithExternalNameReservation(leaseNamespace), connects(c.client()))

	do := func(ns, n string) {
		t.Helper()

		if _, err := r.Reconcile(context.Background(), requestIn(ns, n)); err != nil {
			t.Fatal(err)
		}
	}

	do("attacker", "mine")
	do("victim", "theirs") // Blocked.

	// It is settled: nothing was created, and no longer wanted.
	b := &testkit.Bucket{}
	must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "attacker", Name: "mine"}, b))

	b.SetFinalizers(nil)

	must(t, a.Server().Update(context.Background(), b))

	must(t, a.Server().Delete(context.Background(), b))

	c.fails, c.err = "victim", errors.New("quota exceeded")

	do("victim", "theirs")

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

		for _, q := range []reconcile.Request{requestIn("attacker", "mine"), requestIn("attacker", "mine"), requestIn("victim", "theirs")} {
			if _, err := r.Reconcile(context.Background(), q); err != nil {
				t.Fatal(err)
			}
		}

		if diff := cmp.Diff([]string{"attacker", "attacker", "victim"}, c.creates); diff != "" {
			t.Errorf("%s: creates: -want, +got:\n%s", key, diff)
		}
	}
}

// What a conflict of ours looks like to a user.
func TestConflictIsNoFailure(t *testing.T) {
	a, rec, once := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), deleting)), &recorder{}, false

	r := newBucketReconciler(a, WithRecorder(rec), connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		if !once {
			once = true
			rewrite(t, a, annotated("k", "v"))
		}

		return exists(ctx, mg)
	}}))

	run(t, r, "b")

	if es := rec.of("CannotDeleteExternalResource"); len(es) > 0 {
		t.Errorf("a warning that the external resource could not be deleted, although no delete was tried: %s", es[0].Message)
	}
}

// A recorder among raw options of upstream's is upstream's, also with WithAsync.
func TestUpstreamRecorderWithAsync(t *testing.T) {
	ours, theirs := &recorder{}, &recorder{}
	a := testkit.NewAPI(bucket(named("id-1"), annotated(meta.AnnotationKeyReconciliationPaused, "true")))

	r := newBucketReconciler(a, WithRecorder(ours), Upstream(upstream.WithRecorder(theirs)),
		WithAsync(asyncstate.NewTracker(a.Client())), connects(upstream.ExternalClientFns{}))

	run(t, r, "b")

	if len(theirs.events) == 0 || len(ours.events) > 0 {
		t.Errorf("events: %d of upstream's recorder, %d of ours", len(theirs.events), len(ours.events))
	}
}

// The event of a delete that was requested, after something else had failed.
func TestDeletedEventIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, rec, there := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), deleting, func(b *testkit.Bucket) {
			b.SetConditions(xpv2.ReconcileError(errors.New("update failed: invalid tags")))
		})), &recorder{}, true

		r := newBucketReconciler(a, WithRecorder(rec), WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))), connects(upstream.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
				return ExternalObservation{ResourceExists: there, ResourceUpToDate: true}, nil
			},
			DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
				there = false
				return ExternalDelete{}, nil
			},
		}))

		for range 5 {
			run(t, r, "b")
			synctest.Wait()
		}

		if n := len(rec.of(reasonDeleted)); bucketNamed(t, a, "b").GetName() != "" || n != 1 {
			t.Errorf("events that the deletion was requested: want 1, got %d", n)
		}
	})
}

func patchLabel(ctx context.Context, a *testkit.API, o client.Object) error {
	return a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)))
}

// The answer to a write of the provider's shows that the managed resource is
// paused, or may not be changed any more.
func TestAnswerToProvidersWrite(t *testing.T) {
	objects := map[string]*testkit.Bucket{
		"Create": bucket(named("id-1"), finalizers(FinalizerName)),
		"Update": bucket(named("id-1"), finalizers(FinalizerName)),
		"Delete": bucket(named("id-1"), finalizers(FinalizerName), deleting),
	}

	changes := map[string]func(b *testkit.Bucket){
		"Paused":   annotated(meta.AnnotationKeyReconciliationPaused, "true"),
		"Policies": policies(xpv2.ManagementActionObserve),
	}

	for name, o := range objects {
		for cname, change := range changes {
			t.Run(name+"/"+cname, func(t *testing.T) {
				b, _ := o.DeepCopyObject().(*testkit.Bucket)
				a, acted, once := testkit.NewAPI(b), 0, false

				r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
					ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						if !once {
							once = true
							rewrite(t, a, change)
						}

						return ExternalObservation{ResourceExists: name != "Create"}, patchLabel(ctx, a, mg)
					},
					CreateFn: counts[ExternalCreation](&acted),
					UpdateFn: counts[ExternalUpdate](&acted),
					DeleteFn: counts[ExternalDelete](&acted),
				}))

				_, _ = r.Reconcile(context.Background(), request())

				if acted > 0 {
					t.Errorf("%s was called, although the managed resource in memory says otherwise", name)
				}
			})
		}
	}
}

type patchingFinalizer struct{ a *testkit.API }

func (f patchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	return f.a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+FinalizerName+`"]}}`)))
}

func (f patchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// The answer to the patch of a finalizer of the provider's own shows the pause.
func TestAnswerToFinalizersWrite(t *testing.T) {
	a, created, once := testkit.NewAPI(bucket(named("id-1"))), 0, false

	r := newBucketReconciler(a, WithFinalizer(patchingFinalizer{a: a}), connects(upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			if !once {
				once = true
				rewrite(t, a, annotated(meta.AnnotationKeyReconciliationPaused, "true"))
			}

			return ExternalObservation{}, nil
		},
		CreateFn: counts[ExternalCreation](&created),
	}))

	_, _ = r.Reconcile(context.Background(), request())

	if created > 0 {
		t.Error("Create was called, although the answer to adding the finalizer said that the managed resource is paused")
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

	do := func(ns, n string) {
		t.Helper()

		if _, err := r.Reconcile(context.Background(), requestIn(ns, n)); err != nil {
			t.Fatal(err)
		}
	}

	do("attacker", "mine")

	b := &testkit.Bucket{}
	must(t, a.Server().Get(context.Background(), types.NamespacedName{Namespace: "attacker", Name: "mine"}, b))

	meta.SetExternalName(b, "shared")

	must(t, a.Server().Update(context.Background(), b))

	do("attacker", "mine")
	do("attacker", "mine")
	do("victim", "theirs")

	if diff := cmp.Diff([]string{"attacker/own", "victim/shared"}, creates); diff != "" {
		t.Errorf("creates: -want, +got:\n%s", diff)
	}
}

// A managed resource that goes while Create runs, of a name that Create does not
// change; and one whose create is an operation.
func TestGoneWhileCreating(t *testing.T) {
	gone := func(ctx context.Context, a *testkit.API) error {
		b := &testkit.Bucket{}
		if err := a.Server().Get(ctx, request().NamespacedName, b); err != nil {
			return err
		}

		b.SetFinalizers(nil)

		if err := a.Server().Update(ctx, b); err != nil {
			return err
		}

		return a.Server().Delete(ctx, b)
	}

	cases := map[string]struct {
		object *testkit.Bucket
		async  bool
	}{
		"DeterministicName":      {object: bucket(named("id-1"))},
		"Async":                  {object: bucket(), async: true},
		"AsyncDeterministicName": {object: bucket(named("id-1")), async: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, rec := testkit.NewAPI(tc.object), &recorder{}

				o := []ReconcilerOption{WithRecorder(rec), connects(upstream.ExternalClientFns{
					ObserveFn: absent,
					CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
						meta.SetExternalName(mg, "id-1")
						return ExternalCreation{}, gone(context.Background(), a)
					},
				})}

				if tc.async {
					o = append(o, WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()), asyncstate.WithRecorder(rec))))
				}

				r := newBucketReconciler(a, o...)

				for range 3 {
					_, _ = r.Reconcile(context.Background(), request())
					synctest.Wait()
					time.Sleep(time.Minute)
				}

				rec.mu.Lock()
				defer rec.mu.Unlock()

				for _, e := range rec.events {
					if strings.Contains(e.Message, "id-1") {
						return
					}
				}

				t.Errorf("no event has the name of the external resource that is left: %+v", rec.events)
			})
		})
	}
}

// Writes of metadata are refused for a while (an admission webhook) after a create
// that came up with the name, and the provider writes its status itself in Observe. A
// client of client-go's decodes the answer into the map of annotations that is there.
func TestNameLostToProvidersWrite(t *testing.T) {
	for name, writes := range map[string]bool{"Quiet": false, "WritesStatus": true} {
		t.Run(name, func(t *testing.T) {
			a, created, denied, n := testkit.NewAPI(bucket()), 0, false, 0

			a.Before = func(_ context.Context, r testkit.Request) error {
				if _, ok := r.Object.(*testkit.Bucket); ok && denied && (r.Verb == testkit.Patch || r.Verb == testkit.Update) {
					return kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("admission webhook denied the request"))
				}

				return nil
			}

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					o := ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}
					if !writes {
						return o, nil
					}

					had := mg.GetAnnotations()
					n++
					bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

					err := a.Server().Status().Update(ctx, mg)
					meta.AddAnnotations(mg, had)

					return o, err
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					created++
					denied = true

					meta.SetExternalName(mg, fmt.Sprintf("id-%d", created))

					return ExternalCreation{}, nil
				},
			}))

			for range 3 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			denied = false

			for range 3 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			if got := meta.GetExternalName(get(t, a)); got != "id-1" || created != 1 {
				t.Errorf("external name: want id-1, got %q; %d creates; annotations %v", got, created, get(t, a).GetAnnotations())
			}
		})
	}
}

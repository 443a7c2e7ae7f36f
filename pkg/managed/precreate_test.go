package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A bucketCloud is an external system in which another user creates a bucket
// between two calls of the reconciler.
type bucketCloud struct {
	// then is called before the n-th Observe, the first being 1.
	then func(n int, c *bucketCloud)

	there    bool
	observes int
	creates  int
	updates  int
	deletes  int
	fails    error

	// finds is the external name that Observe learns of what is there.
	finds string
}

func (c *bucketCloud) client() upstream.ExternalClientFns {
	return upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			c.observes++
			if c.then != nil {
				c.then(c.observes, c)
			}

			if c.there && c.finds != "" {
				meta.SetExternalName(mg, c.finds)
			}

			if b, ok := mg.(*v1alpha1.Bucket); ok && c.there {
				// As a late-initialization does.
				b.Spec.ForProvider.Region = "eu"
			}

			return ExternalObservation{ResourceExists: c.there}, c.fails
		},
		CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
			c.creates++
			c.there = true

			return ExternalCreation{}, nil
		},
		UpdateFn: counts[ExternalUpdate](&c.updates),
		DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
			c.deletes++
			c.there = false

			return ExternalDelete{}, nil
		},
	}
}

// second makes another user create the bucket before it is observed for the second
// time.
func second(n int, c *bucketCloud) {
	if n == 2 {
		c.there = true
	}
}

func TestPreCreateObserve(t *testing.T) {
	type want struct {
		Observes, Creates, Updates int
		Name, Refused, Region      string
		Succeeded, Failed          bool
		Synced                     string
		Adopted                    int
	}

	cases := map[string]struct {
		reason string
		cloud  bucketCloud
		opts   []PreCreateObserveOption
		also   []ReconcilerOption
		object *v1alpha1.Bucket
		want   want
	}{
		"Absent": {
			reason: "What is still absent is created.",
			want:   want{Observes: 2, Creates: 1, Name: "mine", Succeeded: true},
		},
		"Refuse": {
			reason: "What came up is not touched, and the condition says what to do.",
			cloud:  bucketCloud{then: second},
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "remove the annotation " + AnnotationKeyCreateRefused},
		},
		"RefuseUnnamed": {
			reason: "Nor is it if it has no name by which to tell it from others.",
			cloud:  bucketCloud{then: second},
			object: bucket(),
			want:   want{Observes: 2, Refused: "uid-1", Failed: true, Synced: "was not created"},
		},
		"RefuseWithoutPersistence": {
			reason: "It is remembered if annotations are stored by upstream.",
			cloud:  bucketCloud{then: second},
			also:   []ReconcilerOption{WithoutExternalNamePersistence()},
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"Adopt": {
			reason: "What came up is taken for what would have been created.",
			cloud:  bucketCloud{then: second},
			opts:   []PreCreateObserveOption{WithAdoption()},
			want:   want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1},
		},
		"AdoptWithName": {
			reason: "Its name is stored if only now it is known.",
			cloud:  bucketCloud{then: second, finds: "id-1"},
			opts:   []PreCreateObserveOption{WithAdoption()},
			object: bucket(),
			want:   want{Observes: 2, Name: "id-1", Succeeded: true, Adopted: 1},
		},
		"ObserveFails": {
			reason: "Without knowing, nothing is created, and that is known.",
			cloud: bucketCloud{then: func(n int, c *bucketCloud) {
				if n == 2 {
					c.fails = errors.New("boom")
				}
			}},
			want: want{Observes: 2, Name: "mine", Failed: true, Synced: "once more before it is created: boom"},
		},
		"Exists": {
			reason: "An existing external resource is not observed twice. As with upstream, the finalizer's write stores what Observe changed.",
			cloud:  bucketCloud{there: true},
			want:   want{Observes: 1, Updates: 1, Name: "mine", Region: "eu"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.object == nil {
				tc.object = bucket(named("mine"))
			}

			a, rec := testkit.NewAPI(tc.object), &recorder{}
			r := newBucketReconciler(a, append(tc.also, WithRecorder(rec), WithPreCreateObserve(tc.opts...), connects(tc.cloud.client()))...)

			run(t, r, "b")

			b := get(t, a)
			got := want{
				Observes: tc.cloud.observes, Creates: tc.cloud.creates, Updates: tc.cloud.updates,
				Name: meta.GetExternalName(b), Refused: b.GetAnnotations()[AnnotationKeyCreateRefused], Region: b.Spec.ForProvider.Region,
				Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(), Failed: !meta.GetExternalCreateFailed(b).IsZero(),
				Adopted: len(rec.of(reasonAdopted)),
			}

			if m := b.GetCondition(xpv2.TypeSynced).Message; strings.Contains(m, tc.want.Synced) && (m == "") == (tc.want.Synced == "") {
				got.Synced = tc.want.Synced
			} else {
				got.Synced = m
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// To refuse means something only if the next reconcile, which finds the external
// resource, does not take it for the managed resource's own.
func TestRefusedStaysRefused(t *testing.T) {
	type want struct {
		Creates, Updates, Deletes int
		There, Gone               bool
		Refused                   string
	}

	cases := map[string]struct {
		reason string
		then   func(t *testing.T, a *testkit.API, c *bucketCloud)
		want   want
	}{
		"Nothing": {
			reason: "It is refused until a user changes something.",
			then:   func(*testing.T, *testkit.API, *bucketCloud) {},
			want:   want{There: true, Refused: "mine"},
		},
		"Deleted": {
			reason: "A managed resource that is deleted leaves behind what never was its own.",
			then: func(t *testing.T, a *testkit.API, _ *bucketCloud) {
				must(t, a.Server().Delete(context.Background(), get(t, a)))
			},
			want: want{There: true, Gone: true},
		},
		"AnnotationRemoved": {
			reason: "Removing the annotation adopts the external resource.",
			then: func(t *testing.T, a *testkit.API, _ *bucketCloud) {
				edit(t, a, "b", unannotated(AnnotationKeyCreateRefused))
			},
			want: want{There: true, Updates: 3},
		},
		"OtherName": {
			reason: "Another external resource has not been refused.",
			then: func(t *testing.T, a *testkit.API, _ *bucketCloud) {
				edit(t, a, "b", named("another"))
			},
			want: want{There: true, Updates: 3, Refused: "mine"},
		},
		"WentAway": {
			reason: "When what stood in the way is gone, ours is created, and is ours.",
			then:   func(_ *testing.T, _ *testkit.API, c *bucketCloud) { c.there = false },
			want:   want{There: true, Creates: 1, Updates: 2},
		},
	}

	for name, tc := range cases {
		for _, confirm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/Confirmation=%t", name, confirm), func(t *testing.T) {
				a, c := testkit.NewAPI(bucket(named("mine"))), &bucketCloud{then: second}

				opts := []ReconcilerOption{WithPreCreateObserve(), connects(c.client())}
				if confirm {
					opts = append(opts, WithDeletionConfirmation(3, interval))
				}

				r := newBucketReconciler(a, opts...)

				reconcile := func() {
					run(t, r, "b")
				}

				reconcile()
				tc.then(t, a, c)

				for range 3 {
					reconcile()
				}

				b := get(t, a)
				got := want{Creates: c.creates, Updates: c.updates, Deletes: c.deletes, There: c.there, Gone: b.GetName() == "", Refused: b.GetAnnotations()[AnnotationKeyCreateRefused]}

				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// Only the create itself can leave an unknown outcome.
func TestPreCreateObserveTimesOut(t *testing.T) {
	a, observes, creates := testkit.NewAPI(bucket(named("id-1"))), 0, 0

	r := newBucketReconciler(a, WithPreCreateObserve(), WithCreateResolver(&seeker{}), connects(upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			if observes++; observes == 2 {
				return ExternalObservation{}, context.DeadlineExceeded
			}

			return ExternalObservation{}, nil
		},
		CreateFn: counts[ExternalCreation](&creates),
	}))

	run(t, r, "b")

	if b := get(t, a); creates != 0 || meta.ExternalCreateIncomplete(b) || meta.GetExternalCreateFailed(b).IsZero() {
		t.Errorf("creates: want 0, got %d; want external-create-failed, got %v", creates, b.GetAnnotations())
	}

	run(t, r, "b")

	if creates != 1 {
		t.Errorf("creates: want 1, since nothing was tried that has to be looked for, got %d: %s", creates, get(t, a).GetCondition(xpv2.TypeSynced).Message)
	}
}

// A name is not kept for a create that was never called.
func TestPreCreateObserveTimesOutWithReservation(t *testing.T) {
	a, observes := testkit.NewAPI(of("b")), 0

	r := newBucketReconciler(a, WithPreCreateObserve(), WithExternalNameReservation(leaseNamespace), connects(upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			if observes++; observes == 2 {
				return ExternalObservation{}, context.DeadlineExceeded
			}

			return ExternalObservation{}, nil
		},
	}))

	run(t, r, "b")

	if diff := cmp.Diff(map[string]string{}, holders(t, a)); diff != "" {
		t.Errorf("holders: -want, +got:\n%s", diff)
	}
}

// What was refused stays another's also without the option that refused it.
func TestRefusalWithoutOption(t *testing.T) {
	cases := map[string]struct {
		reason  string
		mods    []func(b *v1alpha1.Bucket)
		deletes int
		updates int
		gone    bool
		synced  corev1.ConditionStatus
	}{
		"Deleting": {
			reason: "It is removed without the external resource.",
			mods:   []func(b *v1alpha1.Bucket){annotated(AnnotationKeyCreateRefused, "id-1"), deleting},
			gone:   true,
		},
		"Managed": {
			reason: "It is not updated.",
			mods:   []func(b *v1alpha1.Bucket){annotated(AnnotationKeyCreateRefused, "id-1")},
			synced: corev1.ConditionFalse,
		},
		"Adopted": {
			reason:  "To remove the annotation is to adopt the external resource.",
			updates: 1,
			synced:  corev1.ConditionTrue,
		},
		"AdoptedAndDeleted": {
			reason:  "Then it is deleted, too.",
			mods:    []func(b *v1alpha1.Bucket){deleting},
			deletes: 1,
			synced:  corev1.ConditionTrue,
		},
		"OfAnotherName": {
			reason:  "The refusal is of one external resource.",
			mods:    []func(b *v1alpha1.Bucket){annotated(AnnotationKeyCreateRefused, "id-2")},
			updates: 1,
			synced:  corev1.ConditionTrue,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(append([]func(b *v1alpha1.Bucket){named("id-1"), finalizers(FinalizerName)}, tc.mods...)...))
			updates, deletes := 0, 0

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
				UpdateFn:  counts[ExternalUpdate](&updates),
				DeleteFn:  counts[ExternalDelete](&deletes),
			}))

			run(t, r, "b")

			b := get(t, a)

			synced := b.GetCondition(xpv2.TypeSynced).Status
			if tc.gone {
				synced = ""
			}

			want := []any{tc.updates, tc.deletes, tc.gone, tc.synced}
			if diff := cmp.Diff(want, []any{updates, deletes, b.GetName() == "", synced}); diff != "" {
				t.Errorf("\n%s\nupdates, deletes, gone, synced: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
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

// A provider's own write in the extra Observe shows that the create is no longer wanted.
func TestPreCreateObserve_ChangedMeanwhile(t *testing.T) {
	cases := map[string]struct {
		change func(b *v1alpha1.Bucket)
		want   int
	}{
		"Paused":  {change: annotated(meta.AnnotationKeyReconciliationPaused, "true")},
		"Renamed": {change: named("id-2")},
		"Changed": {change: func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" }},
		"Labeled": {change: func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"example.org/team": "blue"}) }, want: 1},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName)))
			n, created := 0, 0

			r := newBucketReconciler(a, WithPreCreateObserve(), connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					if n++; n < 2 {
						return ExternalObservation{}, nil
					}

					// Another writer's change comes first, and the provider adds to it.
					b := get(t, a)
					tc.change(b)
					must(t, a.Server().Update(ctx, b))

					return ExternalObservation{}, a.Server().Status().Patch(ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"seen"}}}`)))
				},
				CreateFn: counts[ExternalCreation](&created),
			}))

			run(t, r, "b")

			if created != tc.want {
				t.Errorf("creates: want %d, got %d", tc.want, created)
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

// An asynchronous create that was refused has not succeeded.
func TestPreCreateObserve_Async(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, observed, created := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0, 0

		r := newBucketReconciler(a, WithPreCreateObserve(), WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))), connects(upstream.ExternalClientFns{
			ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
				observed++
				return ExternalObservation{ResourceExists: observed > 1, ResourceUpToDate: true}, nil
			},
			CreateFn: counts[ExternalCreation](&created),
		}))

		run(t, r, "b")
		synctest.Wait()

		b := get(t, a)
		if b.GetAnnotations()[AnnotationKeyCreateRefused] == "" || !meta.GetExternalCreateSucceeded(b).IsZero() || created > 0 {
			t.Errorf("creates: %d; annotations: %v", created, b.GetAnnotations())
		}
	})
}

package contested

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const teamLabel = "example.org/team"

// setTeam returns a change of a label. It removes the label if value is empty.
func setTeam(value string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) {
		if value == "" {
			b.SetLabels(nil)
			return
		}
		b.SetLabels(map[string]string{teamLabel: value})
	}
}

// newBucket returns a managed resource whose external resource exists.
func newBucket() *v1alpha1.Bucket {
	return kit.NewBucket(
		kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
	)
}

func setSize(size int64) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Size = size }
}

// lateInitializes returns a connector to a provider whose Observe changes the managed resource.
func lateInitializes(change func(b *v1alpha1.Bucket)) managed.ReconcilerOption {
	return kit.WithClient(managed.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			change(kit.AsBucket(mg))
			return managed.ExternalObservation{
				ResourceExists: true, ResourceUpToDate: true, ResourceLateInitialized: true,
			}, nil
		},
	})
}

// initializes returns an initializer that writes the managed resource if change changes its
// labels.
func initializes(api *testkit.API, change func(b *v1alpha1.Bucket)) managed.ReconcilerOption {
	c := seam.NewClient(api.Client())
	return managed.WithInitializers(managed.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
		before := maps.Clone(mg.GetLabels())
		if change(kit.AsBucket(mg)); maps.Equal(before, mg.GetLabels()) {
			return nil
		}
		return c.Update(ctx, mg)
	}))
}

func TestConflictingWrites_BoundsWrites(t *testing.T) {
	type change func(n int) func(b *v1alpha1.Bucket)
	always := func(fn func(b *v1alpha1.Bucket)) change {
		return func(int) func(b *v1alpha1.Bucket) { return fn }
	}

	type args struct {
		// observe and initialize are what Observe and an initializer change in the nth
		// reconcile, other is the change of another writer after it. Nil changes nothing.
		observe, initialize, other change

		// writesStatus is true if Observe also writes status with a client of its own.
		writesStatus bool

		// reconciles is their number, every the time between two.
		reconciles int
		every      time.Duration
	}
	type want struct {
		writes    int
		condition corev1.ConditionStatus
		field     string
	}
	cases := map[string]struct {
		reason string
		args   args
		want   want
	}{
		"LateInitialization": {
			reason: "A spec field that another writer changes back each time should be set once a minute.",
			args:   args{observe: always(setSize(5)), other: always(setSize(1)), reconciles: 600, every: time.Second},
			want:   want{writes: 6 + 9, condition: corev1.ConditionTrue, field: "spec.forProvider.size"},
		},
		"ProviderWritesStatus": {
			reason: "A field should be set once a minute although the provider writes status itself.",
			args: args{
				observe: always(setSize(5)), writesStatus: true, other: always(setSize(1)),
				reconciles: 600, every: time.Second,
			},
			want: want{writes: 6 + 9, condition: corev1.ConditionTrue, field: "spec.forProvider.size"},
		},
		"Initializer": {
			reason: "A label that another writer removes each time should be set once a minute.",
			args: args{
				initialize: always(setTeam("storage")),
				other:      always(setTeam("")),
				reconciles: 600,
				every:      time.Second,
			},
			want: want{writes: 6 + 9, condition: corev1.ConditionTrue, field: "metadata.labels[example.org/team]"},
		},
		"NewValuesEachTime": {
			reason: "Two writers that set a new value each time should conflict, too.",
			args: args{
				initialize: func(n int) func(b *v1alpha1.Bucket) { return setTeam("ours-" + strconv.Itoa(n)) },
				other:      func(n int) func(b *v1alpha1.Bucket) { return setTeam("theirs-" + strconv.Itoa(n)) },
				reconciles: 600, every: time.Second,
			},
			want: want{writes: 6 + 9, condition: corev1.ConditionTrue, field: "metadata.labels[example.org/team]"},
		},
		"TwoFields": {
			reason: "Fields that two parts of the controller set should be bounded together.",
			args: args{
				observe: always(setSize(5)), initialize: always(setTeam("storage")),
				other:      always(func(b *v1alpha1.Bucket) { setTeam("")(b); setSize(1)(b) }),
				reconciles: 600, every: time.Second,
			},
			want: want{
				writes:    2 * (6 + 9),
				condition: corev1.ConditionTrue,
				field:     "metadata.labels[example.org/team]",
			},
		},
		"SlowConflict": {
			reason: "A GitOps tool that changes a field back every three minutes should be reported.",
			args: args{
				initialize: always(setTeam("storage")),
				other:      always(setTeam("")),
				reconciles: 10,
				every:      3 * time.Minute,
			},
			want: want{writes: 10, condition: corev1.ConditionTrue, field: "metadata.labels[example.org/team]"},
		},
		"RareConflict": {
			reason: "A field that a person changes back three times an hour should be set each time.",
			args: args{
				initialize: always(setTeam("storage")),
				other:      always(setTeam("")),
				reconciles: 15,
				every:      20 * time.Minute,
			},
			want: want{writes: 15},
		},
		"NoOtherWriter": {
			reason: "A field that no other writer changes back should be set each time.",
			args: args{
				initialize: func(n int) func(b *v1alpha1.Bucket) { return setTeam(strconv.Itoa(n)) },
				reconciles: 15, every: time.Second,
			},
			want: want{writes: 15},
		},
		"OtherWriterStops": {
			reason: "A field that was changed back five times should be set at once, and stay.",
			args: args{
				initialize: always(setTeam("storage")),
				other: func(n int) func(b *v1alpha1.Bucket) {
					if n < 5 {
						return setTeam("")
					}
					return nil
				},
				reconciles: 15, every: time.Second,
			},
			want: want{writes: 6},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket())
				recorder := &testkit.Said{}
				n := 0
				opts := []managed.ReconcilerOption{
					managed.WithRecorder(recorder), kit.WithClient(managed.ExternalClientFns{}),
				}
				if tc.args.observe != nil {
					opts = append(opts, lateInitializes(func(b *v1alpha1.Bucket) {
						if tc.args.writesStatus {
							b.Status.AtProvider.ID = strconv.Itoa(n)
							kit.Must(t, api.Client().Status().Update(context.Background(), b))
						}
						tc.args.observe(n)(b)
					}))
				}
				if tc.args.initialize != nil {
					opts = append(opts, initializes(api, func(b *v1alpha1.Bucket) { tc.args.initialize(n)(b) }))
				}
				r := kit.NewBucketReconciler(api, append(opts, With())...)

				for n = range tc.args.reconciles {
					kit.MustReconcile(t, r, "b")
					if tc.args.other != nil {
						if change := tc.args.other(n); change != nil {
							kit.UpdateBucket(t, api, "b", change)
						}
					}
					time.Sleep(tc.args.every)
				}

				c := kit.GetBucket(t, api).GetCondition(TypeConflictingWrites)
				if c.Status == corev1.ConditionUnknown {
					c.Status = ""
				}
				got := want{writes: api.Count(testkit.Update), condition: c.Status, field: tc.want.field}
				if !strings.Contains(c.Message, tc.want.field) {
					got.field = c.Message
				}
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
					t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
				}
				if events := recorder.Events("ConflictingWrites"); len(events) > 0 != (tc.want.condition != "") ||
					len(events) > 2 {
					t.Errorf("\nEach contested field should cause one event: got %v", events)
				}
			})
		})
	}
}

func TestConflictingWrites_Condition(t *testing.T) {
	cases := map[string]struct {
		reason string

		// restarts is true if a new process reconciles after the conflict. The other writer
		// has stopped then, unless goesOn is true.
		restarts, goesOn bool
		after            time.Duration
		want             corev1.ConditionStatus
	}{
		"JustStopped": {
			reason: "The condition should stay for a while: the other writer may be back.",
			after:  14 * time.Minute,
			want:   corev1.ConditionTrue,
		},
		"Stopped": {
			reason: "The condition should be False when the conflict is over.",
			after:  16 * time.Minute,
			want:   corev1.ConditionFalse,
		},
		"Restarted": {
			reason:   "A new process should not hide a conflict that it hasn't seen yet.",
			restarts: true,
			after:    14 * time.Minute,
			want:     corev1.ConditionTrue,
		},
		"RestartedStopped": {
			reason:   "A new process should find that the conflict is over.",
			restarts: true,
			after:    16 * time.Minute,
			want:     corev1.ConditionFalse,
		},
		"RestartedGoesOn": {
			reason:   "A new process should find that the conflict goes on.",
			restarts: true,
			goesOn:   true,
			after:    30 * time.Minute,
			want:     corev1.ConditionTrue,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(newBucket())
				start := func() *managed.Reconciler {
					return kit.NewBucketReconciler(api, With(), lateInitializes(setSize(5)))
				}
				r := start()
				for range 7 {
					kit.MustReconcile(t, r, "b")
					kit.UpdateBucket(t, api, "b", setSize(1))
				}
				kit.ExpectEqual(
					t, "A conflict should be reported.", "status", corev1.ConditionTrue,
					kit.GetBucket(t, api).GetCondition(TypeConflictingWrites).Status,
				)

				if tc.restarts {
					r = start()
				}
				if !tc.goesOn {
					kit.UpdateBucket(t, api, "b", setSize(5))
				}
				for since := time.Duration(0); since < tc.after; since += time.Minute {
					kit.MustReconcile(t, r, "b")
					if tc.goesOn {
						kit.UpdateBucket(t, api, "b", setSize(1))
					}
					time.Sleep(time.Minute)
				}
				kit.MustReconcile(t, r, "b")
				kit.ExpectEqual(
					t, tc.reason, "status", tc.want,
					kit.GetBucket(t, api).GetCondition(TypeConflictingWrites).Status,
				)
			})
		})
	}
}

func TestConflictingWrites_TransitionTime(t *testing.T) {
	api, c := testkit.NewAPI(newBucket()), kit.NewClock()
	r := kit.NewBucketReconciler(api, With(), lateInitializes(setSize(5)), c.Option())
	for range 7 {
		kit.MustReconcile(t, r, "b")
		kit.UpdateBucket(t, api, "b", setSize(1))
	}
	kit.ExpectEqual(
		t, "The condition should have the time of the reconciler's clock.", "transition time", c.Now,
		kit.GetBucket(t, api).GetCondition(TypeConflictingWrites).LastTransitionTime.UTC(),
	)
}

func TestConflictingWrites_KeepsExternalName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := testkit.NewAPI(newBucket())
		name := "id-1"
		none := kit.WithClient(managed.ExternalClientFns{})
		r := kit.NewBucketReconciler(api, With(), none, initializes(api, func(b *v1alpha1.Bucket) {
			setTeam("storage")(b)
			kit.WithExternalName(name)(b)
		}))
		for range 8 {
			kit.MustReconcile(t, r, "b")
			kit.UpdateBucket(t, api, "b", setTeam(""))
		}
		kit.ExpectEqual(
			t, "A conflict should be reported.", "status", corev1.ConditionTrue,
			kit.GetBucket(t, api).GetCondition(TypeConflictingWrites).Status,
		)

		name = "id-2"
		kit.MustReconcile(t, r, "b")
		kit.ExpectEqual(
			t, "A write of the external name should not be postponed.", "name", "id-2",
			kit.GetBucket(t, api).GetAnnotations()["crossplane.io/external-name"],
		)
	})
}

// The annotation layer stores the annotations that Observe sets.
func TestConflictingWrites_RemovedAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "example.org/etag"
		api := testkit.NewAPI(newBucket())
		r := kit.NewBucketReconciler(api, With(), kit.WithClient(managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				kit.WithAnnotation(key, "1")(kit.AsBucket(mg))
				return kit.ObserveExists(ctx, mg)
			},
		}))
		for range 600 {
			kit.MustReconcile(t, r, "b")
			kit.UpdateBucket(t, api, "b", kit.WithoutAnnotation(key))
			time.Sleep(time.Second)
		}
		if got := api.Count(testkit.Patch); got > 5+10 {
			t.Errorf(
				"An annotation that another writer removes each time should be stored once a minute: got %d writes in ten minutes",
				got,
			)
		}
	})
}

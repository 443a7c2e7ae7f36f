package managed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A lateCloud shows an external resource only some time after it was created.
type lateCloud struct {
	lag time.Duration

	creates, deletes int
	made             time.Time // Zero without an external resource.
}

func (c *lateCloud) shows() bool { return !c.made.IsZero() && time.Since(c.made) >= c.lag }

func (c *lateCloud) client(create func(b *v1alpha1.Bucket) error) ExternalClientFns {
	return ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: c.shows() && meta.GetExternalName(mg) != "", ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			c.creates++
			if c.made.IsZero() {
				c.made = time.Now()
			}
			return ExternalCreation{}, create(bucketOf(mg))
		},
		DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
			c.deletes++
			c.made = time.Time{}
			return ExternalDelete{}, nil
		},
	}
}

// runsFor reconciles b as a controller does for some time, or until it no longer exists.
func runsFor(t *testing.T, a *testkit.API, r *Reconciler, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && get(t, a).GetName() != ""; {
		result, err := r.Reconcile(context.Background(), request())
		must(t, err)
		time.Sleep(max(result.RequeueAfter, time.Second))
	}
	synctest.Wait()
}

func TestAbsenceOfCreatedResource(t *testing.T) {
	failed := errors.New("timed out waiting for the bucket to become ready")
	names := func(err error) func(b *v1alpha1.Bucket) error {
		return func(b *v1alpha1.Bucket) error { named("id-1")(b); return err }
	}
	exists := func(*v1alpha1.Bucket) error { return errors.New("BucketAlreadyExists: the bucket already exists") }
	type want struct {
		Creates, Deletes int
		Exists           bool // The external resource.
		Gone             bool // The managed resource.
	}
	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		lag    time.Duration
		create func(b *v1alpha1.Bucket) error
		finds  bool // WithCreateResolver.

		// deletedAfter is when the managed resource is deleted. It is not, if it is zero.
		deletedAfter time.Duration
		lasts        time.Duration
		want         want
	}{
		"Hidden":             {reason: "We should not create again while the external system may hide what was created.", lag: 20 * time.Second, create: names(nil), lasts: 2 * time.Minute, want: want{Creates: 1, Exists: true}},
		"HiddenThoughFailed": {reason: "A create that set the external name and then failed has created something.", lag: 20 * time.Second, create: names(failed), lasts: 2 * time.Minute, want: want{Creates: 1, Exists: true}},
		"HiddenThoughFailedAndDeleted": {
			reason: "Its external resource should not be leaked if the managed resource is deleted before it is shown.", lag: 20 * time.Second, create: names(failed),
			deletedAfter: 3 * time.Second, lasts: 2 * time.Minute, want: want{Creates: 1, Deletes: 1, Gone: true},
		},
		"NeverShown": {
			reason: "After the grace period the absence is believed, and the create is repeated.", lag: time.Hour, create: names(nil), lasts: 45 * time.Second, want: want{Creates: 2, Exists: true},
		},
		"NameIsRepeated": {
			reason: "A create that fails and only repeats the name says nothing, and is repeated.", mods: []func(b *v1alpha1.Bucket){named("id-1")}, lag: time.Hour, create: names(failed),
			lasts: 3 * time.Second, want: want{Creates: 3, Exists: true},
		},
		"ExistsUnconfirmed": {
			reason: "An external resource that exists before any create succeeded is a refusal as any other.", mods: []func(b *v1alpha1.Bucket){named("id-1")}, lag: time.Hour, create: exists,
			lasts: 3 * time.Second, want: want{Creates: 3, Exists: true},
		},
		"ExistsConfirmed": {
			reason: "After a create that succeeded it confirms that one, whose grace period begins again.", lag: time.Hour, create: exists,
			mods: []func(b *v1alpha1.Bucket){
				named("id-1"), annotated(meta.AnnotationKeyExternalCreatePending, "1999-12-31T20:00:00Z"), annotated(meta.AnnotationKeyExternalCreateSucceeded, "1999-12-31T20:00:01Z"),
			},
			lasts: 20 * time.Second, want: want{Creates: 1, Exists: true},
		},
		"DeletedSoon": {
			reason: "A deletion that has succeeded should not wait for the grace period of the create.", create: names(nil),
			deletedAfter: 2 * time.Second, lasts: 6 * time.Second, want: want{Creates: 1, Deletes: 1, Gone: true},
		},
		"FinderLags": {
			reason: "A Finder that does not see the external resource yet should not be believed before the grace period.", lag: 20 * time.Second,
			create: func(*v1alpha1.Bucket) error { return errors.Wrap(asyncstate.ErrOutcomeUnknown, "connection reset") },
			finds:  true, lasts: 3 * time.Minute, want: want{Creates: 1, Exists: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, c := testkit.NewAPI(bucket(tc.mods...)), &lateCloud{lag: tc.lag}
				opts := []ReconcilerOption{WithCreationGracePeriod(30 * time.Second), connects(c.client(tc.create))}
				if tc.finds {
					opts = append(opts, WithCreateResolver(asyncstate.FinderFn(func(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
						if c.shows() {
							return asyncstate.Found("id-1"), nil
						}
						return asyncstate.Absent(), nil
					}), WithResolveAfter(time.Second)))
				}
				r := newBucketReconciler(a, opts...)
				if tc.deletedAfter > 0 {
					runsFor(t, a, r, tc.deletedAfter)
					remove(t, a, "b")
				}
				runsFor(t, a, r, tc.lasts)
				wants(t, tc.reason, "", tc.want, want{Creates: c.creates, Deletes: c.deletes, Exists: !c.made.IsZero(), Gone: get(t, a).GetName() == ""})
			})
		})
	}
}

// While a deletion waits, Synced should not keep an error that is no longer true.
func TestSyncedWhileDeletionWaits(t *testing.T) {
	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		there  bool
		opts   []ReconcilerOption
		want   xpv2.ConditionReason
	}{
		"ForeignFinalizer": {
			reason: "Observe has worked again while another controller's finalizer holds the managed resource.",
			mods:   []func(b *v1alpha1.Bucket){finalizers(FinalizerName, "example.org/other")}, there: true, want: xpv2.ReasonReconcileSuccess,
		},
		"ConfirmingAbsence": {
			reason: "Observe has worked again while the absence of the external resource is confirmed.",
			mods:   []func(b *v1alpha1.Bucket){finalizers(FinalizerName)}, opts: []ReconcilerOption{WithDeletionConfirmation(3, time.Hour)}, want: xpv2.ReasonReconcileSuccess,
		},
		"GracePeriod": {
			reason: "Observe has worked again within the creation grace period.",
			mods: []func(b *v1alpha1.Bucket){
				finalizers(FinalizerName), annotated(meta.AnnotationKeyExternalCreatePending, seam.Stamp(time.Now())), annotated(meta.AnnotationKeyExternalCreateSucceeded, seam.Stamp(time.Now())),
			},
			opts: []ReconcilerOption{WithCreationGracePeriod(time.Hour)}, want: xpv2.ReasonReconcileSuccess,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket(append(tc.mods, named("id-1"), deleting)...)), &outside{there: tc.there}
			down := errors.New("no route to host")
			x.on("observe", func(*v1alpha1.Bucket) error { return down })
			r := newBucketReconciler(a, append(tc.opts, connects(x.client()))...)
			run(t, r, "b")
			wants(t, tc.reason, "Synced while Observe fails", xpv2.ReasonReconcileError, get(t, a).GetCondition(xpv2.TypeSynced).Reason)
			down = nil
			run(t, r, "b")
			b := get(t, a)
			wants(t, tc.reason, "Synced", tc.want, b.GetCondition(xpv2.TypeSynced).Reason)
			wants(t, tc.reason, "Deleting", corev1.ConditionTrue, b.GetCondition(reconciler.TypeDeleting).Status)
			a.Forget()
			run(t, r, "b", "b")
			wants(t, tc.reason, "writes at rest", 0, a.Writes())
		})
	}
}

package managed_test

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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A laggingCloud shows an external resource when lag has passed since it was created.
type laggingCloud struct {
	lag time.Duration

	// slowFrom is after which time an answer that shows no external resource takes slow.
	slowFrom, slow time.Duration

	creates, deletes int
	createdAt        time.Time // zero if the external resource does not exist
}

func (cloud *laggingCloud) visible() bool {
	return !cloud.createdAt.IsZero() && time.Since(cloud.createdAt) >= cloud.lag
}

func (cloud *laggingCloud) client(create func(b *v1alpha1.Bucket) error) managed.ExternalClientFns {
	return managed.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			exists := cloud.visible() && meta.GetExternalName(mg) != ""
			if !exists && !cloud.createdAt.IsZero() && time.Since(cloud.createdAt) >= cloud.slowFrom {
				time.Sleep(cloud.slow)
			}
			return managed.ExternalObservation{ResourceExists: exists, ResourceUpToDate: true}, nil
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			cloud.creates++
			if cloud.createdAt.IsZero() {
				cloud.createdAt = time.Now()
			}
			return managed.ExternalCreation{}, create(kit.AsBucket(mg))
		},
		DeleteFn: func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
			cloud.deletes++
			cloud.createdAt = time.Time{}
			return managed.ExternalDelete{}, nil
		},
	}
}

// reconcileFor reconciles b as a controller does, until d has passed or b no longer exists.
func reconcileFor(t *testing.T, api *testkit.API, r *managed.Reconciler, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && kit.GetBucket(t, api).GetName() != ""; {
		result, err := r.Reconcile(context.Background(), kit.Request())
		kit.Must(t, err)
		time.Sleep(max(result.RequeueAfter, time.Second))
	}
	synctest.Wait()
}

func TestCreationGracePeriod(t *testing.T) {
	failed := errors.New("timed out waiting for the bucket to become ready")
	setName := func(err error) func(b *v1alpha1.Bucket) error {
		return func(b *v1alpha1.Bucket) error { kit.WithExternalName("id-1")(b); return err }
	}
	returnExists := func(*v1alpha1.Bucket) error { return errors.New("BucketAlreadyExists: the bucket already exists") }
	type want struct {
		Creates, Deletes int
		Exists           bool // the external resource
		Deleted          bool // the managed resource
	}
	cases := map[string]struct {
		reason     string
		bucket     []kit.BucketModifier
		lag        time.Duration
		slow       time.Duration // an Observe that begins ten seconds after the create
		onCreate   func(b *v1alpha1.Bucket) error
		withFinder bool // resolve.With

		// deletedAfter is when the managed resource is deleted. Zero means that it is not.
		deletedAfter time.Duration
		reconcileFor time.Duration
		want         want
	}{
		"Hidden": {
			reason:       "The create should not be repeated while the external system may still hide the external resource.",
			lag:          20 * time.Second,
			onCreate:     setName(nil),
			reconcileFor: 2 * time.Minute,
			want:         want{Creates: 1, Exists: true},
		},
		"HiddenWhileObserved": {
			reason:       "An answer that arrives after the grace period should not count if it was asked for within the grace period.",
			lag:          25 * time.Second,
			slow:         25 * time.Second,
			onCreate:     setName(nil),
			reconcileFor: 2 * time.Minute,
			want:         want{Creates: 1, Exists: true},
		},
		"HiddenThoughFailed": {
			reason:       "The create should not be repeated after it has set the external name and then failed.",
			lag:          20 * time.Second,
			onCreate:     setName(failed),
			reconcileFor: 2 * time.Minute,
			want:         want{Creates: 1, Exists: true},
		},
		"HiddenThoughFailedAndDeleted": {
			reason: "The external resource of a failed create should be deleted when the managed resource is deleted before the external system shows it.",
			lag:    20 * time.Second, onCreate: setName(failed),
			deletedAfter: 3 * time.Second,
			reconcileFor: 2 * time.Minute, want: want{Creates: 1, Deletes: 1, Deleted: true},
		},
		"NeverShown": {
			reason:   "The create should be repeated when the external resource does not appear within the grace period.",
			lag:      time.Hour,
			onCreate: setName(nil), reconcileFor: 45 * time.Second, want: want{Creates: 2, Exists: true},
		},
		"NameIsRepeated": {
			reason: "The create should be repeated when it failed and has not changed the external name.",
			bucket: []kit.BucketModifier{kit.WithExternalName("id-1")}, lag: time.Hour, onCreate: setName(failed),
			reconcileFor: 3 * time.Second, want: want{Creates: 3, Exists: true},
		},
		"ExistsUnconfirmed": {
			reason: "The create should be repeated when it returns that the external resource already exists, and no create has succeeded before.",
			bucket: []kit.BucketModifier{kit.WithExternalName("id-1")}, lag: time.Hour, onCreate: returnExists,
			reconcileFor: 3 * time.Second, want: want{Creates: 3, Exists: true},
		},
		"ExistsUnnamed": {
			reason: "The create should be repeated when it returns that the external resource already exists, and the managed resource has no external name.",
			lag:    time.Hour, onCreate: returnExists,
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(
					meta.AnnotationKeyExternalCreatePending, "1999-12-31T20:00:00Z",
				), kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "1999-12-31T20:00:01Z"),
			},
			reconcileFor: 3 * time.Second, want: want{Creates: 3, Exists: true},
		},
		"ExistsConfirmed": {
			reason: "The grace period should start again when a repeated create returns that the external resource already exists.",
			lag:    time.Hour, onCreate: returnExists,
			bucket: []kit.BucketModifier{
				kit.WithExternalName("id-1"), kit.WithAnnotation(
					meta.AnnotationKeyExternalCreatePending, "1999-12-31T20:00:00Z",
				), kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "1999-12-31T20:00:01Z"),
			},
			reconcileFor: 20 * time.Second, want: want{Creates: 1, Exists: true},
		},
		"DeletedSoon": {
			reason:       "A deletion that has succeeded should not wait for the grace period of the create.",
			onCreate:     setName(nil),
			deletedAfter: 2 * time.Second,
			reconcileFor: 6 * time.Second, want: want{Creates: 1, Deletes: 1, Deleted: true},
		},
		"FinderLags": {
			reason: "The create should not be repeated when the finder does not find the external resource within the grace period.",
			lag:    20 * time.Second,
			onCreate: func(*v1alpha1.Bucket) error {
				return errors.Wrap(asyncstate.ErrOutcomeUnknown, "connection reset")
			},
			withFinder: true, reconcileFor: 3 * time.Minute, want: want{Creates: 1, Exists: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(tc.bucket...))
				cloud := &laggingCloud{lag: tc.lag, slowFrom: 10 * time.Second, slow: tc.slow}
				opts := []managed.ReconcilerOption{
					managed.WithCreationGracePeriod(30 * time.Second), kit.WithClient(cloud.client(tc.onCreate)),
				}
				if tc.withFinder {
					opts = append(
						opts,
						resolve.With(
							asyncstate.FinderFn(
								func(
									context.Context, resource.Managed, asyncstate.Attempt,
								) (asyncstate.Finding, error) {
									if cloud.visible() {
										return asyncstate.Found("id-1"), nil
									}
									return asyncstate.Absent(), nil
								},
							),
						),
						resolve.WithAfter(time.Second),
					)
				}
				r := kit.NewBucketReconciler(api, opts...)
				if tc.deletedAfter > 0 {
					reconcileFor(t, api, r, tc.deletedAfter)
					kit.DeleteBucket(t, api, "b")
				}
				reconcileFor(t, api, r, tc.reconcileFor)
				kit.ExpectEqual(t, tc.reason, "result", tc.want, want{
					Creates: cloud.creates,
					Deletes: cloud.deletes,
					Exists:  !cloud.createdAt.IsZero(),
					Deleted: kit.GetBucket(t, api).GetName() == "",
				})
			})
		})
	}
}

func TestDeletion_InterruptedCreate(t *testing.T) {
	now := kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2000-01-01T00:00:00Z")
	type want struct {
		Deletes int
		Exists  bool // the external resource
		Deleted bool // the managed resource
	}
	cases := map[string]struct {
		reason    string
		announced kit.BucketModifier // by another process
		before    kit.BucketModifier // another annotation
		exists    bool               // the external resource, when the process starts
		onCreate  error

		// Until another process takes over, until the managed resource is deleted, and until the
		// announced create is carried out: each after the one before.
		restartsAfter, deletedAfter, arrivesAfter time.Duration
		reconcileFor                              time.Duration
		want                                      want
	}{
		"InProgress": {
			reason:       "The external resource should be deleted although the create arrives only after the managed resource was deleted.",
			announced:    now,
			arrivesAfter: 50 * time.Second,
			reconcileFor: time.Minute,
			want:         want{Deletes: 1, Deleted: true},
		},
		"NeverArrives": {
			reason:       "The managed resource should be removed when the create has certainly ended.",
			announced:    now,
			reconcileFor: 3 * time.Minute,
			want:         want{Deleted: true},
		},
		"LongAgo": {
			reason:       "A create that has certainly ended should not delay the deletion.",
			announced:    kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "1999-12-31T20:00:00Z"),
			reconcileFor: 2 * time.Second,
			want:         want{Deleted: true},
		},
		"DeletedByThisProcess": {
			reason:       "The deletion should not be delayed when the external resource of the only create was deleted.",
			announced:    now,
			exists:       true,
			reconcileFor: 3 * time.Second,
			want:         want{Deletes: 1, Deleted: true},
		},
		"Repeated": {
			reason:       "The external resource should be deleted again when the earlier create arrives after a deletion that succeeded.",
			announced:    now,
			deletedAfter: 2 * time.Second, arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 2, Deleted: true},
		},
		"RepeatedByAnotherProcess": {
			reason:        "Another process should delete the external resource again when the earlier create arrives.",
			announced:     now,
			restartsAfter: 2 * time.Second, deletedAfter: time.Second, arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 2, Deleted: true},
		},
		"RepeatedAndFailed": {
			reason:       "The external resource of the earlier create should be deleted although the repeated create has failed.",
			announced:    now,
			onCreate:     errors.New("the quota is exhausted"),
			deletedAfter: 2 * time.Second, arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 1, Deleted: true},
		},
		"NoAnswer": {
			reason:       "The external resource of a create without an answer should be deleted.",
			onCreate:     context.DeadlineExceeded,
			deletedAfter: time.Millisecond, arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 1, Deleted: true},
		},
		"ExistedBefore": {
			reason:       "The external resource should be deleted again when the first delete has deleted an older one.",
			announced:    now,
			before:       kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, "1999-12-31T20:00:00Z"),
			exists:       true,
			arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 2, Deleted: true},
		},
		"AnnouncedByAnotherClock": {
			reason:       "The external resource should be deleted again although the clock of the old process was ahead.",
			announced:    kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2000-01-01T00:00:59Z"),
			before:       kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, "2000-01-01T00:00:58Z"),
			deletedAfter: 2 * time.Second, arrivesAfter: 50 * time.Second,
			reconcileFor: 3 * time.Minute,
			want:         want{Deletes: 2, Deleted: true},
		},
		"Recorded": {
			reason:       "The external resource should be deleted although the create arrives late that an asynchronous provider had begun.",
			announced:    now,
			before:       kit.WithAnnotation(asyncstate.AnnotationKeyOperation, "{}"),
			arrivesAfter: 50 * time.Second,
			reconcileFor: time.Minute,
			want:         want{Deletes: 1, Deleted: true},
		},
		"Once": {
			reason:       "A deletion after a create that was not repeated should not be delayed.",
			deletedAfter: 2 * time.Second,
			reconcileFor: 4 * time.Second,
			want:         want{Deletes: 1, Deleted: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := kit.NewBucket(kit.WithExternalName("b"), kit.WithFinalizers(managed.FinalizerName))
				for _, set := range []kit.BucketModifier{tc.announced, tc.before} {
					if set != nil {
						set(b)
					}
				}
				api, cloud := testkit.NewAPI(b), &laggingCloud{}
				if tc.exists {
					cloud.createdAt = time.Now()
				}
				newReconciler := func() *managed.Reconciler {
					return kit.NewBucketReconciler(api, managed.WithDeterministicExternalName(true),
						kit.WithClient(cloud.client(
							func(*v1alpha1.Bucket) error {
								if tc.onCreate != nil {
									cloud.createdAt = time.Time{}
								}
								return tc.onCreate
							},
						)))
				}
				r := newReconciler()
				reconcile := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
						_, err := r.Reconcile(t.Context(), kit.Request())
						kit.Must(t, err)
					}
				}
				if tc.restartsAfter > 0 {
					reconcile(tc.restartsAfter)
					r = newReconciler()
				}
				if tc.deletedAfter > 0 {
					reconcile(tc.deletedAfter)
				}
				kit.DeleteBucket(t, api, "b")
				if tc.arrivesAfter > 0 {
					reconcile(tc.arrivesAfter)
					cloud.createdAt = time.Now()
				}
				reconcile(tc.reconcileFor)
				kit.ExpectEqual(t, tc.reason, "result", tc.want, want{
					Deletes: cloud.deletes,
					Exists:  !cloud.createdAt.IsZero(),
					Deleted: kit.GetBucket(t, api).GetName() == "",
				})
			})
		})
	}
}

func TestDeletionStatus_SyncedAfterObserveFailed(t *testing.T) {
	cases := map[string]struct {
		reason string
		bucket []kit.BucketModifier
		exists bool
		opts   []managed.ReconcilerOption
		want   xpv2.ConditionReason
	}{
		"ForeignFinalizer": {
			reason: "Synced should be True when Observe succeeds again while a foreign finalizer holds the managed resource.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, "example.org/other")},
			exists: true, want: xpv2.ReasonReconcileSuccess,
		},
		"ConfirmingAbsence": {
			reason: "Synced should be True when Observe succeeds again while the absence of the external resource is confirmed.",
			bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName)},
			opts:   []managed.ReconcilerOption{confirm.With(3, time.Hour)}, want: xpv2.ReasonReconcileSuccess,
		},
		"GracePeriod": {
			reason: "Synced should be True when Observe succeeds again within the creation grace period.",
			bucket: []kit.BucketModifier{
				kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(
					meta.AnnotationKeyExternalCreatePending, seam.Stamp(time.Now()),
				), kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, seam.Stamp(time.Now())),
			},
			opts: []managed.ReconcilerOption{
				managed.WithCreationGracePeriod(time.Hour),
			}, want: xpv2.ReasonReconcileSuccess,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(
				kit.NewBucket(append(tc.bucket, kit.WithExternalName("id-1"), kit.WithDeletionTimestamp)...),
			)
			ext := &kit.ExternalResource{Exists: tc.exists}
			observeErr := errors.New("no route to host")
			ext.OnCall("observe", func(*v1alpha1.Bucket) error { return observeErr })
			r := kit.NewBucketReconciler(api, append(tc.opts, kit.WithClient(ext.Client()))...)
			kit.MustReconcile(t, r, "b")
			kit.ExpectEqual(
				t, tc.reason, "Synced while Observe fails", xpv2.ReasonReconcileError,
				kit.GetBucket(t, api).GetCondition(xpv2.TypeSynced).Reason,
			)
			observeErr = nil
			kit.MustReconcile(t, r, "b")
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "Synced", tc.want, b.GetCondition(xpv2.TypeSynced).Reason)
			kit.ExpectEqual(
				t, tc.reason, "Deleting", corev1.ConditionTrue, b.GetCondition(reconciler.TypeDeleting).Status,
			)
			api.Forget()
			kit.MustReconcile(t, r, "b", "b")
			kit.ExpectEqual(t, tc.reason, "writes in an unchanged situation", 0, api.Writes())
		})
	}
}

// TestCreationGracePeriod_OtherClock continues after a process whose clock differs, and which
// has just created the external resource.
func TestCreationGracePeriod_OtherClock(t *testing.T) {
	cases := map[string]struct {
		reason      string
		ahead       time.Duration // of the clock of the other process
		lag         time.Duration
		deleted     bool
		wantCreates int
		wantDeleted bool
	}{
		"Behind": {
			reason: "The grace period should not be shorter because the clock of the other process was behind.",
			ahead:  -40 * time.Second, lag: 20 * time.Second,
		},
		"Ahead": {
			reason: "The grace period should not be longer because the clock of the other process was ahead.",
			ahead:  24 * time.Hour, lag: time.Hour, wantCreates: 1,
		},
		"AheadDeleted": {
			reason: "A deletion should not wait for the clock of the other process.",
			ahead:  24 * time.Hour, lag: time.Hour, deleted: true, wantDeleted: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				created := time.Now().Add(tc.ahead).Format(time.RFC3339)
				api := testkit.NewAPI(kit.NewBucket(
					kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName),
					kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, created),
					kit.WithAnnotation(meta.AnnotationKeyExternalCreateSucceeded, created),
				))
				cloud := &laggingCloud{lag: tc.lag, createdAt: time.Now()}
				r := kit.NewBucketReconciler(
					api, managed.WithCreationGracePeriod(30*time.Second),
					kit.WithClient(cloud.client(func(*v1alpha1.Bucket) error { return nil })),
				)
				if tc.deleted {
					kit.DeleteBucket(t, api, "b")
				}
				reconcileFor(t, api, r, 45*time.Second)
				kit.ExpectEqual(t, tc.reason, "creates", tc.wantCreates, cloud.creates)
				kit.ExpectEqual(t, tc.reason, "deleted", tc.wantDeleted, kit.GetBucket(t, api).GetName() == "")
			})
		})
	}
}

package managed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A slowCloud gives its own names to what it makes, and takes its time.
type slowCloud struct {
	takes time.Duration

	mu      sync.Mutex
	made    int
	exists  map[string]string // by name: the owner
	creates int
	fail    error
}

func (c *slowCloud) connector() ExternalConnector {
	return connectorTo(upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			c.mu.Lock()
			defer c.mu.Unlock()

			if _, ok := c.exists[meta.GetExternalName(mg)]; !ok {
				return ExternalObservation{}, nil
			}

			mg.SetConditions(xpv2.Available())

			return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
		},
		CreateFn: func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
			if err := c.work(ctx); err != nil {
				return ExternalCreation{}, err
			}

			c.mu.Lock()
			defer c.mu.Unlock()

			c.creates++

			if c.fail != nil {
				return ExternalCreation{}, c.fail
			}

			c.made++
			name := "id-" + string(rune('0'+c.made))
			c.exists[name] = string(mg.GetUID())
			meta.SetExternalName(mg, name)

			return ExternalCreation{ConnectionDetails: ConnectionDetails{"endpoint": []byte(name)}}, nil
		},
		DeleteFn: func(ctx context.Context, mg resource.Managed) (ExternalDelete, error) {
			if err := c.work(ctx); err != nil {
				return ExternalDelete{}, err
			}

			c.mu.Lock()
			defer c.mu.Unlock()

			delete(c.exists, meta.GetExternalName(mg))

			return ExternalDelete{}, nil
		},
	})
}

func (c *slowCloud) work(ctx context.Context) error {
	t := time.NewTimer(c.takes)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asyncRig is a reconciler of the bucket b with operations.
type asyncRig struct {
	t       *testing.T
	api     *testkit.API
	cloud   *slowCloud
	tracker *asyncstate.Tracker
	rec     *Reconciler
}

func newAsyncRig(t *testing.T, a *testkit.API, c *slowCloud) *asyncRig {
	t.Helper()

	tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
	r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()),
		WithManagementPolicies(), WithInitializers(), WithExternalConnector(c.connector()), WithAsync(tr))

	return &asyncRig{t: t, api: a, cloud: c, tracker: tr, rec: r}
}

func (r *asyncRig) reconcile() reconcile.Result {
	r.t.Helper()

	res, err := r.rec.Reconcile(context.Background(), request())
	if err != nil {
		r.t.Fatal(err)
	}

	return res
}

func reasonOf(b *testkit.Bucket, t xpv2.ConditionType) xpv2.ConditionReason {
	return b.GetCondition(t).Reason
}

func TestAsyncLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket())
		c := &slowCloud{takes: 5 * time.Minute, exists: map[string]string{}}
		r := newAsyncRig(t, a, c)

		r.reconcile()

		b := get(t, a)
		if diff := cmp.Diff([]xpv2.ConditionReason{xpv2.ReasonCreating, xpv2.ReasonReconcileSuccess, asyncstate.ReasonRunning},
			[]xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced), reasonOf(b, asyncstate.TypeOperation)}); diff != "" {
			t.Errorf("While the create runs, -want, +got:\n%s", diff)
		}

		if !meta.ExternalCreateIncomplete(b) {
			t.Errorf("A create that runs has not succeeded: %v", b.GetAnnotations())
		}

		if b.GetAnnotations()[asyncstate.AnnotationKeyOperation] == "" {
			t.Error("There is no record of the create")
		}

		a.Forget()

		for range 5 {
			r.reconcile()
		}

		if w := a.Writes(); w > 1 {
			t.Errorf("Five reconciles while nothing changes made %d writes: %v", w, a.Requests())
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()

		b = get(t, a)
		if got := meta.GetExternalName(b); got != "id-1" {
			t.Errorf("external name %q", got)
		}

		if _, ok := b.GetAnnotations()[asyncstate.AnnotationKeyOperation]; ok {
			t.Error("The record of a create that succeeded stays")
		}

		if meta.ExternalCreateIncomplete(b) {
			t.Error("The create has succeeded, and says nothing of it")
		}

		r.reconcile()

		b = get(t, a)
		if diff := cmp.Diff([]xpv2.ConditionReason{xpv2.ReasonAvailable, xpv2.ReasonReconcileSuccess, asyncstate.ReasonFinished},
			[]xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced), reasonOf(b, asyncstate.TypeOperation)}); diff != "" {
			t.Errorf("When the create has ended, -want, +got:\n%s", diff)
		}

		a.Forget()
		r.reconcile()

		if w := a.Writes(); w > 0 {
			t.Errorf("In a steady state there is nothing to write: %v", a.Requests())
		}

		must(t, a.Server().Delete(t.Context(), get(t, a)))

		r.reconcile()
		r.reconcile()

		b = get(t, a)
		if diff := cmp.Diff(reconciler.ReasonWaitingForAsyncOperation, reasonOf(b, reconciler.TypeDeleting)); diff != "" {
			t.Errorf("While the delete runs, -want, +got:\n%s", diff)
		}

		time.Sleep(6 * time.Minute)
		synctest.Wait()
		r.reconcile()

		if b := get(t, a); b.GetName() != "" {
			t.Errorf("The bucket is there: %v", b.GetFinalizers())
		}

		if c.creates != 1 || len(c.exists) != 0 {
			t.Errorf("%d creates, %v left", c.creates, c.exists)
		}
	})
}

func TestAsyncCreateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket())
		c := &slowCloud{takes: time.Minute, exists: map[string]string{}, fail: errors.New("quota")}
		r := newAsyncRig(t, a, c)

		r.reconcile()
		time.Sleep(time.Minute + 10*time.Millisecond)
		synctest.Wait()
		r.reconcile()
		r.reconcile()

		b := get(t, a)
		if got := b.GetCondition(xpv2.TypeSynced); got.Reason != xpv2.ReasonReconcileError || got.Message != "create failed: quota" {
			t.Errorf("Synced: %v", got)
		}

		if c.creates != 1 {
			t.Errorf("%d creates without waiting", c.creates)
		}

		c.mu.Lock()
		c.fail = nil
		c.mu.Unlock()

		time.Sleep(2 * time.Second)
		r.reconcile()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.reconcile()

		b = get(t, a)
		if got := b.GetCondition(xpv2.TypeSynced); got.Reason != xpv2.ReasonReconcileSuccess || meta.GetExternalName(b) != "id-1" {
			t.Errorf("Synced: %v, %v", got, b.GetAnnotations())
		}
	})
}

// A delete that is accepted at once is asked for again from time to time, and not as
// fast as its ends wake the object.
func TestAsyncDeleteOfWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket(named("id-1")))
		deletes, gone := 0, false

		tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
		r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), WithManagementPolicies(), WithInitializers(), WithAsync(tr),
			connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					if gone {
						return ExternalObservation{}, nil
					}

					return exists(ctx, mg)
				},
				DeleteFn: counts[ExternalDelete](&deletes),
			}))

		reconcile := func() {
			t.Helper()

			run(t, r, "b")

			synctest.Wait()
		}

		reconcile()

		must(t, a.Server().Delete(t.Context(), get(t, a)))

		for range 600 {
			reconcile()
			time.Sleep(time.Second)
		}

		// After 1, 2, 4, ... 32 seconds, and then each minute.
		if deletes < 10 || deletes > 17 {
			t.Errorf("%d deletes in 10 minutes", deletes)
		}

		if got := reasonOf(get(t, a), reconciler.TypeDeleting); got != reconciler.ReasonWaitingForExternalResource && got != reconciler.ReasonWaitingForAsyncOperation {
			t.Errorf("Deleting for the reason %s", got)
		}

		gone = true
		reconcile()

		if b := get(t, a); b.GetName() != "" {
			t.Errorf("The bucket is there: %v", b.GetFinalizers())
		}
	})
}

// Two trackers for one kind take each other's operations for those of a dead process.
// That never makes a second external resource, and comes right when the operation has
// ended.
func TestTwoTrackersForOneKind(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      []asyncstate.TrackerOption
	}{
		"Nothing": {
			reason: "A client that can neither find its create nor repeat it stops under the other tracker. It continues when the first tracker has stored the result.",
		},
		"Token": {
			reason: "A create is repeated by the other tracker with the same token.",
			o:      []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket())
				byToken := map[string]string{}

				c := connects(upstream.ExternalClientFns{
					ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						if meta.GetExternalName(mg) == "" {
							return ExternalObservation{}, nil
						}

						return exists(ctx, mg)
					},
					CreateFn: func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
						token := asyncstate.Token(ctx)
						if byToken[token] == "" {
							byToken[token] = "id-" + token
						}

						time.Sleep(time.Minute)
						meta.SetExternalName(mg, byToken[token])

						return ExternalCreation{}, nil
					},
				})

				build := func() *Reconciler {
					return NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), WithManagementPolicies(), WithInitializers(), c,
						WithAsync(asyncstate.NewTracker(a.Client(), append(tc.o, asyncstate.WithLiveReader(a.Live()))...)))
				}

				one, other := build(), build()

				for range 100 {
					for _, r := range []*Reconciler{one, other} {
						if _, err := r.Reconcile(t.Context(), request()); err != nil {
							t.Fatalf("%s: %v", tc.reason, err)
						}

						synctest.Wait()
					}

					time.Sleep(5 * time.Second)
				}

				b := get(t, a)
				if len(byToken) != 1 {
					t.Errorf("%s: %d external resources were made", tc.reason, len(byToken))
				}

				if reasonOf(b, xpv2.TypeReady) != xpv2.ReasonAvailable || reasonOf(b, xpv2.TypeSynced) != xpv2.ReasonReconcileSuccess || reasonOf(b, asyncstate.TypeOperation) != asyncstate.ReasonFinished {
					t.Errorf("%s: in the end: %v, %v", tc.reason, b.Status.Conditions, b.GetAnnotations())
				}
			})
		})
	}
}

// Upstream's event that a deletion was requested is left out after a refusal.
func TestAsyncDeleteRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		refuse error
		want   int
	}{
		"Refused":  {reason: "Another request after a refusal is no success.", refuse: errors.New("in use"), want: 1},
		"Accepted": {reason: "The first request is."},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, rec, deletes := testkit.NewAPI(bucket(named("id-1"), deleting, finalizers(FinalizerName))), &recorder{}, 0
				tr := asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))
				r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()),
					WithManagementPolicies(), WithInitializers(), WithRecorder(rec), WithAsync(tr), connects(upstream.ExternalClientFns{
						DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
							deletes++
							return ExternalDelete{}, tc.refuse
						},
					}))

				for range 10 {
					// The end of an operation causes a reconcile.
					for range 2 {
						run(t, r, "b")

						synctest.Wait()
					}

					time.Sleep(5 * time.Minute)
				}

				if n := len(rec.of(reasonDeleted)); deletes < 3 || tc.refuse != nil && n != tc.want || tc.refuse == nil && n < deletes {
					t.Errorf("\n%s\nevents of %d requests: %d", tc.reason, deletes, n)
				}
			})
		})
	}
}

// What stopped an Observe is an interrupted create, not a failure to observe.
func TestAsyncInterruptedCreateSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := testkit.NewAPI(bucket()), &slowCloud{takes: time.Hour, exists: map[string]string{}}
		newAsyncRig(t, a, c).reconcile()

		// A new process, which knows nothing of the create.
		newAsyncRig(t, a, &slowCloud{exists: map[string]string{}}).reconcile()

		synced := get(t, a).GetCondition(xpv2.TypeSynced)
		if synced.Status != corev1.ConditionFalse || strings.Contains(synced.Message, "observe failed") || !strings.Contains(synced.Message, "create") {
			t.Errorf("Synced: want the interrupted create, got %s %q", synced.Status, synced.Message)
		}

		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
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

package asyncstate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	fake "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
)

// lag is how long the cloud hides a new resource. It is less than the creation grace period.
const lag = 20 * time.Second

// newLaggingEnvironment returns an environment whose cloud hides new resources for a while, and whose Create
// fails with an error after it has created the resource.
func newLaggingEnvironment(
	t testing.TB, k clientKind, fails func(ctx context.Context, mg resource.Managed, id string) error,
) *environment {
	t.Helper()
	e := newEnvironment(t, k, bucket("b"))
	e.cloud.Cloud = fake.New(fake.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}, VisibleAfter: lag})
	e.cloud.requestDuration = 0
	e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
		c := p.client(mg)
		return overridden{ExternalClient: c, create: func(ctx context.Context, mg resource.Managed) error {
			e.cloud.set(func(c *fakeCloud) { c.calls[asyncstate.Create]++ })
			req := requestOf(string(mg.GetUID()), "", regionOf(mg))
			if k == token {
				req.Token = asyncstate.Token(ctx)
			}
			r, err := e.cloud.Session("").Create(ctx, req)
			if err != nil {
				return err
			}
			return fails(ctx, mg, r.ID)
		}}.finding(), nil
	}
	return e
}

// overridden is an external client with another Create.
type overridden struct {
	upstream.ExternalClient

	create func(ctx context.Context, mg resource.Managed) error
}

func (c overridden) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	return upstream.ExternalCreation{}, c.create(ctx, mg)
}

// finding returns a client that is a Finder if the overridden one is.
func (c overridden) finding() upstream.ExternalClient {
	f, ok := c.ExternalClient.(asyncstate.Finder)
	if !ok {
		return c
	}
	return struct {
		overridden
		asyncstate.Finder
	}{c, f}
}

// A create that set the external name and then failed has created something. The external
// system may hide it for a while.
func TestCreateSetNameAndFailed(t *testing.T) {
	errWait := errors.New("cannot wait for the bucket: it is degraded")
	cases := map[string]struct {
		reason string
		fails  func(ctx context.Context, mg resource.Managed, id string) error
	}{
		"SetExternalName": {
			reason: "A create that stored its external name should not be repeated while its external resource is hidden.",
			fails: func(ctx context.Context, _ resource.Managed, id string) error {
				if err := asyncstate.SetExternalName(ctx, id); err != nil {
					return err
				}
				return errWait
			},
		},
		"Annotation": {
			reason: "A create that set the annotation of its managed resource has created something, too.",
			fails: func(_ context.Context, mg resource.Managed, id string) error {
				meta.SetExternalName(mg, id)
				return errWait
			},
		},
	}

	for name, tc := range cases {
		for _, k := range []clientKind{plainClient, finder, token} {
			for _, deleting := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/Deleting=%t", name, k, deleting)
				runInBubble(t, name, func(t *testing.T) {
					e := newLaggingEnvironment(t, k, tc.fails)
					p := e.startProvider()
					advanceClock(2 * time.Second)
					if deleting {
						e.delete("b")
					}
					for range 10 {
						advanceClock(30 * time.Second)
						if !e.objectGone() {
							e.enqueue(e.get("b"))
						}
					}

					e.expectCreatedOnce(tc.reason, deleting)
					if n := p.reconciles.Load(); n > 200 {
						t.Errorf("\n%s\n%d reconciles", tc.reason, n)
					}
				})
			}
		}
	}
}

// A create that fails because the external resource of an earlier create exists confirms it.
func TestCreateExists(t *testing.T) {
	cases := map[string]struct {
		reason  string
		finder  bool
		refused bool
		want    finalState
	}{
		"Background": {
			reason: "An external resource that is hidden for longer than the grace period should be deleted, not leaked.",
			want:   finalState{Creates: 2, Created: 1, Deletes: 1, Gone: true},
		},
		"Finder": {
			reason: "A Finder whose list lags should not be trusted before the grace period has passed again.",
			finder: true, want: finalState{Creates: 2, Created: 1, Deletes: 1, Gone: true},
		},
		"Refused": {
			reason:  "An external resource that was refused since may be another owner's, and should be left alone.",
			refused: true, want: finalState{Creates: 2, Created: 1, Remaining: 1, Gone: true},
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, deterministic, bucket("b"))
			e.cloud.Cloud = fake.New(fake.Options{VisibleAfter: 42 * time.Second})
			e.cloud.requestDuration = 0
			e.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(10*time.Second, time.Minute)}
			e.reconcilerOptions = []managed.ReconcilerOption{reservation.With("default")}
			e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				c := p.client(mg)
				if !tc.finder {
					return c, nil
				}
				return withFinding(c, asyncstate.Absent()), nil
			}
			released := 0
			e.api.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Delete && r.Object.GetName() != "b" {
					released++
				}
				return nil
			}
			e.startProvider()
			advanceClock(time.Second)
			if tc.refused {
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{precreate.AnnotationKeyRefused: nameOf(b)})
				})
			}
			advanceClock(34 * time.Second)
			b := e.get("b")
			if !tc.refused {
				expectEqual(
					t, tc.reason+"\n"+describe(b), "leases released, Synced, OperationRunning",
					[]any{0, xpv2.ReasonReconcileError, asyncstate.ReasonFailed},
					[]any{released, reason(b, xpv2.TypeSynced), reason(b, asyncstate.TypeOperation)},
				)
			}
			e.delete("b")
			advanceClock(5 * time.Minute)
			expectEqual(t, tc.reason+"\n"+describe(e.get("b")), "final state", tc.want, e.finalState())
		})
	}
}

// After "already exists", the Finder should be called: the last create may have created the external resource although
// its answer was lost.
func TestCreateExists_AnswerLost(t *testing.T) {
	runInBubble(t, "Finder", func(t *testing.T) {
		e := newEnvironment(t, finder, bucket("b"))
		e.startProvider()
		advanceClock(time.Hour)
		exists, lost := errors.New("a bucket with this title already exists"), false
		e.cloud.clear()
		e.cloud.set(func(c *fakeCloud) {
			c.loseAnswer = func() error { lost = true; return exists }
			c.reject = func(typ asyncstate.Type) error {
				if typ == asyncstate.Create && lost {
					return exists
				}
				return nil
			}
		})
		e.enqueue(e.get("b"))
		advanceClock(3 * time.Hour)
		expectEqual(t, describe(e.get("b")), "name", "id-0002", meta.GetExternalName(e.get("b")))
		e.delete("b")
		advanceClock(5 * time.Hour)
		expectEqual(
			t, describe(e.get("b")), "final state", finalState{Creates: 2, Created: 2, Deletes: 1, Gone: true},
			e.finalState(),
		)
	})
}

// A Finder whose list lags should not have a create repeated.
func TestFinderLags(t *testing.T) {
	cases := map[string]struct {
		reason   string
		deleting bool
		err      error
	}{
		"NoAnswer": {
			reason: "An answer that was lost says nothing, and absence proves nothing for a while.",
			err:    asyncstate.ErrOutcomeUnknown,
		},
		"NoAnswerDeleted": {
			reason: "An external resource that is hidden should be deleted, not leaked.",
			err:    asyncstate.ErrOutcomeUnknown, deleting: true,
		},
		"Undecodable": {reason: "The answer cannot be decoded.", err: errors.New(`no consumer: "text/html"`)},
		"Waited":      {reason: "The create was accepted.", err: errors.New("waiting for it failed: timeout after 1m")},
		"ServerError": {reason: "A server that failed may have created the resource.", err: serverError{}},
		"ServerErrorDelete": {
			reason: "The resource that a failed server may have created should be deleted.",
			err:    serverError{}, deleting: true,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newLaggingEnvironment(t, finder, func(context.Context, resource.Managed, string) error {
				return errors.Wrap(tc.err, "cannot create bucket")
			})
			e.startProvider()
			advanceClock(2 * time.Second)
			if tc.deleting {
				e.delete("b")
			}
			advanceClock(5 * time.Minute)
			e.expectCreatedOnce(tc.reason, tc.deleting)
		})
	}
}

// serverError is what SDKs return for an HTTP status 503.
type serverError struct{}

func (serverError) Error() string { return "the service is overloaded" }

func (serverError) HTTPStatusCode() int { return 503 }

// An update that succeeded should not be repeated at once while it is not visible.
func TestUpdateIsNotVisible(t *testing.T) {
	const never = 24 * time.Hour
	policies := xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}
	enqueue := func(e *environment, _ *laggingUpdates) { e.enqueue(e.get("b")) }
	changeSpec := func(e *environment, _ *laggingUpdates) { e.requestOperation(asyncstate.Update) }
	cases := map[string]struct {
		reason   string
		missing  bool          // no external resource
		renames  bool          // in each update
		lag      time.Duration // until an update is visible
		policies xpv2.ManagementPolicies
		change   func(e *environment, c *laggingUpdates) // 10 minutes after the start
		want     int                                     // updates before the change
		after    int                                     // updates until 4 seconds after the change
	}{
		"Lags": {
			reason: "An update should be repeated with backoff until a cloud whose reads lag shows it.",
			lag:    lag, change: enqueue, want: 5, after: 5,
		},
		"NeverVisible": {
			reason: "A difference that no update removes should be updated with backoff, also after a watch event.",
			lag:    never, change: enqueue, want: 10, after: 10,
		},
		"Renames": {
			reason:  "Updates that each change the external name should be made with backoff.",
			renames: true, lag: never, change: enqueue, want: 10, after: 10,
		},
		"NeverFound": {
			reason:  "The update of an external resource that may not be created should be repeated with backoff.",
			missing: true, lag: never, policies: policies, change: enqueue, want: 10, after: 10,
		},
		"SpecChanges": {
			reason: "A changed spec should be updated at once, and again after the first wait.",
			lag:    never, change: changeSpec, want: 10, after: 12,
		},
		"Requested": {
			reason: "A requested reconcile should update at once, and again after the first wait.",
			lag:    never,
			change: func(e *environment, _ *laggingUpdates) {
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconcileRequestedAt: "now"})
				})
			},
			want: 10, after: 12,
		},
		"SpecChangesWhileUpdateRuns": {
			reason: "A spec that is changed while an update runs should be updated when that update ends.",
			lag:    never,
			change: func(e *environment, c *laggingUpdates) {
				changeSpec(e, c)
				advanceClock(500 * time.Millisecond)
				e.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "third" })
			},
			want: 10, after: 13,
		},
		"Drifts": {
			reason: "A difference that appears after the external resource was up to date should be updated at once.",
			lag:    lag,
			change: func(e *environment, c *laggingUpdates) {
				c.drift()
				enqueue(e, c)
			},
			want: 5, after: 7,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			c := &laggingUpdates{exists: !tc.missing, visibleAfter: tc.lag, renames: tc.renames}
			e := newEnvironment(t, plainClient, bucket("b", func(b *v1alpha1.Bucket) {
				meta.SetExternalName(b, "id")
				if tc.policies != nil {
					b.Spec.ManagementPolicies = tc.policies
				}
			}))
			e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return c.client(), nil }
			e.startProvider()
			advanceClock(10 * time.Minute)
			got := []int{c.count()}
			tc.change(e, c)
			advanceClock(4 * time.Second)

			b := e.get("b")
			expectEqual(
				t, tc.reason+"\n"+describe(b), "updates, Synced",
				[]any{[]int{tc.want, tc.after}, xpv2.ReasonReconcileSuccess},
				[]any{append(got, c.count()), reason(b, xpv2.TypeSynced)},
			)
		})
	}
}

// A delete that succeeded should be repeated with backoff while the external resource exists.
func TestDeleteIsNotVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deletes := 0
		e := newEnvironment(t, plainClient, bucket("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "id") }))
		e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
			return &upstream.ExternalClientFns{
				ObserveFn: func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
					return upstream.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
				},
				DeleteFn: func(ctx context.Context, _ resource.Managed) (upstream.ExternalDelete, error) {
					deletes++
					return upstream.ExternalDelete{}, sleep(ctx, time.Second)
				},
				DisconnectFn: func(context.Context) error { return nil },
			}, nil
		}
		e.startProvider()
		advanceClock(time.Minute)
		e.delete("b")
		advanceClock(10 * time.Minute)
		if deletes < 5 || deletes > 20 {
			t.Errorf("%d deletes in 10 minutes", deletes)
		}
	})
}

// laggingUpdates is a cloud whose updates take a second, and that shows an update only a while after it.
type laggingUpdates struct {
	exists       bool
	renames      bool // Each update makes a revision with another name.
	visibleAfter time.Duration

	mu      sync.Mutex
	updates int
	updated time.Time // by the first update since the last drift
}

func (c *laggingUpdates) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates
}

// drift makes the external resource differ from its desired state again.
func (c *laggingUpdates) drift() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updated = time.Time{}
}

func (c *laggingUpdates) client() upstream.ExternalClient {
	return &upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return upstream.ExternalObservation{
				ResourceExists:   c.exists,
				ResourceUpToDate: !c.updated.IsZero() && time.Since(c.updated) >= c.visibleAfter,
			}, nil
		},
		UpdateFn: func(ctx context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
			err := sleep(ctx, time.Second)
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.updates++; c.updated.IsZero() {
				c.updated = time.Now()
			}
			if c.renames {
				meta.SetExternalName(mg, fmt.Sprint("id:", c.updates))
			}
			return upstream.ExternalUpdate{}, err
		},
		DisconnectFn: func(context.Context) error { return nil },
	}
}

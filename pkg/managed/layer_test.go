package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// calls are a provider's, as the last layer sees them. Functions that are nil do
// nothing.
type calls struct {
	observe func(c *call) (observation, error)
	create  func(c *call) (creation, error)
	update  func(c *call) (ExternalUpdate, error)
	delete  func(c *call) (deletion, error)
}

func called[T any](fn func(c *call) (T, error), c *call) (T, error) {
	if fn == nil {
		return *new(T), nil
	}
	return fn(c)
}

func (f calls) Connect(context.Context, *call) error { return nil }

func (f calls) Observe(_ context.Context, c *call) (observation, error) { return called(f.observe, c) }

func (f calls) Create(_ context.Context, c *call) (creation, error) { return called(f.create, c) }

func (f calls) Update(_ context.Context, c *call) (ExternalUpdate, error) { return called(f.update, c) }

func (f calls) Delete(_ context.Context, c *call) (deletion, error) { return called(f.delete, c) }

// alone runs one reconcile with one layer around the calls of a provider, and nothing
// else of Graft or upstream.
func alone(t *testing.T, a *testkit.API, build newLayer, rec *testkit.Said, inner calls, fn func(ctx context.Context, e external, c *call)) reconcile.Result {
	t.Helper()
	l := build(parts{
		kind: testkit.BucketKind(), managed: &v1alpha1.Bucket{}, scheme: testkit.Scheme(),
		client: a.Client(), live: a.Live(), log: logging.NewNopLogger(), record: rec, ownFinalizer: FinalizerName,
		runs: func(manager.Runnable) error { return nil },
	})
	e := external(inner)
	if l.external != nil {
		e = l.external(inner)
	}
	r := seam.NewReconciler(a.Client(), seam.NewKind(testkit.BucketKind(), testkit.Scheme()), func(cl client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			b := &v1alpha1.Bucket{}
			if err := cl.Get(ctx, req.NamespacedName, b); err != nil {
				return reconcile.Result{}, err
			}
			c := &call{Session: seam.From(ctx), mg: resource.Managed(b), terms: termsOf(b)}
			c.client = ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
				o, err := inner.Observe(ctx, &call{Session: c.Session, mg: mg})
				return o.ExternalObservation, err
			}}
			c.Connecting(b)
			fn(ctx, e, c)
			return reconcile.Result{}, nil
		})
	}, seam.Options{Live: a.Live(), Wait: noWait}, l.patch)
	result, err := r.Reconcile(context.Background(), request())
	must(t, err)
	return result
}

// Each layer does its work when nothing else of Graft is there.
func TestLayerAlone(t *testing.T) {
	boom, seen := errors.New("boom"), 0
	with := func(slot int, o ReconcilerOption) newLayer {
		r := &Reconciler{}
		o(r)
		return r.config.layers[slot]
	}
	present := func(*call) (observation, error) {
		return observation{ExternalObservation: ExternalObservation{ResourceExists: true}}, nil
	}
	deletes := func(ctx context.Context, e external, c *call) (any, error) {
		_, err := e.Delete(ctx, c)
		return nil, err
	}
	cases := map[string]struct {
		reason string
		layer  newLayer
		object *v1alpha1.Bucket
		inner  calls
		do     func(ctx context.Context, e external, c *call) (any, error)
		want   any
		err    string
		check  func(b *v1alpha1.Bucket) any
		after  any
	}{
		"Phases": {
			reason: "What the external system refused is reported.",
			layer:  newPhases,
			object: bucket(deleting, finalizers(FinalizerName)),
			inner:  calls{delete: func(*call) (deletion, error) { return deletion{}, boom }},
			do:     deletes,
			err:    "boom",
			check:  func(b *v1alpha1.Bucket) any { return b.GetCondition(reconciler.TypeDeleting).Reason },
			after:  reconciler.ReasonExternalDeleteFailed,
		},
		"DeleteRequest": {
			reason: "It is said while Delete runs, which may take long.",
			layer:  newDeleteRequest,
			object: bucket(deleting, finalizers(FinalizerName)),
			inner: calls{delete: func(c *call) (deletion, error) {
				if deletingCondition(c.Base()).Reason != reconciler.ReasonExternalDeleteRequested {
					return deletion{}, boom
				}
				return deletion{}, nil
			}},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				_, err := e.Delete(ctx, c)
				return c.mg.GetResourceVersion() == c.Base().GetResourceVersion(), err
			},
			want:  true,
			check: func(b *v1alpha1.Bucket) any { return b.GetCondition(reconciler.TypeDeleting).Reason },
			after: reconciler.ReasonExternalDeleteRequested,
		},
		"DeleteRequestOfForeignReady": {
			reason: "A Ready condition of the provider's stays.",
			layer:  newDeleteRequest,
			object: bucket(deleting, finalizers(FinalizerName), func(b *v1alpha1.Bucket) {
				b.SetConditions(reconciler.Deleting(time.Now(), reconciler.ReasonDeletionRequested, messageRequested)...)
				b.SetConditions(xpv2.Available())
			}),
			do:    deletes,
			check: func(b *v1alpha1.Bucket) any { return b.GetCondition(xpv2.TypeReady).Reason },
			after: xpv2.ReasonAvailable,
		},
		"DeleteRequestOfAnother": {
			reason: "Nothing is said of what another object has in memory.",
			layer:  newDeleteRequest,
			object: bucket(deleting, finalizers(FinalizerName)),
			do: func(ctx context.Context, e external, c *call) (any, error) {
				c.mg.SetUID("another")
				return deletes(ctx, e, c)
			},
			check: func(b *v1alpha1.Bucket) any { return b.GetCondition(reconciler.TypeDeleting).Reason },
			after: xpv2.ConditionReason(""),
		},
		"Freshness": {
			reason: "What is paused by now is left alone.",
			layer:  newFreshness,
			object: bucket(),
			do: func(ctx context.Context, e external, c *call) (any, error) {
				paused(bucketOf(c.mg))
				return e.Create(ctx, c)
			},
			want: creation{Outcome: seam.Outcome{State: seam.Untried}},
			err:  "it is paused; " + messageLeftAlone,
		},
		"Annotations": {
			reason: "A name is stored, also by a call that failed.",
			layer:  newAnnotations,
			object: bucket(),
			inner: calls{create: func(c *call) (creation, error) {
				meta.SetExternalName(c.mg, "id-1")
				return creation{}, boom
			}},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				_, err := e.Create(ctx, c)
				return nil, err
			},
			err:   "boom",
			check: func(b *v1alpha1.Bucket) any { return meta.GetExternalName(b) },
			after: "id-1",
		},
		"Refusal": {
			reason: "What was refused is not managed.",
			layer:  newRefusal,
			object: bucket(named("id-1"), annotated(AnnotationKeyCreateRefused, "id-1")),
			inner:  calls{observe: present},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				_, err := e.Observe(ctx, c)
				return nil, err
			},
			err: "is not managed",
		},
		"Confirmation": {
			reason: "It exists although it was deleted, so the next not-found is not believed.",
			layer:  with(slotConfirmation, WithDeletionConfirmation(3, interval)),
			object: bucket(deleting, finalizers(FinalizerName)),
			inner: calls{observe: func(*call) (observation, error) {
				seen++
				return observation{ExternalObservation: ExternalObservation{ResourceExists: seen == 1}}, nil
			}},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				_, _ = e.Delete(ctx, c)
				_, _ = e.Observe(ctx, c)
				_, err := e.Observe(ctx, c)
				return nil, err
			},
			err: "yet to be confirmed",
		},
		"ConfirmationInProgress": {
			reason: "A Delete that has only begun may fail.",
			layer:  with(slotConfirmation, WithDeletionConfirmation(3, interval)),
			object: bucket(deleting, finalizers(FinalizerName)),
			inner:  calls{delete: func(*call) (deletion, error) { return deletion{Outcome: seam.Outcome{State: seam.InProgress}}, nil }},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				_, _ = e.Delete(ctx, c)
				_, err := e.Observe(ctx, c)
				return nil, err
			},
			err: "yet to be confirmed",
		},
		"PreCreate": {
			reason: "What exists by now is not created.",
			layer:  with(slotPreCreate, WithPreCreateObserve(WithAdoption())),
			object: bucket(),
			inner:  calls{observe: present, create: func(*call) (creation, error) { return creation{}, boom }},
			do:     func(ctx context.Context, e external, c *call) (any, error) { return e.Create(ctx, c) },
			want:   creation{},
		},
		"Reservation": {
			reason: "What was created is reserved.",
			layer:  with(slotReservation, WithExternalNameReservation(leaseNamespace)),
			object: of("b"),
			do: func(ctx context.Context, e external, c *call) (any, error) {
				r, ok := e.(*reservation)
				if !ok {
					return nil, errors.Errorf("%T is not the layer", e)
				}
				_, err := e.Create(ctx, c)
				return r.held.get(c.mg).key, err
			},
			want: sharedKey,
		},
		"CreateResolver": {
			reason: "A create without an answer has an unknown outcome.",
			layer:  with(slotCreateResolver, WithCreateResolver(&seeker{})),
			object: bucket(),
			inner:  calls{create: func(*call) (creation, error) { return creation{}, context.DeadlineExceeded }},
			do: func(ctx context.Context, e external, c *call) (any, error) {
				o, err := e.Create(ctx, c)
				return o.State, err
			},
			want: seam.Unknown,
			err:  "deadline",
		},
		"Async": {
			reason: "A create without a record is not gone on with.",
			layer:  with(slotAsync, WithAsync(newTracker(testkit.NewAPI()))),
			object: bucket(interruptedBucket(time.Hour)),
			do:     func(ctx context.Context, e external, c *call) (any, error) { return nil, e.Connect(ctx, c) },
			err:    "no record",
		},
		"UsageProtection": {
			reason: "A usage is protected once the provider was connected to.",
			layer:  with(slotUsageProtection, WithUsageProtection(testkit.ProviderConfigUsageKind())),
			object: bucket(used),
			do:     func(ctx context.Context, e external, c *call) (any, error) { return nil, e.Connect(ctx, c) },
			check:  func(*v1alpha1.Bucket) any { return nil },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			alone(t, a, tc.layer, &testkit.Said{}, tc.inner, func(ctx context.Context, e external, c *call) {
				got, err := tc.do(ctx, e, c)
				wants(t, tc.reason, "", tc.want, got)
				if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("\n%s\nerror: want %q, got %v", tc.reason, tc.err, err)
				}
			})
			if tc.check != nil {
				wants(t, tc.reason, "afterwards", tc.after, tc.check(get(t, a)))
			}
		})
	}
}

// The layers that decorate what is no call of the external client.
func TestLayerAloneOfAnnotations(t *testing.T) {
	const before = "1999-01-02T03:04:05Z"
	a, created := testkit.NewAPI(bucket(annotated(meta.AnnotationKeyExternalCreateSucceeded, before))), false
	l := newCreateOutcome(parts{})
	updater := l.critical(upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error {
		created = true
		return nil
	}))
	for _, state := range []seam.State{seam.InProgress, seam.Unknown, seam.Done} {
		created = false
		alone(t, a, func(parts) layer { return l }, &testkit.Said{}, calls{create: func(*call) (creation, error) {
			return creation{Outcome: seam.Outcome{State: state}}, nil
		}}, func(ctx context.Context, e external, c *call) {
			_, err := e.Create(ctx, c)
			must(t, err)
			meta.SetExternalCreateSucceeded(c.mg, time.Now())
			must(t, updater.UpdateCriticalAnnotations(ctx, c.mg))
			said := c.mg.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded] != before
			wants(t, fmt.Sprintf("The state is %d.", state), "said to have succeeded now, stored", []bool{state == seam.Done, state == seam.Done}, []bool{said, created})
		})
	}
}

package managed

import (
	"context"
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

// calls are a provider's, as the last layer sees them: a function of what is called, which
// returns whether the external resource exists, and what the call led to.
type calls func(what string, c *call) (bool, seam.State, error)

func (f calls) Connect(_ context.Context, c *call) error {
	_, _, err := f("connect", c)
	return err
}

func (f calls) Observe(_ context.Context, c *call) (observation, error) {
	there, state, err := f("observe", c)
	return observation{ExternalObservation: ExternalObservation{ResourceExists: there}, Outcome: seam.Outcome{State: state}}, err
}

func (f calls) Create(_ context.Context, c *call) (creation, error) {
	_, state, err := f("create", c)
	return creation{Outcome: seam.Outcome{State: state}}, err
}

func (f calls) Update(_ context.Context, c *call) (ExternalUpdate, error) {
	_, _, err := f("update", c)
	return ExternalUpdate{}, err
}

func (f calls) Delete(_ context.Context, c *call) (deletion, error) {
	_, state, err := f("delete", c)
	return deletion{Outcome: seam.Outcome{State: state}}, err
}

// through is what calls of e lead to.
func through(ctx context.Context, e external) calls {
	return func(what string, c *call) (bool, seam.State, error) {
		switch what {
		case "connect":
			return false, seam.Done, e.Connect(ctx, c)
		case "observe":
			o, err := e.Observe(ctx, c)
			return o.ResourceExists, o.State, err
		case "create":
			o, err := e.Create(ctx, c)
			return false, o.State, err
		default:
			o, err := e.Delete(ctx, c)
			return false, o.State, err
		}
	}
}

// Each layer does its work when nothing else of Graft is there, and nothing of upstream.
func TestLayerAlone(t *testing.T) {
	boom, deleted, seen := errors.New("boom"), bucket(deleting, finalizers(FinalizerName)), 0
	with := func(slot int, o ReconcilerOption) newLayer {
		r := &Reconciler{}
		o(r)
		return r.config.layers[slot]
	}
	ends := func(there bool, state seam.State, err error) calls {
		return func(string, *call) (bool, seam.State, error) { return there, state, err }
	}
	cases := map[string]struct {
		reason string
		layer  newLayer
		object *v1alpha1.Bucket
		inner  calls  // Nothing exists, and all succeeds, unless it is set.
		calls  string // Of which the last one has this outcome, and this error.
		state  seam.State
		err    string

		// What is there afterwards: the external name, why it is being deleted, and
		// who holds the lease.
		named  string
		says   xpv2.ConditionReason
		holder string
	}{
		"Phases": {
			reason: "What the external system refused is reported.", calls: "delete", err: "boom",
			layer: newPhases, object: deleted, inner: ends(false, seam.Done, boom), says: reconciler.ReasonExternalDeleteFailed,
		},
		"CreateOutcome": {
			reason: "No result is stored of a create that has none.", calls: "create", state: seam.Unknown,
			layer: newCreateOutcome, object: bucket(), inner: ends(false, seam.Unknown, nil),
		},
		"Reservation": {
			reason: "What was created is reserved.", calls: "create",
			layer: with(slotReservation, WithExternalNameReservation(leaseNamespace)), object: of("b"), named: "shared", holder: "b",
		},
		"UsageProtection": {
			reason: "What is not tracked does not keep the provider from being connected to.", calls: "connect",
			layer: with(slotUsageProtection, WithUsageProtection(testkit.ProviderConfigUsageKind())), object: bucket(used),
		},
		"Refusal": {
			reason: "What was refused is not managed.", calls: "observe", err: "is not managed",
			layer: newRefusal, object: bucket(named("id-1"), annotated(AnnotationKeyCreateRefused, "id-1")), inner: ends(true, seam.Done, nil), named: "id-1",
		},
		"Confirmation": {
			reason: "It exists although it was deleted, so the next not-found is not believed.", calls: "delete observe observe", err: "yet to be confirmed",
			layer: with(slotConfirmation, WithDeletionConfirmation(3, interval)), object: deleted,
			inner: func(string, *call) (bool, seam.State, error) { seen++; return seen == 2, seam.Done, nil },
		},
		"ConfirmationInProgress": {
			reason: "A Delete that has only begun may fail.", calls: "delete observe", state: seam.InProgress, err: "yet to be confirmed",
			layer: with(slotConfirmation, WithDeletionConfirmation(3, interval)), object: deleted, inner: ends(false, seam.InProgress, nil),
		},
		"Annotations": {
			reason: "A name is stored, also by a call that failed.", calls: "create", err: "boom", layer: newAnnotations, object: bucket(),
			inner: func(_ string, c *call) (bool, seam.State, error) {
				named("id-1")(bucketOf(c.mg))
				return false, seam.Done, boom
			}, named: "id-1",
		},
		"PreCreate": {
			reason: "What exists by now is not created.", calls: "create",
			layer: with(slotPreCreate, WithPreCreateObserve(WithAdoption())), object: bucket(), inner: ends(true, seam.Done, nil),
		},
		"DeleteRequest": {
			reason: "It is said while Delete runs, which may take long.", calls: "delete",
			layer: newDeleteRequest, object: deleted, says: reconciler.ReasonExternalDeleteRequested,
			inner: func(_ string, c *call) (bool, seam.State, error) {
				if deletingCondition(c.Base()).Reason == reconciler.ReasonExternalDeleteRequested && c.mg.GetResourceVersion() == c.Base().GetResourceVersion() {
					return false, seam.Done, nil
				}
				return false, seam.Done, boom
			},
		},
		"Freshness": {
			reason: "What is paused by now is left alone.", calls: "observe create", state: seam.Untried, err: "it is paused; " + messageLeftAlone,
			layer: newFreshness, object: bucket(),
			inner: func(_ string, c *call) (bool, seam.State, error) {
				paused(bucketOf(c.mg))
				return false, seam.Done, nil
			},
		},
		"CreateResolver": {
			reason: "A create without an answer has an unknown outcome.", calls: "create", state: seam.Unknown, err: "deadline",
			layer: with(slotCreateResolver, WithCreateResolver(&seeker{})), object: bucket(), inner: ends(false, seam.Done, context.DeadlineExceeded),
		},
		"Async": {
			reason: "A create without a record is not gone on with.", calls: "connect", err: "no record",
			layer: with(slotAsync, WithAsync(newTracker(testkit.NewAPI()))), object: bucket(interruptedBucket(time.Hour)),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			if tc.inner == nil {
				tc.inner = ends(false, seam.Done, nil)
			}
			l := tc.layer(parts{
				kind: testkit.BucketKind(), managed: &v1alpha1.Bucket{}, scheme: testkit.Scheme(),
				client: a.Client(), live: a.Live(), log: logging.NewNopLogger(), record: &testkit.Said{}, ownFinalizer: FinalizerName,
				runs: func(manager.Runnable) error { return nil },
			})
			e := external(tc.inner)
			if l.external != nil {
				e = l.external(tc.inner)
			}
			run(t, seam.NewReconciler(a.Client(), seam.NewKind(testkit.BucketKind(), testkit.Scheme()), func(cl client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					b := &v1alpha1.Bucket{}
					must(t, cl.Get(ctx, req.NamespacedName, b))
					c := &call{Session: seam.From(ctx), mg: b, terms: termsOf(b)}
					c.client = ExternalClientFns{ObserveFn: func(ctx context.Context, _ resource.Managed) (ExternalObservation, error) {
						o, err := tc.inner.Observe(ctx, c)
						return o.ExternalObservation, err
					}}
					c.Connecting(b)
					state, err := seam.Done, error(nil)
					for _, what := range strings.Fields(tc.calls) {
						_, state, err = through(ctx, e)(what, c)
					}
					if l.critical != nil && err == nil {
						err = l.critical(upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error { return boom })).UpdateCriticalAnnotations(ctx, b)
					}
					wants(t, tc.reason, "state", tc.state, state)
					if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
						t.Errorf("\n%s\nerror: want %q, got %v", tc.reason, tc.err, err)
					}
					return reconcile.Result{}, nil
				})
			}, seam.Options{Live: a.Live(), Wait: noWait}, l.patch), "b")
			b := get(t, a)
			wants(t, tc.reason, "name, reason, holder", []any{tc.named, tc.says, tc.holder}, []any{meta.GetExternalName(b), deletingCondition(b).Reason, holders(t, a)[sharedKey]})
		})
	}
}

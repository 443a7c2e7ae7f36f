package managed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
	"github.com/crossplane-graft/graft/pkg/managed/usage"
)

// A bucketWithoutConditions does not keep the conditions that are set.
type bucketWithoutConditions struct{ v1alpha1.Bucket }

func (*bucketWithoutConditions) GetCondition(xpv2.ConditionType) xpv2.Condition {
	return xpv2.Condition{}
}
func (*bucketWithoutConditions) SetConditions(...xpv2.Condition) {}

func (f *bucketWithoutConditions) DeepCopyObject() runtime.Object { return &bucketWithoutConditions{} }

func TestNewReconciler_InvalidOptions(t *testing.T) {
	var (
		nilManager     *xpfake.Manager
		nilLogger      *nilLog
		nilFinalizer   *resource.APIFinalizer
		nilInitializer *upstream.NameAsExternalName
		nilUpdater     upstream.CriticalAnnotationUpdateFn
		nilRecorder    *event.APIRecorder
		nilConnector   *upstream.NopConnector
		nilTypedFn     managed.TypedExternalConnectorFn[*v1alpha1.Bucket]
		nilFinder      *kit.FakeFinder
	)
	api := testkit.NewAPI()
	kind := resource.ManagedKind(testkit.BucketKind())
	exampleKind := func(k string) resource.ManagedKind {
		return resource.ManagedKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: k})
	}
	scheme := testkit.Scheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(exampleKind("Claim")), &xpfake.CompositeClaim{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(exampleKind("Forgetful")), &bucketWithoutConditions{})
	m := &xpfake.Manager{Client: api.Client(), Scheme: scheme}

	// withOption returns a function that constructs a reconciler with an option.
	withOption := func(o func() managed.ReconcilerOption) func() {
		return func() { managed.NewReconciler(api.Manager(), kind, managed.WithManagementPolicies(), o()) }
	}
	usages := testkit.ProviderConfigUsageKind()
	nop := upstream.ExternalConnectDisconnectorFns{}

	// withUsages returns a function that constructs a reconciler with a kind of usages.
	withUsages := func(k schema.GroupVersionKind) func() {
		return func() { kit.NewBucketReconciler(api, usage.WithProtection(k)) }
	}
	withUpstream := func(o upstream.ReconcilerOption) func() {
		return withOption(
			func() managed.ReconcilerOption { return managed.Upstream(upstream.WithTimeout(time.Minute), o) },
		)
	}
	databases := kit.NewTypedConnector[*v1alpha1.Database](kit.FakeProvider{}, nil)
	buckets := kit.NewTypedConnector[*v1alpha1.Bucket](kit.FakeProvider{}, nil)
	cases := map[string]struct {
		reason    string
		wantErr   string
		construct func()
	}{
		"NoManager": {
			reason:    "We should refuse a manager or client that is missing, because nothing can be read.",
			wantErr:   "pass the one that the controller is added to",
			construct: func() { managed.NewReconciler(nil, kind) },
		},
		"NilManager": {
			reason:    "We should refuse a manager or client that is missing, because nothing can be read.",
			wantErr:   "pass the one that the controller is added to",
			construct: func() { managed.NewReconciler(nilManager, kind) },
		},
		"NoClient": {
			reason:    "We should refuse a manager or client that is missing, because nothing can be read.",
			wantErr:   "has no client",
			construct: func() { managed.NewReconciler(&xpfake.Manager{Scheme: scheme}, kind) },
		},
		"NoScheme": {
			reason:    "We should refuse a manager without a scheme.",
			wantErr:   "has no scheme",
			construct: func() { managed.NewReconciler(&xpfake.Manager{Client: api.Client()}, kind) },
		},
		"UnknownKind": {
			reason:    "As with upstream, we should refuse a kind that is not a registered managed resource.",
			wantErr:   "add its API package to the manager's scheme",
			construct: func() { managed.NewReconciler(m, exampleKind("Unknown")) },
		},
		"NotManaged": {
			reason:    "As with upstream, we should refuse a kind that is not a registered managed resource.",
			wantErr:   "is not a managed resource",
			construct: func() { managed.NewReconciler(m, exampleKind("Claim")) },
		},
		"WithoutConditions": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "does not keep the conditions",
			construct: func() { managed.NewReconciler(m, exampleKind("Forgetful")) },
		},
		"NilOption": {
			reason:    "We should refuse a nil option.",
			wantErr:   "leave it out",
			construct: withOption(func() managed.ReconcilerOption { return nil }),
		},
		"NilConnectorPointer": {
			reason:  "We should refuse a nil connector.",
			wantErr: "WithExternalConnector was given a nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithExternalConnector(nilConnector) },
			),
		},
		"NilConnecter": {
			reason:    "We should refuse a nil connector.",
			wantErr:   "given a nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithExternalConnecter(nil) }),
		},
		"NilConnectDisconnector": {
			reason:  "We should refuse a nil connector.",
			wantErr: "WithExternalConnectDisconnector was given a nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithExternalConnectDisconnector(nil) },
			),
		},
		"NilConnectDisconnecter": {
			reason:  "We should refuse a nil connector.",
			wantErr: "given a nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithExternalConnectDisconnecter(nil) },
			),
		},
		"NilTypedFn": {
			reason:  "We should refuse a nil connector.",
			wantErr: "WithTypedExternalConnector was given a nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithTypedExternalConnector(nilTypedFn) },
			),
		},
		"NilTypedConnectDisconnect": {
			reason:  "We should refuse a nil connector.",
			wantErr: "WithTypedExternalConnectDisconnector was given a nil",
			construct: withOption(
				func() managed.ReconcilerOption {
					return managed.WithTypedExternalConnectDisconnector[*v1alpha1.Bucket](nil)
				},
			),
		},
		"NilTypedDisconnecter": {
			reason:  "We should refuse a nil connector.",
			wantErr: "given a nil",
			construct: withOption(
				func() managed.ReconcilerOption {
					return managed.WithTypedExternalConnectDisconnecter[*v1alpha1.Bucket](nil)
				},
			),
		},
		"ConnectorOfAnotherKind": {
			reason:  "We should refuse a connector for another kind.",
			wantErr: "*v1alpha1.Database",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithTypedExternalConnector(databases) },
			),
		},
		"TypedAndUntyped": {
			reason:  "We should refuse a typed connector beside an untyped one.",
			wantErr: "exclude each other",
			construct: func() {
				managed.NewReconciler(
					api.Manager(), kind, managed.WithTypedExternalConnector(buckets),
					kit.WithClient(managed.ExternalClientFns{}),
				)
			},
		},
		"UntypedAndTyped": {
			reason:  "We should refuse a typed connector beside an untyped one.",
			wantErr: "exclude each other",
			construct: func() {
				managed.NewReconciler(
					api.Manager(), kind, kit.WithClient(managed.ExternalClientFns{}),
					managed.WithTypedExternalConnector(buckets),
				)
			},
		},
		"ManagerRefuses": {
			reason:  "We should refuse asyncstate.With if the manager can't run the tracker of operations.",
			wantErr: "cannot add the tracker of operations to the manager",
			construct: func() {
				managed.NewReconciler(
					stoppedManager{api.Manager()}, kind, managed.WithManagementPolicies(), kit.WithClient(
						managed.ExternalClientFns{},
					),
					asyncstate.With(asyncstate.NewTracker()),
				)
			},
		},
		"ManagerRunsNothing": {
			reason:  "We should refuse asyncstate.With if the manager can't run the tracker of operations.",
			wantErr: "can't run the tracker of operations",
			construct: func() {
				managed.NewReconciler(
					m, kind, managed.WithManagementPolicies(), kit.WithClient(
						managed.ExternalClientFns{},
					), asyncstate.With(asyncstate.NewTracker()),
				)
			},
		},
		"AsyncNotStored": {
			reason:  "We should refuse asyncstate.With without persistence, because the result of an operation could be lost.",
			wantErr: "WithoutExternalNamePersistence exclude each other",
			construct: func() {
				managed.NewReconciler(
					api.Manager(), kind, kit.WithClient(
						managed.ExternalClientFns{},
					), asyncstate.With(asyncstate.NewTracker()),
					managed.WithoutExternalNamePersistence(),
				)
			},
		},
		"NilFinalizerPointer": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithFinalizer was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithFinalizer(nilFinalizer) }),
		},
		"NilInitializer": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithInitializers (argument 2) was given nil",
			construct: withOption(func() managed.ReconcilerOption {
				return managed.WithInitializers(upstream.InitializerChain{}, nil)
			}),
		},
		"NilInChain": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithInitializers (argument 1.2) was given nil",
			construct: withOption(func() managed.ReconcilerOption {
				return managed.WithInitializers(
					upstream.InitializerChain{upstream.InitializerChain(nil), nilInitializer},
				)
			}),
		},
		"NilInitializerPointer": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithInitializers (argument 1) was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithInitializers(nilInitializer) }),
		},
		"NilLoggerPointer": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithLogger was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithLogger(nilLogger) }),
		},
		"NilRecorderPointer": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithRecorder was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithRecorder(nilRecorder) }),
		},
		"NilResolverFn": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithReferenceResolver was given nil",
			construct: withOption(
				func() managed.ReconcilerOption {
					return managed.WithReferenceResolver(upstream.ReferenceResolverFn(nil))
				},
			),
		},
		"NilMetricsPointer": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithMetricRecorder was given nil",
			construct: withOption(
				func() managed.ReconcilerOption {
					return managed.WithMetricRecorder((*upstream.MRMetricRecorder)(nil))
				},
			),
		},
		"NilPollIntervalHook": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithPollIntervalHook was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithPollIntervalHook(nil) }),
		},
		"NilChangeLogger": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "WithChangeLogger was given nil",
			construct: withOption(func() managed.ReconcilerOption { return managed.WithChangeLogger(nil) }),
		},
		"NilOfUpstream": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithReferenceResolver was given nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.Upstream(upstream.WithReferenceResolver(nil)) },
			),
		},
		"NilInitializerFn": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithInitializers (argument 1) was given nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithInitializers(managed.InitializerFn(nil)) },
			),
		},
		"NilUpdaterFn": {
			reason:  "We should refuse it at construction, because each reconcile would fail.",
			wantErr: "WithCriticalAnnotationUpdater was given nil",
			construct: withOption(
				func() managed.ReconcilerOption { return managed.WithCriticalAnnotationUpdater(nilUpdater) },
			),
		},
		"Finder": {
			reason:    "We should refuse a nil finder.",
			wantErr:   "pass a Finder",
			construct: func() { resolve.With(nil) },
		},
		"FinderPointer": {
			reason:    "We should refuse a finder that is a nil pointer.",
			wantErr:   "pass a Finder",
			construct: func() { resolve.With(nilFinder) },
		},
		"WithResolveAfter": {
			reason:    "We should refuse a deadline of less than a second, because upstream's timestamps are seconds.",
			wantErr:   "was given 999ms",
			construct: func() { resolve.WithAfter(999 * time.Millisecond) },
		},
		"ResolveAfterAlone": {
			reason:    "We should refuse an option that has no effect.",
			wantErr:   "resolve.WithAfter was given without resolve.With",
			construct: withOption(func() managed.ReconcilerOption { return resolve.WithAfter(time.Second) }),
		},
		"FinderConnector": {
			reason:    "We should refuse a nil connector.",
			wantErr:   "FindWithConnector was given a nil connector",
			construct: func() { resolve.FindWithConnector(nilConnector) },
		},
		"FinderTypedConnector": {
			reason:    "We should refuse a nil typed connector.",
			wantErr:   "FindWithTypedConnector was given a nil connector",
			construct: func() { resolve.FindWithTypedConnector(nilTypedFn) },
		},
		"ConfirmationTimes": {
			reason:    "We should refuse a confirmation that needs no observation.",
			wantErr:   "n = 0",
			construct: func() { confirm.With(0, time.Second) },
		},
		"ConfirmationInterval": {
			reason:    "We should refuse a confirmation without an interval.",
			wantErr:   "interval of 0s",
			construct: func() { confirm.With(1, 0) },
		},
		"ConfirmationNegative": {
			reason:    "We should refuse a confirmation with a negative interval.",
			wantErr:   "interval of -1s",
			construct: func() { confirm.With(1, -time.Second) },
		},
		"ReservationNamespace": {
			reason:    "We should refuse an empty namespace for leases.",
			wantErr:   `the namespace ""`,
			construct: func() { reservation.With("") },
		},
		"ReservationBadNamespace": {
			reason:    "We should refuse an invalid namespace for leases.",
			wantErr:   `the namespace "Crossplane System"`,
			construct: func() { reservation.With("Crossplane System") },
		},
		"ReservationKey": {
			reason:    "We should refuse a nil key function.",
			wantErr:   "reservation.WithKey",
			construct: func() { reservation.WithKey(nil) },
		},
		"ReservationKeyAlone": {
			reason:  "We should refuse an option that has no effect.",
			wantErr: "reservation.WithKey was given without reservation.With",
			construct: withOption(func() managed.ReconcilerOption {
				return reservation.WithKey(func(context.Context, resource.Managed) (string, error) { return "", nil })
			}),
		},
		"RateZero": {
			reason:    "We should refuse a rate or burst of zero, because no reconcile would start.",
			wantErr:   "greater than 0",
			construct: func() { ratelimit.New(0, 1) },
		},
		"RateNegative": {
			reason:    "We should refuse a negative rate.",
			wantErr:   "greater than 0",
			construct: func() { ratelimit.New(-1, 1) },
		},
		"RateNaN": {
			reason:    "We should refuse a rate that is not a number.",
			wantErr:   "greater than 0",
			construct: func() { ratelimit.New(math.NaN(), 1) },
		},
		"RateInfinite": {
			reason:    "We should refuse an infinite rate.",
			wantErr:   "greater than 0",
			construct: func() { ratelimit.New(math.Inf(1), 1) },
		},
		"BurstZero": {
			reason:    "We should refuse a rate or burst of zero, because no reconcile would start.",
			wantErr:   "1 or more",
			construct: func() { ratelimit.New(1, 0) },
		},
		"RateLimitsNil": {
			reason:    "We should refuse rate limits without a rate.",
			wantErr:   "ratelimit.With",
			construct: func() { ratelimit.With(nil) },
		},
		"RateLimitsEmpty": {
			reason:    "We should refuse rate limits without a rate.",
			wantErr:   "ratelimit.With",
			construct: func() { ratelimit.With(&ratelimit.Limits{}) },
		},
		"RateLimitOption": {
			reason:    "We should refuse a nil option.",
			wantErr:   "ratelimit.New",
			construct: func() { ratelimit.New(1, 1, nil) },
		},
		"AccountKeyNil": {
			reason:    "We should refuse a nil key function.",
			wantErr:   "WithAccountKey",
			construct: func() { ratelimit.WithAccountKey(nil) },
		},
		"ProviderConfigKeyClient": {
			reason:    "We should refuse a manager or client that is missing, because nothing can be read.",
			wantErr:   "ProviderConfigKey",
			construct: func() { reservation.ProviderConfigKey(nil, v1alpha1.GroupVersion(), "spec.account") },
		},
		"ProviderConfigKeyField": {
			reason:    "We should refuse a key without a field, because all provider configs would share it.",
			wantErr:   "ProviderConfigKey",
			construct: func() { reservation.ProviderConfigKey(api.Client(), v1alpha1.GroupVersion()) },
		},
		"UsageEmpty": {
			reason:    "We should refuse an empty kind of usages.",
			wantErr:   "usage.WithProtection was given the kind",
			construct: withUsages(schema.GroupVersionKind{}),
		},
		"UsageVersion": {
			reason:    "We should refuse a kind of usages without a version.",
			wantErr:   "usage.WithProtection was given the kind",
			construct: withUsages(schema.GroupVersionKind{Group: "example.org", Kind: "Usage"}),
		},
		"Tracker": {
			reason:    "We should refuse a nil tracker.",
			wantErr:   "asyncstate.With was given nil",
			construct: func() { asyncstate.With(nil) },
		},
		"UsageUnknown": {
			reason:    "We should refuse a kind of usages that is not in the scheme.",
			wantErr:   "AddToScheme: no kind",
			construct: withUsages(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Usage"}),
		},
		"UsageOther": {
			reason:    "We should refuse a kind that is not a usage.",
			wantErr:   "is not a usage",
			construct: withUsages(testkit.DatabaseKind()),
		},
		"UsageLegacy": {
			reason:    "We should refuse legacy usages for a modern managed resource.",
			wantErr:   "one of them is legacy",
			construct: withUsages(testkit.LegacyProviderConfigUsageKind()),
		},
		"UsageTrackerClient": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "without a client and a usage",
			construct: func() { usage.NewProviderConfigUsageTracker(nil, &v1alpha1.ProviderConfigUsage{}) },
		},
		"UsageTrackerKind": {
			reason:    "We should refuse it at construction, because each reconcile would fail.",
			wantErr:   "without a client and a usage",
			construct: func() { usage.NewLegacyProviderConfigUsageTracker(api.Client(), nil) },
		},
		"ReleaserEmpty": {
			reason:    "We should refuse an empty kind of usages.",
			wantErr:   "usage.NewReleaser was given the kind",
			construct: func() { usage.NewReleaser(api.Manager(), schema.GroupVersionKind{}) },
		},
		"ReleaserOther": {
			reason:    "We should refuse a kind that is not a usage.",
			wantErr:   "is not a usage",
			construct: func() { usage.NewReleaser(api.Manager(), testkit.BucketKind()) },
		},
		"ReleaserManager": {
			reason:    "We should refuse a nil manager.",
			wantErr:   "without a manager",
			construct: func() { usage.NewReleaser(nil, usages) },
		},
		"ReleaserUnconditional": {
			reason:    "We should refuse a kind that is not a usage.",
			wantErr:   "usage.NewUnconditionalReleaser was given",
			construct: func() { usage.NewUnconditionalReleaser(api.Manager(), testkit.BucketKind()) },
		},
		"UpstreamWithExternalConnector": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithExternalConnector",
			construct: withUpstream(upstream.WithExternalConnector(&upstream.NopConnector{})),
		},
		//nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnecter": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithExternalConnector",
			construct: withUpstream(upstream.WithExternalConnecter(&upstream.NopConnector{})),
		},
		//nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnector": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithExternalConnector",
			construct: withUpstream(upstream.WithExternalConnectDisconnector(nop)),
		},
		//nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnecter": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithExternalConnector",
			construct: withUpstream(upstream.WithExternalConnectDisconnecter(nop)),
		},
		"UpstreamWithTypedExternalConnector": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithExternalConnector",
			construct: withUpstream(upstream.WithTypedExternalConnector(buckets)),
		},
		//nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnectDisconnector": {
			reason:  "We should refuse an option of upstream's that would bypass Graft.",
			wantErr: "WithExternalConnector",
			construct: withUpstream(
				upstream.WithTypedExternalConnectDisconnector(upstream.NewTypedNopDisconnector(buckets)),
			),
		},
		//nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnectDisconnecter": {
			reason:  "We should refuse an option of upstream's that would bypass Graft.",
			wantErr: "WithExternalConnector",
			construct: withUpstream(
				upstream.WithTypedExternalConnectDisconnecter(upstream.NewTypedNopDisconnector(buckets)),
			),
		},
		"UpstreamWithFinalizer": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithFinalizer",
			construct: withUpstream(upstream.WithFinalizer(resource.FinalizerFns{})),
		},
		"UpstreamWithInitializers": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithInitializers",
			construct: withUpstream(upstream.WithInitializers()),
		},
		"UpstreamWithCriticalAnnotationUpdater": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "WithCriticalAnnotationUpdater",
			construct: withUpstream(upstream.WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(nil))),
		},
		"UpstreamNil": {
			reason:    "We should refuse an option of upstream's that would bypass Graft.",
			wantErr:   "leave it out",
			construct: withUpstream(nil),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				err, _ := recover().(error)
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) ||
					strings.Contains(err.Error(), "nil pointer") {
					t.Errorf("\n%s\nwant a panic with an error that contains %q, got %v", tc.reason, tc.wantErr, err)
				}
			}()
			tc.construct()
		})
	}
}

type nilLog struct{ logging.Logger }

type stoppedManager struct{ manager.Manager }

func (stoppedManager) Add(manager.Runnable) error { return errors.New("it is stopped") }

func TestNewReconciler_ValidOptions(t *testing.T) {
	api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1")))
	sync := kit.WithClient(managed.ExternalClientFns{})
	hours := func(n time.Duration) upstream.ReconcilerOption { return upstream.WithPollInterval(n * time.Hour) }
	cases := map[string]struct {
		reason           string
		manager          manager.Manager
		opts             []managed.ReconcilerOption
		wantRequeueAfter time.Duration
	}{
		"NoOptions": {reason: "We should accept upstream's defaults, which do nothing."},
		"NoLiveReader": {
			reason:  "We should accept a manager without a live reader, as tests have.",
			manager: &xpfake.Manager{Client: api.Client(), Scheme: testkit.Scheme()},
		},
		"LastConnectorWins": {
			reason: "As with upstream, the last connector should be used.",
			opts: []managed.ReconcilerOption{kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.ObserveFails,
			}), sync, managed.WithPollInterval(time.Hour)},
			wantRequeueAfter: time.Hour,
		},
		"ConnectorOfInterface": {
			reason: "We should accept a typed connector for an interface.",
			opts: []managed.ReconcilerOption{
				managed.WithTypedExternalConnector(kit.NewTypedConnector[resource.ModernManaged](
					kit.FakeProvider{}, func(resource.Managed) {},
				)),
			},
		},
		"NilInitializerChain": {
			reason: "We should accept a nil chain of initializers, which upjet generates.",
			opts:   []managed.ReconcilerOption{managed.WithInitializers(upstream.InitializerChain(nil))},
		},
		"NoInitializers": {
			reason: "We should accept an empty list of initializers.",
			opts:   []managed.ReconcilerOption{managed.WithInitializers()},
		},
		"OfUpstream": {
			reason: "We should accept upstream's options.",
			opts: []managed.ReconcilerOption{managed.Upstream(
				upstream.WithTimeout(time.Minute),
				upstream.WithMinPollInterval(time.Second),
				upstream.WithPollIntervalHook(func(_ resource.Managed, d time.Duration) time.Duration { return d }),
				upstream.WithMetricRecorder(upstream.NewNopMetricRecorder()),
				upstream.WithCreationGracePeriod(time.Second),
				upstream.WithReferenceResolver(
					upstream.ReferenceResolverFn(func(context.Context, resource.Managed) error { return nil }),
				),
				upstream.WithLogger(logging.NewNopLogger()),
				upstream.WithRecorder(&testkit.Said{}),
				upstream.WithReconcilerSupportedManagementPolicies([]sets.Set[xpv2.ManagementAction]{
					sets.New(xpv2.ManagementActionAll),
				}),
				upstream.WithDeterministicExternalName(true),
			)},
		},
		"LastOfUpstream": {
			reason: "The last option should be used if options of upstream's repeat.",
			opts: []managed.ReconcilerOption{
				sync, managed.WithPollInterval(time.Hour), managed.Upstream(hours(1), hours(2)),
				managed.Upstream(hours(3)), managed.Upstream(),
			},
			wantRequeueAfter: 3 * time.Hour,
		},
		"AfterUpstream": {
			reason: "An option after upstream's should be used.",
			opts: []managed.ReconcilerOption{
				sync, managed.Upstream(hours(2)), managed.WithPollInterval(time.Hour),
			},
			wantRequeueAfter: time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := tc.manager
			if m == nil {
				m = api.Manager()
			}
			r := managed.NewReconciler(m, resource.ManagedKind(testkit.BucketKind()), append([]managed.ReconcilerOption{
				managed.WithManagementPolicies(),
			}, tc.opts...)...)
			result, err := r.Reconcile(t.Context(), kit.Request())
			kit.Must(t, err)
			if tc.wantRequeueAfter > 0 {
				kit.ExpectEqual(t, tc.reason, "poll interval", tc.wantRequeueAfter, result.RequeueAfter)
			}
		})
	}
}

func TestNewReconciler_ManagerWithoutMethods(t *testing.T) {
	api := testkit.NewAPI()
	live, cached := &struct{ client.Client }{api.Live()}, &struct{ client.Client }{api.Client()}
	boom := errors.New("boom")
	type bare struct{ manager.Manager }
	cases := map[string]struct {
		reason     string
		manager    manager.Manager
		wantReader client.Reader
		wantRuns   bool
	}{
		"Fake": {
			reason:  "We should read with the client of a manager that has no live reader.",
			manager: &xpfake.Manager{Client: cached},
		},
		"EmbedsFake": {
			reason:  "We should read with the client of a manager that embeds one without a live reader.",
			manager: &struct{ *xpfake.Manager }{&xpfake.Manager{Client: cached}},
		},
		"NilReader": {
			reason:  "We should read with the client of a manager whose live reader is nil.",
			manager: &readingManager{Manager: &xpfake.Manager{Client: cached}},
		},
		"Reads": {
			reason:     "We should read with the manager's live reader.",
			manager:    &readingManager{live: live},
			wantReader: live,
		},
		"EmbedsReading": {
			reason:     "We should read with the live reader of an embedded manager.",
			manager:    &struct{ *readingManager }{&readingManager{live: live}},
			wantReader: live,
		},
		"Runs": {
			reason:     "We should use the Add method of a manager.",
			manager:    bare{stoppedManager{&readingManager{live: live}}},
			wantReader: live,
			wantRuns:   true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.wantReader == nil {
				tc.wantReader = tc.manager.GetClient()
			}
			kit.ExpectEqual(t, tc.reason, "the expected reader", true, layer.LiveReader(tc.manager) == tc.wantReader)
			refused := func() (p any) {
				defer func() { p = recover() }()
				kit.ExpectEqual(t, tc.reason, "error of Add", true, layer.AddTo(tc.manager, nil) != nil)
				return nil
			}()
			kit.ExpectEqual(t, tc.reason, "runs", tc.wantRuns, refused == nil)
			if !tc.wantRuns && !strings.Contains(fmt.Sprint(refused), "give the test's manager an Add method") {
				t.Errorf("\n%s\nwant a panic that says what the manager needs, got %v", tc.reason, refused)
			}
		})
	}

	defer func() {
		kit.ExpectEqual(
			t, "We should not hide another panic of a manager.", "panic", any(boom), recover(), cmpopts.EquateErrors(),
		)
	}()
	_ = layer.AddTo(&panickingManager{err: boom}, nil)
}

type panickingManager struct {
	manager.Manager

	err error
}

func (m *panickingManager) Add(manager.Runnable) error { panic(m.err) }

type readingManager struct {
	manager.Manager

	live client.Reader
}

func (m *readingManager) GetAPIReader() client.Reader { return m.live }

func TestConnectors(t *testing.T) {
	type calls struct {
		Connect, Observe, ClientDisconnect, Disconnect int
	}
	type options struct {
		graft    managed.ReconcilerOption
		upstream upstream.ReconcilerOption
	}

	// optionsFor returns the options for connectors that count their calls.
	optionsFor := func(c *calls, err error) map[string]options {
		client := managed.ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				c.Observe++
				return kit.ObserveExists(ctx, mg)
			},
			DisconnectFn: func(context.Context) error { c.ClientDisconnect++; return errors.New("ignored") },
		}
		disconnect := func(context.Context) error { c.Disconnect++; return errors.New("ignored") }
		p := kit.FakeProvider{ConnectErr: err, Client: client}
		onConnect := func(resource.Managed) { c.Connect++ }
		ufn := managed.ExternalConnectorFn(kit.NewTypedConnector[resource.Managed](p, onConnect))
		tfn := kit.NewTypedConnector[*v1alpha1.Bucket](p, onConnect)
		u := managed.ExternalConnectDisconnectorFns{ConnectFn: ufn, DisconnectFn: disconnect}
		ty := managed.TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{ConnectFn: tfn, DisconnectFn: disconnect}

		//nolint:staticcheck // Deprecated spellings, which providers use.
		return map[string]options{
			"WithExternalConnector": {
				graft:    managed.WithExternalConnector(ufn),
				upstream: upstream.WithExternalConnector(ufn),
			},
			"WithExternalConnecter": {
				graft:    managed.WithExternalConnecter(ufn),
				upstream: upstream.WithExternalConnecter(ufn),
			},
			"WithExternalConnectDisconnector": {
				graft:    managed.WithExternalConnectDisconnector(u),
				upstream: upstream.WithExternalConnectDisconnector(u),
			},
			"WithExternalConnectDisconnecter": {
				graft:    managed.WithExternalConnectDisconnecter(u),
				upstream: upstream.WithExternalConnectDisconnecter(u),
			},
			"WithTypedExternalConnector": {
				graft:    managed.WithTypedExternalConnector(tfn),
				upstream: upstream.WithTypedExternalConnector(tfn),
			},
			"WithTypedExternalConnectDisconnector": {
				graft:    managed.WithTypedExternalConnectDisconnector(ty),
				upstream: upstream.WithTypedExternalConnectDisconnector(ty),
			},
			"WithTypedExternalConnectDisconnecter": {
				graft:    managed.WithTypedExternalConnectDisconnecter(ty),
				upstream: upstream.WithTypedExternalConnectDisconnecter(ty),
			},
		}
	}
	for name := range optionsFor(&calls{}, nil) {
		for outcome, err := range map[string]error{"Connects": nil, "Fails": kit.ErrProvider} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				var want, got calls
				kind := resource.ManagedKind(testkit.BucketKind())
				kit.MustReconcile(
					t,
					upstream.NewReconciler(
						testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"))).Manager(), kind,
						optionsFor(&want, err)[name].upstream,
					),
					"b", "b",
				)
				kit.MustReconcile(
					t,
					managed.NewReconciler(
						testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"))).Manager(), kind,
						optionsFor(&got, err)[name].graft,
					),
					"b", "b",
				)
				kit.ExpectEqual(t, "Graft should connect and disconnect as often as upstream.", "calls", want, got)
				kit.ExpectEqual(t, "Each reconcile should connect.", "connections in 2 reconciles", 2, got.Connect)
			})
		}
	}
}

func TestTypedConnector_OtherKind(t *testing.T) {
	ext := &kit.ExternalResource{}
	c := managed.NewTypedClient(kit.NewTypedClient[*v1alpha1.Bucket](kit.FakeProvider{Client: ext.Client()}))
	for mg, want := range map[resource.Managed]int{&v1alpha1.Database{}: 0, kit.NewBucket(): 4} {
		ext.Observes, ext.Calls = 0, nil
		_, oerr := c.Observe(t.Context(), mg)
		_, cerr := c.Create(t.Context(), mg)
		_, uerr := c.Update(t.Context(), mg)
		_, derr := c.Delete(t.Context(), mg)
		for _, err := range []error{oerr, cerr, uerr, derr} {
			kit.ExpectEqual(
				t, "We should return an error for a managed resource of another kind.", "no error", want > 0,
				err == nil,
			)
		}
		kit.ExpectEqual(
			t, "The typed client should not be called with a managed resource of another kind.", "calls", want,
			ext.Observes+len(ext.Calls),
		)
	}
}

func TestTypedConnector_ConnectFails(t *testing.T) {
	type typed = managed.TypedExternalClient[*v1alpha1.Bucket]
	boom := errors.New("boom")
	for err, ec := range map[error]typed{boom: managed.TypedExternalClientFns[*v1alpha1.Bucket]{}, nil: nil} {
		c := managed.NewTypedConnector(managed.TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{
			ConnectFn: func(context.Context, *v1alpha1.Bucket) (typed, error) { return ec, err },
		})
		got, gotErr := c.Connect(t.Context(), kit.NewBucket())
		const reason = "We should return no client if the connector returns an error, or neither a client nor an error."
		kit.ExpectEqual(t, reason, "client", nil, got)
		kit.ExpectEqual(t, reason, "error", err, gotErr, cmpopts.EquateErrors())
	}
}

// A trace lists the requests of a reconciler to the API server, and the results of its reconciles.
type trace []string

// volatileFields matches fields whose values differ from run to run.
var volatileFields = regexp.MustCompile(
	`("(?:lastTransitionTime|resourceVersion|crossplane\.io/external-create-[a-z]+)"):"[^"]*"`,
)

// normalizedJSON returns o as JSON without volatileFields.
func normalizedJSON(o runtime.Object, withStatus bool) string {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.DeepCopyObject())
	if err != nil {
		return err.Error()
	}
	delete(u, "apiVersion")
	delete(u, "kind")
	if !withStatus {
		delete(u, "status")
	}
	j, err := json.Marshal(u)
	if err != nil {
		return err.Error()
	}
	return volatileFields.ReplaceAllString(string(j), "$1")
}

// A scenario is a managed resource and provider code that are reconciled a few times.
type scenario struct {
	bucket []kit.BucketModifier

	provider     kit.FakeProvider
	initializers []managed.Initializer
	defaultInit  bool
	finalizer    func(api *testkit.API) resource.Finalizer
	before       func(ctx context.Context, r testkit.Request) error
	updates      bool // metadata or spec are updated, so that upstream loses the status in memory
}

// reconciled returns the trace of 5 reconciles, a second apart.
func (sc scenario) reconciled(
	t *testing.T, build func(api *testkit.API, connect managed.ExternalConnector) reconcile.Reconciler,
) trace {
	t.Helper()
	var tr trace
	synctest.Test(t, func(*testing.T) {
		api := testkit.NewAPI(kit.NewDeletedBucket(sc.bucket...))
		api.Before = func(ctx context.Context, r testkit.Request) error {
			if r.Verb != testkit.Get {
				tr = append(tr, fmt.Sprintf("%s %s %s", r.Verb, normalizedJSON(r.Object, !sc.updates), r.Body))
			}
			if sc.before != nil {
				return sc.before(ctx, r)
			}
			return nil
		}
		r := build(api, kit.NewTypedConnector[resource.Managed](sc.provider, func(mg resource.Managed) {
			tr = append(tr, "connect "+normalizedJSON(mg, !sc.updates))
		}))
		for range 5 {
			res, err := r.Reconcile(context.Background(), kit.Request())
			tr = append(tr, fmt.Sprintf("=> %+v %v", res, err))
			time.Sleep(time.Second)
		}
	})
	return tr
}

// scenarioOptions adds the options of the scenario to o. O is upstream's option type or Graft's.
func scenarioOptions[O any](
	sc scenario, api *testkit.API, initializers func(...managed.Initializer) O, finalizer func(resource.Finalizer) O,
	o ...O,
) []O {
	if !sc.defaultInit {
		o = append(o, initializers(sc.initializers...))
	}
	if sc.finalizer != nil {
		o = append(o, finalizer(sc.finalizer(api)))
	}
	return o
}

func (sc scenario) upstream(t *testing.T) trace {
	t.Helper()
	return sc.reconciled(t, func(api *testkit.API, c managed.ExternalConnector) reconcile.Reconciler {
		return upstream.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
			scenarioOptions(sc, api, upstream.WithInitializers, upstream.WithFinalizer,
				upstream.WithManagementPolicies(), upstream.WithCreationGracePeriod(0),
				upstream.WithExternalConnector(c))...)
	})
}

func (sc scenario) graft(t *testing.T, off ...managed.ReconcilerOption) trace {
	t.Helper()
	return sc.reconciled(t, func(api *testkit.API, c managed.ExternalConnector) reconcile.Reconciler {
		return managed.NewReconciler(api.Manager(), resource.ManagedKind(testkit.BucketKind()),
			scenarioOptions(sc, api, managed.WithInitializers, managed.WithFinalizer,
				append(
					off, managed.WithManagementPolicies(), managed.WithCreationGracePeriod(
						0,
					), managed.WithExternalConnector(c), kit.WithWait(kit.NoWait),
				)...)...)
	})
}

func scenarios() map[string]scenario {
	withoutDeletionTimestamp := func(mg *v1alpha1.Bucket) { mg.SetDeletionTimestamp(nil) }
	withoutFinalizers := func(mg *v1alpha1.Bucket) { withoutDeletionTimestamp(mg); mg.SetFinalizers(nil) }
	providerWith := func(c managed.ExternalClientFns) kit.FakeProvider { return kit.FakeProvider{Client: c} }
	observeOutdated := kit.Returns(managed.ExternalObservation{ResourceExists: true}, nil)

	// cloud has no resource until one is created.
	providerThatCreates := func(createErr error) kit.FakeProvider {
		ext := &kit.ExternalResource{}
		return providerWith(ext.OnCall(
			"create", func(b *v1alpha1.Bucket) error { kit.WithExternalName("id-1")(b); return createErr },
		).Client())
	}
	lateInitializingProvider := providerWith((&kit.ExternalResource{
		Exists:          true,
		LateInitialized: true,
	}).OnCall("observe", func(b *v1alpha1.Bucket) error { kit.WithExternalName("id-1")(b); return nil }).Client())
	unreachableProvider := kit.FakeProvider{ConnectErr: kit.ErrProvider}
	return map[string]scenario{
		"Steady": {bucket: []kit.BucketModifier{withoutDeletionTimestamp}},
		"Create": {
			bucket:   []kit.BucketModifier{withoutFinalizers},
			provider: providerThatCreates(nil),
			updates:  true,
		},
		"CreateFails": {
			bucket:   []kit.BucketModifier{withoutFinalizers},
			provider: providerThatCreates(kit.ErrProvider),
			updates:  true,
		},
		"CreateConflict": {
			bucket:   []kit.BucketModifier{withoutFinalizers},
			provider: providerThatCreates(nil),
			before:   kit.OnNthRequest(1, kit.IsVerb(testkit.Update), kit.FailWithConflict),
			updates:  true,
		},
		"CreateServerError": {
			bucket:   []kit.BucketModifier{withoutDeletionTimestamp},
			provider: providerThatCreates(nil),
			before:   kit.OnNthRequest(1, kit.IsVerb(testkit.Update), kit.FailWithServerError),
			updates:  true,
		},
		"CreateIncomplete": {
			bucket: []kit.BucketModifier{
				withoutDeletionTimestamp,
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
		},
		"Update": {
			bucket:   []kit.BucketModifier{withoutDeletionTimestamp},
			provider: providerWith(managed.ExternalClientFns{ObserveFn: observeOutdated}),
		},
		"UpdateFails": {
			bucket: []kit.BucketModifier{withoutDeletionTimestamp},
			provider: providerWith(managed.ExternalClientFns{
				ObserveFn: observeOutdated,
				UpdateFn:  kit.Returns(managed.ExternalUpdate{}, kit.ErrProvider),
			}),
		},
		"UpdateNotAllowed": {
			bucket:   []kit.BucketModifier{withoutDeletionTimestamp, kit.WithPolicies(xpv2.ManagementActionObserve)},
			provider: providerWith(managed.ExternalClientFns{ObserveFn: observeOutdated}),
		},
		"LateInit": {
			bucket:   []kit.BucketModifier{withoutDeletionTimestamp},
			provider: lateInitializingProvider,
			updates:  true,
		},
		"LateInitNotAllowed": {
			bucket: []kit.BucketModifier{
				withoutDeletionTimestamp,
				kit.WithPolicies(
					xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
					xpv2.ManagementActionDelete,
				),
			},
			provider: lateInitializingProvider,
		},
		"Paused": {
			bucket: []kit.BucketModifier{
				withoutDeletionTimestamp, kit.WithAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
			},
		},
		"DefaultInit": {
			bucket:      []kit.BucketModifier{withoutDeletionTimestamp},
			defaultInit: true,
			updates:     true,
		},
		"InitFails": {
			bucket: []kit.BucketModifier{withoutDeletionTimestamp},
			initializers: []managed.Initializer{
				managed.InitializerFn(func(context.Context, resource.Managed) error { return kit.ErrProvider }),
			},
		},
		"ConnectFails": {bucket: []kit.BucketModifier{withoutDeletionTimestamp}, provider: unreachableProvider},
		"ObserveFails": {
			bucket:   []kit.BucketModifier{withoutDeletionTimestamp},
			provider: providerWith(managed.ExternalClientFns{ObserveFn: kit.ObserveFails}),
		},
		"Delete":      {},
		"DeleteFails": {provider: providerWith(managed.ExternalClientFns{DeleteFn: kit.DeleteFails})},
		"Deleted":     {provider: providerWith(managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent})},
		"DeleteHeld":  {bucket: []kit.BucketModifier{kit.WithFinalizers(managed.FinalizerName, "example.org/a")}},
		"DeleteOrphans": {
			bucket: []kit.BucketModifier{
				kit.WithFinalizers(managed.FinalizerName, "example.org/a"), kit.WithPolicies(
					xpv2.ManagementActionObserve,
				),
			},
		},
		"DeleteConnectFails": {provider: unreachableProvider},
		"DeleteIncompleteCreate": {
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"),
			},
		},
		"DeleteConflict": {
			provider: providerWith(managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent}),
			before:   kit.OnNthRequest(1, kit.IsVerb(testkit.Update), kit.FailWithConflict),
		},
		"DeleteServerError": {
			provider: providerWith(managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent}),
			before:   kit.OnNthRequest(1, kit.IsVerb(testkit.Update), kit.FailWithServerError),
		},
		"StatusServerError": {before: kit.OnNthRequest(1, kit.IsVerb(testkit.StatusUpdate), kit.FailWithServerError)},
		"CustomFinalizer": {
			bucket: []kit.BucketModifier{withoutFinalizers},
			finalizer: func(api *testkit.API) resource.Finalizer {
				return resource.NewAPIFinalizer(api.Client(), "custom")
			},
			updates: true,
		},
	}
}

// TestOptions_TurnOffGraft compares Graft's requests with upstream's in each scenario. The options
// turn off a part of Graft, or all of it.
func TestOptions_TurnOffGraft(t *testing.T) {
	cases := map[string]struct {
		reason              string
		options             []managed.ReconcilerOption
		scenarios           string // separated by spaces; by default all
		compareStatusWrites bool
	}{
		"All": {
			reason: "With all of them Graft should make upstream's requests.",
			options: []managed.ReconcilerOption{
				managed.WithoutDeletionStatus(), managed.WithoutExternalNamePersistence(),
				managed.WithoutFinalizerGuard(),
				managed.WithUnchangedStatusWrites(),
			},
			compareStatusWrites: true,
		},
		"WithoutDeletionStatus": {
			reason:    "Deletions should cause upstream's requests.",
			options:   []managed.ReconcilerOption{managed.WithoutDeletionStatus()},
			scenarios: "Delete DeleteFails Deleted DeleteHeld DeleteOrphans DeleteConnectFails DeleteIncompleteCreate DeleteConflict DeleteServerError StatusServerError",
		},
		"WithoutExternalNamePersistence": {
			reason:    "Annotations should be stored with upstream's requests.",
			options:   []managed.ReconcilerOption{managed.WithoutExternalNamePersistence()},
			scenarios: "Create CreateFails LateInit LateInitNotAllowed",
		},
		"WithUnchangedStatusWrites": {
			reason:              "Status should be written with upstream's requests.",
			options:             []managed.ReconcilerOption{managed.WithUnchangedStatusWrites()},
			scenarios:           "Steady Update UpdateFails UpdateNotAllowed ConnectFails ObserveFails Paused InitFails",
			compareStatusWrites: true,
		},
	}
	statusWrites := func(s string) bool { return strings.HasPrefix(s, testkit.StatusUpdate) }
	for name, tc := range cases {
		for scName := range scenarios() {
			// A scenario can be used once.
			again := func() scenario { return scenarios()[scName] }

			if tc.scenarios != "" && !slices.Contains(strings.Fields(tc.scenarios), scName) {
				continue
			}
			t.Run(name+"/"+scName, func(t *testing.T) {
				want, got := again().upstream(t), again().graft(t, tc.options...)
				if !tc.compareStatusWrites {
					want, got = slices.DeleteFunc(want, statusWrites), slices.DeleteFunc(got, statusWrites)
				}
				kit.ExpectEqual(t, tc.reason, "upstream's trace, and Graft's", want, got)
				if tc.scenarios != "" && cmp.Equal(again().upstream(t), again().graft(t)) &&
					!slices.Contains([]string{"Paused", "StatusServerError", "Deleted"}, scName) {
					t.Errorf("\nGraft's requests should differ from upstream's without the option, or the scenario shows nothing.")
				}
			})
		}
	}
}

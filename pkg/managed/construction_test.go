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

// A refusal is a configuration that a constructor refuses with a panic, whose error contains wantErr.
type refusal struct {
	wantErr   string
	construct func()
}

func expectRefusals(t *testing.T, reason string, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				err, _ := recover().(error)
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) ||
					strings.Contains(err.Error(), "nil pointer") {
					t.Errorf("\n%s\nwant a panic with an error that contains %q, got %v", reason, tc.wantErr, err)
				}
			}()
			tc.construct()
		})
	}
}

// newWith returns a function that constructs a reconciler of buckets with options.
func newWith(m manager.Manager, options ...managed.ReconcilerOption) func() {
	return func() {
		managed.NewReconciler(
			m, resource.ManagedKind(testkit.BucketKind()), append(options, managed.WithManagementPolicies())...,
		)
	}
}

func TestNewReconciler_InvalidManager(t *testing.T) {
	var nilManager *xpfake.Manager
	api, kind := testkit.NewAPI(), resource.ManagedKind(testkit.BucketKind())
	exampleKind := func(k string) resource.ManagedKind {
		return resource.ManagedKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: k})
	}
	scheme := testkit.Scheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(exampleKind("Claim")), &xpfake.CompositeClaim{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(exampleKind("Forgetful")), &bucketWithoutConditions{})
	m := &xpfake.Manager{Client: api.Client(), Scheme: scheme}
	async := func(m manager.Manager) func() {
		return newWith(m, kit.WithClient(managed.ExternalClientFns{}), asyncstate.With(asyncstate.NewTracker()))
	}
	newOf := func(m manager.Manager, of resource.ManagedKind) func() {
		return func() { managed.NewReconciler(m, of) }
	}

	expectRefusals(t, "We should refuse a manager or a kind with which each reconcile would fail.", map[string]refusal{
		"NoManager":         {"pass the one that the controller is added to", newOf(nil, kind)},
		"NilManager":        {"pass the one that the controller is added to", newOf(nilManager, kind)},
		"NoClient":          {"has no client", newOf(&xpfake.Manager{Scheme: scheme}, kind)},
		"NoScheme":          {"has no scheme", newOf(&xpfake.Manager{Client: api.Client()}, kind)},
		"UnknownKind":       {"add its API package to the manager's scheme", newOf(m, exampleKind("Unknown"))},
		"NotManaged":        {"is not a managed resource", newOf(m, exampleKind("Claim"))},
		"WithoutConditions": {"does not keep the conditions", newOf(m, exampleKind("Forgetful"))},
		"TrackerRefused":    {"cannot add the tracker of operations", async(stoppedManager{api.Manager()})},
		"RunsNoTracker":     {"can't run the tracker of operations", async(m)},
		"Releaser":          {"without a manager", func() { usage.NewReleaser(nil, schema.GroupVersionKind{}) }},
	})
}

func TestNewReconciler_NilArguments(t *testing.T) {
	var (
		nilLogger      *nilLog
		nilFinalizer   *resource.APIFinalizer
		nilInitializer *upstream.NameAsExternalName
		nilRecorder    *event.APIRecorder
		nilConnector   *upstream.NopConnector
		nilTypedFn     managed.TypedExternalConnectorFn[*v1alpha1.Bucket]
		nilFinder      *kit.FakeFinder
	)
	api := testkit.NewAPI()
	with := func(o func() managed.ReconcilerOption) func() {
		return func() { newWith(api.Manager(), o())() }
	}
	initializers := func(i ...managed.Initializer) func() {
		return func() { managed.WithInitializers(i...) }
	}

	expectRefusals(t, "We should refuse nil at construction, because each reconcile would fail.", map[string]refusal{
		"Option":    {"leave it out", newWith(api.Manager(), nil)},
		"Connector": {"WithExternalConnector was given a nil", func() { managed.WithExternalConnector(nilConnector) }},
		"ConnectDisconnector": {
			"WithExternalConnectDisconnector was given a nil", func() { managed.WithExternalConnectDisconnector(nil) },
		},
		"TypedConnector": {
			"WithTypedExternalConnector was given a nil", func() { managed.WithTypedExternalConnector(nilTypedFn) },
		},
		"TypedConnectDisconnector": {
			"WithTypedExternalConnectDisconnector was given a nil",
			func() { managed.WithTypedExternalConnectDisconnector[*v1alpha1.Bucket](nil) },
		},
		"Finalizer":   {"WithFinalizer was given nil", func() { managed.WithFinalizer(nilFinalizer) }},
		"Initializer": {"WithInitializers (argument 1) was given nil", initializers(nilInitializer)},
		"InitializerSecond": {
			"WithInitializers (argument 2) was given nil", initializers(upstream.InitializerChain{}, nil),
		},
		"InitializerFn": {
			"WithInitializers (argument 1) was given nil", initializers(managed.InitializerFn(nil)),
		},
		"InitializerInChain": {
			"WithInitializers (argument 1.2) was given nil",
			initializers(upstream.InitializerChain{upstream.InitializerChain(nil), nilInitializer}),
		},
		"Logger":   {"WithLogger was given nil", func() { managed.WithLogger(nilLogger) }},
		"Recorder": {"WithRecorder was given nil", func() { managed.WithRecorder(nilRecorder) }},
		"ReferenceResolver": {"WithReferenceResolver was given nil", with(func() managed.ReconcilerOption {
			return managed.WithReferenceResolver(upstream.ReferenceResolverFn(nil))
		})},
		"ReferenceResolverOfUpstream": {"WithReferenceResolver was given nil", with(func() managed.ReconcilerOption {
			return managed.Upstream(upstream.WithReferenceResolver(nil))
		})},
		"MetricRecorder": {"WithMetricRecorder was given nil", with(func() managed.ReconcilerOption {
			return managed.WithMetricRecorder((*upstream.MRMetricRecorder)(nil))
		})},
		"PollIntervalHook": {"WithPollIntervalHook was given nil", with(func() managed.ReconcilerOption {
			return managed.WithPollIntervalHook(nil)
		})},
		"ChangeLogger": {"WithChangeLogger was given nil", with(func() managed.ReconcilerOption {
			return managed.WithChangeLogger(nil)
		})},
		"CriticalAnnotationUpdater": {"WithCriticalAnnotationUpdater was given nil", func() {
			managed.WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(nil))
		}},
		"Tracker":        {"asyncstate.With was given nil", func() { asyncstate.With(nil) }},
		"Finder":         {"pass a Finder", func() { resolve.With(nil) }},
		"FinderPointer":  {"pass a Finder", func() { resolve.With(nilFinder) }},
		"FinderOf":       {"FindWithConnector was", func() { resolve.FindWithConnector(nilConnector) }},
		"FinderOfTyped":  {"FindWithTypedConnector was", func() { resolve.FindWithTypedConnector(nilTypedFn) }},
		"ReservationKey": {"reservation.WithKey", func() { reservation.WithKey(nil) }},
		"ProviderConfigKey": {"ProviderConfigKey", func() {
			reservation.ProviderConfigKey(nil, v1alpha1.GroupVersion(), "spec.account")
		}},
		"RateLimits":      {"ratelimit.With", func() { ratelimit.With(nil) }},
		"RateLimitOption": {"ratelimit.New", func() { ratelimit.New(1, 1, nil) }},
		"AccountKey":      {"WithAccountKey", func() { ratelimit.WithAccountKey(nil) }},
		"UsageTrackerClient": {"without a client and a usage", func() {
			usage.NewProviderConfigUsageTracker(nil, &v1alpha1.ProviderConfigUsage{})
		}},
		"UsageTrackerUsage": {"without a client and a usage", func() {
			usage.NewLegacyProviderConfigUsageTracker(api.Client(), nil)
		}},
	})
}

func TestNewReconciler_InvalidOptions(t *testing.T) {
	api := testkit.NewAPI()
	m, untyped := api.Manager(), kit.WithClient(managed.ExternalClientFns{})
	databases := kit.NewTypedConnector[*v1alpha1.Database](kit.FakeProvider{}, nil)
	typed := managed.WithTypedExternalConnector(kit.NewTypedConnector[*v1alpha1.Bucket](kit.FakeProvider{}, nil))
	noKey := func(context.Context, resource.Managed) (string, error) { return "", nil }
	usagesOf := func(k schema.GroupVersionKind) func() {
		return func() { kit.NewBucketReconciler(api, usage.WithProtection(k)) }
	}
	example := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Usage"}

	expectRefusals(t, "We should refuse options that have no effect, or can never work.", map[string]refusal{
		"ConnectorOfAnotherKind": {"*v1alpha1.Database", newWith(m, managed.WithTypedExternalConnector(databases))},
		"TypedAndUntyped":        {"exclude each other", newWith(m, typed, untyped)},
		"UntypedAndTyped":        {"exclude each other", newWith(m, untyped, typed)},
		"AsyncNotStored": {
			"WithoutExternalNamePersistence exclude each other",
			newWith(m, untyped, asyncstate.With(asyncstate.NewTracker()), managed.WithoutExternalNamePersistence()),
		},
		"ResolveAfter":         {"was given 999ms", func() { resolve.WithAfter(999 * time.Millisecond) }},
		"ResolveAfterAlone":    {"was given without resolve.With", newWith(m, resolve.WithAfter(time.Second))},
		"ConfirmationTimes":    {"n = 0", func() { confirm.With(0, time.Second) }},
		"ConfirmationInterval": {"interval of 0s", func() { confirm.With(1, 0) }},
		"ConfirmationNegative": {"interval of -1s", func() { confirm.With(1, -time.Second) }},
		"Namespace":            {`the namespace ""`, func() { reservation.With("") }},
		"NamespaceInvalid":     {`the namespace "Crossplane System"`, func() { reservation.With("Crossplane System") }},
		"KeyAlone":             {"WithKey was given without reservation.With", newWith(m, reservation.WithKey(noKey))},
		"KeyWithoutField": {"ProviderConfigKey", func() {
			reservation.ProviderConfigKey(api.Client(), v1alpha1.GroupVersion())
		}},
		"RateZero":       {"greater than 0", func() { ratelimit.New(0, 1) }},
		"RateNegative":   {"greater than 0", func() { ratelimit.New(-1, 1) }},
		"RateNaN":        {"greater than 0", func() { ratelimit.New(math.NaN(), 1) }},
		"RateInfinite":   {"greater than 0", func() { ratelimit.New(math.Inf(1), 1) }},
		"BurstZero":      {"1 or more", func() { ratelimit.New(1, 0) }},
		"LimitsEmpty":    {"ratelimit.With", func() { ratelimit.With(&ratelimit.Limits{}) }},
		"UsageNoKind":    {"usage.WithProtection was given the kind", usagesOf(schema.GroupVersionKind{Version: "v1"})},
		"UsageNoVersion": {"usage.WithProtection was given the kind", usagesOf(schema.GroupVersionKind{Kind: "Usage"})},
		"UsageUnknown":   {"AddToScheme: no kind", usagesOf(example)},
		"UsageOther":     {"is not a usage", usagesOf(testkit.DatabaseKind())},
		"UsageLegacy":    {"one of them is legacy", usagesOf(testkit.LegacyProviderConfigUsageKind())},
		"ReleaserEmpty": {"usage.NewReleaser was given the kind", func() {
			usage.NewReleaser(m, schema.GroupVersionKind{})
		}},
		"ReleaserOther": {"is not a usage", func() { usage.NewReleaser(m, testkit.BucketKind()) }},
		"ReleaserUnconditional": {"usage.NewUnconditionalReleaser was given", func() {
			usage.NewUnconditionalReleaser(m, testkit.BucketKind())
		}},
	})
}

func TestUpstream_BypassesGraft(t *testing.T) {
	buckets := kit.NewTypedConnector[*v1alpha1.Bucket](kit.FakeProvider{}, nil)
	disconnecting := upstream.NewTypedNopDisconnector(buckets)
	nop, updater := upstream.ExternalConnectDisconnectorFns{}, upstream.CriticalAnnotationUpdateFn(nil)
	cases := map[string]refusal{"Nil": {"leave it out", newUpstream(nil)}}
	//nolint:staticcheck // Providers use the deprecated ones.
	for name, o := range map[string]upstream.ReconcilerOption{
		"WithExternalConnector":                upstream.WithExternalConnector(&upstream.NopConnector{}),
		"WithExternalConnecter":                upstream.WithExternalConnecter(&upstream.NopConnector{}),
		"WithExternalConnectDisconnector":      upstream.WithExternalConnectDisconnector(nop),
		"WithExternalConnectDisconnecter":      upstream.WithExternalConnectDisconnecter(nop),
		"WithTypedExternalConnector":           upstream.WithTypedExternalConnector(buckets),
		"WithTypedExternalConnectDisconnector": upstream.WithTypedExternalConnectDisconnector(disconnecting),
		"WithTypedExternalConnectDisconnecter": upstream.WithTypedExternalConnectDisconnecter(disconnecting),
		"WithFinalizer":                        upstream.WithFinalizer(resource.FinalizerFns{}),
		"WithInitializers":                     upstream.WithInitializers(),
		"WithCriticalAnnotationUpdater":        upstream.WithCriticalAnnotationUpdater(updater),
	} {
		want := name
		if strings.Contains(name, "Connect") {
			want = "WithExternalConnector"
		}
		cases[name] = refusal{want, newUpstream(o)}
	}
	expectRefusals(t, "We should refuse an option of upstream's that would bypass Graft.", cases)
}

func newUpstream(o upstream.ReconcilerOption) func() {
	return func() {
		newWith(testkit.NewAPI().Manager(), managed.Upstream(upstream.WithTimeout(time.Minute), o))()
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

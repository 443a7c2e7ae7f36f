package managed

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

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A forgetful managed resource doesn't keep conditions.
type forgetful struct{ v1alpha1.Bucket }

func (*forgetful) GetCondition(xpv2.ConditionType) xpv2.Condition { return xpv2.Condition{} }
func (*forgetful) SetConditions(...xpv2.Condition)                {}

func (f *forgetful) DeepCopyObject() runtime.Object { return &forgetful{} }

// What an option or a reconciler can't work with is an error when it is built.
func TestRefused(t *testing.T) {
	var (
		nilManager     *xpfake.Manager
		nilLogger      *nilLog
		nilFinalizer   *resource.APIFinalizer
		nilInitializer *upstream.NameAsExternalName
		nilUpdater     upstream.CriticalAnnotationUpdateFn
		nilRecorder    *event.APIRecorder
		nilConnector   *upstream.NopConnector
		nilTypedFn     TypedExternalConnectorFn[*v1alpha1.Bucket]
		nilFinder      *seeker
	)
	a := testkit.NewAPI()
	kind := resource.ManagedKind(testkit.BucketKind())
	other := func(k string) resource.ManagedKind {
		return resource.ManagedKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: k})
	}
	scheme := testkit.Scheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(other("Claim")), &xpfake.CompositeClaim{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind(other("Forgetful")), &forgetful{})
	m := &xpfake.Manager{Client: a.Client(), Scheme: scheme}

	// with returns what creates a reconciler with options.
	with := func(o func() ReconcilerOption) func() {
		return func() { NewReconciler(a.Manager(), kind, WithManagementPolicies(), o()) }
	}
	usages := testkit.ProviderConfigUsageKind()
	nop := upstream.ExternalConnectDisconnectorFns{}

	// protecting creates a reconciler with a kind of usages.
	protecting := func(k schema.GroupVersionKind) func() {
		return func() { newBucketReconciler(a, WithUsageProtection(k)) }
	}
	over := func(o upstream.ReconcilerOption) func() {
		return with(func() ReconcilerOption { return Upstream(upstream.WithTimeout(time.Minute), o) })
	}
	databases := connect[*v1alpha1.Database](provider{}, nil)
	buckets := connect[*v1alpha1.Bucket](provider{}, nil)
	cases := map[string]struct {
		reason string
		part   string
		fn     func()
	}{
		"NoManager":                 {"There is nothing to read with.", "pass the one that the controller is added to", func() { NewReconciler(nil, kind) }},
		"NilManager":                {"There is nothing to read with.", "pass the one that the controller is added to", func() { NewReconciler(nilManager, kind) }},
		"NoClient":                  {"There is nothing to read with.", "has no client", func() { NewReconciler(&xpfake.Manager{Scheme: scheme}, kind) }},
		"NoScheme":                  {"No kind can be known.", "has no scheme", func() { NewReconciler(&xpfake.Manager{Client: a.Client()}, kind) }},
		"UnknownKind":               {"Upstream panics, too.", "add its API package to the manager's scheme", func() { NewReconciler(m, other("Unknown")) }},
		"NotManaged":                {"Upstream panics, too.", "is not a managed resource", func() { NewReconciler(m, other("Claim")) }},
		"WithoutConditions":         {"It would fail in the queue.", "does not keep the conditions", func() { NewReconciler(m, other("Forgetful")) }},
		"NilOption":                 {"It can't be applied.", "leave it out", with(func() ReconcilerOption { return nil })},
		"NilConnectorPointer":       {"There is nothing to connect with.", "WithExternalConnector was given a nil", with(func() ReconcilerOption { return WithExternalConnector(nilConnector) })},
		"NilConnecter":              {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithExternalConnecter(nil) })},
		"NilConnectDisconnector":    {"There is nothing to connect with.", "WithExternalConnectDisconnector was given a nil", with(func() ReconcilerOption { return WithExternalConnectDisconnector(nil) })},
		"NilConnectDisconnecter":    {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithExternalConnectDisconnecter(nil) })},
		"NilTypedFn":                {"There is nothing to connect with.", "WithTypedExternalConnector was given a nil", with(func() ReconcilerOption { return WithTypedExternalConnector(nilTypedFn) })},
		"NilTypedConnectDisconnect": {"There is nothing to connect with.", "WithTypedExternalConnectDisconnector was given a nil", with(func() ReconcilerOption { return WithTypedExternalConnectDisconnector[*v1alpha1.Bucket](nil) })},
		"NilTypedDisconnecter":      {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithTypedExternalConnectDisconnecter[*v1alpha1.Bucket](nil) })},
		"ConnectorOfAnotherKind":    {"Every reconcile would fail.", "*v1alpha1.Database", with(func() ReconcilerOption { return WithTypedExternalConnector(databases) })},
		"TypedAndUntyped": {"They exclude each other.", "exclude each other", func() {
			NewReconciler(a.Manager(), kind, WithTypedExternalConnector(buckets), connects(ExternalClientFns{}))
		}},
		"UntypedAndTyped": {"They exclude each other.", "exclude each other", func() {
			NewReconciler(a.Manager(), kind, connects(ExternalClientFns{}), WithTypedExternalConnector(buckets))
		}},
		"ManagerRefuses": {"The tracker of operations would never run.", "cannot add the tracker of operations to the manager", func() {
			NewReconciler(stoppedManager{a.Manager()}, kind, WithManagementPolicies(), connects(ExternalClientFns{}), WithAsync(newTracker(a)))
		}},
		"ManagerRunsNothing": {"The tracker of operations would never run.", "can't run the tracker of operations", func() {
			NewReconciler(m, kind, WithManagementPolicies(), connects(ExternalClientFns{}), WithAsync(newTracker(a)))
		}},
		"AsyncNotStored": {"What an operation learns could be lost.", "WithoutExternalNamePersistence exclude each other", func() {
			NewReconciler(a.Manager(), kind, connects(ExternalClientFns{}), WithAsync(newTracker(a)), WithoutExternalNamePersistence())
		}},
		"NilFinalizerPointer": {"It would fail in the queue.", "WithFinalizer was given nil", with(func() ReconcilerOption { return WithFinalizer(nilFinalizer) })},
		"NilInitializer":      {"It would fail in the queue.", "WithInitializers (argument 2) was given nil", with(func() ReconcilerOption { return WithInitializers(upstream.InitializerChain{}, nil) })},
		"NilInChain": {"It would fail in the queue.", "WithInitializers (argument 1.2) was given nil", with(func() ReconcilerOption {
			return WithInitializers(upstream.InitializerChain{upstream.InitializerChain(nil), nilInitializer})
		})},
		"NilInitializerPointer":                   {"It would fail in the queue.", "WithInitializers (argument 1) was given nil", with(func() ReconcilerOption { return WithInitializers(nilInitializer) })},
		"NilLoggerPointer":                        {"It would fail in the queue.", "WithLogger was given nil", with(func() ReconcilerOption { return WithLogger(nilLogger) })},
		"NilRecorderPointer":                      {"It would fail in the queue.", "WithRecorder was given nil", with(func() ReconcilerOption { return WithRecorder(nilRecorder) })},
		"NilResolverFn":                           {"It would fail in the queue.", "WithReferenceResolver was given nil", with(func() ReconcilerOption { return WithReferenceResolver(upstream.ReferenceResolverFn(nil)) })},
		"NilMetricsPointer":                       {"It would fail in the queue.", "WithMetricRecorder was given nil", with(func() ReconcilerOption { return WithMetricRecorder((*upstream.MRMetricRecorder)(nil)) })},
		"NilPollIntervalHook":                     {"It would fail in the queue.", "WithPollIntervalHook was given nil", with(func() ReconcilerOption { return WithPollIntervalHook(nil) })},
		"NilChangeLogger":                         {"It would fail in the queue.", "WithChangeLogger was given nil", with(func() ReconcilerOption { return WithChangeLogger(nil) })},
		"NilOfUpstream":                           {"It would fail in the queue.", "WithReferenceResolver was given nil", with(func() ReconcilerOption { return Upstream(upstream.WithReferenceResolver(nil)) })},
		"NilInitializerFn":                        {"It would fail in the queue.", "WithInitializers (argument 1) was given nil", with(func() ReconcilerOption { return WithInitializers(InitializerFn(nil)) })},
		"NilUpdaterFn":                            {"It would fail in the queue.", "WithCriticalAnnotationUpdater was given nil", with(func() ReconcilerOption { return WithCriticalAnnotationUpdater(nilUpdater) })},
		"Finder":                                  {"There is no finder to call.", "pass what looks for external resources", func() { WithCreateResolver(nil) }},
		"FinderPointer":                           {"A nil pointer in an interface is nil, too.", "pass what looks for external resources", func() { WithCreateResolver(nilFinder) }},
		"CreateResolverOption":                    {"An option does something.", "(argument 2): leave it out", func() { WithCreateResolver(&seeker{}, nil) }},
		"WithResolveAfter":                        {"Upstream can't tell two creates of one second.", "was given 999ms", func() { WithResolveAfter(999 * time.Millisecond) }},
		"FinderConnector":                         {"There is no connector to call.", "FindWithConnector was given a nil connector", func() { FindWithConnector(nilConnector) }},
		"FinderTypedConnector":                    {"There is no typed connector to call.", "FindWithTypedConnector was given a nil connector", func() { FindWithTypedConnector(nilTypedFn) }},
		"ConfirmationTimes":                       {"Never found never ends.", "n = 0", func() { WithDeletionConfirmation(0, time.Second) }},
		"ConfirmationInterval":                    {"Without an interval there is no pause between observations.", "interval of 0s", func() { WithDeletionConfirmation(1, 0) }},
		"ConfirmationNegative":                    {"There is no pause either.", "interval of -1s", func() { WithDeletionConfirmation(1, -time.Second) }},
		"PreCreateObserveOption":                  {"An option does something.", "argument 1", func() { WithPreCreateObserve(nil) }},
		"ReservationNamespace":                    {"Leases have a namespace.", `the namespace ""`, func() { WithExternalNameReservation("") }},
		"ReservationBadNamespace":                 {"Leases can't be in that namespace.", `the namespace "Crossplane System"`, func() { WithExternalNameReservation("Crossplane System") }},
		"ReservationOption":                       {"An option does something.", "argument 2", func() { WithExternalNameReservation("n", nil) }},
		"ReservationKey":                          {"There is no function to call.", "WithReservationKey", func() { WithReservationKey(nil) }},
		"RateZero":                                {"No reconcile would ever start.", "greater than 0", func() { NewRateLimits(0, 1) }},
		"RateNegative":                            {"A negative rate has no meaning.", "greater than 0", func() { NewRateLimits(-1, 1) }},
		"RateNaN":                                 {"NaN has no meaning.", "greater than 0", func() { NewRateLimits(math.NaN(), 1) }},
		"RateInfinite":                            {"It would be no limit.", "greater than 0", func() { NewRateLimits(math.Inf(1), 1) }},
		"BurstZero":                               {"No reconcile would ever start.", "1 or more", func() { NewRateLimits(1, 0) }},
		"RateLimitsNil":                           {"There would be no limit.", "WithRateLimits", func() { WithRateLimits(nil) }},
		"RateLimitsEmpty":                         {"There would be no limit.", "NewRateLimits", func() { WithRateLimits(&RateLimits{}) }},
		"RateLimitOption":                         {"An option that is nil does nothing.", "NewRateLimits", func() { NewRateLimits(1, 1, nil) }},
		"AccountKeyNil":                           {"Every reconcile would call it.", "WithAccountKey", func() { WithAccountKey(nil) }},
		"ProviderConfigKeyClient":                 {"There is nothing to read with.", "ProviderConfigKey", func() { ProviderConfigKey(nil, v1alpha1.GroupVersion(), "spec.account") }},
		"ProviderConfigKeyField":                  {"Without a field all provider configs are one.", "ProviderConfigKey", func() { ProviderConfigKey(a.Client(), v1alpha1.GroupVersion()) }},
		"UsageEmpty":                              {"There is no kind to protect.", "managed.WithUsageProtection was given the kind", protecting(schema.GroupVersionKind{})},
		"UsageVersion":                            {"There is no version to read.", "managed.WithUsageProtection was given the kind", protecting(schema.GroupVersionKind{Group: "example.org", Kind: "Usage"})},
		"Tracker":                                 {"There is no tracker to run.", "WithAsync was given nil", func() { WithAsync(nil) }},
		"UsageUnknown":                            {"A kind that the scheme doesn't know would be read past the tracker's cache.", "AddToScheme: no kind", protecting(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Usage"})},
		"UsageOther":                              {"A kind that isn't one of usages would start a cache of it.", "is not a usage", protecting(testkit.DatabaseKind())},
		"UsageLegacy":                             {"A Bucket has no legacy usage.", "one of them is legacy", protecting(testkit.LegacyProviderConfigUsageKind())},
		"UsageTrackerClient":                      {"It would fail in the queue.", "without a client and a usage", func() { NewProviderConfigUsageTracker(nil, &v1alpha1.ProviderConfigUsage{}) }},
		"UsageTrackerKind":                        {"It would fail in the queue.", "without a client and a usage", func() { NewLegacyProviderConfigUsageTracker(a.Client(), nil) }},
		"ReleaserEmpty":                           {"There is no kind to release.", "managed.NewUsageReleaser was given the kind", func() { NewUsageReleaser(a.Manager(), schema.GroupVersionKind{}) }},
		"ReleaserOther":                           {"A kind that isn't one of usages can't be released.", "is not a usage", func() { NewUsageReleaser(a.Manager(), testkit.BucketKind()) }},
		"ReleaserManager":                         {"Without a manager there is nothing to read from.", "without a manager", func() { NewUsageReleaser(nil, usages) }},
		"ReleaserOption":                          {"An option does something.", "argument 3", func() { NewUsageReleaser(a.Manager(), usages, nil) }},
		"UpstreamWithExternalConnector":           {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithExternalConnector(&upstream.NopConnector{}))},
		"UpstreamWithExternalConnecter":           {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithExternalConnecter(&upstream.NopConnector{}))}, //nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnector": {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithExternalConnectDisconnector(nop))},            //nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnecter": {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithExternalConnectDisconnecter(nop))},            //nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnector":      {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithTypedExternalConnector(buckets))},
		"UpstreamWithTypedExternalConnectDisconnector": {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithTypedExternalConnectDisconnector(upstream.NewTypedNopDisconnector(buckets)))}, //nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnectDisconnecter": {"Graft would not be seen.", "WithExternalConnector", over(upstream.WithTypedExternalConnectDisconnecter(upstream.NewTypedNopDisconnector(buckets)))}, //nolint:staticcheck // Providers use it.
		"UpstreamWithFinalizer":                        {"Graft would not be seen.", "WithFinalizer", over(upstream.WithFinalizer(resource.FinalizerFns{}))},
		"UpstreamWithInitializers":                     {"Graft would not be seen.", "WithInitializers", over(upstream.WithInitializers())},
		"UpstreamWithCriticalAnnotationUpdater":        {"Graft would not be seen.", "WithCriticalAnnotationUpdater", over(upstream.WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(nil)))},
		"UpstreamNil":                                  {"Graft would not be seen.", "leave it out", over(nil)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				err, _ := recover().(error)
				if err == nil || !strings.Contains(err.Error(), tc.part) || strings.Contains(err.Error(), "nil pointer") {
					t.Errorf("\n%s\nwant a panic with an error that says %q, got %v", tc.reason, tc.part, err)
				}
			}()
			tc.fn()
		})
	}
}

type nilLog struct{ logging.Logger }

type stoppedManager struct{ manager.Manager }

func (stoppedManager) Add(manager.Runnable) error { return errors.New("it is stopped") }

// What upstream takes is taken, and raw options in order.
func TestNewReconcilerAccepts(t *testing.T) {
	a, sync := testkit.NewAPI(bucket(named("id-1"))), connects(ExternalClientFns{})
	hours := func(n time.Duration) upstream.ReconcilerOption { return upstream.WithPollInterval(n * time.Hour) }
	cases := map[string]struct {
		reason string
		m      manager.Manager
		opts   []ReconcilerOption
		polls  time.Duration
	}{
		"NoOptions":            {reason: "Upstream's defaults do nothing."},
		"NoLiveReader":         {reason: "Managers made for tests often can't read live.", m: &xpfake.Manager{Client: a.Client(), Scheme: testkit.Scheme()}},
		"LastConnectorWins":    {reason: "This is as with upstream.", opts: []ReconcilerOption{connects(ExternalClientFns{ObserveFn: fails}), sync, WithPollInterval(time.Hour)}, polls: time.Hour},
		"ConnectorOfInterface": {reason: "A typed connector may be one for an interface.", opts: []ReconcilerOption{WithTypedExternalConnector(connect[resource.ModernManaged](provider{}, func(resource.Managed) {}))}},
		"NilInitializerChain":  {reason: "Code that upjet generates for names which the external system assigns.", opts: []ReconcilerOption{WithInitializers(upstream.InitializerChain(nil))}},
		"NoInitializers":       {reason: "No initializers is a choice.", opts: []ReconcilerOption{WithInitializers()}},
		"OfUpstream": {
			reason: "Options may be upstream's.",
			opts: []ReconcilerOption{Upstream(
				upstream.WithTimeout(time.Minute),
				upstream.WithMinPollInterval(time.Second),
				upstream.WithPollIntervalHook(func(_ resource.Managed, d time.Duration) time.Duration { return d }),
				upstream.WithMetricRecorder(upstream.NewNopMetricRecorder()),
				upstream.WithCreationGracePeriod(time.Second),
				upstream.WithReferenceResolver(upstream.ReferenceResolverFn(func(context.Context, resource.Managed) error { return nil })),
				upstream.WithLogger(logging.NewNopLogger()),
				upstream.WithRecorder(&testkit.Said{}),
				upstream.WithReconcilerSupportedManagementPolicies([]sets.Set[xpv2.ManagementAction]{sets.New(xpv2.ManagementActionAll)}),
				upstream.WithDeterministicExternalName(true),
			)},
		},
		"LastOfUpstream": {reason: "The last option counts.", opts: []ReconcilerOption{sync, WithPollInterval(time.Hour), Upstream(hours(1), hours(2)), Upstream(hours(3)), Upstream()}, polls: 3 * time.Hour},
		"AfterUpstream":  {reason: "Also if it is none of upstream's.", opts: []ReconcilerOption{sync, Upstream(hours(2)), WithPollInterval(time.Hour)}, polls: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := tc.m
			if m == nil {
				m = a.Manager()
			}
			r := NewReconciler(m, resource.ManagedKind(testkit.BucketKind()), append([]ReconcilerOption{WithManagementPolicies()}, tc.opts...)...)
			result, err := r.Reconcile(t.Context(), request())
			must(t, err)
			if tc.polls > 0 {
				wants(t, tc.reason, "poll interval", tc.polls, result.RequeueAfter)
			}
		})
	}
}

func TestManagerOfTests(t *testing.T) {
	a := testkit.NewAPI()
	live, cached := &struct{ client.Client }{a.Live()}, &struct{ client.Client }{a.Client()}
	boom := errors.New("boom")
	type bare struct{ manager.Manager }
	cases := map[string]struct {
		reason string
		m      manager.Manager
		reader client.Reader
		runs   bool
	}{
		"Fake":          {reason: "We should read with the client of a manager that has no live reader.", m: &xpfake.Manager{Client: cached}},
		"EmbedsFake":    {reason: "We should read with the client of a manager that embeds one without a live reader.", m: &struct{ *xpfake.Manager }{&xpfake.Manager{Client: cached}}},
		"NilReader":     {reason: "We should read with the client of a manager whose live reader is nil.", m: &readingManager{Manager: &xpfake.Manager{Client: cached}}},
		"Reads":         {reason: "We should read with the manager's live reader.", m: &readingManager{live: live}, reader: live},
		"EmbedsReading": {reason: "We should read with the live reader of an embedded manager.", m: &struct{ *readingManager }{&readingManager{live: live}}, reader: live},
		"Runs":          {reason: "We should use the Add method of a manager.", m: bare{stoppedManager{&readingManager{live: live}}}, reader: live, runs: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.reader == nil {
				tc.reader = tc.m.GetClient()
			}
			wants(t, tc.reason, "the expected reader", true, liveReader(tc.m) == tc.reader)
			refused := func() (p any) {
				defer func() { p = recover() }()
				wants(t, tc.reason, "error of Add", true, addTo(tc.m, nil) != nil)
				return nil
			}()
			wants(t, tc.reason, "runs", tc.runs, refused == nil)
			if !tc.runs && !strings.Contains(fmt.Sprint(refused), "give the test's manager an Add method") {
				t.Errorf("\n%s\nwant a panic that says what the manager needs, got %v", tc.reason, refused)
			}
		})
	}

	defer func() {
		wants(t, "We should not hide another panic of a manager.", "panic", any(boom), recover(), cmpopts.EquateErrors())
	}()
	_ = implemented(func() { panic(boom) })
}

type readingManager struct {
	manager.Manager

	live client.Reader
}

func (m *readingManager) GetAPIReader() client.Reader { return m.live }

// Every option for a connector connects and disconnects as upstream does.
func TestConnectors(t *testing.T) {
	type calls struct {
		Connect, Observe, ClientDisconnect, Disconnect int
	}
	type options struct {
		graft ReconcilerOption
		up    upstream.ReconcilerOption
	}

	// spellings returns the options for connectors that count their calls.
	spellings := func(c *calls, err error) map[string]options {
		client := ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				c.Observe++
				return exists(ctx, mg)
			},
			DisconnectFn: func(context.Context) error { c.ClientDisconnect++; return errors.New("ignored") },
		}
		disconnect := func(context.Context) error { c.Disconnect++; return errors.New("ignored") }
		p := provider{connectErr: err, client: client}
		see := func(resource.Managed) { c.Connect++ }
		ufn, tfn := ExternalConnectorFn(connect[resource.Managed](p, see)), connect[*v1alpha1.Bucket](p, see)
		u := ExternalConnectDisconnectorFns{ConnectFn: ufn, DisconnectFn: disconnect}
		ty := TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{ConnectFn: tfn, DisconnectFn: disconnect}

		//nolint:staticcheck // Deprecated spellings, which providers use.
		return map[string]options{
			"WithExternalConnector":                {WithExternalConnector(ufn), upstream.WithExternalConnector(ufn)},
			"WithExternalConnecter":                {WithExternalConnecter(ufn), upstream.WithExternalConnecter(ufn)},
			"WithExternalConnectDisconnector":      {WithExternalConnectDisconnector(u), upstream.WithExternalConnectDisconnector(u)},
			"WithExternalConnectDisconnecter":      {WithExternalConnectDisconnecter(u), upstream.WithExternalConnectDisconnecter(u)},
			"WithTypedExternalConnector":           {WithTypedExternalConnector(tfn), upstream.WithTypedExternalConnector(tfn)},
			"WithTypedExternalConnectDisconnector": {WithTypedExternalConnectDisconnector(ty), upstream.WithTypedExternalConnectDisconnector(ty)},
			"WithTypedExternalConnectDisconnecter": {WithTypedExternalConnectDisconnecter(ty), upstream.WithTypedExternalConnectDisconnecter(ty)},
		}
	}
	for name := range spellings(&calls{}, nil) {
		for outcome, err := range map[string]error{"Connects": nil, "Fails": errProvider} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				var want, got calls
				kind := resource.ManagedKind(testkit.BucketKind())
				run(t, upstream.NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spellings(&want, err)[name].up), "b", "b")
				run(t, NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spellings(&got, err)[name].graft), "b", "b")
				wants(t, "", "calls of upstream's and Graft's", want, got)
				wants(t, "", "connections in 2 reconciles", 2, got.Connect)
			})
		}
	}
}

// A client of one type of managed resource is not called with another.
func TestTypedClientOfAnotherType(t *testing.T) {
	x := &outside{}
	c := &typedClient[*v1alpha1.Bucket]{inner: connected[*v1alpha1.Bucket](provider{client: x.client()})}
	for mg, want := range map[resource.Managed]int{&v1alpha1.Database{}: 0, bucket(): 4} {
		x.observes, x.acts = 0, nil
		_, oerr := c.Observe(t.Context(), mg)
		_, cerr := c.Create(t.Context(), mg)
		_, uerr := c.Update(t.Context(), mg)
		_, derr := c.Delete(t.Context(), mg)
		for _, err := range []error{oerr, cerr, uerr, derr} {
			wants(t, "", "called without an error", want > 0, err == nil)
		}
		wants(t, "", "calls", want, x.observes+len(x.acts))
	}
}

// A connector that returns a client and an error, or neither, has not connected.
func TestTypedConnectorFails(t *testing.T) {
	type typed = TypedExternalClient[*v1alpha1.Bucket]
	boom := errors.New("boom")
	for err, ec := range map[error]typed{boom: TypedExternalClientFns[*v1alpha1.Bucket]{}, nil: nil} {
		c := &typedConnector[*v1alpha1.Bucket]{inner: TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{
			ConnectFn: func(context.Context, *v1alpha1.Bucket) (typed, error) { return ec, err },
		}}
		got, gotErr := c.Connect(t.Context(), bucket())
		wants(t, "What the caller reports is the error, or that there is nothing.", "client, error", []any{nil, err}, []any{got, gotErr}, cmpopts.EquateErrors())
	}
}

// A trace is what a reconciler asked of the API server, and how its reconciles ended.
type trace []string

// varies is what differs from run to run.
var varies = regexp.MustCompile(`("(?:lastTransitionTime|resourceVersion|crossplane\.io/external-create-[a-z]+)"):"[^"]*"`)

// scrubbed returns o as JSON, without what differs from run to run.
func scrubbed(o runtime.Object, withStatus bool) string {
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
	return varies.ReplaceAllString(string(j), "$1")
}

// A scenario is a managed resource and provider code that are reconciled a few times.
type scenario struct {
	reason string
	mods   []func(b *v1alpha1.Bucket)

	provider     provider
	initializers []Initializer
	defaultInit  bool
	finalizer    func(a *testkit.API) resource.Finalizer
	before       func(ctx context.Context, r testkit.Request) error
	updates      bool // Metadata or spec are: upstream loses status in memory then.
}

// reconciled returns the trace of 5 reconciles, a second apart.
func (sc scenario) reconciled(t *testing.T, build func(a *testkit.API, connect ExternalConnector) reconcile.Reconciler) trace {
	t.Helper()
	var tr trace
	synctest.Test(t, func(*testing.T) {
		a := testkit.NewAPI(deleted(sc.mods...))
		a.Before = func(ctx context.Context, r testkit.Request) error {
			if r.Verb != testkit.Get {
				tr = append(tr, fmt.Sprintf("%s %s %s", r.Verb, scrubbed(r.Object, !sc.updates), r.Body))
			}
			if sc.before != nil {
				return sc.before(ctx, r)
			}
			return nil
		}
		r := build(a, connect[resource.Managed](sc.provider, func(mg resource.Managed) {
			tr = append(tr, "connect "+scrubbed(mg, !sc.updates))
		}))
		for range 5 {
			res, err := r.Reconcile(context.Background(), request())
			tr = append(tr, fmt.Sprintf("=> %+v %v", res, err))
			time.Sleep(time.Second)
		}
	})
	return tr
}

// options adds those of the scenario, upstream's or Graft's.
func options[O any](sc scenario, a *testkit.API, initializers func(...Initializer) O, finalizer func(resource.Finalizer) O, o ...O) []O {
	if !sc.defaultInit {
		o = append(o, initializers(sc.initializers...))
	}
	if sc.finalizer != nil {
		o = append(o, finalizer(sc.finalizer(a)))
	}
	return o
}

func (sc scenario) upstream(t *testing.T) trace {
	t.Helper()
	return sc.reconciled(t, func(a *testkit.API, c ExternalConnector) reconcile.Reconciler {
		return upstream.NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), options(sc, a, upstream.WithInitializers, upstream.WithFinalizer,
			upstream.WithManagementPolicies(), upstream.WithCreationGracePeriod(0), upstream.WithExternalConnector(c))...)
	})
}

func (sc scenario) graft(t *testing.T, off ...ReconcilerOption) trace {
	t.Helper()
	return sc.reconciled(t, func(a *testkit.API, c ExternalConnector) reconcile.Reconciler {
		return NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()), options(sc, a, WithInitializers, WithFinalizer,
			append(off, WithManagementPolicies(), WithCreationGracePeriod(0), WithExternalConnector(c), waits(noWait))...)...)
	})
}

func scenarios() map[string]scenario {
	alive := func(mg *v1alpha1.Bucket) { mg.SetDeletionTimestamp(nil) }
	unnamed := func(mg *v1alpha1.Bucket) { alive(mg); mg.SetFinalizers(nil) }
	of := func(c ExternalClientFns) provider { return provider{client: c} }
	outdated := returns(ExternalObservation{ResourceExists: true}, nil)

	// cloud has no resource until one is created.
	cloud := func(createErr error) provider {
		x := &outside{}
		return of(x.on("create", func(b *v1alpha1.Bucket) error { named("id-1")(b); return createErr }).client())
	}
	lateInit := of((&outside{there: true, late: true}).on("observe", func(b *v1alpha1.Bucket) error { named("id-1")(b); return nil }).client())
	down := provider{connectErr: errProvider}
	return map[string]scenario{
		"Steady":            {reason: "An external resource that is as it should be.", mods: []func(*v1alpha1.Bucket){alive}},
		"Create":            {reason: "An external resource that is created.", mods: []func(*v1alpha1.Bucket){unnamed}, provider: cloud(nil), updates: true},
		"CreateFails":       {reason: "A create that fails.", mods: []func(*v1alpha1.Bucket){unnamed}, provider: cloud(errProvider), updates: true},
		"CreateConflict":    {reason: "A conflict before the create.", mods: []func(*v1alpha1.Bucket){unnamed}, provider: cloud(nil), before: on(1, verb(testkit.Update), lostRace), updates: true},
		"CreateServerError": {reason: "A server error before the create.", mods: []func(*v1alpha1.Bucket){alive}, provider: cloud(nil), before: on(1, verb(testkit.Update), broken), updates: true},
		"CreateIncomplete":  {reason: "A create whose outcome is unknown.", mods: []func(*v1alpha1.Bucket){alive, annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")}},
		"Update":            {reason: "An update.", mods: []func(*v1alpha1.Bucket){alive}, provider: of(ExternalClientFns{ObserveFn: outdated})},
		"UpdateFails":       {reason: "An update that fails.", mods: []func(*v1alpha1.Bucket){alive}, provider: of(ExternalClientFns{ObserveFn: outdated, UpdateFn: returns(ExternalUpdate{}, errProvider)})},
		"UpdateNotAllowed":  {reason: "An update that the policies don't allow.", mods: []func(*v1alpha1.Bucket){alive, policies(xpv2.ManagementActionObserve)}, provider: of(ExternalClientFns{ObserveFn: outdated})},
		"LateInit":          {reason: "A late initialization.", mods: []func(*v1alpha1.Bucket){alive}, provider: lateInit, updates: true},
		"LateInitNotAllowed": {
			reason:   "A late initialization that the policies don't allow.",
			mods:     []func(*v1alpha1.Bucket){alive, policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete)},
			provider: lateInit,
		},
		"Paused":                 {reason: "A pause.", mods: []func(*v1alpha1.Bucket){alive, annotated(meta.AnnotationKeyReconciliationPaused, "true")}},
		"DefaultInit":            {reason: "The default initializer.", mods: []func(*v1alpha1.Bucket){alive}, defaultInit: true, updates: true},
		"InitFails":              {reason: "An initializer that fails.", mods: []func(*v1alpha1.Bucket){alive}, initializers: []Initializer{InitializerFn(func(context.Context, resource.Managed) error { return errProvider })}},
		"ConnectFails":           {reason: "Broken credentials.", mods: []func(*v1alpha1.Bucket){alive}, provider: down},
		"ObserveFails":           {reason: "An outage.", mods: []func(*v1alpha1.Bucket){alive}, provider: of(ExternalClientFns{ObserveFn: fails})},
		"Delete":                 {reason: "A slow delete."},
		"DeleteFails":            {reason: "A delete that fails.", provider: of(ExternalClientFns{DeleteFn: deleteFails})},
		"Deleted":                {reason: "An external resource that is gone.", provider: of(ExternalClientFns{ObserveFn: absent})},
		"DeleteHeld":             {reason: "A delete that others hold.", mods: []func(*v1alpha1.Bucket){finalizers(FinalizerName, "example.org/a")}},
		"DeleteOrphans":          {reason: "A delete that orphans.", mods: []func(*v1alpha1.Bucket){finalizers(FinalizerName, "example.org/a"), policies(xpv2.ManagementActionObserve)}},
		"DeleteConnectFails":     {reason: "A delete with broken credentials.", provider: down},
		"DeleteIncompleteCreate": {reason: "A delete after a create whose outcome is unknown.", mods: []func(*v1alpha1.Bucket){annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")}},
		"DeleteConflict":         {reason: "A conflict while the finalizer goes.", provider: of(ExternalClientFns{ObserveFn: absent}), before: on(1, verb(testkit.Update), lostRace)},
		"DeleteServerError":      {reason: "A server error while the finalizer goes.", provider: of(ExternalClientFns{ObserveFn: absent}), before: on(1, verb(testkit.Update), broken)},
		"StatusServerError":      {reason: "A server error while status is written.", before: on(1, verb(testkit.StatusUpdate), broken)},
		"CustomFinalizer": {
			reason:    "A finalizer with a client of its own.",
			mods:      []func(*v1alpha1.Bucket){unnamed},
			finalizer: func(a *testkit.API) resource.Finalizer { return resource.NewAPIFinalizer(a.Client(), "custom") },
			updates:   true,
		},
	}
}

// Each option turns off what it says. With all of them, Graft does what upstream does.
func TestTurnedOff(t *testing.T) {
	cases := map[string]struct {
		reason string
		off    []ReconcilerOption
		among  string // The scenarios that are about it, all if it is empty.
		status bool   // Unchanged status is written, too.
	}{
		"All": {
			reason: "Graft should do what upstream does.",
			off:    []ReconcilerOption{WithoutDeletionStatus(), WithoutExternalNamePersistence(), WithoutFinalizerGuard(), WithUnchangedStatusWrites()},
			status: true,
		},
		"WithoutDeletionStatus": {
			reason: "Deletions should be as upstream has them.",
			off:    []ReconcilerOption{WithoutDeletionStatus()},
			among:  "Delete DeleteFails Deleted DeleteHeld DeleteOrphans DeleteConnectFails DeleteIncompleteCreate DeleteConflict DeleteServerError StatusServerError",
		},
		"WithoutExternalNamePersistence": {
			reason: "Annotations should be stored as upstream stores them.",
			off:    []ReconcilerOption{WithoutExternalNamePersistence()},
			among:  "Create CreateFails LateInit LateInitNotAllowed",
		},
		"WithUnchangedStatusWrites": {
			reason: "Status should be written as often as upstream writes it.",
			off:    []ReconcilerOption{WithUnchangedStatusWrites()},
			among:  "Steady Update UpdateFails UpdateNotAllowed ConnectFails ObserveFails Paused InitFails",
			status: true,
		},
	}
	statusWrites := func(s string) bool { return strings.HasPrefix(s, testkit.StatusUpdate) }
	for name, tc := range cases {
		for scName, sc := range scenarios() {
			// What a scenario remembers is for one run.
			again := func() scenario { return scenarios()[scName] }

			if tc.among != "" && !slices.Contains(strings.Fields(tc.among), scName) {
				continue
			}
			t.Run(name+"/"+scName, func(t *testing.T) {
				want, got := again().upstream(t), again().graft(t, tc.off...)
				if !tc.status {
					want, got = slices.DeleteFunc(want, statusWrites), slices.DeleteFunc(got, statusWrites)
				}
				wants(t, sc.reason+" "+tc.reason, "upstream's trace, and Graft's", want, got)
				if tc.among != "" && cmp.Equal(again().upstream(t), again().graft(t)) && !slices.Contains([]string{"Paused", "StatusServerError", "Deleted"}, scName) {
					t.Errorf("\n%s\nthis scenario should differ without the option, or it proves nothing", tc.reason)
				}
			})
		}
	}
}

// calls are a provider's: whether the external resource exists, and what a call led to.
type calls func(what string, c *call) (bool, seam.State, error)

func (f calls) Connect(_ context.Context, c *call) error {
	_, _, err := f("connect", c)
	return err
}

func (f calls) Observe(_ context.Context, c *call) (observeResult, error) {
	there, state, err := f("observe", c)
	return observeResult{ExternalObservation: ExternalObservation{ResourceExists: there}, Outcome: seam.Outcome{State: state}}, err
}

func (f calls) Create(_ context.Context, c *call) (createResult, error) {
	_, state, err := f("create", c)
	return createResult{Outcome: seam.Outcome{State: state}}, err
}

func (f calls) Update(_ context.Context, c *call) (ExternalUpdate, error) {
	_, _, err := f("update", c)
	return ExternalUpdate{}, err
}

func (f calls) Delete(_ context.Context, c *call) (deleteResult, error) {
	_, state, err := f("delete", c)
	return deleteResult{Outcome: seam.Outcome{State: state}}, err
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
	with := func(field func(c *config) newLayer, o ReconcilerOption) newLayer {
		r := &Reconciler{config: config{connector: connectionOf(upstream.NewNopDisconnector(connectorTo(clientOf(ExternalClientFns{}))), false)}}
		o(r)
		return field(&r.config)
	}
	reservation := func(c *config) newLayer { return c.reservation }
	confirmation := func(c *config) newLayer { return c.confirmation }
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

		// What is there afterwards, and who holds the lease.
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
			layer: with(reservation, WithExternalNameReservation(leaseNamespace)), object: of("b"), named: "shared", holder: "b",
		},
		"UsageProtection": {
			reason: "What is not tracked does not keep the provider from being connected to.", calls: "connect",
			layer: with(func(c *config) newLayer { return c.usageProtection }, WithUsageProtection(testkit.ProviderConfigUsageKind())), object: bucket(used),
		},
		"Refusal": {
			reason: "What was refused is not managed.", calls: "observe", err: "is not managed",
			layer: newRefusal, object: bucket(named("id-1"), annotated(AnnotationKeyCreateRefused, "id-1")), inner: ends(true, seam.Done, nil), named: "id-1",
		},
		"Confirmation": {
			reason: "It exists although it was deleted, so the next not-found is not believed.", calls: "delete observe observe", err: "yet to be confirmed",
			layer: with(confirmation, WithDeletionConfirmation(3, interval)), object: deleted,
			inner: func(string, *call) (bool, seam.State, error) { seen++; return seen == 2, seam.Done, nil },
		},
		"ConfirmationInProgress": {
			reason: "A Delete that has only begun may fail.", calls: "delete observe", state: seam.InProgress, err: "yet to be confirmed",
			layer: with(confirmation, WithDeletionConfirmation(3, interval)), object: deleted, inner: ends(false, seam.InProgress, nil),
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
			layer: with(func(c *config) newLayer { return c.preCreate }, WithPreCreateObserve(WithAdoption())), object: bucket(), inner: ends(true, seam.Done, nil),
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
			reason: "What is paused by now is left alone.", calls: "connect observe create", state: seam.Untried, err: "it is paused; its external resource was left alone",
			layer: newFreshness, object: bucket(),
			inner: func(_ string, c *call) (bool, seam.State, error) {
				paused(bucketOf(c.mg))
				return false, seam.Done, nil
			},
		},
		"FreshnessDeleted": {
			reason: "For what is being deleted by now nothing is created.", calls: "connect observe create", state: seam.Untried, err: "it is being deleted; its external resource was left alone",
			layer: newFreshness, object: bucket(),
			inner: func(_ string, c *call) (bool, seam.State, error) {
				deleting(bucketOf(c.mg))
				return false, seam.Done, nil
			},
		},
		"CreateResolver": {
			reason: "A create without an answer has an unknown outcome.", calls: "create", state: seam.Unknown, err: "deadline",
			layer: with(func(c *config) newLayer { return c.createResolver }, WithCreateResolver(&seeker{})), object: bucket(), inner: ends(false, seam.Done, context.DeadlineExceeded),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			if tc.inner == nil {
				tc.inner = ends(false, seam.Done, nil)
			}
			known := &store.Store{}
			l := tc.layer(parts{
				kind: testkit.BucketKind(), managed: &v1alpha1.Bucket{}, scheme: testkit.Scheme(), client: a.Client(), seam: a.Client(), live: a.Live(),
				log: logging.NewNopLogger(), record: &testkit.Said{}, run: func(manager.Runnable) error { return nil },
				store: known, ready: &readyConditions{store: known}, dropped: &droppedEvents{store: known}, settings: settings{ownFinalizer: FinalizerName, persist: true},
			}, tc.inner)
			e := l.external
			run(t, seam.NewReconciler(a.Client(), seam.NewKind(testkit.BucketKind(), testkit.Scheme()), func(cl client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					b := &v1alpha1.Bucket{}
					must(t, cl.Get(ctx, req.NamespacedName, b))
					c := &call{Session: seam.From(ctx), mg: b}
					c.client = ExternalClientFns{ObserveFn: func(ctx context.Context, _ resource.Managed) (ExternalObservation, error) {
						o, err := tc.inner.Observe(ctx, c)
						return o.ExternalObservation, err
					}}
					c.Connecting(b)
					state, err := seam.Done, error(nil)
					for _, what := range strings.Fields(tc.calls) {
						_, state, err = through(ctx, e)(what, c)
					}
					if u, ok := e.(CriticalAnnotationUpdater); ok && err == nil {
						err = u.UpdateCriticalAnnotations(ctx, b)
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

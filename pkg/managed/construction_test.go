package managed

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// says checks that fn panics with an error that contains a part of a sentence.
func says(t *testing.T, reason, part string, fn func()) {
	t.Helper()

	defer func() {
		t.Helper()

		r := recover()

		err, ok := r.(error)
		if !ok {
			t.Fatalf("\n%s\nwant a panic with an error that says %q, got %v", reason, part, r)
		}

		if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("\n%s\nwant a panic with an error that says %q, got %v", reason, part, err)
		}
	}()

	fn()
}

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

	databases := connect[*v1alpha1.Database](provider{}, nil)
	buckets := connect[*v1alpha1.Bucket](provider{}, nil)

	cases := map[string]struct {
		reason string
		part   string
		fn     func()
	}{
		"NoManager":         {"There is nothing to read with.", "pass the one that the controller is added to", func() { NewReconciler(nil, kind) }},
		"NilManager":        {"There is nothing to read with.", "pass the one that the controller is added to", func() { NewReconciler(nilManager, kind) }},
		"NoClient":          {"There is nothing to read with.", "has no client", func() { NewReconciler(&xpfake.Manager{Scheme: scheme}, kind) }},
		"NoScheme":          {"No kind can be known.", "has no scheme", func() { NewReconciler(&xpfake.Manager{Client: a.Client()}, kind) }},
		"UnknownKind":       {"Upstream panics, too.", "add its API package to the manager's scheme", func() { NewReconciler(m, other("Unknown")) }},
		"NotManaged":        {"Upstream panics, too.", "is not a managed resource", func() { NewReconciler(m, other("Claim")) }},
		"WithoutConditions": {"It would fail in the queue.", "does not keep the conditions", func() { NewReconciler(m, other("Forgetful")) }},
		"NilOption":         {"It can't be applied.", "leave it out", with(func() ReconcilerOption { return nil })},

		"NilConnectorPointer":       {"There is nothing to connect with.", "WithExternalConnector was given a nil", with(func() ReconcilerOption { return WithExternalConnector(nilConnector) })},
		"NilConnecter":              {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithExternalConnecter(nil) })},
		"NilConnectDisconnector":    {"There is nothing to connect with.", "WithExternalConnectDisconnector was given a nil", with(func() ReconcilerOption { return WithExternalConnectDisconnector(nil) })},
		"NilConnectDisconnecter":    {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithExternalConnectDisconnecter(nil) })},
		"NilTypedFn":                {"There is nothing to connect with.", "WithTypedExternalConnector was given a nil", with(func() ReconcilerOption { return WithTypedExternalConnector(nilTypedFn) })},
		"NilTypedConnectDisconnect": {"There is nothing to connect with.", "WithTypedExternalConnectDisconnector was given a nil", with(func() ReconcilerOption { return WithTypedExternalConnectDisconnector[*v1alpha1.Bucket](nil) })},
		"NilTypedDisconnecter":      {"There is nothing to connect with.", "given a nil", with(func() ReconcilerOption { return WithTypedExternalConnectDisconnecter[*v1alpha1.Bucket](nil) })},

		"ConnectorOfAnotherKind": {"Every reconcile would fail.", "*v1alpha1.Database", with(func() ReconcilerOption { return WithTypedExternalConnector(databases) })},
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

		"NilFinalizerPointer": {"It would fail in the queue.", "WithFinalizer was given nil", with(func() ReconcilerOption { return WithFinalizer(nilFinalizer) })},
		"NilInitializer":      {"It would fail in the queue.", "WithInitializers (argument 2) was given nil", with(func() ReconcilerOption { return WithInitializers(upstream.InitializerChain{}, nil) })},
		"NilInChain": {"It would fail in the queue.", "WithInitializers (argument 1.2) was given nil", with(func() ReconcilerOption {
			return WithInitializers(upstream.InitializerChain{upstream.InitializerChain(nil), nilInitializer})
		})},
		"NilInitializerPointer": {"It would fail in the queue.", "WithInitializers (argument 1) was given nil", with(func() ReconcilerOption { return WithInitializers(nilInitializer) })},
		"NilLoggerPointer":      {"It would fail in the queue.", "WithLogger was given nil", with(func() ReconcilerOption { return WithLogger(nilLogger) })},
		"NilRecorderPointer":    {"It would fail in the queue.", "WithRecorder was given nil", with(func() ReconcilerOption { return WithRecorder(nilRecorder) })},
		"NilResolverFn":         {"It would fail in the queue.", "WithReferenceResolver was given nil", with(func() ReconcilerOption { return WithReferenceResolver(upstream.ReferenceResolverFn(nil)) })},
		"NilMetricsPointer":     {"It would fail in the queue.", "WithMetricRecorder was given nil", with(func() ReconcilerOption { return WithMetricRecorder((*upstream.MRMetricRecorder)(nil)) })},
		"NilPollIntervalHook":   {"It would fail in the queue.", "WithPollIntervalHook was given nil", with(func() ReconcilerOption { return WithPollIntervalHook(nil) })},
		"NilChangeLogger":       {"It would fail in the queue.", "WithChangeLogger was given nil", with(func() ReconcilerOption { return WithChangeLogger(nil) })},
		"NilOfUpstream":         {"It would fail in the queue.", "WithReferenceResolver was given nil", with(func() ReconcilerOption { return Upstream(upstream.WithReferenceResolver(nil)) })},
		"NilInitializerFn":      {"It would fail in the queue.", "WithInitializers (argument 1) was given nil", with(func() ReconcilerOption { return WithInitializers(InitializerFn(nil)) })},
		"NilUpdaterFn":          {"It would fail in the queue.", "WithCriticalAnnotationUpdater was given nil", with(func() ReconcilerOption { return WithCriticalAnnotationUpdater(nilUpdater) })},

		"Finder":                  {"There is no finder to call.", "pass what looks for external resources", func() { WithCreateResolver(nil) }},
		"FinderPointer":           {"A nil pointer in an interface is nil, too.", "pass what looks for external resources", func() { WithCreateResolver(nilFinder) }},
		"CreateResolverOption":    {"An option does something.", "(argument 2): leave it out", func() { WithCreateResolver(&seeker{}, nil) }},
		"WithResolveAfter":        {"Upstream can't tell two creates of one second.", "was given 999ms", func() { WithResolveAfter(999 * time.Millisecond) }},
		"FinderConnector":         {"There is no connector to call.", "FindWithConnector was given a nil connector", func() { FindWithConnector(nilConnector) }},
		"FinderTypedConnector":    {"There is no typed connector to call.", "FindWithTypedConnector was given a nil connector", func() { FindWithTypedConnector(nilTypedFn) }},
		"ConfirmationTimes":       {"Never found never ends.", "n = 0", func() { WithDeletionConfirmation(0, time.Second) }},
		"ConfirmationInterval":    {"Without an interval there is no pause between observations.", "interval of 0s", func() { WithDeletionConfirmation(1, 0) }},
		"ConfirmationNegative":    {"There is no pause either.", "interval of -1s", func() { WithDeletionConfirmation(1, -time.Second) }},
		"PreCreateObserveOption":  {"An option does something.", "argument 1", func() { WithPreCreateObserve(nil) }},
		"ReservationNamespace":    {"Leases have a namespace.", `the namespace ""`, func() { WithExternalNameReservation("") }},
		"ReservationBadNamespace": {"Leases can't be in that namespace.", `the namespace "Crossplane System"`, func() { WithExternalNameReservation("Crossplane System") }},
		"ReservationOption":       {"An option does something.", "argument 2", func() { WithExternalNameReservation("n", nil) }},
		"ReservationKey":          {"There is no function to call.", "WithReservationKey", func() { WithReservationKey(nil) }},
		"UsageEmpty":              {"There is no kind to protect.", "managed.WithUsageProtection was given the kind", protecting(schema.GroupVersionKind{})},
		"UsageVersion":            {"There is no version to read.", "managed.WithUsageProtection was given the kind", protecting(schema.GroupVersionKind{Group: "example.org", Kind: "Usage"})},
		"Tracker":                 {"There is no tracker to run.", "WithAsync was given nil", func() { WithAsync(nil) }},
		"UsageUnknown":            {"A kind that the scheme doesn't know would be read past the tracker's cache.", "AddToScheme: no kind", protecting(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Usage"})},
		"UsageOther":              {"A kind that isn't one of usages would start a cache of it.", "is not a usage", protecting(testkit.DatabaseKind())},
		"UsageLegacy":             {"A Bucket has no legacy usage.", "one of them is legacy", protecting(testkit.LegacyProviderConfigUsageKind())},
		"ReleaserEmpty":           {"There is no kind to release.", "managed.NewUsageReleaser was given the kind", func() { NewUsageReleaser(a.Manager(), schema.GroupVersionKind{}) }},
		"ReleaserOther":           {"A kind that isn't one of usages can't be released.", "is not a usage", func() { NewUsageReleaser(a.Manager(), testkit.BucketKind()) }},
		"ReleaserManager":         {"Without a manager there is nothing to read from.", "without a manager", func() { NewUsageReleaser(nil, usages) }},
		"ReleaserOption":          {"An option does something.", "argument 3", func() { NewUsageReleaser(a.Manager(), usages, nil) }},

		"UpstreamWithExternalConnector": {"Graft would not be seen.", "WithExternalConnector", func() {
			Upstream(upstream.WithTimeout(time.Minute), upstream.WithExternalConnector(&upstream.NopConnector{}))
		}},
		"UpstreamWithExternalConnecter": {"Graft would not be seen.", "WithExternalConnector", func() {
			Upstream(upstream.WithTimeout(time.Minute), upstream.WithExternalConnecter(&upstream.NopConnector{}))
		}}, //nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnector": {"Graft would not be seen.", "WithExternalConnector", func() { Upstream(upstream.WithTimeout(time.Minute), upstream.WithExternalConnectDisconnector(nop)) }}, //nolint:staticcheck // Providers use it.
		"UpstreamWithExternalConnectDisconnecter": {"Graft would not be seen.", "WithExternalConnector", func() { Upstream(upstream.WithTimeout(time.Minute), upstream.WithExternalConnectDisconnecter(nop)) }}, //nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnector":      {"Graft would not be seen.", "WithExternalConnector", func() { Upstream(upstream.WithTimeout(time.Minute), upstream.WithTypedExternalConnector(buckets)) }},
		"UpstreamWithTypedExternalConnectDisconnector": {"Graft would not be seen.", "WithExternalConnector", func() {
			Upstream(upstream.WithTimeout(time.Minute), upstream.WithTypedExternalConnectDisconnector(upstream.NewTypedNopDisconnector(buckets)))
		}}, //nolint:staticcheck // Providers use it.
		"UpstreamWithTypedExternalConnectDisconnecter": {"Graft would not be seen.", "WithExternalConnector", func() {
			Upstream(upstream.WithTimeout(time.Minute), upstream.WithTypedExternalConnectDisconnecter(upstream.NewTypedNopDisconnector(buckets)))
		}}, //nolint:staticcheck // Providers use it.
		"UpstreamWithFinalizer":    {"Graft would not be seen.", "WithFinalizer", func() { Upstream(upstream.WithTimeout(time.Minute), upstream.WithFinalizer(resource.FinalizerFns{})) }},
		"UpstreamWithInitializers": {"Graft would not be seen.", "WithInitializers", func() { Upstream(upstream.WithTimeout(time.Minute), upstream.WithInitializers()) }},
		"UpstreamWithCriticalAnnotationUpdater": {"Graft would not be seen.", "WithCriticalAnnotationUpdater", func() {
			Upstream(upstream.WithTimeout(time.Minute), upstream.WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(nil)))
		}},
		"UpstreamNil": {"Graft would not be seen.", "leave it out", func() { Upstream(upstream.WithTimeout(time.Minute), nil) }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { says(t, tc.reason, tc.part, tc.fn) })
	}
}

type nilLog struct{ logging.Logger }

// A stoppedManager runs nothing any more.
type stoppedManager struct{ manager.Manager }

func (stoppedManager) Add(manager.Runnable) error { return errors.New("it is stopped") }

// What upstream takes is taken.
func TestNewReconcilerAccepts(t *testing.T) {
	a := testkit.NewAPI()
	kind := resource.ManagedKind(testkit.BucketKind())

	cases := map[string]struct {
		reason string
		m      manager.Manager
		opts   []ReconcilerOption
	}{
		"NoOptions":            {reason: "Upstream's defaults do nothing."},
		"NoLiveReader":         {reason: "Managers made for tests often can't read live.", m: &xpfake.Manager{Client: a.Client(), Scheme: testkit.Scheme()}},
		"LastConnectorWins":    {reason: "This is as with upstream.", opts: []ReconcilerOption{connects(ExternalClientFns{}), connects(ExternalClientFns{})}},
		"ConnectorOfInterface": {reason: "A typed connector may be one for an interface.", opts: []ReconcilerOption{WithTypedExternalConnector(connect[resource.ModernManaged](provider{}, func(resource.Managed) {}))}},
		"NilInitializerChain":  {reason: "Code that upjet generates for names which the external system assigns.", opts: []ReconcilerOption{WithInitializers(upstream.InitializerChain(nil))}},
		"NoInitializers":       {reason: "No initializers is a choice.", opts: []ReconcilerOption{WithInitializers()}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := tc.m
			if m == nil {
				m = a.Manager()
			}

			r := NewReconciler(m, kind, tc.opts...)

			run(t, r, "b")
		})
	}
}

// Managers for tests embed a nil manager.Manager, and have some methods of their own.
func TestManagerHas(t *testing.T) {
	a := testkit.NewAPI()
	live := a.Live()

	type (
		bare  struct{ manager.Manager }
		other = manager.Manager
	)

	cases := map[string]struct {
		reason string
		m      manager.Manager
		reads  bool
		runs   bool
	}{
		"Nothing":       {reason: "It embeds nil.", m: bare{}},
		"Fake":          {reason: "It has neither.", m: &xpfake.Manager{Client: a.Client()}},
		"EmbedsFake":    {reason: "Nor has one that embeds it.", m: &struct{ *xpfake.Manager }{&xpfake.Manager{Client: a.Client()}}},
		"Reads":         {reason: "A method of its own can be called.", m: &readingManager{live: live}, reads: true},
		"ReadsByValue":  {reason: "Whatever its receiver.", m: valueManager{live: live}, reads: true},
		"EmbedsReading": {reason: "Also that of an embedded one.", m: &struct{ *readingManager }{&readingManager{live: live}}, reads: true},
		"EmbedsWhole":   {reason: "Also through an interface.", m: &bare{a.Manager()}, reads: true, runs: true},
		"EmbedsByAlias": {reason: "Whatever the field is called.", m: struct{ other }{a.Manager()}, reads: true, runs: true},
		"Whole":         {reason: "It has both.", m: a.Manager(), reads: true, runs: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reads := has(reflect.ValueOf(tc.m), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("GetAPIReader") })
			wants(t, tc.reason, "reads, runs", []bool{tc.reads, tc.runs}, []bool{reads, runs(tc.m) != nil})
		})
	}
}

type readingManager struct {
	manager.Manager

	live client.Reader
}

func (m *readingManager) GetAPIReader() client.Reader { return m.live }

type valueManager struct {
	manager.Manager

	live client.Reader
}

func (m valueManager) GetAPIReader() client.Reader { return m.live }

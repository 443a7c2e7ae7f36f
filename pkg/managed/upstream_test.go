package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A trace is what a reconciler asked of the API server, and how its reconciles
// ended.
type trace []string

// scrubbed returns o as JSON, without what differs from run to run, and without
// status unless that is wanted.
func scrubbed(o runtime.Object, withStatus bool) string {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.DeepCopyObject())
	if err != nil {
		return err.Error()
	}

	delete(u, "apiVersion")
	delete(u, "kind")

	if md, ok := u["metadata"].(map[string]any); ok {
		delete(md, "resourceVersion")

		if as, ok := md["annotations"].(map[string]any); ok {
			for k := range as {
				if strings.HasPrefix(k, "crossplane.io/external-create-") {
					as[k] = "some time"
				}
			}
		}
	}

	st, _ := u["status"].(map[string]any)
	if cs, ok := st["conditions"].([]any); ok {
		for _, c := range cs {
			if c, ok := c.(map[string]any); ok {
				delete(c, "lastTransitionTime")
			}
		}
	}

	if !withStatus {
		delete(u, "status")
	}

	j, err := json.Marshal(u)
	if err != nil {
		return err.Error()
	}

	return string(j)
}

// A scenario is a managed resource and provider code that are reconciled a few
// times.
type scenario struct {
	reason string
	mods   []func(mg resource.Managed)

	// provider returns new provider code, which may remember things.
	provider     func() provider
	initializers []Initializer
	defaultInit  bool
	finalizer    func(a *testkit.API) resource.Finalizer
	before       func() func(ctx context.Context, r testkit.Request) error

	// updates is set if metadata or spec are updated while there is status in
	// memory, which upstream loses and Graft keeps.
	updates bool
}

// reconciled returns the trace of 5 reconciles.
func (sc scenario) reconciled(f flavour, build func(a *testkit.API, connect ExternalConnector) reconcile.Reconciler) trace {
	a := testkit.NewAPI(f.object(sc.mods...))

	var fail func(ctx context.Context, r testkit.Request) error
	if sc.before != nil {
		fail = sc.before()
	}

	var tr trace

	a.Before = func(ctx context.Context, r testkit.Request) error {
		if r.Verb != testkit.Get {
			tr = append(tr, fmt.Sprintf("%s %s %s", r.Verb, scrubbed(r.Object, !sc.updates), r.Body))
		}

		if fail != nil {
			return fail(ctx, r)
		}

		return nil
	}

	p := provider{}
	if sc.provider != nil {
		p = sc.provider()
	}

	r := build(a, connect[resource.Managed](p, func(mg resource.Managed) {
		tr = append(tr, "connect "+scrubbed(mg, !sc.updates))
	}))

	for range 5 {
		res, err := r.Reconcile(context.Background(), requestFor(f.name()))
		tr = append(tr, fmt.Sprintf("=> %+v %v", res, err))
	}

	return tr
}

func (sc scenario) upstream(f flavour) trace {
	return sc.reconciled(f, func(a *testkit.API, c ExternalConnector) reconcile.Reconciler {
		o := []upstream.ReconcilerOption{upstream.WithManagementPolicies(), upstream.WithCreationGracePeriod(0), upstream.WithExternalConnector(c)}

		if !sc.defaultInit {
			o = append(o, upstream.WithInitializers(sc.initializers...))
		}

		if sc.finalizer != nil {
			o = append(o, upstream.WithFinalizer(sc.finalizer(a)))
		}

		return upstream.NewReconciler(a.Manager(), resource.ManagedKind(f.kind), o...)
	})
}

func (sc scenario) graft(f flavour, off ...ReconcilerOption) trace {
	return sc.reconciled(f, func(a *testkit.API, c ExternalConnector) reconcile.Reconciler {
		o := []ReconcilerOption{WithManagementPolicies(), WithCreationGracePeriod(0), WithExternalConnector(c), waits(noWait)}

		if !sc.defaultInit {
			o = append(o, WithInitializers(sc.initializers...))
		}

		if sc.finalizer != nil {
			o = append(o, WithFinalizer(sc.finalizer(a)))
		}

		return NewReconciler(a.Manager(), resource.ManagedKind(f.kind), append(o, off...)...)
	})
}

func scenarios() map[string]scenario {
	alive := func(mg resource.Managed) { mg.SetDeletionTimestamp(nil) }
	unnamed := func(mg resource.Managed) { alive(mg); mg.SetFinalizers(nil) }

	of := func(c ExternalClientFns) func() provider {
		return func() provider { return provider{client: c} }
	}

	outdated := returns(ExternalObservation{ResourceExists: true}, nil)

	// cloud has no resource until one is created, and then until it is deleted.
	cloud := func(createErr error) func() provider {
		return func() provider {
			exists := false

			return provider{client: ExternalClientFns{
				ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
					return ExternalObservation{ResourceExists: exists, ResourceUpToDate: true}, nil
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					exists = createErr == nil
					meta.SetExternalName(mg, "id-1")

					return ExternalCreation{}, createErr
				},
			}}
		}
	}

	lateInit := returns(ExternalObservation{ResourceExists: true, ResourceUpToDate: true, ResourceLateInitialized: true}, nil)

	once := func(verb string, err error) func() func(context.Context, testkit.Request) error {
		return func() func(context.Context, testkit.Request) error {
			done := false

			return func(_ context.Context, r testkit.Request) error {
				if r.Verb == verb && !done {
					done = true
					return err
				}

				return nil
			}
		}
	}

	conflict := kerrors.NewConflict(schema.GroupResource{}, "b", errProvider)

	return map[string]scenario{
		"Steady":            {reason: "An external resource that is as it should be.", mods: []func(resource.Managed){alive}},
		"Create":            {reason: "An external resource that is created.", mods: []func(resource.Managed){unnamed}, provider: cloud(nil), updates: true},
		"CreateFails":       {reason: "A create that fails.", mods: []func(resource.Managed){unnamed}, provider: cloud(errProvider), updates: true},
		"CreateConflict":    {reason: "A conflict before the create.", mods: []func(resource.Managed){unnamed}, provider: cloud(nil), before: once(testkit.Update, conflict), updates: true},
		"CreateServerError": {reason: "A server error before the create.", mods: []func(resource.Managed){alive}, provider: cloud(nil), before: once(testkit.Update, serverError()), updates: true},
		"CreateIncomplete":  {reason: "A create whose outcome is unknown.", mods: []func(resource.Managed){alive, noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")}},
		"Update":            {reason: "An update.", mods: []func(resource.Managed){alive}, provider: of(ExternalClientFns{ObserveFn: outdated})},
		"UpdateFails": {reason: "An update that fails.", mods: []func(resource.Managed){alive}, provider: of(ExternalClientFns{
			ObserveFn: outdated,
			UpdateFn:  func(context.Context, resource.Managed) (ExternalUpdate, error) { return ExternalUpdate{}, errProvider },
		})},
		"UpdateNotAllowed": {reason: "An update that the policies don't allow.", mods: []func(resource.Managed){alive, allowed(xpv2.ManagementActionObserve)}, provider: of(ExternalClientFns{ObserveFn: outdated})},
		"LateInit": {reason: "A late initialization.", mods: []func(resource.Managed){alive}, provider: of(ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			meta.SetExternalName(mg, "id-1")
			return lateInit(ctx, mg)
		}}), updates: true},
		"LateInitNotAllowed": {
			reason: "A late initialization that the policies don't allow.",
			mods:   []func(resource.Managed){alive, allowed(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete)},
			provider: of(ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				meta.SetExternalName(mg, "id-1")
				return lateInit(ctx, mg)
			}}),
		},
		"Paused":                 {reason: "A pause.", mods: []func(resource.Managed){alive, noted(meta.AnnotationKeyReconciliationPaused, "true")}},
		"DefaultInit":            {reason: "The default initializer.", mods: []func(resource.Managed){alive}, defaultInit: true, updates: true},
		"InitFails":              {reason: "An initializer that fails.", mods: []func(resource.Managed){alive}, initializers: []Initializer{InitializerFn(func(context.Context, resource.Managed) error { return errProvider })}},
		"ConnectFails":           {reason: "Broken credentials.", mods: []func(resource.Managed){alive}, provider: func() provider { return provider{connectErr: errProvider} }},
		"ObserveFails":           {reason: "An outage.", mods: []func(resource.Managed){alive}, provider: of(ExternalClientFns{ObserveFn: fails})},
		"Delete":                 {reason: "A slow delete."},
		"DeleteFails":            {reason: "A delete that fails.", provider: of(ExternalClientFns{DeleteFn: deleteFails})},
		"Deleted":                {reason: "An external resource that is gone.", provider: of(ExternalClientFns{ObserveFn: absent})},
		"DeleteHeld":             {reason: "A delete that others hold.", mods: []func(resource.Managed){held(FinalizerName, "example.org/a")}},
		"DeleteOrphans":          {reason: "A delete that orphans.", mods: []func(resource.Managed){held(FinalizerName, "example.org/a"), allowed(xpv2.ManagementActionObserve)}},
		"DeleteConnectFails":     {reason: "A delete with broken credentials.", provider: func() provider { return provider{connectErr: errProvider} }},
		"DeleteIncompleteCreate": {reason: "A delete after a create whose outcome is unknown.", mods: []func(resource.Managed){noted(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")}},
		"DeleteConflict":         {reason: "A conflict while the finalizer goes.", provider: of(ExternalClientFns{ObserveFn: absent}), before: once(testkit.Update, conflict)},
		"DeleteServerError":      {reason: "A server error while the finalizer goes.", provider: of(ExternalClientFns{ObserveFn: absent}), before: once(testkit.Update, serverError())},
		"StatusServerError":      {reason: "A server error while status is written.", before: once(testkit.StatusUpdate, serverError())},
		"CustomFinalizer": {
			reason:    "A finalizer with a client of its own.",
			mods:      []func(resource.Managed){unnamed},
			finalizer: func(a *testkit.API) resource.Finalizer { return resource.NewAPIFinalizer(a.Client(), "custom") },
			updates:   true,
		},
	}
}

// With everything turned off, Graft asks of the API server what upstream asks,
// and its reconciles end as upstream's do.
func TestTurnedOff(t *testing.T) {
	for name, sc := range scenarios() {
		for _, fname := range []string{"NamespacedUntyped", "ClusterUntyped"} {
			t.Run(name+"/"+fname, func(t *testing.T) {
				f := flavours()[fname]

				got := sc.graft(f, WithoutDeletionStatus(), WithoutExternalNamePersistence(), WithoutFinalizerGuard(), WithUnchangedStatusWrites())
				wants(t, sc.reason, "upstream's trace, and Graft's", sc.upstream(f), got)
			})
		}
	}
}

// Each option turns off what it says, and nothing else is needed for that.
func TestTurnedOffOneByOne(t *testing.T) {
	f := flavours()["NamespacedUntyped"]

	cases := map[string]struct {
		reason string
		off    ReconcilerOption
		among  []string
	}{
		"WithoutDeletionStatus": {
			reason: "Deletions should be as upstream has them.",
			off:    WithoutDeletionStatus(),
			among:  []string{"Delete", "DeleteFails", "Deleted", "DeleteHeld", "DeleteOrphans", "DeleteConnectFails", "DeleteIncompleteCreate", "DeleteConflict", "DeleteServerError", "StatusServerError"},
		},
		"WithoutExternalNamePersistence": {
			reason: "Annotations should be stored as upstream stores them.",
			off:    WithoutExternalNamePersistence(),
			among:  []string{"Create", "CreateFails", "LateInit", "LateInitNotAllowed"},
		},
		"WithUnchangedStatusWrites": {
			reason: "Status should be written as often as upstream writes it.",
			off:    WithUnchangedStatusWrites(),
			among:  []string{"Steady", "Update", "UpdateFails", "UpdateNotAllowed", "ConnectFails", "ObserveFails", "Paused", "InitFails"},
		},
	}

	statusWrites := func(tr trace) (out trace) {
		for _, s := range tr {
			if !strings.HasPrefix(s, testkit.StatusUpdate) {
				out = append(out, s)
			}
		}

		return out
	}

	for name, tc := range cases {
		for _, among := range tc.among {
			t.Run(name+"/"+among, func(t *testing.T) {
				sc := scenarios()[among]
				want, got := sc.upstream(f), sc.graft(f, tc.off)

				if name != "WithUnchangedStatusWrites" {
					// Unchanged status is not written.
					want, got = statusWrites(want), statusWrites(got)
				}

				wants(t, tc.reason, "upstream's trace, and Graft's", want, got)

				if cmp.Equal(sc.upstream(f), sc.graft(f)) && !slices.Contains([]string{"Paused", "StatusServerError", "Deleted"}, among) {
					t.Errorf("\n%s\nthis scenario should differ without the option, or it proves nothing", tc.reason)
				}
			})
		}
	}
}

// Raw upstream options are applied in order, unless they set what Graft wraps.
func TestUpstream(t *testing.T) {
	rec := &testkit.Said{}
	a := testkit.NewAPI(bucket(named("id-1")))

	r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()),
		connects(ExternalClientFns{}),
		WithPollInterval(time.Hour),
		Upstream(
			upstream.WithTimeout(time.Minute),
			upstream.WithPollInterval(2*time.Hour),
			upstream.WithMinPollInterval(time.Second),
			upstream.WithPollIntervalHook(func(_ resource.Managed, d time.Duration) time.Duration { return d }),
			upstream.WithMetricRecorder(upstream.NewNopMetricRecorder()),
			upstream.WithCreationGracePeriod(time.Second),
			upstream.WithReferenceResolver(upstream.ReferenceResolverFn(func(context.Context, resource.Managed) error { return nil })),
			upstream.WithLogger(logging.NewNopLogger()),
			upstream.WithRecorder(rec),
			upstream.WithManagementPolicies(),
			upstream.WithReconcilerSupportedManagementPolicies([]sets.Set[xpv2.ManagementAction]{sets.New(xpv2.ManagementActionAll)}),
			upstream.WithDeterministicExternalName(true),
		),
		Upstream(upstream.WithPollInterval(3*time.Hour)),
		Upstream(),
	)

	polls := func(want time.Duration) {
		t.Helper()

		res, err := r.Reconcile(context.Background(), request())
		must(t, err)
		wants(t, "The last option counts.", "poll interval", want, res.RequeueAfter)
	}

	polls(3 * time.Hour)

	r = NewReconciler(a.Manager(), resource.ManagedKind(testkit.BucketKind()),
		connects(ExternalClientFns{}), Upstream(upstream.WithPollInterval(2*time.Hour), upstream.WithPollInterval(3*time.Hour)), WithPollInterval(time.Hour))

	polls(time.Hour)
}

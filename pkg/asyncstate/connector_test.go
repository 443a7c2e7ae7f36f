package asyncstate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	fake "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Each client is disconnected once, after all that was begun with it: see fakeCloud.misused.
func TestDisconnectOnce(t *testing.T) {
	cases := map[string]struct {
		reason  string
		connect func(p *process, mg resource.Managed) (upstream.ExternalClient, error)
		clients int
		says    string // In Synced.
	}{
		"NoConnection": {
			reason:  "A connector that failed should have no client to disconnect, and its error should be reported.",
			says:    "quota",
			connect: func(*process, resource.Managed) (upstream.ExternalClient, error) { return nil, errQuota },
		},
		"NothingAtAll": {
			reason:  "Nor is there one if the connector returns nothing.",
			says:    "neither a client nor an error",
			connect: func(*process, resource.Managed) (upstream.ExternalClient, error) { return nil, nil },
		}, //nolint:nilnil // As it says.
		"ObserveFails": {
			reason: "A client that began no operation should be disconnected.", clients: 1,
			connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return failing{p.client(mg)}, nil
			},
		},
		"CreatePanics": {
			reason: "A client whose operation panicked should be disconnected.", clients: 1,
			connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return p.client(mg), nil
			},
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			e.manualReconciles = true
			e.connect, e.cloud.reject = tc.connect, func(asyncstate.Type) error { panic("oh") }
			e.startProvider().reconcileRepeatedly(1, time.Hour)
			expectContains(t, tc.reason, condition(e.get("b"), xpv2.TypeSynced), tc.says)
			expectEqual(t, tc.reason, "clients", tc.clients, len(e.cloud.clients))
		})
	}
}

type failing struct{ upstream.ExternalClient }

func (failing) Observe(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
	return upstream.ExternalObservation{}, errQuota
}

// A typed connector should find and delete the external resource of a killed process.
func TestTypedConnector(t *testing.T) {
	runScenario(t, "Typed", scenario{
		reason:         "The external resource of a killed process should be found and deleted.",
		autoReconciled: true, want: finalState{Created: 1, Gone: true},
		steps: func(t *testing.T, e *environment) {
			e.typed = sample.NewLasting[*v1alpha1.Bucket](e.cloud.Cloud)
			e.cloud.SetHooks(fake.Hooks{After: func(_ context.Context, c fake.Call) error {
				if c.Op == fake.OpCreate {
					e.processes[0].kill()
				}
				return nil
			}})
			e.startProvider()
			for _, want := range []string{"", "id-0001"} {
				advanceClock(time.Minute)
				if n := len(e.cloud.names()); n != 1 || meta.GetExternalName(e.get("b")) != want {
					t.Fatalf("%d external resources, want one named %q: %s", n, want, describe(e.get("b")))
				}
				e.startProvider()
			}
			e.delete("b")
			advanceClock(time.Minute)
		},
	})
}

// A client may share the state of its plan with a running operation.
func TestObserve_NotWhileAnOperationRuns(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		runInBubble(t, string(typ), func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			p := e.startProvider()
			if typ != asyncstate.Create {
				advanceClock(11 * time.Minute)
			}
			e.requestOperation(typ)
			advanceClock(time.Minute)
			if s, running := p.tracker.Lookup("uid-1"); !running || s.Type != typ {
				t.Fatal(describe(e.get("b")))
			}
			_, running := p.tracker.Lookup("uid-2")
			expectEqual(t, "Of another object.", "running", false, running)
			count := func() (observed, connected int) {
				e.cloud.set(func(c *fakeCloud) { connected = len(c.clients) })
				return e.cloud.Counts()[fake.OpGet], connected
			}
			observed, connected := count()
			reconciles := p.reconciles.Load()
			for i := range 5 {
				e.edit("b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": fmt.Sprint(i)}) })
				advanceClock(time.Second)
			}
			if o, c := count(); o != observed || c != connected || p.reconciles.Load() < reconciles+5 {
				t.Errorf(
					"%d reconciles connected %d times and observed %d times", p.reconciles.Load()-reconciles,
					c-connected, o-observed,
				)
			}

			// Nothing is written while nothing changes. Upstream asks for a reconcile
			// with backoff, once a minute.
			e.api.Forget()
			reconciles = p.reconciles.Load()
			advanceClock(5 * time.Minute)
			if n := p.reconciles.Load() - reconciles; e.api.Writes() > 0 || n > 6 {
				t.Errorf("%d reconciles and %d writes while nothing changes", n, e.api.Writes())
			}
		})
	}
}

type (
	noop             struct{ upstream.ExternalClient }
	typedFinder      struct{ noop }
	pointer          struct{ noop }
	unrelated        struct{ noop }
	badResumer       struct{ noop }
	resumerOfPointer struct{ noop }
	ofPointer        struct{ noop }
)

func (noop) Observe(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
	return upstream.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
}

func (noop) Disconnect(context.Context) error { return nil }

func (typedFinder) Find(context.Context, *v1alpha1.Bucket) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (pointer) Find(context.Context, resource.Managed, *asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (unrelated) Find(string) error { return nil }

func (unrelated) Resume() {}

func (*ofPointer) Find(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (badResumer) Resume(context.Context, asyncstate.Attempt) error { return nil }

func (resumerOfPointer) Resume(context.Context, resource.Managed, *asyncstate.Attempt) error {
	return nil
}

// A method whose signature keeps it from ever being called is an error.
func TestConnector_RefusesWrongSignatures(t *testing.T) {
	cases := map[string]struct {
		reason string
		client upstream.ExternalClient
		want   string
	}{
		"TypedFinder": {
			reason: "A Find without an Attempt should be rejected.",
			client: typedFinder{}, want: "typedFinder.Find",
		},
		"Pointer": {reason: "An Attempt is no pointer.", client: pointer{}, want: "pointer.Find"},
		"Receiver": {
			reason: "A method of the pointer should be rejected if the client is a value.",
			client: ofPointer{}, want: "return a *asyncstate_test.ofPointer",
		},
		"ReceiverFits": {reason: "The client is a pointer.", client: &ofPointer{}},
		"Unrelated": {
			reason: "A method of the same name without types of this package should be accepted.",
			client: unrelated{},
		},
		"ResumeOfPointer": {
			reason: "An Attempt is no pointer.",
			client: resumerOfPointer{}, want: "resumerOfPointer.Resume",
		},
		"ResumeWithoutMG": {
			reason: "A Resume without the managed resource should be rejected.",
			client: badResumer{}, want: "badResumer.Resume",
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			e.manualReconciles = true
			e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return tc.client, nil }
			e.startProvider().reconcileRepeatedly(1, 0)
			got := condition(e.get("b"), xpv2.TypeSynced)
			expectEqual(t, tc.reason, "refused", tc.want != "", strings.Contains(got, "cannot use asyncstate_test."))
			expectContains(t, tc.reason, got, tc.want)
		})
	}
}

// A configuration that cannot work should be refused when the provider starts, with an error
// that has the fix.
func TestNewTracker_Refuses(t *testing.T) {
	tracker := func(o ...asyncstate.TrackerOption) func() {
		return func() { asyncstate.NewTracker(o...) }
	}
	option := func(fn func() asyncstate.TrackerOption) func() { return func() { fn() } }
	cases := map[string]struct {
		reason string
		build  func()
		want   string
	}{
		"NoOption": {reason: "A nil option cannot be applied.", build: tracker(nil), want: "leave it out"},
		"NoMetrics": {
			reason: "Nil metrics would fail in an operation.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithMetrics(nil) }),
			want:   "leave the option out",
		},
		"EmptyMetrics": {
			reason: "Empty metrics would fail in an operation.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithMetrics(&asyncstate.Metrics{}) }),
			want:   "NewMetrics",
		},
		"NoTime": {
			reason: "Every operation would be past its deadline.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithTimeout(0) }),
			want:   "greater than 0",
		},
		"NoWait": {
			reason: "Absence would be believed at once.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithAbsenceAfter(0) }),
			want:   "greater than 0",
		},
		"NoBackoff": {
			reason: "A failed operation would be repeated without a wait.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithBackoff(0, 1) }),
			want:   "greater than 0",
		},
		"NoLast": {
			reason: "A failed operation would be repeated without a wait.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithBackoff(1, 0) }),
			want:   "must not be longer",
		},
		"Backwards": {
			reason: "The wait cannot shrink with each failure.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithBackoff(time.Hour, time.Second) }),
			want:   "must not be longer",
		},
		"NoOperations": {
			reason: "No operation could begin.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithMaxOperations(0) }),
			want:   "greater than 0",
		},
		"NoShutdown": {
			reason: "No result could be stored.",
			build:  option(func() asyncstate.TrackerOption { return asyncstate.WithShutdownTimeout(-1) }),
			want:   "greater than 0",
		},
		"UsedTwice": {
			reason: "A tracker belongs to one controller.",
			build: func() {
				e := &environment{events: &testkit.Said{}}
				p := &process{Manager: testkit.NewAPI().Process(testkit.Hooks{}), environment: e}
				p.tracker = asyncstate.NewTracker()
				p.newReconciler()
				p.newReconciler()
			},
			want: "for each controller",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				err, _ := recover().(error)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("\n%s\nwant a panic with %q, got %v", tc.reason, tc.want, err)
				}
			}()
			tc.build()
		})
	}
}

// TestSearchHint shows that the message of an unknown outcome has the search hint.
func TestSearchHint(t *testing.T) {
	hint := func(token string) string { return "tag attempt=" + token }
	cases := map[string]struct {
		reason string
		client func(c upstream.ExternalClient) upstream.ExternalClient
		want   bool
	}{
		"Hint": {
			reason: "The condition should have the hint of the client.",
			client: func(c upstream.ExternalClient) upstream.ExternalClient { return hintingClient{c, hint} },
			want:   true,
		},
		"NoHint": {
			reason: "A client without a hint should be used as it is.",
			client: func(c upstream.ExternalClient) upstream.ExternalClient { return c },
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			e.manualReconciles = true
			e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return tc.client(p.client(mg)), nil
			}
			mustReconcile(t, e.crashAndRestart(3*time.Minute), "b")
			r, err := creation.RecordOf(e.get("b"))
			if err != nil || r == nil {
				t.Fatal(r, err)
			}
			got := condition(e.get("b"), asyncstate.TypeOperation)
			if reason(e.get("b"), asyncstate.TypeOperation) != asyncstate.ReasonOutcomeUnknown ||
				strings.Contains(got, hint(r.Token)) != tc.want {
				t.Errorf("\n%s\nOperationRunning: %s", tc.reason, got)
			}
			expectContains(t, tc.reason, got, " with token "+r.Token)
		})
	}
}

// A hintingClient is an external client with a SearchHint.
type hintingClient struct {
	upstream.ExternalClient

	hint func(token string) string
}

func (c hintingClient) SearchHint(_ resource.Managed, a asyncstate.Attempt) string {
	return c.hint(a.Token)
}

// A controller that does not watch the tracker's source should be reported, once.
func TestSource_Unwatched(t *testing.T) {
	runInBubble(t, "Unwatched", func(t *testing.T) {
		e := newEnvironment(t, plainClient, bucket("b"))
		e.manualReconciles = true
		p := e.startProvider()
		p.reconcileRepeatedly(3, 11*time.Minute)
		e.requestOperation(asyncstate.Update)
		p.reconcileRepeatedly(3, 11*time.Minute)
		expectEqual(t, "", "events", 1, len(e.events.Events("OperationsNotWatched")))
	})
}

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
		"NoConnection": {reason: "There is no client, and the error is the connector's.", says: "quota", connect: func(*process, resource.Managed) (upstream.ExternalClient, error) { return nil, errQuota }},
		"NothingAtAll": {reason: "Nor is there one if the connector returns nothing.", says: "neither a client nor an error", connect: func(*process, resource.Managed) (upstream.ExternalClient, error) { return nil, nil }}, //nolint:nilnil // As it says.
		"ObserveFails": {
			reason: "Nothing was begun.", clients: 1,
			connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return failing{p.client(mg)}, nil
			},
		},
		"CreatePanics": {
			reason: "It was begun, and panicked.", clients: 1,
			connect: func(p *process, mg resource.Managed) (upstream.ExternalClient, error) { return p.client(mg), nil },
		},
	}
	for name, tc := range cases {
		for _, plain := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/Plain=%t", name, plain), func(t *testing.T) {
				w := newWorld(t, nothing, bucket("b"))
				w.manual, w.plain = true, plain
				w.connect, w.cloud.refuse = tc.connect, func(asyncstate.Type) error { panic("oh") }
				w.start().again(1, time.Hour)
				contains(t, tc.reason, condition(w.get("b"), xpv2.TypeSynced), tc.says)
				wants(t, tc.reason, "clients", tc.clients, len(w.cloud.clients))
			})
		}
	}
}

type failing struct{ upstream.ExternalClient }

func (failing) Observe(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
	return upstream.ExternalObservation{}, errQuota
}

// A typed connector should find and delete the external resource of a killed process.
func TestTypedConnector(t *testing.T) {
	lives := map[string]life{}
	for _, plain := range []bool{false, true} {
		lives[fmt.Sprintf("Plain=%t", plain)] = life{
			reason: "It is found, and deleted.", plain: plain, auto: true, want: ending{Made: 1, Gone: true},
			happens: func(t *testing.T, w *world) {
				w.typed = sample.NewLasting[*v1alpha1.Bucket](w.cloud.Cloud)
				w.cloud.SetHooks(fake.Hooks{After: func(_ context.Context, c fake.Call) error {
					if c.Op == fake.OpCreate {
						w.processes[0].kill()
					}
					return nil
				}})
				w.start()
				for _, want := range []string{"", "id-0001"} {
					pass(time.Minute)
					if n := len(w.cloud.names()); n != 1 || meta.GetExternalName(w.get("b")) != want {
						t.Fatalf("%d were made, want the name %q: %s", n, want, describe(w.get("b")))
					}
					w.start()
				}
				w.delete("b")
				pass(time.Minute)
			},
		}
	}
	live(t, lives)
}

// A client may share the state of its plan with a running operation.
func TestObserve_NotWhileAnOperationRuns(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		for _, plain := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/Plain=%t", typ, plain), func(t *testing.T) {
				w := newWorld(t, nothing, bucket("b"))
				w.plain = plain
				p := w.start()
				if typ != asyncstate.Create {
					pass(11 * time.Minute)
				}
				w.ask(typ)
				pass(time.Minute)
				if s, running := p.tracker.Lookup("uid-1"); !running || s.Type != typ {
					t.Fatal(describe(w.get("b")))
				}
				_, running := p.tracker.Lookup("uid-2")
				wants(t, "Of another object.", "running", false, running)
				count := func() (observed, connected int) {
					w.cloud.set(func(c *fakeCloud) { connected = len(c.clients) })
					return w.cloud.Counts()[fake.OpGet], connected
				}
				observed, connected := count()
				reconciles := p.reconciles.Load()
				for i := range 5 {
					w.edit("b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": fmt.Sprint(i)}) })
					pass(time.Second)
				}
				if o, c := count(); o != observed || c != connected || p.reconciles.Load() < reconciles+5 {
					t.Errorf("%d reconciles connected %d times and observed %d times", p.reconciles.Load()-reconciles, c-connected, o-observed)
				}

				// Nothing is written while nothing changes. Upstream asks for a reconcile
				// with backoff, once a minute.
				w.api.Forget()
				reconciles = p.reconciles.Load()
				pass(5 * time.Minute)
				if n := p.reconciles.Load() - reconciles; !plain && w.api.Writes() > 0 || n > 6 {
					t.Errorf("%d reconciles and %d writes while nothing changes", n, w.api.Writes())
				}
			})
		}
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
		"TypedFinder":     {reason: "It takes one type of managed resource, and no attempt.", client: typedFinder{}, want: "typedFinder.Find"},
		"Pointer":         {reason: "An Attempt is no pointer.", client: pointer{}, want: "pointer.Find"},
		"Receiver":        {reason: "It is one of a pointer, and the client is none.", client: ofPointer{}, want: "of a asyncstate_test.ofPointer"},
		"ReceiverFits":    {reason: "The client is a pointer.", client: &ofPointer{}},
		"Unrelated":       {reason: "It happens to have the same name.", client: unrelated{}},
		"ResumeOfPointer": {reason: "An Attempt is no pointer.", client: resumerOfPointer{}, want: "resumerOfPointer.Resume"},
		"ResumeWithoutMG": {reason: "It lacks the managed resource.", client: badResumer{}, want: "badResumer.Resume"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tr := asyncstate.NewTracker(testkit.NewAPI().Client())
			_, err := asyncstate.Connector(upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
				return tc.client, nil
			}), tr).Connect(t.Context(), bucket("b"))
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nConnect(...): %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// What makes no sense panics when the provider starts.
func TestNewTracker_Refuses(t *testing.T) {
	connector := func(c upstream.ExternalConnector, tr *asyncstate.Tracker) func() asyncstate.TrackerOption {
		return func() asyncstate.TrackerOption { asyncstate.Connector(c, tr); return asyncstate.WithTimeout(1) }
	}
	cases := map[string]struct {
		reason string
		option func() asyncstate.TrackerOption
	}{
		"NoReader":     {reason: "There is nothing to read with.", option: func() asyncstate.TrackerOption { return asyncstate.WithLiveReader(nil) }},
		"NoLogger":     {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithLogger(nil) }},
		"NoRecorder":   {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithRecorder(nil) }},
		"NoMetrics":    {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithMetrics(nil) }},
		"EmptyMetrics": {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithMetrics(&asyncstate.Metrics{}) }},
		"NoTime":       {reason: "Every operation would be over.", option: func() asyncstate.TrackerOption { return asyncstate.WithTimeout(0) }},
		"NoWait":       {reason: "Absence would be believed at once.", option: func() asyncstate.TrackerOption { return asyncstate.WithAbsenceAfter(0) }},
		"NoBackoff":    {reason: "It would be tried without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithBackoff(0, 1) }},
		"NoMost":       {reason: "It would be tried without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithBackoff(1, 0) }},
		"NoOperations": {reason: "None could begin.", option: func() asyncstate.TrackerOption { return asyncstate.WithMaxOperations(0) }},
		"NoShutdown":   {reason: "No result could be stored.", option: func() asyncstate.TrackerOption { return asyncstate.WithShutdownTimeout(-1) }},
		"NoInterval":   {reason: "It would report without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithReportInterval(0) }},
		"NoConnector":  {reason: "There is nothing to connect with.", option: connector(nil, asyncstate.NewTracker(testkit.NewAPI().Client()))},
		"NoTracker":    {reason: "There is nothing to track with.", option: connector(upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) { return nil, errQuota }), nil)},
		"NoOption":     {reason: "It can't be applied.", option: func() asyncstate.TrackerOption { return nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				_, ok := recover().(error)
				wants(t, tc.reason, "panics with an error", true, ok)
			}()
			asyncstate.NewTracker(testkit.NewAPI().Client(), tc.option())
		})
	}
}

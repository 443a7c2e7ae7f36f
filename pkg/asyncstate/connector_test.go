package asyncstate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// books are kept of the clients that were connected: what is done with each of them,
// and when it is disconnected.
type books struct {
	t testing.TB

	mu      sync.Mutex
	clients []*account

	// refuse is asked before each call.
	refuse func(verb string) error
}

// An account of one client.
type account struct {
	*books

	calls, disconnects int
}

func (b *books) open() *account {
	b.mu.Lock()
	defer b.mu.Unlock()

	a := &account{books: b}
	b.clients = append(b.clients, a)

	return a
}

// during notes a call while it is made, unless it is refused.
func during[T any](a *account, verb string, call func() (T, error)) (T, error) {
	a.count(1)
	defer a.count(-1)

	if a.refuse != nil {
		if err := a.refuse(verb); err != nil {
			var nothing T
			return nothing, err
		}
	}

	return call()
}

func (a *account) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.calls += n; a.disconnects > 0 {
		a.t.Error("A client is called that was disconnected")
	}
}

func (a *account) Disconnect(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.calls > 0 {
		a.t.Error("A client is disconnected in the middle of a call")
	}

	a.disconnects++

	// There is nothing to do about it.
	return errors.New("cannot disconnect")
}

// balance the books: each client was disconnected once, and there were that many.
func (b *books) balance(least int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()

	for i, a := range b.clients {
		if a.disconnects != 1 || a.calls != 0 {
			b.t.Errorf("Client %d of %d was disconnected %d times, and has %d calls left", i+1, len(b.clients), a.disconnects, a.calls)
		}
	}

	if len(b.clients) < least {
		b.t.Errorf("%d clients, want %d at least", len(b.clients), least)
	}
}

// A booked client does what another does, and books are kept of it.
type booked[M resource.Managed] struct {
	*account

	inner upstream.ExternalClient
}

func (c booked[M]) Observe(ctx context.Context, mg M) (upstream.ExternalObservation, error) {
	return during(c.account, "observe", func() (upstream.ExternalObservation, error) { return c.inner.Observe(ctx, mg) })
}

func (c booked[M]) Create(ctx context.Context, mg M) (upstream.ExternalCreation, error) {
	return during(c.account, "create", func() (upstream.ExternalCreation, error) { return c.inner.Create(ctx, mg) })
}

func (c booked[M]) Update(ctx context.Context, mg M) (upstream.ExternalUpdate, error) {
	return during(c.account, "update", func() (upstream.ExternalUpdate, error) { return c.inner.Update(ctx, mg) })
}

func (c booked[M]) Delete(ctx context.Context, mg M) (upstream.ExternalDelete, error) {
	return during(c.account, "delete", func() (upstream.ExternalDelete, error) { return c.inner.Delete(ctx, mg) })
}

// A bookedFinder can look for what was made, too.
type bookedFinder[M resource.Managed] struct {
	booked[M]

	finder asyncstate.Finder
}

func (c bookedFinder[M]) Find(ctx context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return during(c.account, "find", func() (asyncstate.Finding, error) { return c.finder.Find(ctx, mg, a) })
}

// A bookedResumer can go on with what was begun, too.
type bookedResumer[M resource.Managed] struct {
	booked[M]

	resumer asyncstate.Resumer
}

func (c bookedResumer[M]) Resume(ctx context.Context, mg M, a asyncstate.Attempt) error {
	_, err := during(c.account, "resume", func() (struct{}, error) { return struct{}{}, c.resumer.Resume(ctx, mg, a) })
	return err
}

// bookedConnector connects clients of a process that books are kept of.
func bookedConnector[M resource.Managed](p *process, b *books) upstream.TypedExternalConnector[M] {
	return upstream.TypedExternalConnectorFn[M](func(context.Context, M) (upstream.TypedExternalClient[M], error) {
		if b.refuse != nil {
			switch err := b.refuse("connect"); {
			case errors.Is(err, errNothing):
				return nil, nil //nolint:nilnil // It is what this is about.
			case err != nil:
				return nil, err
			}
		}

		c := booked[M]{account: b.open(), inner: p.w.cloud.client(p.w.kind, p.dead.Load)}

		switch inner := c.inner.(type) {
		case asyncstate.Finder:
			return bookedFinder[M]{booked: c, finder: inner}, nil
		case asyncstate.Resumer:
			return bookedResumer[M]{booked: c, resumer: inner}, nil
		default:
			return c, nil
		}
	})
}

// errNothing asks a connector to return nothing at all.
var errNothing = errors.New("nothing")

// Each client that was connected is disconnected once, whatever happens, and not
// before all is over that was begun with it: for typed connectors and others, under
// Graft's reconciler and upstream's.
func TestDisconnectOnce(t *testing.T) {
	only := func(verb string, err error) func(string) error {
		return func(v string) error {
			if v == verb {
				return err
			}

			return nil
		}
	}

	crash := func(t *testing.T, w *world, p *process) {
		t.Helper()

		reconcileLoosely(p, "b")
		pass(6 * time.Minute)
		p.kill()
		// Clients of a dead process don't count.
		pass(30 * time.Minute)

		p = w.start()
		reconcileLoosely(p, "b")
		pass(30 * time.Minute)
		reconcileLoosely(p, "b")
	}

	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption
		refuse  func(verb string) error
		act     func(t *testing.T, w *world, p *process)
		least   int
	}{
		"Life": {
			reason: "Created, observed, updated and deleted, all goes well.",
			kind:   nothing, least: 6,
			act: func(t *testing.T, w *world, p *process) {
				for range 3 {
					reconcileLoosely(p, "b")
					pass(6 * time.Minute)
				}

				w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })

				for range 3 {
					reconcileLoosely(p, "b")
					pass(6 * time.Minute)
				}

				w.delete("b")

				for range 4 {
					reconcileLoosely(p, "b")
					pass(6 * time.Minute)
				}

				if !w.gone() {
					t.Error(describe(w.get("b")))
				}
			},
		},
		"NoConnection":  {reason: "There is no client.", kind: nothing, refuse: only("connect", errQuota)},
		"NothingAtAll":  {reason: "Nor is there one if the connector returns nothing.", kind: nothing, refuse: only("connect", errNothing)},
		"ObserveFails":  {reason: "Nothing was begun.", kind: nothing, refuse: only("observe", errQuota), least: 1},
		"CreateFails":   {reason: "It was begun, and has failed.", kind: nothing, refuse: only("create", errQuota), least: 1},
		"CreateUnknown": {reason: "It was begun, and its outcome is unknown.", kind: nothing, refuse: only("create", asyncstate.ErrOutcomeUnknown), least: 1},
		"CreatePanics": {
			reason: "It was begun, and panicked.", kind: nothing, least: 1,
			refuse: func(verb string) error {
				if verb == "create" {
					panic("oh")
				}

				return nil
			},
		},
		"NoSlot": {
			reason: "It waits for others.",
			kind:   nothing, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}, least: 3,
			act: func(t *testing.T, _ *world, p *process) {
				for range 2 {
					reconcileLoosely(p, "b")
					reconcileLoosely(p, "other")
				}
			},
		},
		"NoRecord": {
			reason: "Its record can't be stored.",
			kind:   nothing, least: 1,
			act: func(t *testing.T, _ *world, p *process) {
				p.faults(func(verb string, o client.Object) error {
					if verb == testkit.Update || verb == testkit.Patch {
						return away(verb, o)
					}

					return nil
				}, nil)
				reconcileLoosely(p, "b")
			},
		},
		"Stopped": {
			reason: "The tracker was stopped between the record and the beginning.",
			kind:   nothing, least: 1,
			act: func(t *testing.T, _ *world, p *process) {
				p.faults(nil, func(verb string, o client.Object) error {
					if (verb == testkit.Update || verb == testkit.Patch) && record(o) != "" {
						p.cancel()
						synctest.Wait()
					}

					return nil
				})
				reconcileLoosely(p, "b")
			},
		},
		"Stops":   {reason: "The outcome of the interrupted create is unknown.", kind: nothing, act: crash, least: 3},
		"Finds":   {reason: "It is found.", kind: finder, act: crash, least: 3},
		"Resumes": {reason: "It is resumed.", kind: resumer, act: crash, least: 3},
		"Repeats": {reason: "It is made again.", kind: token, act: crash, least: 3},
		"InlineFails": {
			reason: "Nor when it has failed.",
			kind:   nothing, options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}, refuse: only("create", errQuota), least: 1,
		},
		"Inline": {reason: "No operation runs after Create has returned.", kind: nothing, options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}, least: 1},
	}

	for name, tc := range cases {
		for _, plain := range []bool{false, true} {
			for _, typed := range []bool{false, true} {
				bubble(t, fmt.Sprintf("%s/Plain=%t/Typed=%t", name, plain, typed), func(t *testing.T) {
					b := &books{t: t, refuse: tc.refuse}
					w := newWorld(t, tc.kind, bucket("b"), bucket("other"))
					w.manual, w.plain, w.options = true, plain, tc.options

					w.connector = func(p *process) upstream.ExternalConnector { return bookedConnector[resource.Managed](p, b) }
					if typed {
						w.typed = func(p *process) upstream.TypedExternalConnector[*v1alpha1.Bucket] {
							return bookedConnector[*v1alpha1.Bucket](p, b)
						}
					}

					p := w.start()

					if tc.act == nil {
						reconcileLoosely(p, "b")
					} else {
						tc.act(t, w, p)
					}

					pass(time.Hour)
					b.balance(tc.least)

					if t.Failed() {
						t.Log(tc.reason)
					}
				})
			}
		}
	}
}

// reconcileLoosely reconciles an object by hand, which may fail.
func reconcileLoosely(p *process, name string) { _, _ = p.reconcile(name) }

// While an operation runs, nothing connects and nothing observes: some clients share
// with it what they plan from.
func TestObserve_NotWhileAnOperationRuns(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		for _, plain := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/Plain=%t", typ, plain), func(t *testing.T) {
				connects := 0

				w := newWorld(t, nothing, bucket("b"))
				w.plain = plain
				w.connector = func(p *process) upstream.ExternalConnector {
					return upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
						w.cloud.set(func(*fakeCloud) { connects++ })
						return w.cloud.client(nothing, p.dead.Load), nil
					})
				}

				p := w.start()

				if typ != asyncstate.Create {
					pass(11 * time.Minute)
				}

				w.ask(typ)

				pass(time.Minute)

				if s, running := p.tracker.Lookup("uid-1"); !running || s.Type != typ {
					t.Fatal(describe(w.get("b")))
				}

				count := func() (observed, connected int) {
					w.cloud.set(func(c *fakeCloud) { observed, connected = c.observed, connects })
					return observed, connected
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

				pass(11 * time.Minute)

				if b := w.get("b"); typ == asyncstate.Delete && !w.gone() || typ != asyncstate.Delete && (w.cloud.region("id-1") != b.Spec.ForProvider.Region || reason(b, xpv2.TypeReady) != xpv2.ReasonAvailable) {
					t.Error(describe(b))
				}
			})
		}
	}
}

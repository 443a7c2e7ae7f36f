package watch_test

import (
	"context"
	stderrors "errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestEventHandler(t *testing.T) {
	k := watchtest.NewKind("Widget")
	one, two := k.Object("one"), k.Object("two")
	cases := map[string]struct {
		reason string
		do     func(h *watch.EventHandler)
		preds  []predicate.Predicate
		want   []recorded
	}{
		"Add":        {reason: "A new object is a create event.", do: func(h *watch.EventHandler) { h.OnAdd(one) }, want: []recorded{{op: "create", name: "one"}}},
		"Update":     {reason: "An update event names the new object.", do: func(h *watch.EventHandler) { h.OnUpdate(one, two) }, want: []recorded{{op: "update", name: "two"}}},
		"Delete":     {reason: "An object that went is a delete event.", do: func(h *watch.EventHandler) { h.OnDelete(one) }, want: []recorded{{op: "delete", name: "one"}}},
		"Tombstone":  {reason: "A tombstone is unwrapped.", do: func(h *watch.EventHandler) { h.OnDelete(kcache.DeletedFinalStateUnknown{Key: "one", Obj: one}) }, want: []recorded{{op: "delete", name: "one", unknown: true}}},
		"EmptyGrave": {reason: "A tombstone of nothing is nothing.", do: func(h *watch.EventHandler) { h.OnDelete(kcache.DeletedFinalStateUnknown{Key: "one"}) }},
		"NoObjects":  {reason: "What isn't an object is ignored.", do: func(h *watch.EventHandler) { h.OnAdd("x"); h.OnUpdate("x", one); h.OnUpdate(one, "x"); h.OnDelete("x") }},
		"Funcs":      {reason: "HandlerFuncs are the same functions.", do: func(h *watch.EventHandler) { h.HandlerFuncs().OnAdd(one, true) }, want: []recorded{{op: "create", name: "one"}}},
		"PredicateHeld": {
			reason: "Every predicate must let an event pass.",
			do:     func(h *watch.EventHandler) { h.OnAdd(one); h.OnUpdate(one, one); h.OnDelete(one); h.OnAdd(two) },
			preds: []predicate.Predicate{
				predicate.NewPredicateFuncs(func(client.Object) bool { return true }),
				predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == "two" }),
			},
			want: []recorded{{op: "create", name: "two"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			tc.do(watch.NewEventHandler(t.Context(), nil, rec, tc.preds...))
			got := rec.all()
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(recorded{})); diff != "" {
				t.Errorf("\n%s\nevents: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A fakeInformer counts handlers.
type fakeInformer struct {
	cache.Informer

	// adding is closed when a handler is being added, and add lets it happen. If there
	// are none it happens at once.
	adding, add chan struct{}

	mu       sync.Mutex
	handlers int
	stopped  bool
	err      error
}

func (f *fakeInformer) AddEventHandler(kcache.ResourceEventHandler) (kcache.ResourceEventHandlerRegistration, error) {
	if f.adding != nil {
		close(f.adding)
		<-f.add
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.handlers++
	return f, nil
}

func (f *fakeInformer) RemoveEventHandler(kcache.ResourceEventHandlerRegistration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers--
	return f.err
}

func (f *fakeInformer) IsStopped() bool { return f.stopped }
func (f *fakeInformer) HasSynced() bool { return true }

func TestStoppableSource(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason   string
		inf      *fakeInformer
		do       func(ctx context.Context, s *watch.StoppableSource) error
		want     error
		handlers int
	}{
		"StartedOnce": {
			reason: "A source that is started twice has one handler.",
			inf:    &fakeInformer{},
			do: func(ctx context.Context, s *watch.StoppableSource) error {
				return stderrors.Join(s.Start(ctx, nil), s.Start(ctx, nil))
			},
			handlers: 1,
		},
		"StoppedTwice": {
			reason: "A source can be stopped again.",
			inf:    &fakeInformer{},
			do: func(ctx context.Context, s *watch.StoppableSource) error {
				return stderrors.Join(s.Start(ctx, nil), s.Stop(ctx), s.Stop(ctx))
			},
		},
		"StoppedFirst": {
			reason: "A source that was stopped before it was started never starts.",
			inf:    &fakeInformer{},
			do: func(ctx context.Context, s *watch.StoppableSource) error {
				return stderrors.Join(s.Stop(ctx), s.Start(ctx, nil))
			},
		},
		"CannotAdd": {
			reason: "Errors are returned.",
			inf:    &fakeInformer{err: boom},
			do:     func(ctx context.Context, s *watch.StoppableSource) error { return s.Start(ctx, nil) },
			want:   boom,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.do(t.Context(), watch.NewStoppableSource(tc.inf, &recorder{}))
			if !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nerror: %v, want %v", tc.reason, err, tc.want)
			}
			if tc.inf.handlers != tc.handlers {
				t.Errorf("\n%s\n%d handlers, want %d", tc.reason, tc.inf.handlers, tc.handlers)
			}
		})
	}
}

// A source of an informer of our cache starts also if that doesn't run any more.
func TestStoppableSource_OfALongUnusedInformer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, k := withOne(t)
		inf, err := r.infs.GetInformer(t.Context(), k.New())
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		rec := &recorder{}
		s := watch.NewStoppableSource(inf, rec)
		if err := s.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if n := rec.count("create", "one"); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

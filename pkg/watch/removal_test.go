package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A watch that was dropped delivers nothing new, even before it is stopped: who
// finds that there is no such watch knows that none of its handlers will begin to
// run.
func TestDroppedWatch(t *testing.T) {
	var told atomic.Int64

	c := newController("c", nil, time.Now())
	defer c.cancel()

	w := newWatch(c, WatchID{Type: "x"}, &Watch{handler: handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			told.Add(1)
		},
	}}, time.Now(), &atomic.Uint64{})
	c.watches[w.id] = w

	w.sub.enqueue(delivery{op: created, object: &metav1.PartialObjectMetadata{}})
	c.handlers.Wait()

	c.mu.Lock()
	c.drop(w)
	c.mu.Unlock()

	w.sub.enqueue(delivery{op: created, object: &metav1.PartialObjectMetadata{}})
	c.handlers.Wait()

	if n := told.Load(); n != 1 {
		t.Errorf("the handler was told of %d objects, want the one from before", n)
	}
}

// scriptedInformers take their time.
type scriptedInformers struct {
	cache.Informers

	// answer is closed when who waits for an informer to sync gets an answer, and
	// removal when a removal may end.
	answer, removal chan struct{}

	mu    sync.Mutex
	calls []string
}

func (s *scriptedInformers) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.calls = append(s.calls, what)
}

func (s *scriptedInformers) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.calls[len(s.calls)-1]
}

func (s *scriptedInformers) GetInformer(_ context.Context, _ client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}

	if !*o.BlockUntilSynced {
		s.note("get")
		return runningInformer{}, nil
	}

	s.note("wait")
	<-s.answer
	s.note("answered")

	return nil, errors.New("boom")
}

func (s *scriptedInformers) RemoveInformer(context.Context, client.Object) error {
	s.note("remove")
	<-s.removal
	s.note("removed")

	return nil
}

type runningInformer struct{ cache.Informer }

func (runningInformer) IsStopped() bool { return false }
func (runningInformer) HasSynced() bool { return false }

// An informer of somebody else's cache is removed after the last question about it
// was answered, since a question would make another one, and is asked for again
// after that, since it would be removed.
func TestWrappedInformersAreRemovedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		infs := &scriptedInformers{answer: make(chan struct{}), removal: make(chan struct{})}

		var wg sync.WaitGroup

		w := &wrappedInformers{infs: infs, run: wg.Go, removals: make(map[kindID]chan struct{})}
		id := kindID{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Widget"}, as: metadata}
		open := func(ctx context.Context) (*opened, error) {
			return w.open(ctx, opening{run: t.Context(), id: id, obj: &metav1.PartialObjectMetadata{}, unstarted: func() {}})
		}

		step := func(when, want string) {
			t.Helper()
			synctest.Wait()

			if got := infs.last(); got != want {
				t.Errorf("%s the last call was %q, want %q", when, got, want)
			}
		}

		o, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		o.start()
		step("when it was started", "wait")
		o.close()
		step("before the answer", "wait")
		close(infs.answer)
		step("after the answer", "remove")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := open(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("open(...) while it is removed: got %v, want %v", err, context.DeadlineExceeded)
		}

		step("while it is removed", "remove")
		close(infs.removal)
		step("afterwards", "removed")

		if _, err := open(t.Context()); err != nil {
			t.Errorf("open(...) after it was removed: %v", err)
		}

		step("when it was opened again", "get")
		wg.Wait()
	})
}

package watch

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How often to ask whether an informer of somebody else's cache was stopped
// behind our back.
const recheckWrapped = time.Second

// A wrappedInformers gets informers from somebody else's cache. It can't know
// how a kind is mapped, nor how lists and watches turn out, and what that cache
// blocks stays blocked; but it makes nobody wait who doesn't need the kind.
type wrappedInformers struct {
	infs cache.Informers

	// Nil if the informers aren't also a cache.
	reader client.Reader

	// run a function in a goroutine that is waited for.
	run func(func())

	// removals that are under way. An informer that was got before one ended
	// would be removed by it.
	mu       sync.Mutex
	removals map[kindID]chan struct{}
}

func newWrappedSet(infs cache.Informers, r client.Reader) *kindSet {
	w := &wrappedInformers{infs: infs, reader: r, removals: make(map[kindID]chan struct{})}
	set := newKindSet(w)
	w.run = set.wg.Go
	return set
}

func (w *wrappedInformers) resolve(context.Context, schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return nil, nil //nolint:nilnil // The wrapped cache looks it up.
}

func (w *wrappedInformers) open(ctx context.Context, o opening) (*opened, error) {
	type answer struct {
		inf cache.Informer
		err error
	}
	w.mu.Lock()
	removal := w.removals[o.id]
	w.mu.Unlock()
	if err := await(ctx, removal); err != nil {
		return nil, err
	}

	// Discovery inside a cache knows no context.
	ch := make(chan answer, 1)
	w.run(func() {
		inf, err := w.infs.GetInformer(ctx, o.obj, cache.BlockUntilSynced(false))
		ch <- answer{inf: inf, err: err}
	})

	var inf cache.Informer
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-ch:
		if a.err != nil {
			return nil, a.err
		}
		inf = a.inf
	}

	var asked chan struct{} // Closed when start's question is answered.
	return &opened{
		informer: inf,
		reader:   w.reader,
		index: func(ctx context.Context, obj client.Object, i *index) error {
			return addIndex(ctx, w.infs, inf, obj, i)
		},
		recheck: recheckWrapped,
		start: func() {
			asked = make(chan struct{})
			w.run(func() {
				defer close(asked)
				// A cache that isn't started doesn't wait.
				_, err := w.infs.GetInformer(o.run, o.obj, cache.BlockUntilSynced(true))
				if err == nil && !inf.HasSynced() {
					o.unstarted()
				}
			})
		},
		close: func() { w.remove(o, inf, asked) }, //nolint:contextcheck // The informer must go although its context ended.
	}, nil
}

// remove an informer, unless somebody else did.
func (w *wrappedInformers) remove(o opening, inf cache.Informer, asked <-chan struct{}) {
	if inf.IsStopped() {
		return
	}
	removed := make(chan struct{})
	w.mu.Lock()
	w.removals[o.id] = removed
	w.mu.Unlock()

	w.run(func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.removals[o.id] == removed {
				delete(w.removals, o.id)
			}
			close(removed)
		}()
		// To ask after the informer was removed would make another one. The
		// answer comes when the informer's context ends, if not before.
		if asked != nil {
			<-asked
		}
		// All that it does is to take a lock and to close a channel, but the
		// lock may be held while another kind is discovered.
		_ = w.infs.RemoveInformer(context.WithoutCancel(o.run), o.obj)
	})
}

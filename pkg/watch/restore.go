package watch

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"k8s.io/apimachinery/pkg/runtime"
)

// A RestoreFn makes a watch that a controller had before the process started
// anew. It returns false for one that it doesn't want any more.
type RestoreFn func(id WatchID) (Watch, bool)

// Reasons of events.
const (
	reasonCannotLoad event.Reason = "CannotLoadWatches"
	reasonCannotSave event.Reason = "CannotSaveWatches"
)

// Times of the state store.
const (
	// What changes within saveDelay is saved at once.
	saveDelay = time.Second

	// When to try again what couldn't be saved.
	saveRetry = 30 * time.Second

	storeTimeout = 10 * time.Second

	// How long a controller waits for restored watches before it reconciles.
	restorePatience = 10 * time.Second
)

// WithStateStore keeps which watches there are in a store, so that controllers
// with WithRestore start them before their first reconcile, after a restart. A
// store that fails does no harm: what it would have told is learned from
// reconciles, as without it. It is said in the log, in
// graft_watch_state_store_errors_total, and in an event; see WithRecorder.
func WithStateStore(s StateStore) ControllerEngineOption {
	return func(e *ControllerEngine) { e.saver.store = s }
}

// WithRecorder sets what records events about the state store, and the object
// that they are about; there are none by default.
func WithRecorder(r event.Recorder, about runtime.Object) ControllerEngineOption {
	return func(e *ControllerEngine) { e.saver.recorder, e.saver.about = r, about }
}

// WithRestore makes a controller start, before its first reconcile, the watches
// that it had when the process ended. It waits a few seconds for them to sync.
// The engine needs a state store.
func WithRestore(fn RestoreFn) ControllerOption {
	return func(o *ControllerOptions) { o.restore = fn }
}

// storeErrors counts what went wrong with a state store.
type storeErrors struct {
	load, save atomic.Uint64
}

// A saver writes to a state store, in the background and one at a time, when
// watches have changed.
type saver struct {
	store    StateStore
	recorder event.Recorder
	about    runtime.Object

	mu sync.Mutex

	// loaded is closed when the store was loaded, or could not be; nil if nobody
	// has begun to.
	loaded chan struct{}

	// kept is what was loaded for controllers that weren't started yet. What
	// they had must survive that others are saved.
	kept SavedWatches

	dirty   bool
	running bool
}

// changed is called when a controller has other watches than before.
func (e *ControllerEngine) changed() {
	s := &e.saver
	if s.store == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = true
	if s.running || !e.elected() {
		// Only one process may write. What changes before we are elected is
		// saved when the controllers start.
		return
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.shutDown {
		// What was there when we began to shut down is what must be saved.
		return
	}
	s.running = true
	e.background.Go(e.save)
}

// save until there is nothing more to save.
func (e *ControllerEngine) save() {
	s := &e.saver
	ctx := e.ctx
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = false
	}()

	// What is saved replaces what other controllers had: know it first.
	if e.load(ctx) != nil {
		return
	}

	delay := saveDelay
	for {
		t := e.clock.NewTimer(delay)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
			return
		}

		s.mu.Lock()
		if !s.dirty {
			// Under the lock, so that who changes something starts us again.
			s.running = false
			s.mu.Unlock()
			return
		}
		s.dirty = false
		s.mu.Unlock()

		sctx, cancel := context.WithTimeout(ctx, storeTimeout)
		err := s.store.Save(sctx, e.watchesToSave())
		cancel()
		delay = saveDelay
		if err != nil && ctx.Err() == nil {
			e.storeFailed(&e.storeErrors.save, reasonCannotSave, errors.Wrap(err, "cannot save watches"))
			delay = saveRetry
			s.mu.Lock()
			s.dirty = true
			s.mu.Unlock()
		}
	}
}

// watchesToSave are those that there are, and those of controllers that weren't
// started yet.
func (e *ControllerEngine) watchesToSave() SavedWatches {
	e.saver.mu.Lock()
	out := maps.Clone(e.saver.kept)
	e.saver.mu.Unlock()
	if out == nil {
		out = make(SavedWatches)
	}

	e.mu.RLock()
	cs := make([]*controller, 0, len(e.controllers))
	for _, c := range e.controllers {
		cs = append(cs, c)
	}
	e.mu.RUnlock()
	for _, c := range cs {
		c.mu.RLock()
		for id := range c.watches {
			out[c.name] = append(out[c.name], id)
		}
		c.mu.RUnlock()
	}
	return out
}

// load what was saved, once. All who call meanwhile wait for it.
func (e *ControllerEngine) load(ctx context.Context) error {
	s := &e.saver
	s.mu.Lock()
	loaded := s.loaded
	if loaded == nil {
		s.loaded = make(chan struct{})
	}
	s.mu.Unlock()
	if loaded != nil {
		return await(ctx, loaded)
	}

	// Whoever called may go, and others wait for the answer all the same.
	lctx, cancel := context.WithTimeout(e.ctx, storeTimeout)
	defer cancel()
	kept, err := s.store.Load(lctx) //nolint:contextcheck // Said above.
	if err != nil {
		e.storeFailed(&e.storeErrors.load, reasonCannotLoad, errors.Wrap(err, "cannot load watches; starting without"))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = maps.Clone(kept)
	close(s.loaded)
	return nil
}

func (e *ControllerEngine) elected() bool {
	select {
	case <-e.mgr.Elected():
		return true
	default:
		return false
	}
}

func (e *ControllerEngine) storeFailed(n *atomic.Uint64, reason event.Reason, err error) {
	n.Add(1)
	e.log.Info("State store failed", "error", err)
	if e.saver.recorder != nil {
		e.saver.recorder.Event(e.saver.about, event.Warning(reason, err))
	}
}

// restoreWatches starts what a controller had before the process started anew. It
// waits for it a little.
func (e *ControllerEngine) restoreWatches(c *controller, fn RestoreFn) {
	s := &e.saver
	if s.store == nil {
		return
	}
	defer e.changed()
	if e.load(c.ctx) != nil {
		return
	}

	s.mu.Lock()
	ids := s.kept[c.name]
	delete(s.kept, c.name)
	s.mu.Unlock()
	if fn == nil {
		return
	}

	ws := make([]Watch, 0, len(ids))
	for _, id := range ids {
		if w, ok := fn(id); ok {
			ws = append(ws, w)
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, restorePatience)
	defer cancel()
	if err := e.StartWatches(ctx, c.name, ws...); err != nil && c.ctx.Err() == nil {
		e.log.Info("Cannot restore all watches yet", "controller", c.name, "error", err)
	}
}

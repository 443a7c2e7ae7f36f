package watch

import (
	"cmp"
	"context"
	"maps"
	"slices"
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
	reasonNothingSaved event.Reason = "NoSavedWatches"
	reasonCannotLoad   event.Reason = "CannotLoadWatches"
	reasonCannotSave   event.Reason = "CannotSaveWatches"
)

// A storeState says how a state store does.
type storeState string

const (
	storeUnknown    storeState = "Unknown" // Nobody has asked it.
	storeGood       storeState = "Good"
	storeMissing    storeState = "Missing"
	storeUnreadable storeState = "Unreadable"
	storeNewer      storeState = "Newer"
	storeFailing    storeState = "Failing"
)

func storeStates() []storeState {
	return []storeState{storeUnknown, storeGood, storeMissing, storeUnreadable, storeNewer, storeFailing}
}

// stateAfter says what the answer of a store means.
func stateAfter(err error) storeState {
	switch {
	case err == nil:
		return storeGood
	case errors.Is(err, ErrNewerState):
		return storeNewer
	case errors.Is(err, ErrNoState):
		return storeMissing
	case errors.Is(err, ErrUnreadableState):
		return storeUnreadable
	default:
		return storeFailing
	}
}

// Times of the state store.
const (
	// What changes within saveDelay is saved at once.
	saveDelay = time.Second

	// When to try again what couldn't be saved.
	saveRetry = 30 * time.Second

	// When to look again whether what a newer version saved is still there.
	newerRetry = 10 * time.Minute

	storeTimeout = 10 * time.Second

	// How long Shutdown tries to save what hasn't been saved.
	lastSaveTimeout = 3 * time.Second

	// How long a controller waits for restored watches before it reconciles.
	restorePatience = 10 * time.Second
)

// WithStateStore keeps which watches there are in a store, so that controllers
// with WithRestore start them before their first reconcile, after a restart. A
// store that is missing, unreadable, or that fails does no harm: what it would have
// told is learned from reconciles, as without it. What a newer version saved is
// left as it is: nothing is saved until it is gone. How the store does is said in
// the log, in graft_watch_state_store, and in an event; see WithRecorder.
//
// Changes are saved a second later, together. Shutdown saves those that weren't:
// call it before another process may be elected.
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

	mu    sync.Mutex
	state storeState

	// loaded is closed when the store was loaded, or could not be; nil if nobody
	// has begun to.
	loaded chan struct{}

	// known says that we know what there is in the store, so that it may be
	// replaced.
	known bool

	// kept is what was loaded for controllers that weren't started yet, and begun
	// are those that were. What the former had must survive that others are saved.
	kept  SavedWatches
	begun map[string]struct{}

	// changes counts what changed. Of these the first so many were saved.
	changes, saved uint64

	// running says that a goroutine saves. It ends only when all is saved, or when
	// the engine is shut down.
	running bool
}

// get returns how the store does.
func (s *saver) get() storeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.state, storeUnknown)
}

// delay returns when to save what changes, or to try again.
func (s *saver) delay() time.Duration {
	switch s.get() {
	case storeFailing:
		return saveRetry
	case storeNewer:
		return newerRetry
	case storeUnknown, storeGood, storeMissing, storeUnreadable:
	}
	return saveDelay
}

// changed is called when a controller has other watches than before.
func (e *ControllerEngine) changed() {
	s := &e.saver
	if s.store == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.shutDown {
		// What was there when we began to shut down is what must be saved.
		return
	}
	s.changes++
	if s.running || !e.elected() {
		// Only one process may write. What changes before we are elected is
		// saved when the controllers start.
		return
	}
	s.running = true
	e.background.Go(e.save)
}

// save until there is nothing more to save.
func (e *ControllerEngine) save() {
	s := &e.saver
	ctx := e.ctx

	// What is saved replaces what other controllers had: know it first.
	if e.load(ctx) != nil {
		return
	}

	delay := s.delay()
	for {
		t := e.clock.NewTimer(delay)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
			return
		}

		s.mu.Lock()
		known := s.known
		if s.saved == s.changes {
			// Under the lock, so that who changes something starts us again.
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()

		if known || e.ask() == nil {
			e.saveNow(ctx)
		}
		delay = s.delay()
	}
}

// saveNow replaces what was saved.
func (e *ControllerEngine) saveNow(ctx context.Context) {
	sctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()

	ws, changes := e.watchesToSave()
	if ctx.Err() != nil {
		// We are shut down, and some may have been stopped for that.
		return
	}
	err := e.saver.store.Save(sctx, ws)
	if err != nil && ctx.Err() != nil {
		return // It was interrupted.
	}
	e.wasSaved(changes, err)
}

// saveLast saves what there was when the engine began to shut down, unless that was
// done.
func (e *ControllerEngine) saveLast(ctx context.Context, ws SavedWatches, changes uint64) {
	s := &e.saver
	s.mu.Lock()
	needed := s.known && s.saved < changes
	s.mu.Unlock()
	if !needed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastSaveTimeout)
	defer cancel()
	e.wasSaved(changes, s.store.Save(ctx, ws))
}

// wasSaved notes that so many changes were saved, or why not.
func (e *ControllerEngine) wasSaved(changes uint64, err error) {
	s := &e.saver
	s.mu.Lock()
	switch {
	case err == nil:
		s.saved = changes
	case errors.Is(err, ErrNewerState):
		// Somebody saved it since we loaded.
		s.known = false
	}
	s.mu.Unlock()

	if err != nil {
		e.storeErrors.save.Add(1)
	}
	e.storeIs(reasonCannotSave, errors.Wrap(err, "cannot save watches"))
}

// watchesToSave are those that there are, and those that controllers have yet to
// restore. It also returns how many changes are in them, at least.
func (e *ControllerEngine) watchesToSave() (out SavedWatches, changes uint64) {
	e.saver.mu.Lock()
	changes = e.saver.changes
	out = make(SavedWatches, len(e.saver.kept))
	maps.Copy(out, e.saver.kept)
	e.saver.mu.Unlock()

	e.mu.RLock()
	cs := make([]*controller, 0, len(e.controllers))
	for _, c := range e.controllers {
		cs = append(cs, c)
	}
	e.mu.RUnlock()
	for _, c := range cs {
		c.mu.RLock()
		if len(c.watches) > 0 {
			all := maps.Clone(c.watches)
			for _, id := range out[c.name] {
				all[id] = nil // It hasn't restored them yet.
			}
			out[c.name] = slices.Collect(maps.Keys(all))
		}
		c.mu.RUnlock()
	}
	return out, changes
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
	_ = e.ask() //nolint:contextcheck // Said above.
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.loaded)
	return nil
}

// ask the store what was saved. The error says that it may not be replaced.
func (e *ControllerEngine) ask() error {
	s := &e.saver
	ctx, cancel := context.WithTimeout(e.ctx, storeTimeout)
	defer cancel()
	kept, err := s.store.Load(ctx)
	if e.ctx.Err() != nil {
		return err // We were shut down.
	}

	state := stateAfter(err)
	known := state != storeNewer && state != storeFailing
	s.mu.Lock()
	s.known = known
	s.kept = maps.Clone(kept)
	for name := range s.begun {
		// It was started without, and what it has now counts.
		delete(s.kept, name)
	}
	s.mu.Unlock()

	if err != nil && state != storeMissing {
		e.storeErrors.load.Add(1)
	}
	if err != nil || s.get() == storeUnknown {
		// What was wrong before is over when something was saved.
		e.storeIs(reasonCannotLoad, errors.Wrap(err, "starting without saved watches"))
	}
	if known {
		return nil
	}
	return err
}

// storeIs notes how the store does, from what it answered, and says so if that is
// news.
func (e *ControllerEngine) storeIs(reason event.Reason, err error) {
	s := &e.saver
	state := stateAfter(err)
	s.mu.Lock()
	news := s.state != state
	s.state = state
	s.mu.Unlock()
	if !news {
		return
	}

	if err == nil {
		e.log.Debug("The state store works")
		return
	}
	ev := event.Warning(reason, err)
	if state == storeMissing {
		// As it is when we are new.
		ev = event.Normal(reasonNothingSaved, err.Error())
	}
	e.log.Info("The state store isn't as it should be", "state", state, "error", err)
	if s.recorder != nil {
		s.recorder.Event(s.about, ev)
	}
}

func (e *ControllerEngine) elected() bool {
	select {
	case <-e.mgr.Elected():
		return true
	default:
		return false
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
	if s.begun == nil {
		s.begun = make(map[string]struct{})
	}
	s.begun[c.name] = struct{}{}
	s.mu.Unlock()
	// Not before, or what is saved meanwhile would lack them.
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.kept, c.name)
	}()
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

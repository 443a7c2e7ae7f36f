package watch

import (
	"cmp"
	"context"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	lookUpInterval = 15 * time.Minute // For kinds that work, in case no event says that one has changed.
	syncPatience   = 2 * time.Minute  // For an informer to sync, and for a watch to open.
)

// An index is added to each informer of its kind.
type index struct {
	name        string
	add         func(ctx context.Context, inf *informer, obj client.Object) error
	used        bool  // An informer has, had, or is getting the index. Guarded by the kind's mutex.
	panics      error // Why the index can't be added. Used by the kind's goroutine alone.
	replaceable bool  // Another index may take its place. Guarded by the cache's mutex.
}

// result reports whether the index was added to an informer, which may be nil, or never will be,
// and why not. The kind's mutex must be held.
func (i *index) result(all map[string]*index, inf *informer) (added bool, err error) {
	if all[i.name] != i {
		return true, errors.New("another index took its place")
	}
	if inf != nil {
		err, added = inf.indexes[i]
	}
	return added, err
}

// A session is the life of one informer of a kind. The kind's goroutine runs it.
type session struct {
	kind         *kind
	mapping      *meta.RESTMapping
	ctx          context.Context //nolint:containedctx // It ends with the session.
	cancel       context.CancelFunc
	handler      *informerHandler
	contradicted atomic.Bool // An object disagrees with the mapping's scope.
	informer     *informer
	synced       func() bool
	syncedAt     time.Time // Zero until the informer has synced.

	// A look-up runs beside the informer.
	lookUps  chan lookUpResult
	looking  bool
	lookNext time.Time
}

// A lookUpResult is the result of a look-up beside a running informer.
type lookUpResult struct {
	mapping *meta.RESTMapping
	err     error
}

func newSession(k *kind, m *meta.RESTMapping) *session {
	s := &session{kind: k, mapping: m, lookUps: make(chan lookUpResult, 1), lookNext: nextLookUp(k.key.GroupVersion())}
	s.ctx, s.cancel = context.WithCancel(k.ctx)
	s.handler = &informerHandler{
		broadcaster: k.broadcaster,
		listed:      make(map[string]client.Object),
		namespaced:  m.Scope.Name() == meta.RESTScopeNameNamespace,
		disagrees: func() {
			if !s.contradicted.Swap(true) {
				k.signal()
			}
		},
	}
	return s
}

// nextLookUp is the same time for all kinds of a group and version, which share requests, and
// spread over the interval for others.
func nextLookUp(gv schema.GroupVersion) time.Time {
	at := time.Duration(crc32.ChecksumIEEE([]byte(gv.String()))) * time.Second % lookUpInterval
	return time.Now().Add(-at).Truncate(lookUpInterval).Add(lookUpInterval + at)
}

// open starts an informer.
func (s *session) open() (err error) {
	k := s.kind
	if k.status.Load().err.missing() {
		s.lookNext = time.Now().Add(maxBackoff) // Discovery may have been stale.
	}
	k.update(func() {
		k.stop = s.cancel
		k.last.crdDeleted = false
		next := *k.status.Load()
		next.mapping = s.mapping
		k.status.Store(&next)
		k.broadcaster.follow(s.handler)
	})
	relisted := func() { // An informer lists again if it missed events: the kind may have been replaced in between.
		if k.synced.Load() != nil {
			k.update(func() { k.epoch++ })
		}
	}
	s.informer, err = k.factory.newInformer(s.ctx, &k.wg, k.obj, s.mapping, k.signal, relisted)
	if err != nil {
		return err
	}
	if s.synced, err = s.informer.addHandler(s.ctx, s.handler); err != nil {
		return err
	}
	s.informer.start(s.ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.status.Load()
	next.generation++
	k.status.Store(&next)
	k.list = s.informer.list
	if next.state != StateDegraded { // A failure is over when the informer has synced.
		k.setState(StateSyncing, nil)
	}
	return nil
}

// close stops the informer.
func (s *session) close() {
	s.cancel()
	s.kind.broadcaster.follow(nil)
	s.kind.update(func() {
		s.kind.stop = nil
		s.kind.synced.Store(nil)
		if st := s.kind.status.Load().state; st == StateActive || st == StateSyncing {
			s.kind.setState(StatePending, nil)
		}
	})
}

// run watches the informer until it has to be closed. It returns why it failed, or nil if the kind
// should be looked up at once. Informers don't signal that they have synced, so run polls until they
// have, less and less often.
func (s *session) run() error {
	k, began := s.kind, time.Now()
	for s.ctx.Err() == nil && k.retiresIn() > 0 {
		if s.syncedAt.IsZero() && s.synced() {
			k.broadcaster.settle(s.handler) //nolint:contextcheck // Subscriptions have their own.
			s.syncedAt = time.Now()
		}
		wait, obsolete, err := s.assess()
		if err != nil {
			return s.lost(err)
		}
		if !s.looking && (obsolete || time.Until(s.lookNext) <= 0) {
			s.looking, s.lookNext = true, nextLookUp(k.key.GroupVersion())
			k.wg.Go(func() { // It may take long.
				m, err := k.lookUp(s.ctx)
				s.lookUps <- lookUpResult{mapping: m, err: err}
			})
		}
		if !s.looking {
			wait = min(wait, time.Until(s.lookNext))
		}
		if s.syncedAt.IsZero() {
			wait = min(wait, max(time.Millisecond, time.Since(began)/10))
		} else {
			s.addIndexes()
		}
		timer := time.NewTimer(min(wait, max(k.retiresIn(), time.Millisecond)))
		select {
		case <-s.ctx.Done():
		case <-s.informer.ended:
			if s.ctx.Err() == nil {
				return s.lost(errors.New("the informer was stopped"))
			}
		case r := <-s.lookUps:
			s.looking = false
			if obsolete, err = s.judge(r); obsolete {
				return err
			}
		case <-k.wake:
			began = time.Now()
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// judge reports whether the result of a look-up makes the informer obsolete, and why.
func (s *session) judge(r lookUpResult) (obsolete bool, err error) {
	switch {
	case s.ctx.Err() != nil:
		return true, nil
	case r.err != nil && classify(s.kind.key.GroupVersionKind, r.err).missing():
		return true, r.err
	case r.err != nil: // An informer that works stays.
		s.lookNext = time.Now().Add(maxBackoff)
		return false, nil
	case r.mapping.Resource != s.mapping.Resource || r.mapping.Scope.Name() != s.mapping.Scope.Name():
		s.kind.reindex(s.kind.key)
		return true, nil
	}
	return false, nil
}

// assess sets the state from the results of the informer's requests, unless it was stopped. It
// returns when it should be called again at the latest, and whether the last look-up is obsolete,
// or an error if the informer has to be closed.
func (s *session) assess() (wait time.Duration, obsolete bool, err error) {
	k, h, synced := s.kind, s.informer.health(), !s.syncedAt.IsZero()
	failure := cmp.Or(h.listErr, h.watchErr)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case s.ctx.Err() != nil: // replaceInformer has stopped it since it was last looked at.
		return 0, false, nil
	case s.contradicted.Load():
		return 0, false, errors.Errorf(
			"discovery says that it is namespaced: %t, and its objects say the opposite", s.handler.namespaced,
		)
	case synced && kerrors.IsNotFound(failure):
		return 0, false, failure
	case !synced && h.listErr != nil:
		return 0, false, h.listErr
	case synced && k.synced.Load() == nil:
		k.synced.Store(s.informer)
		_ = k.firstSync.Replace(nil, "") // It has nothing to fail with.
		k.notify()
	}
	return s.setState(h, failure), k.epoch != k.last.epoch, nil
}

// setState sets the kind's state, and returns when it may change by itself. The kind's mutex must
// be held.
func (s *session) setState(h health, failure error) time.Duration {
	k, st, synced := s.kind, s.kind.status.Load(), !s.syncedAt.IsZero()
	// Until the informer has synced, the whole time counts, because an open watch may stream a
	// list that never ends.
	broken := h.broken
	if since := time.Since(st.since); !synced || broken > since {
		broken = since
	}
	waits := (!synced || !h.works) && (st.state == StateActive || st.state == StateSyncing)
	switch {
	case failure != nil && synced: // Before, a list follows a watch that failed.
		e := classify(k.key.GroupVersionKind, failure)
		if st.state != StateDegraded || !errors.Is(st.err.Reason, e.Reason) {
			k.setFailed(e)
		}
	case synced && h.open && (h.works || st.state != StateDegraded):
		if st.state != StateActive {
			k.setState(StateActive, nil)
		}
		return h.settles
	case waits && broken < syncPatience:
		return min(h.settles, syncPatience-broken)
	case waits && st.state == StateSyncing:
		k.setFailed(k.failure(ErrNotSynced, nil))
	case waits:
		k.setFailed(k.failure(ErrUnreachable, errors.New("no watch is open")))
	}
	return h.settles
}

// lost returns nil if the kind should be looked up at once after its informer was lost: mostly
// the kind was deleted, or is served in another way. It returns the error if the informer
// hadn't synced, or if informers are lost again and again.
func (s *session) lost(err error) error {
	if err == nil || s.syncedAt.IsZero() {
		return err
	}
	k := s.kind
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(s.syncedAt) > maxBackoff {
		k.last.failures = 0
	}
	if k.last.failures > 0 {
		return err
	}
	k.last.failures++
	return nil
}

// addIndexes adds the indexes that were requested since the informer was opened.
func (s *session) addIndexes() {
	k := s.kind
	k.mu.Lock()
	var missing []*index
	for _, i := range k.indexes {
		if _, ok := s.informer.indexes[i]; !ok {
			i.used = true
			missing = append(missing, i)
		}
	}
	k.mu.Unlock()

	for _, i := range missing {
		err := i.panics
		if err == nil {
			i.panics = errors.New("its function panics") // Unless it returns.
			err = i.add(s.ctx, s.informer, k.obj)
			i.panics = nil
		}
		k.mu.Lock()
		s.informer.indexes[i] = err
		k.notify()
		k.mu.Unlock()
	}
}

package watch

import (
	"cmp"
	"context"
	"hash/crc32"
	"maps"
	"slices"
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

// A session is the life of one informer of a kind. The kind's worker runs it.
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
	brokenSince  time.Time // When a watch was first seen not to work; zero while all do.
	lookNext     time.Time // When the kind is looked up again.
	looking      bool      // A look-up is in progress.
	looked       chan func() (obsolete bool, err error)
}

func newSession(k *kind, m *meta.RESTMapping) *session {
	s := &session{kind: k, mapping: m, lookNext: nextLookUp(k.key.GroupVersion())}
	s.looked = make(chan func() (bool, error), 1)
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
	k.mu.Lock() // An index that comes later replaces the informer, or is added when it has synced.
	indexes := slices.Collect(maps.Values(k.indexes))
	k.mu.Unlock()
	for _, i := range indexes {
		if err := i.addTo(s.ctx, s.informer, k.obj); err != nil {
			return errors.Wrapf(err, "cannot add index %s", i.name)
		}
	}
	if s.synced, err = s.informer.addHandler(s.ctx, s.handler); err != nil {
		return err
	}
	s.informer.start(s.ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.status.Load()
	next.generation, next.mapping = next.generation+1, s.mapping
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
			k.broadcaster.settle(s.handler)
			s.syncedAt = time.Now()
		}
		wait, obsolete, err := s.assess()
		if err != nil {
			return s.lost(err)
		}
		if (obsolete || time.Until(s.lookNext) <= 0) && !s.looking {
			s.looking = true
			k.wg.Go(func() {
				m, err := k.lookUp(s.ctx)
				s.looked <- func() (bool, error) { return s.compare(m, err) }
			})
		}
		wait = min(wait, max(k.retiresIn(), time.Millisecond))
		if !s.looking {
			wait = min(wait, time.Until(s.lookNext))
		}
		if s.syncedAt.IsZero() {
			wait = min(wait, max(time.Millisecond, time.Since(began)/10))
		}
		select {
		case <-s.ctx.Done():
		case <-s.informer.ended:
			if s.ctx.Err() == nil {
				return s.lost(errors.New("the informer was stopped"))
			}
		case compare := <-s.looked:
			s.looking, s.lookNext = false, nextLookUp(k.key.GroupVersion())
			if done, err := compare(); done {
				return err
			}
		case <-k.wake:
			began = time.Now()
		case <-time.After(wait):
		}
	}
	return nil
}

// lookUp returns how the API server serves the kind. If discovery says that it doesn't, and
// there was an informer, a list that works outweighs discovery. Unless the CRD was deleted, a
// list that fails for another reason leaves the question open.
func (k *kind) lookUp(ctx context.Context) (*meta.RESTMapping, error) {
	k.mu.Lock()
	if err := ctx.Err(); err != nil { // The informer that it was for was stopped.
		k.mu.Unlock()
		return nil, err
	}
	k.last.epoch, k.last.failedAt, k.last.requested = k.epoch, time.Time{}, false
	known, list, crdDeleted := k.status.Load().mapping, k.list, k.last.crdDeleted
	k.mu.Unlock()
	m, err := k.resolver.resolve(ctx, k.key.GroupVersionKind)
	if err == nil || list == nil || !classify(k.key.GroupVersionKind, err).missing() {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	switch listErr := list(ctx); {
	case listErr == nil:
		return known, nil
	case crdDeleted, kerrors.IsNotFound(listErr), classify(k.key.GroupVersionKind, listErr).permanent():
		return nil, err
	default:
		return nil, listErr
	}
}

// compare compares the informer with the result of a look-up. It reports whether the informer has to be
// closed, and why.
func (s *session) compare(m *meta.RESTMapping, err error) (obsolete bool, reason error) {
	switch {
	case s.ctx.Err() != nil:
		return true, nil
	case err != nil && classify(s.kind.key.GroupVersionKind, err).missing():
		return true, err
	case err != nil: // An informer that works stays.
		s.lookNext = time.Now().Add(maxBackoff)
	case m.Resource != s.mapping.Resource || m.Scope.Name() != s.mapping.Scope.Name():
		s.kind.reindex(s.kind.key)
		return true, nil
	}
	return false, nil
}

// assess sets the state from the results of the informer's requests, unless it was stopped. It
// returns when it should be called again at the latest, and whether the last look-up is obsolete and no
// list is awaited, or an error if the informer has to be closed.
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
		k.setState(k.status.Load().state, k.status.Load().err)
	}
	wait = s.setState(h, failure)
	return wait, k.epoch != k.last.epoch && k.status.Load().state != StateSyncing, nil
}

// setState sets the kind's state, and returns when it may change by itself. The kind's mutex must
// be held.
func (s *session) setState(h health, failure error) time.Duration {
	k, st, synced := s.kind, s.kind.status.Load(), !s.syncedAt.IsZero()
	switch {
	case h.works:
		s.brokenSince = time.Time{}
	case s.brokenSince.IsZero():
		s.brokenSince = time.Now()
	}
	broken := time.Since(s.brokenSince)
	if !synced { // The whole time counts, because an open watch may stream a list that never ends.
		broken = time.Since(st.since)
	}
	waits := (!synced || !h.works) && (st.state == StateActive || st.state == StateSyncing)
	switch {
	case failure != nil && synced: // Before, a list follows a watch that failed.
		e := classify(k.key.GroupVersionKind, failure)
		if st.state != StateDegraded || !errors.Is(st.err.Reason, e.Reason) {
			k.setFailed(e)
		}
	case synced && h.works:
		if st.state != StateActive {
			k.setState(StateActive, nil)
		}
		return h.settles
	case waits && broken < syncPatience:
		return min(h.settles, syncPatience-broken)
	case waits && st.state == StateSyncing:
		k.setFailed(k.key.failure(ErrNotSynced, nil))
	case waits:
		k.setFailed(k.key.failure(ErrUnreachable, errors.New("no watch is open")))
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

package watch

import (
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
)

// A session is the life of one informer of a kind. The kind's goroutine runs it.
type session struct {
	*kind

	mapping      *meta.RESTMapping
	ctx          context.Context //nolint:containedctx // It ends with the session.
	handler      *informerHandler
	contradicted atomic.Bool // An object disagrees with the mapping's scope.
	informer     *informer
	synced       func() bool
	syncedAt     time.Time        // Zero until the informer has synced.
	works        bool             // The informer has synced, and all watches work.
	workedAt     time.Time        // When it last worked, or the session began.
	lookNext     time.Time        // When the kind is looked up again.
	looked       chan lookUpEnded // Nil while no look-up is in progress.
}

// A lookUpEnded is the result of a look-up.
type lookUpEnded struct {
	mapping *meta.RESTMapping
	err     error
}

// runSession runs an informer. It returns why the informer failed, or nil if the kind should be looked up at
// once. Code that callers supply may panic.
func runSession(k *kind, m *meta.RESTMapping) (err error) {
	defer survive(&err)
	ctx, cancel := context.WithCancel(k.ctx)
	s := &session{kind: k, mapping: m, ctx: ctx, workedAt: time.Now(), lookNext: nextLookUp(k.key.GroupVersion())}
	if k.status.Load().err.missing() {
		s.lookNext = time.Now().Add(maxBackoff) // Discovery may have been stale.
	}
	s.handler = newInformerHandler(k.broadcaster, m.Scope.Name() == meta.RESTScopeNameNamespace, func() {
		if !s.contradicted.Swap(true) {
			k.signal()
		}
	})
	defer func() {
		cancel()
		k.broadcaster.follow(nil)
		k.update(func() {
			k.stop = nil
			k.setStatus(func(st *status) {
				st.informer = nil
				if st.state == StateActive || st.state == StateSyncing {
					st.state, st.err = StatePending, nil
				}
			})
		})
	}()
	k.update(func() {
		k.stop = cancel
		k.last.crdDeleted = false
		k.broadcaster.follow(s.handler)
	})
	if err := s.open(); err != nil {
		return err
	}
	return s.run()
}

// nextLookUp is the same time for all kinds of a group and version, which share requests, and
// spread over the interval for others.
func nextLookUp(gv schema.GroupVersion) time.Time {
	at := time.Duration(crc32.ChecksumIEEE([]byte(gv.String()))) * time.Second % lookUpInterval
	return time.Now().Add(-at).Truncate(lookUpInterval).Add(lookUpInterval + at)
}

// open starts the informer.
func (s *session) open() (err error) {
	relisted := func() { // An informer lists again if it missed events: the kind may have been replaced in between.
		if s.status.Load().informer != nil {
			s.update(func() { s.epoch++ })
		}
	}
	if s.informer, err = s.factory.newInformer(s.ctx, &s.wg, s.obj, s.mapping, s.signal, relisted); err != nil {
		return err
	}
	s.mu.Lock() // An index that comes later replaces the informer, or is added when it has synced.
	indexes := slices.Collect(maps.Values(s.indexes))
	s.mu.Unlock()
	for _, i := range indexes {
		if err := i.addTo(s.ctx, s.informer, s.obj); err != nil {
			return errors.Wrapf(err, "cannot add index %s", i.name)
		}
	}
	if s.synced, err = s.informer.addHandler(s.ctx, s.handler); err != nil {
		return err
	}
	s.informer.start(s.ctx)
	s.update(func() {
		s.lastInformer = s.informer
		s.setStatus(func(st *status) {
			st.generation, st.mapping = st.generation+1, s.mapping
			if st.state != StateDegraded { // A failure is over when the informer has synced.
				st.state, st.err = StateSyncing, nil
			}
		})
	})
	return nil
}

// run watches the informer until it has to be closed. Nothing signals that an informer has synced, or that a
// watch has been open for long enough, so run polls until then, less and less often.
func (s *session) run() error {
	for signaled := time.Now(); s.ctx.Err() == nil && s.retiresIn() > 0; {
		obsolete, err := s.assess()
		if err != nil {
			return s.lost(err)
		}
		if s.looked == nil && (obsolete || time.Until(s.lookNext) <= 0) {
			s.looked = make(chan lookUpEnded, 1)
			s.wg.Go(func() {
				m, err := s.lookUp(s.ctx)
				s.looked <- lookUpEnded{m, err}
			})
		}
		wait := s.retiresIn()
		if s.looked == nil {
			wait = min(wait, time.Until(s.lookNext))
		}
		if !s.works {
			wait = min(wait, time.Since(signaled)/10)
		}
		select {
		case <-s.ctx.Done():
		case l := <-s.looked:
			s.looked, s.lookNext = nil, nextLookUp(s.key.GroupVersion())
			if done, err := s.compare(l); done {
				return err
			}
		case <-s.wake:
			signaled = time.Now()
		case <-time.After(max(wait, time.Millisecond)):
		}
	}
	return nil
}

// compare compares the informer with the result of a look-up. It reports whether the informer has to be
// closed, and why.
func (s *session) compare(l lookUpEnded) (obsolete bool, reason error) {
	switch {
	case s.ctx.Err() != nil:
		return true, nil
	case l.err != nil && classify(s.key.GroupVersionKind, l.err).missing():
		return true, l.err
	case l.err != nil: // An informer that works stays.
		s.lookNext = time.Now().Add(maxBackoff)
	case l.mapping.Resource != s.mapping.Resource || l.mapping.Scope.Name() != s.mapping.Scope.Name():
		s.reindex(s.key)
		return true, nil
	}
	return false, nil
}

// assess sets the kind's status from the results of the informer's requests, unless it was stopped. It
// reports whether the last look-up is obsolete and no list is awaited, or returns an error if the informer has
// to be closed.
func (s *session) assess() (obsolete bool, err error) {
	if s.syncedAt.IsZero() && s.synced() {
		s.broadcaster.settle(s.handler)
		s.syncedAt = time.Now()
	}
	synced, h := !s.syncedAt.IsZero(), s.informer.health()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status.Load()
	switch {
	case s.ctx.Err() != nil: // replaceInformer has stopped it since it was last looked at.
		return false, nil
	case h.ended:
		return false, errors.New("the informer was stopped")
	case s.contradicted.Load():
		return false, errors.Errorf(
			"discovery says that it is namespaced: %t, and its objects say the opposite", s.handler.namespaced,
		)
	case synced && kerrors.IsNotFound(h.err), !synced && !h.listed:
		return false, h.err
	case synced && st.informer == nil:
		_ = s.firstSync.Replace(nil, "") // It has nothing to fail with.
		s.setStatus(func(st *status) { st.informer = s.informer })
	}
	worked := s.works
	if s.works = synced && h.works; s.works || worked {
		s.workedAt = time.Now()
	}
	var failure *KindError
	switch waits := st.state == StateActive || st.state == StateSyncing; {
	case h.err != nil && synced: // Before, a list follows a watch that failed.
		failure = classify(s.key.GroupVersionKind, h.err)
	case s.works && st.state != StateActive:
		s.setStatus(func(st *status) { st.state, st.err = StateActive, nil })
	case s.works || !waits || time.Since(s.workedAt) < syncPatience:
	case st.state == StateSyncing:
		failure = s.key.failure(ErrNotSynced, nil)
	default:
		failure = s.key.failure(ErrUnreachable, errors.New("no watch is open"))
	}
	if failure != nil && (st.state != StateDegraded || !errors.Is(st.err.Reason, failure.Reason)) {
		s.setFailed(failure)
	}
	return s.epoch != s.last.epoch && s.status.Load().state != StateSyncing, nil
}

// lost returns nil if the kind should be looked up at once after its informer was lost: mostly
// the kind was deleted, or is served in another way. It returns the error if the informer
// hadn't synced, or if informers are lost again and again.
func (s *session) lost(err error) error {
	if s.syncedAt.IsZero() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.syncedAt) > maxBackoff {
		s.last.failures = 0
	}
	if s.last.failures > 0 {
		return err
	}
	s.last.failures++
	return nil
}

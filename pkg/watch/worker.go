package watch

import (
	"context"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// A worker is the goroutine of a kind. It looks the kind up, and runs a session for each informer.
type worker struct{ *kind }

// run drives the kind until it is retired or the cache ends.
func (w worker) run() {
	defer w.update(func() {
		w.synced.Store(nil)
		w.setState(StateStopped, nil)
	})
	for w.ctx.Err() == nil && !w.retire(w.kind) {
		if d := w.backoff(); d > 0 {
			select {
			case <-w.ctx.Done():
			case <-w.wake:
			case <-time.After(min(d, max(w.retiresIn(), time.Millisecond))):
			}
			continue
		}
		m, err := w.lookUp(w.ctx)
		if err == nil {
			err = w.follow(m)
		}
		if err != nil && w.ctx.Err() == nil {
			w.fail(classify(w.key.GroupVersionKind, err))
		}
	}
}

// backoff returns the time until the kind should be looked up, at most a minute: whether CRDs
// are watched may change.
func (w worker) backoff() time.Duration {
	watched := w.crdsWatched()
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.status.Load().err
	if err == nil || w.epoch != w.last.epoch || w.last.requested && !err.permanent() {
		return 0
	}
	if err.permanent() && !w.inUse() && !w.last.requested {
		return maxBackoff
	}
	limit := maxBackoff
	if err.missing() && watched {
		limit = missingBackoff
	}
	d := min(limit, firstBackoff<<min(max(w.last.failures-1, 0), 20))
	if err.missing() && watched && w.last.crdDeleted {
		d = deletedBackoff
	}
	return min(maxBackoff, time.Until(w.last.failedAt.Add(d+time.Duration(w.last.jitter*float64(d)))))
}

// lookUp returns how the API server serves the kind. If discovery says that it doesn't, and
// there was an informer, a list that works outweighs discovery. Unless the CRD was deleted, a
// list that fails for another reason leaves the question open.
func (w worker) lookUp(ctx context.Context) (*meta.RESTMapping, error) {
	w.mu.Lock()
	if err := ctx.Err(); err != nil { // The informer that it was for was stopped.
		w.mu.Unlock()
		return nil, err
	}
	w.last.epoch, w.last.failedAt, w.last.requested = w.epoch, time.Time{}, false
	known, list, crdDeleted := w.status.Load().mapping, w.list, w.last.crdDeleted
	w.mu.Unlock()
	m, err := w.resolver.resolve(ctx, w.key.GroupVersionKind)
	if err == nil || list == nil || !classify(w.key.GroupVersionKind, err).missing() {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	switch listErr := list(ctx); {
	case listErr == nil:
		return known, nil
	case crdDeleted, kerrors.IsNotFound(listErr), classify(w.key.GroupVersionKind, listErr).permanent():
		return nil, err
	default:
		return nil, listErr
	}
}

// follow runs a session. It returns why it failed, or nil if the kind should be looked up at once.
// Code that callers supply may panic.
func (w worker) follow(m *meta.RESTMapping) (err error) {
	defer survive(&err)
	s := newSession(w, m)
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	return s.run()
}

// fail records why there is no informer.
func (w worker) fail(err *KindError) {
	if err.missing() {
		w.broadcaster.clear()
		w.reindex(w.key)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err.missing() {
		w.list = nil
	}
	w.last.failures++
	w.last.failedAt = time.Now()
	w.last.jitter = w.random() * backoffJitter
	w.setFailed(err)
}

package watch

import (
	"time"

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
	return min(maxBackoff, time.Until(w.last.failedAt.Add(d+time.Duration(w.jitter*float64(d)))))
}

// follow runs a session. It returns why it failed, or nil if the kind should be looked up at once.
// Code that callers supply may panic.
func (w worker) follow(m *meta.RESTMapping) (err error) {
	defer survive(&err)
	s := newSession(w.kind, m)
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
	w.setFailed(err)
}

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
			err = runSession(w.kind, m)
		}
		if err != nil && w.ctx.Err() == nil {
			w.fail(classify(w.key.GroupVersionKind, err))
		}
	}
	w.update(func() { w.setStatus(func(s *status) { s.state, s.err, s.informer = StateStopped, nil, nil }) })
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
	known, inf, crdDeleted := k.status.Load().mapping, k.lastInformer, k.last.crdDeleted
	k.mu.Unlock()
	m, err := k.resolver.resolve(ctx, k.key.GroupVersionKind)
	if err == nil || inf == nil || !classify(k.key.GroupVersionKind, err).missing() {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	switch listErr := inf.list(ctx); {
	case listErr == nil:
		return known, nil
	case crdDeleted, kerrors.IsNotFound(listErr), classify(k.key.GroupVersionKind, listErr).permanent():
		return nil, err
	default:
		return nil, listErr
	}
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
		w.lastInformer = nil
	}
	w.last.failures++
	w.last.failedAt = time.Now()
	w.setFailed(err)
}

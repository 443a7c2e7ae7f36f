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
func (k worker) run() {
	for k.ctx.Err() == nil && !k.retire(k.kind) {
		if d := k.backoff(); d > 0 {
			select {
			case <-k.ctx.Done():
			case <-k.wake:
			case <-time.After(min(d, max(k.retiresIn(), time.Millisecond))):
			}
			continue
		}
		m, err := k.lookUp(k.ctx)
		if err == nil {
			err = runSession(k.kind, m)
		}
		if err != nil && k.ctx.Err() == nil {
			k.fail(classify(k.key.GroupVersionKind, err))
		}
	}
	k.update(func() { k.setStatus(func(s *status) { s.state, s.err, s.informer = StateStopped, nil, nil }) })
}

// backoff returns the time until the kind should be looked up, at most a minute: whether CRDs
// are watched may change.
func (k worker) backoff() time.Duration {
	watched := k.crdsWatched()
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.status.Load().err
	if err == nil || k.epoch != k.last.epoch || k.last.requested && !err.permanent() {
		return 0
	}
	if err.permanent() && !k.inUse() && !k.last.requested {
		return maxBackoff
	}
	limit := maxBackoff
	if err.missing() && watched {
		limit = missingBackoff
	}
	d := min(limit, firstBackoff<<min(max(k.last.failures-1, 0), 20))
	if err.missing() && watched && k.last.crdDeleted {
		d = deletedBackoff
	}
	return min(maxBackoff, time.Until(k.last.failedAt.Add(d+time.Duration(k.jitter*float64(d)))))
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
func (k worker) fail(err *KindError) {
	if err.missing() {
		k.broadcaster.clear()
		k.reindex(k.key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err.missing() {
		k.lastInformer = nil
	}
	k.last.failures++
	k.last.failedAt = time.Now()
	k.setFailed(err)
}

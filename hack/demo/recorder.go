package main

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// A recorder counts the reconciles of a provider, and its writes to the API server. It
// is safe for concurrent use.
type recorder struct {
	*timeline

	mu    sync.Mutex
	count counts
	byKey map[reconcile.Request]runs
}

// counts are since the last reset.
type counts struct{ reconciles, statusWrites, otherWrites int }

// runs are the reconciles of one object.
type runs struct {
	started, ended int

	// again is why the object is to be reconciled again at once: the error of the last reconcile that ended, for
	// instance. It is nil if the object may rest.
	again error
}

var errRequeued = errors.New("it asked for another reconcile at once")

func newRecorder() *recorder {
	return &recorder{timeline: &timeline{}, byKey: map[reconcile.Request]runs{}}
}

// reset the counts, and return them.
func (r *recorder) reset() (c counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, r.count = r.count, counts{}
	return c
}

func (r *recorder) runs(o client.Object) runs {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[requestFor(o)]
}

func (r *recorder) update(req reconcile.Request, change func(*runs)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.byKey[req]
	change(&now)
	r.byKey[req] = now
}

// reconciles returns a reconciler that is recorded.
func (r *recorder) reconciles(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		r.update(req, func(now *runs) {
			now.started++
			r.count.reconciles++
		})
		out, err := inner.Reconcile(context.WithValue(ctx, reconciledKey{}, req), req)
		r.update(req, func(now *runs) {
			now.ended, now.again = now.ended+1, err
			if err == nil && out.Requeue { //nolint:staticcheck // Upstream's reconciler returns it.
				now.again = errRequeued
			}
		})
		return out, err
	})
}

// A reconciledKey is the key of a context for the object that is reconciled.
type reconciledKey struct{}

// reconciled returns the name of the object that a call is made for.
func reconciled(ctx context.Context) string {
	req, _ := ctx.Value(reconciledKey{}).(reconcile.Request)
	return req.Name
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// request serves a request. A write is recorded, also if it is refused, and a user
// looks after it.
func (r *recorder) request(ctx context.Context, c embedded.Call, serve func() error) error {
	err := serve()
	if !c.Writes() {
		return err
	}
	r.mu.Lock()
	if c.Subresource == "status" {
		r.count.statusWrites++
	} else {
		r.count.otherWrites++
	}
	r.mu.Unlock()
	r.refresh(ctx)
	return err
}

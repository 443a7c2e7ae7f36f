package main

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// A recorder counts the reconciles of a provider, and its writes to the API server.
// It is safe for concurrent use.
type recorder struct {
	// timeline of a user.
	timeline timeline

	mu    sync.Mutex
	count counts
	byKey map[reconcile.Request]runs
	news  chan struct{}
}

// counts are since the last reset.
type counts struct {
	reconciles   int
	statusWrites int
	otherWrites  int
}

// runs are the reconciles of one object.
type runs struct {
	started, ended int

	// requeued says that the last one to end failed, or asked for another one at
	// once.
	requeued bool
}

func newRecorder() *recorder {
	return &recorder{byKey: map[reconcile.Request]runs{}, news: make(chan struct{})}
}

// reset the counts, and return them.
func (r *recorder) reset() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.count
	r.count = counts{}
	return c
}

func (r *recorder) runs(req reconcile.Request) runs {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[req]
}

// changed is closed when a reconcile has ended that hasn't yet.
func (r *recorder) changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news
}

// reconciles returns a reconciler that is recorded.
func (r *recorder) reconciles(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		r.begin(req)
		out, err := inner.Reconcile(context.WithValue(ctx, reconciledKey{}, req), req)
		requeued := err != nil || out.Requeue //nolint:staticcheck // Upstream's reconciler returns it.
		r.end(req, requeued)
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

func (r *recorder) begin(req reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.byKey[req]
	now.started++
	r.byKey[req] = now
	r.count.reconciles++
}

func (r *recorder) end(req reconcile.Request, requeued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.byKey[req]
	now.ended, now.requeued = now.ended+1, requeued
	r.byKey[req] = now
	close(r.news)
	r.news = make(chan struct{})
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
	r.timeline.look(ctx)
	return err
}

package main

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A recorder sees what a provider does: its reconciles, and its writes to the API
// server. It is safe for concurrent use.
type recorder struct {
	// timeline of what a user does and sees.
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

// reset the counts, and return what they were.
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

		result, err := inner.Reconcile(context.WithValue(ctx, reconciledKey{}, req), req)
		requeued := err != nil || result.Requeue //nolint:staticcheck // Upstream's reconciler returns it.

		r.end(req, requeued)

		return result, err
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

// writes returns what records a client's writes, refused ones too.
func (r *recorder) writes() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return r.write(ctx, "", c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return r.write(ctx, "", c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return r.write(ctx, "", c.Patch(ctx, o, p, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return r.write(ctx, "", c.Apply(ctx, ac, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return r.write(ctx, "", c.Delete(ctx, o, opts...))
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return r.write(ctx, "", c.DeleteAllOf(ctx, o, opts...))
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, s client.Object, opts ...client.SubResourceCreateOption) error {
			return r.write(ctx, sub, c.SubResource(sub).Create(ctx, o, s, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return r.write(ctx, sub, c.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return r.write(ctx, sub, c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return r.write(ctx, sub, c.SubResource(sub).Apply(ctx, ac, opts...))
		},
	}
}

// write records a write, and what a user sees after it. It returns the error.
func (r *recorder) write(ctx context.Context, sub string, err error) error {
	r.mu.Lock()

	if sub == "status" {
		r.count.statusWrites++
	} else {
		r.count.otherWrites++
	}

	r.mu.Unlock()
	r.timeline.look(ctx)

	return err
}

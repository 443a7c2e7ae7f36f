package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A recorder sees what a provider does: its reconciles, and its writes to the API
// server. It is safe for concurrent use.
type recorder struct {
	// journal of what happens to one managed resource, the first.
	journal journal

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
		r.journal.add(req.Name, "reconcile", fmt.Sprintf("number %d begins", r.begin(req)))

		result, err := inner.Reconcile(ctx, req)
		requeued := err != nil || result.Requeue //nolint:staticcheck // Upstream's reconciler returns it.

		switch {
		case err != nil:
			r.journal.add(req.Name, "reconcile", "failed: "+err.Error())
		case requeued:
			r.journal.add(req.Name, "reconcile", "ended, to be run again at once")
		default:
			r.journal.add(req.Name, "reconcile", "ended")
		}

		r.end(req, requeued)

		return result, err
	})
}

func (r *recorder) begin(req reconcile.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()

	now := r.byKey[req]
	now.started++
	r.byKey[req] = now
	r.count.reconciles++

	return now.started
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
			return r.write("create", "", o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return r.write("update", "", o, c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return r.write("patch", "", o, c.Patch(ctx, o, p, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return r.write("apply", "", nil, c.Apply(ctx, ac, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return r.write("delete", "", o, c.Delete(ctx, o, opts...))
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			return r.write("delete all of", "", o, c.DeleteAllOf(ctx, o, opts...))
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, s client.Object, opts ...client.SubResourceCreateOption) error {
			return r.write("create", sub, o, c.SubResource(sub).Create(ctx, o, s, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return r.write("update", sub, o, c.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return r.write("patch", sub, o, c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return r.write("apply", sub, nil, c.SubResource(sub).Apply(ctx, ac, opts...))
		},
	}
}

// write records a write, and returns its error.
func (r *recorder) write(verb, sub string, o client.Object, err error) error {
	r.mu.Lock()

	if sub == "status" {
		r.count.statusWrites++
	} else {
		r.count.otherWrites++
	}

	r.mu.Unlock()

	if o == nil {
		return err
	}

	what := strings.TrimSpace(verb + " " + sub)

	if err != nil {
		what += ", refused: " + err.Error()
	} else if mg, ok := o.(resource.Managed); ok {
		what += ": " + brief(mg)
	}

	r.journal.add(o.GetName(), "API write", what)

	return err
}

// call records a call of the cloud's API for an object.
func (r *recorder) call(name string, c cloud.Call) {
	r.journal.add(name, "cloud", strings.TrimSpace(string(c.Op)+" "+cmp.Or(c.ID, c.Kind)))
}

// A journal is what happened to one object, in order. It is safe for concurrent
// use.
type journal struct {
	mu      sync.Mutex
	about   string
	entries []entry
}

type entry struct{ who, what string }

// open begins a journal about the object of that name.
func (j *journal) open(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.about = name
}

// add an entry if it is about the journal's object.
func (j *journal) add(name, who, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if name == j.about && name != "" {
		j.entries = append(j.entries, entry{who: who, what: what})
	}
}

func (j *journal) read() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()

	return append([]entry(nil), j.entries...)
}

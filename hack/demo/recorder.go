package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
				now.again = errors.New("it asked for another reconcile at once")
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

// Authors of a timeline's entries.
const (
	byUser    = "a user"
	byWorld   = ""
	byCloud   = "the cloud"
	byKubectl = "kubectl get"
)

// An entry of a timeline. One by kubectl is a line that it shows.
type entry struct {
	// At is the time since the beginning, in seconds.
	At   float64 `json:"at"`
	Who  string  `json:"who,omitempty"`
	What string  `json:"what,omitempty"`
	Row  *shown  `json:"shown,omitempty"`
}

// A timeline has the acts of a user, and the changes that the user sees of some
// objects. It is safe for concurrent use.
type timeline struct {
	mu      sync.Mutex
	began   time.Time
	skipped time.Duration
	entries []entry
	watched []*watched
}

// A watched object is one that the user looks at.
type watched struct {
	reader client.Reader
	kind   schema.GroupVersionKind
	key    client.ObjectKey
	last   shown
}

// watch an object from now on.
func (t *timeline) watch(r client.Reader, k schema.GroupVersionKind, key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = append(t.watched, &watched{reader: r, kind: k, key: key})
}

// add an entry.
func (t *timeline) add(who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// A loop that calls the cloud is one entry.
	if n := len(t.entries); n == 0 || t.entries[n-1].What != what {
		t.append(entry{Who: who, What: what})
	}
}

func (t *timeline) append(e entry) {
	if t.began.IsZero() {
		t.began = time.Now()
	}
	e.At = (time.Since(t.began) + t.skipped).Seconds()
	t.entries = append(t.entries, e)
}

// skip lets time pass that is not waited for.
func (t *timeline) skip(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped += d
}

// refresh looks at the watched objects, and adds the changes.
func (t *timeline) refresh(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watched {
		v, err := see(ctx, w.reader, w.kind, w.key)
		now, isNew := v.shown(w.key.Name), w.last.Name == ""
		if err == nil && now != w.last && (v.found || !isNew) {
			w.last = now
			t.append(entry{Who: byKubectl, Row: &now})
		}
	}
}

func (t *timeline) read() []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.entries)
}

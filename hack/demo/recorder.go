package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// A recorder counts the reconciles of a provider, and its writes to the API server. It
// is safe for concurrent use.
type recorder struct {
	*timeline

	mu    sync.Mutex
	count counts
}

// counts are since the last reset.
type counts struct{ reconciles, statusWrites, otherWrites int }

func newRecorder() *recorder {
	return &recorder{timeline: &timeline{clock: cloud.NewManualClock(time.Unix(0, 0))}}
}

// reset the counts, and return them.
func (r *recorder) reset() (c counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, r.count = r.count, counts{}
	return c
}

// reconciles returns a reconciler that is recorded.
func (r *recorder) reconciles(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		r.mu.Lock()
		r.count.reconciles++
		r.mu.Unlock()
		return inner.Reconcile(context.WithValue(ctx, reconciledKey{}, req.Name), req)
	})
}

// A reconciledKey is the key of a context for the name of the object that is reconciled.
type reconciledKey struct{}

// reconciled returns the name of the object that a call is made for.
func reconciled(ctx context.Context) string {
	name, _ := ctx.Value(reconciledKey{}).(string)
	return name
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

// byUser is the author of entries about a user's actions.
const byUser = "a user"

// An entry of a timeline. It has a row if kubectl shows one.
type entry struct {
	// at is the time since the beginning, in seconds.
	at        float64
	who, what string
	row       *shown
}

// A timeline has the acts of a user, and the changes that the user sees of some
// objects. It is safe for concurrent use.
type timeline struct {
	// clock of the cloud. It shows how much time has passed that wasn't waited for.
	clock *cloud.ManualClock

	mu      sync.Mutex
	began   time.Time
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
	if n := len(t.entries); n == 0 || t.entries[n-1].what != what {
		t.append(entry{who: who, what: what})
	}
}

func (t *timeline) append(e entry) {
	if t.began.IsZero() {
		t.began = time.Now()
	}
	e.at = (time.Since(t.began) + t.clock.Now().Sub(time.Unix(0, 0))).Seconds()
	t.entries = append(t.entries, e)
}

// refresh looks at the watched objects, and adds the changes.
func (t *timeline) refresh(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watched {
		v, err := see(ctx, w.reader, w.kind, w.key)
		now, isNew := v.shown(w.key.Name), w.last.name == ""
		if err == nil && now != w.last && (v.found || !isNew) {
			w.last = now
			t.append(entry{who: "kubectl get", row: &now})
		}
	}
}

func (t *timeline) read() []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.entries)
}

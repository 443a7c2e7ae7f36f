package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

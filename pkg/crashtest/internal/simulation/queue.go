package simulation

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// How a work queue backs off, and a cache resyncs.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	resyncEvery  = 10 * time.Hour
)

// A workQueue of a process. It is safe for concurrent use.
type workQueue struct {
	mu    sync.Mutex
	items map[client.ObjectKey]*item
}

// An item is a key of the work queue.
type item struct {
	due      time.Time // The zero time: not queued.
	running  bool
	failures int
	finished *outcome

	// polls is when the last reconcile asked to be repeated, if it succeeded.
	polls time.Duration
}

// An outcome is the result of a reconcile.
type outcome struct {
	result   reconcile.Result
	err      error
	panicked bool
}

// backsOff reports whether a reconcile without an error is repeated with backoff.
func (o outcome) backsOff() bool {
	return o.err == nil && o.result.Requeue && o.result.RequeueAfter == 0 //nolint:staticcheck // Upstream returns it.
}

func (o outcome) String() string {
	switch {
	case o.err != nil:
		return "failed: " + o.err.Error()
	case o.result.RequeueAfter > 0:
		return fmt.Sprintf("done, again in %s", o.result.RequeueAfter.Round(time.Second))
	case o.backsOff():
		return "done, again with backoff"
	default:
		return "done"
	}
}

func newWorkQueue() *workQueue { return &workQueue{items: map[client.ObjectKey]*item{}} }

// add a key.
func (q *workQueue) add(key client.ObjectKey, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(key, after)
}

func (q *workQueue) addAll(keys []client.ObjectKey) {
	for _, key := range keys {
		q.add(key, 0)
	}
}

// put needs the lock.
func (q *workQueue) put(key client.ObjectKey, after time.Duration) {
	it := q.items[key]
	if it == nil {
		it = &item{}
		q.items[key] = it
	}
	if at := time.Now().Add(after); it.due.IsZero() || at.Before(it.due) {
		it.due = at
	}
}

// keys in order. It needs the lock.
func (q *workQueue) keys() []client.ObjectKey {
	return slices.SortedFunc(maps.Keys(q.items), func(a, b client.ObjectKey) int {
		return cmp.Compare(a.String(), b.String())
	})
}

// due returns the keys that wait, with the times when they are due.
func (q *workQueue) due() iter.Seq2[client.ObjectKey, time.Time] {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []client.ObjectKey
	var times []time.Time
	for _, key := range q.keys() {
		if it := q.items[key]; !it.running && !it.due.IsZero() {
			keys, times = append(keys, key), append(times, it.due)
		}
	}
	return func(yield func(client.ObjectKey, time.Time) bool) {
		for i, key := range keys {
			if !yield(key, times[i]) {
				return
			}
		}
	}
}

// begin to reconcile a key.
func (q *workQueue) begin(key client.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running, it.due = true, time.Time{}
}

// finish reconciling a key.
func (q *workQueue) finish(key client.ObjectKey, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items[key].finished = &o
}

// collect the outcomes of reconciles that ended, as a work queue does.
func (q *workQueue) collect(fn func(name string, o outcome)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range q.keys() {
		it := q.items[key]
		o := it.finished
		if o == nil {
			continue
		}
		it.finished, it.running, it.polls = nil, false, 0

		switch {
		case errors.Is(o.err, reconcile.TerminalError(nil)):
			q.put(key, resyncEvery) // A controller does not retry it.
		case o.err != nil || o.backsOff():
			it.failures++
			q.put(key, min(firstBackoff<<min(it.failures-1, 10), lastBackoff))
		case o.result.RequeueAfter > 0:
			it.failures, it.polls = 0, o.result.RequeueAfter
			q.put(key, o.result.RequeueAfter)
		default:
			it.failures = 0
			q.put(key, resyncEvery)
		}
		fn(key.Name, *o)
	}
}

// active returns the name of an object that is being reconciled, or "".
func (q *workQueue) active() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range q.keys() {
		if q.items[key].running {
			return key.Name
		}
	}
	return ""
}

// poll returns the longest time after which a reconcile that succeeded is repeated.
func (q *workQueue) poll() (d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.items {
		d = max(d, it.polls)
	}
	return d
}

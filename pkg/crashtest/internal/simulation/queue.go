package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pkg/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// How a work queue backs off, and a cache resyncs.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	resyncEvery  = 10 * time.Hour
)

// A workQueue of a process.
type workQueue struct{ items map[client.ObjectKey]*item }

// An item is a key of the work queue.
type item struct {
	key      client.ObjectKey
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

// add a key.
func (q *workQueue) add(key client.ObjectKey, after time.Duration) {
	if q.items[key] == nil {
		q.items[key] = &item{key: key}
	}
	q.items[key].queue(after)
}

// queue the item, unless it is due earlier.
func (it *item) queue(after time.Duration) {
	if at := time.Now().Add(after); it.due.IsZero() || at.Before(it.due) {
		it.due = at
	}
}

func (it *item) begin() { it.running, it.due = true, time.Time{} }

// again queues an item that was reconciled as a controller does.
func (q *workQueue) again(it *item) {
	o := it.finished
	it.finished, it.running, it.polls = nil, false, 0
	switch {
	case errors.Is(o.err, reconcile.TerminalError(nil)):
		it.queue(resyncEvery) // A controller does not retry it.
	case o.err != nil || o.backsOff():
		it.failures++
		it.queue(min(firstBackoff<<min(it.failures-1, 10), lastBackoff))
	default:
		it.failures, it.polls = 0, o.result.RequeueAfter
		it.queue(cmp.Or(it.polls, resyncEvery))
	}
}

// sorted returns the items in order of their keys.
func (q *workQueue) sorted() []*item {
	return slices.SortedFunc(maps.Values(q.items), func(a, b *item) int {
		return cmp.Compare(a.key.String(), b.key.String())
	})
}

// active returns the name of an object that is being reconciled, or "".
func (q *workQueue) active() string {
	for _, it := range q.sorted() {
		if it.running {
			return it.key.Name
		}
	}
	return ""
}

// A sourceQueue is the work queue of a process for its sources.
type sourceQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request] // Nil: nothing else is used.

	process *Process
}

func (q sourceQueue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q sourceQueue) AddAfter(r reconcile.Request, d time.Duration) {
	q.process.sim.mail <- func() { q.process.queue.add(r.NamespacedName, d) }
}

func (q sourceQueue) AddRateLimited(r reconcile.Request) { q.AddAfter(r, firstBackoff) }

func (q sourceQueue) Forget(reconcile.Request) {}

func (q sourceQueue) Done(reconcile.Request) {}

//go:build integration

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// asyncEvery is how many managed resources of each kind something happens to while
// their create runs.
const asyncEvery = 5

// 50 managed resources are created, changed and deleted in the background, while
// another writer writes to all of them all the time. While their creates run, some
// are deleted, some paused, and of some the spec is changed.
func TestAsyncLife(t *testing.T) {
	s := newServer(t)
	world := cloud.New(cloud.Options{
		Defaults:       map[string]string{"region": "north"},
		RequestLatency: 20 * time.Millisecond,
		ReadyAfter:     300 * time.Millisecond,
		GoneAfter:      200 * time.Millisecond,
	})
	answers := newBarrier(world)

	w := witnesses{
		sample.DatabaseKind: watchKind(t, sample.GroupVersion().WithResource("databases")),
		sample.BucketKind:   watchKind(t, sample.GroupVersion().WithResource("buckets")),
	}

	all := fleet("life", 25)
	deleted, paused, changed := all[:2*asyncEvery], all[2*asyncEvery:4*asyncEvery], all[4*asyncEvery:6*asyncEvery]
	rest := all[2*asyncEvery:]

	s.create(t, all...)

	m := meddle(t, s, all)
	start(t, graftAsync(asyncstate.WithBackoff(50*time.Millisecond, time.Second)), setup{connectors: lastingConnectors(world), poll: time.Second})

	// All creates have reached the cloud, and none has an answer yet.
	answers.await(t, cloud.OpCreate, len(all))
	w.all(t, all, "a create runs", says(asyncstate.TypeOperation, "True", asyncstate.ReasonRunning, "create, attempt 1, since T"))

	s.remove(t, deleted...)
	s.annotate(t, meta.AnnotationKeyReconciliationPaused, "true", paused...)
	s.merge(t, `{"spec":{"forProvider":{"size":5}}}`, changed...)

	w.all(t, deleted, "the deletion waits for the create", says(reconciler.TypeDeleting, "True", reconciler.ReasonWaitingForAsyncOperation, "The external resource is deleted once the create that runs has ended."))
	w.all(t, deleted, "Ready says so, too", says(xpv2.TypeReady, "False", xpv2.ReasonDeleting, "The external resource is deleted once the create that runs has ended."))

	answers.open(cloud.OpCreate)

	// The result of the create is stored although the object is paused.
	s.until(t, "the paused ones have their names", paused, func(mg sample.Instance) bool {
		return externalName(mg) != "" && mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
	})
	s.annotate(t, meta.AnnotationKeyReconciliationPaused, "false", paused...)

	s.until(t, "those that are left show Available, of the size asked for", rest, func(mg sample.Instance) bool {
		return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size) && condition(mg, asyncstate.TypeOperation) == "False/Finished"
	})

	for _, mg := range deleted {
		w[kindOf(mg)].until(t, mg.GetName(), "it is gone", isGone)
	}

	owners := idsByOwner(world)
	if len(owners) != len(rest) || len(world.Inventory()) != len(rest) {
		t.Errorf("want %d external resources of as many owners, got %d of %d", len(rest), len(world.Inventory()), len(owners))
	}

	for uid, mg := range s.list(t.Context(), t) {
		if want := owners[uid]; want == "" || externalName(mg) != want {
			t.Errorf("%T %s: want external name %q, got %q", mg, mg.GetName(), want, externalName(mg))
		}
	}

	answers.close(cloud.OpUpdate)
	s.merge(t, `{"spec":{"forProvider":{"size":6}}}`, rest...)
	answers.await(t, cloud.OpUpdate, len(rest))
	w.all(t, rest, "an update runs", says(asyncstate.TypeOperation, "True", asyncstate.ReasonRunning, "update, attempt 1, since T"))

	// The last spec is applied, whatever was in progress.
	s.merge(t, `{"spec":{"forProvider":{"size":7}}}`, rest...)
	answers.open(cloud.OpUpdate)
	s.until(t, "all are of the last size", rest, func(mg sample.Instance) bool { return isAvailable(mg) && size(world, mg) == "7" })

	answers.close(cloud.OpDelete)
	s.remove(t, rest...)
	answers.await(t, cloud.OpDelete, len(rest))
	w.all(t, rest, "a delete runs", says(asyncstate.TypeOperation, "True", asyncstate.ReasonRunning, "delete, attempt 1, since T"))
	w.all(t, rest, "the deletion waits for it", says(reconciler.TypeDeleting, "True", reconciler.ReasonWaitingForAsyncOperation, "The external resource is being deleted."))
	answers.open(cloud.OpDelete)

	s.untilGone(t)
	t.Logf("another writer wrote %d times", m.end(t))

	if left := world.Inventory(); len(left) != 0 {
		t.Errorf("want no external resource left, got %v", left)
	}

	for _, mg := range all {
		if st := world.Stats(string(mg.GetUID())); st.Created != 1 {
			t.Errorf("%T %s: want one external resource ever, got %+v", mg, mg.GetName(), st)
		}
	}
}

func kindOf(mg sample.Instance) string {
	if _, ok := mg.(*sample.Database); ok {
		return sample.DatabaseKind
	}

	return sample.BucketKind
}

// witnesses by the kind that they watch.
type witnesses map[string]*witness

// all waits until each of the fleet was seen so.
func (w witnesses) all(t *testing.T, fleet []sample.Instance, what string, holds func(s sight) bool) {
	t.Helper()

	for _, mg := range fleet {
		w[kindOf(mg)].until(t, mg.GetName(), what, holds)
	}
}

// says reports whether a condition is as it should be.
func says(ct xpv2.ConditionType, status string, reason xpv2.ConditionReason, message string) func(s sight) bool {
	want := said{Status: status, Reason: string(reason), Message: message}
	return func(s sight) bool { return saysOf(s.Unstructured, ct) == want }
}

// A barrier holds back the answers of a cloud to creates, until it is told not to, and
// what else it is told to.
type barrier struct {
	mu   sync.Mutex
	held map[cloud.Op]chan struct{}
	came map[cloud.Op]int
}

func newBarrier(world *cloud.Cloud) *barrier {
	b := &barrier{held: map[cloud.Op]chan struct{}{}, came: map[cloud.Op]int{}}
	b.close(cloud.OpCreate)

	world.SetHooks(cloud.Hooks{After: func(ctx context.Context, c cloud.Call) error {
		b.mu.Lock()
		held := b.held[c.Op]
		b.came[c.Op]++
		b.mu.Unlock()

		if held == nil {
			return nil
		}

		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})

	return b
}

func (b *barrier) close(op cloud.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.held[op], b.came[op] = make(chan struct{}), 0
}

func (b *barrier) open(op cloud.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()

	close(b.held[op])
	b.held[op] = nil
}

// await that so many calls were made.
func (b *barrier) await(t *testing.T, op cloud.Op, n int) {
	t.Helper()

	eventually(t, fmt.Sprintf("%d calls of %s have reached the cloud", n, op), func() (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()

		return b.came[op] >= n, fmt.Sprint(b.came[op])
	})
}

// A meddler writes to managed resources all the time, so that other writers meet
// conflicts.
type meddler struct {
	stop, done chan struct{}
	once       sync.Once

	writes int
	err    error
}

// meddle with the fleet until the test or the meddler is ended.
func meddle(t *testing.T, s server, fleet []sample.Instance) *meddler {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	m := &meddler{stop: make(chan struct{}), done: make(chan struct{})}

	// Copies, since a write reads its answer into the object.
	theirs := make([]client.Object, 0, len(fleet))
	for _, mg := range fleet {
		if o, ok := mg.DeepCopyObject().(client.Object); ok {
			theirs = append(theirs, o)
		}
	}

	go func() {
		defer close(m.done)

		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()

		for {
			for _, o := range theirs {
				select {
				case <-pace.C:
				case <-m.stop:
					return
				}

				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/meddled":"%d"}}}`, m.writes)

				err := s.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
				if m.err = client.IgnoreNotFound(err); m.err != nil {
					return
				}

				m.writes++
			}
		}
	}()

	t.Cleanup(m.wait)

	return m
}

// end the meddler, and return how often it wrote.
func (m *meddler) end(t *testing.T) int {
	t.Helper()

	m.wait()
	must(t, "the meddler's writes", m.err)

	return m.writes
}

func (m *meddler) wait() {
	m.once.Do(func() { close(m.stop) })
	<-m.done
}

package asyncstate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// writes returns what it takes to create, update and delete an object.
func writes(t *testing.T, synchronous bool) (create, update, del int) {
	t.Helper()

	w := newWorld(t, nothing, bucket("b"))
	w.synchronous = synchronous

	if w.cloud.takes = time.Minute; synchronous {
		w.cloud.takes = 0
	}

	w.start()

	step := func() int {
		pass(10 * time.Minute)

		n := w.api.Count(testkit.Update, testkit.Patch)
		w.api.Forget()

		return n
	}

	create = step()

	w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })

	update = step()

	w.delete("b")

	return create, update, step()
}

// An operation writes at most two times more than a synchronous one does: its
// record, and its result. What it says of itself in status is beside that.
func TestOperationWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		create, update, del := writes(t, false)
		screate, supdate, sdel := writes(t, true)

		for name, n := range map[string]int{"create": create - screate, "update": update - supdate, "delete": del - sdel} {
			if n > 2 {
				t.Errorf("A %s writes %d times more", name, n)
			}
		}
	})
}

// Nothing is written while a delete runs and nothing else changes.
func TestWritesWhileDeleteRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(24 * time.Hour)}
		p := w.start()

		pass(15 * time.Minute)
		w.cloud.set(func(c *fakeCloud) { c.takes = 10 * time.Hour })
		w.delete("b")
		pass(time.Hour)
		w.api.Forget()

		before := p.reconciles.Load()

		pass(2 * time.Hour)

		if n := w.api.Writes(); n > 0 {
			t.Errorf("%d writes while nothing changes", n)
		}

		// Upstream asks for a reconcile with backoff, once a minute.
		if n := p.reconciles.Load() - before; n > 140 {
			t.Errorf("%d reconciles", n)
		}

		if b := w.get("b"); reason(b, reconciler.TypeDeleting) != reconciler.ReasonWaitingForAsyncOperation || !meta.WasDeleted(b) {
			t.Error(describe(b))
		}

		pass(10 * time.Hour)

		if !w.gone() {
			t.Error(describe(w.get("b")))
		}
	})
}

package asyncstate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// An object that doesn't come when it is its turn delays the next by half a minute.
func TestSlots_NextIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("first"), bucket("gone"), bucket("gone-2"), bucket("gone-3"), bucket("second"), bucket("third"))
		w.cloud.takes = 10*time.Minute + 10*time.Second
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}
		w.graft = []managed.ReconcilerOption{managed.WithPollInterval(10 * time.Hour)}
		w.start()
		pass(time.Minute)
		for _, name := range []string{"gone", "gone-2", "gone-3"} {
			w.edit(name, func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			w.delete(name)
		}
		pass(w.cloud.takes - time.Minute + 3*30*time.Second + 10*time.Second)
		if n := w.cloud.count(asyncstate.Create); n != 2 {
			t.Errorf("%d creates after the first has ended: %s", n, describe(w.get("second")))
		}
	})
}

// Those whose turn it is don't come, since they are gone, or come too late.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("first"), bucket("gone"), bucket("second"), bucket("third"))
		w.manual = true
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}
		p := w.start()
		for _, name := range []string{"first", "gone", "second"} {
			reconciled(t, p, name)
		}
		if got := condition(w.get("second"), asyncstate.TypeOperation); got != "False Queued: Waiting for operations of other objects to end." {
			t.Error(got)
		}
		w.edit("gone", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
		w.delete("gone")
		pass(10*time.Minute + 10*time.Second)

		// It is not its turn, but no other object takes it.
		reconciled(t, p, "third")
		if got := reason(w.get("third"), asyncstate.TypeOperation); got != asyncstate.ReasonQueued {
			t.Errorf("It has overtaken others: %s", describe(w.get("third")))
		}
		pass(time.Minute)
		reconciled(t, p, "third")
		if got := reason(w.get("third"), asyncstate.TypeOperation); got != asyncstate.ReasonRunning {
			t.Errorf("No other object wants it: %s", describe(w.get("third")))
		}
		reconciled(t, p, "second")
		pass(10*time.Minute + 10*time.Second)
		reconciled(t, p, "second")
		if got := reason(w.get("second"), asyncstate.TypeOperation); got != asyncstate.ReasonRunning {
			t.Errorf("It is its turn: %s", describe(w.get("second")))
		}
		pass(time.Minute)
		w.edit("third", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
		reconciled(t, p, "third")
		if got := reason(w.get("third"), asyncstate.TypeOperation); got != asyncstate.ReasonQueued {
			t.Errorf("The turn is over, and its slot is in use: %s", describe(w.get("third")))
		}
		pass(10 * time.Minute)
		reconciled(t, p, "second")
		for _, name := range []string{"first", "third"} {
			reconciled(t, p, name)
		}
		pass(11 * time.Minute)
		reconciled(t, p, "third")
		if n := w.cloud.Stats(string(w.get("second").GetUID())).Created; n != 1 || asyncstate.Remembered(p.tracker) != 0 {
			t.Errorf("%d made, %d things are remembered: %s", n, asyncstate.Remembered(p.tracker), describe(w.get("second")))
		}
	})
}

// Creates that hang hold up no deletions, nor the create that is repeated to delete its result.
func TestSlots_DeletionsHaveTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, token, bucket("b"))
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
		w.dies(6 * time.Minute)
		w.delete("b")
		w.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			if mg.GetName() == "b" {
				return p.client(mg), nil
			}
			return actor(false, func(ctx context.Context, _ resource.Managed) error { return sleep(ctx, 24*time.Hour) }), nil
		}
		w.add("hangs")
		w.add("waits")
		w.start()
		pass(time.Hour)
		if !w.gone() || len(w.cloud.names("uid-1")) != 0 {
			t.Error(describe(w.get("b")))
		}
		if a, b := reason(w.get("hangs"), asyncstate.TypeOperation), reason(w.get("waits"), asyncstate.TypeOperation); a == b {
			t.Errorf("Both others say %s", a)
		}
	})
}

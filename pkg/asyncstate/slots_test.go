package asyncstate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// An object that doesn't come when it is its turn delays the next by half a minute.
func TestSlots_NextIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(
			t, nothing, bucket("first"), bucket("gone"), bucket("gone-2"), bucket("gone-3"), bucket("second"),
			bucket("third"),
		)
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
		wants(t, describe(w.get("second")), "creates after the first has ended", 2, w.cloud.count(asyncstate.Create))
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
		wants(
			t, "", "operation", "False Queued: Waiting for operations of other objects to end.",
			condition(w.get("second"), asyncstate.TypeOperation),
		)
		w.edit("gone", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
		w.delete("gone")
		pass(10*time.Minute + 10*time.Second)

		// It is not its turn, but no other object takes it.
		reconciled(t, p, "third")
		wants(
			t, "It may not overtake others.", "third", asyncstate.ReasonQueued,
			reason(w.get("third"), asyncstate.TypeOperation),
		)
		pass(time.Minute)
		reconciled(t, p, "third")
		wants(
			t, "No other object wants it.", "third", asyncstate.ReasonRunning,
			reason(w.get("third"), asyncstate.TypeOperation),
		)
		reconciled(t, p, "second")
		pass(10*time.Minute + 10*time.Second)
		reconciled(t, p, "second")
		wants(
			t, "It is its turn.", "second", asyncstate.ReasonRunning,
			reason(w.get("second"), asyncstate.TypeOperation),
		)
		pass(time.Minute)
		w.edit("third", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
		reconciled(t, p, "third")
		wants(
			t, "The turn is over, and its slot is in use.", "third", asyncstate.ReasonQueued,
			reason(w.get("third"), asyncstate.TypeOperation),
		)
		pass(10 * time.Minute)
		reconciled(t, p, "second")
		for _, name := range []string{"first", "third"} {
			reconciled(t, p, name)
		}
		pass(11 * time.Minute)
		reconciled(t, p, "third")
		wants(t, describe(w.get("second")), "made, remembered", []int{1, 0}, []int{
			w.cloud.Stats(string(w.get("second").GetUID())).Created, asyncstate.Remembered(p.tracker),
		})
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
			return actor(
				false, func(ctx context.Context, _ resource.Managed) error { return sleep(ctx, 24*time.Hour) },
			), nil
		}
		w.add("hangs")
		w.add("waits")
		w.start()
		pass(time.Hour)
		wants(t, describe(w.get("b")), "gone, in the cloud", []any{true, 0}, []any{
			w.gone(), len(w.cloud.names("uid-1")),
		})
		wants(
			t, "One of the others runs.", "both say the same", false,
			reason(w.get("hangs"), asyncstate.TypeOperation) == reason(w.get("waits"), asyncstate.TypeOperation),
		)
	})
}

func TestMaxOperations_HangingAccountDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing)
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
		w.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			if mg.GetName() == "b" {
				return p.client(mg), nil
			}
			return actor(
				false, func(ctx context.Context, _ resource.Managed) error { return sleep(ctx, 24*time.Hour) },
			), nil
		}
		w.start()
		w.add("hangs")
		w.add("waits")
		pass(time.Minute)
		w.add("b", func(b *v1alpha1.Bucket) {
			b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "other"}
		})
		pass(time.Hour)
		wants(
			t, "An account whose creates hang should not delay the creates of another.", "made", 1,
			len(w.cloud.names(string(w.get("b").GetUID()))),
		)
		wants(
			t, "The limit should hold within an account.", "both say the same", false,
			reason(w.get("hangs"), asyncstate.TypeOperation) == reason(w.get("waits"), asyncstate.TypeOperation),
		)
	})
}

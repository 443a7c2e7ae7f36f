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

// A permit for which an object was woken that no longer exists is free for the next one after half
// a minute.
func TestSemaphore_NextIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment(
			t, plainClient, bucket("first"), bucket("gone"), bucket("gone-2"), bucket("gone-3"), bucket("second"),
			bucket("third"),
		)
		e.cloud.requestDuration = 10*time.Minute + 10*time.Second
		e.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}
		e.reconcilerOptions = []managed.ReconcilerOption{managed.WithPollInterval(10 * time.Hour)}
		e.startProvider()
		advanceClock(time.Minute)
		expectEqual(
			t, "An object should wait while the permit is in use.", "second",
			"False Queued: Waiting for operations of other objects to end.",
			condition(e.get("second"), asyncstate.TypeOperation),
		)
		for _, name := range []string{"gone", "gone-2", "gone-3"} {
			e.edit(name, func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			e.delete(name)
		}
		advanceClock(e.cloud.requestDuration - time.Minute + 3*30*time.Second + 10*time.Second)
		expectEqual(
			t, describe(e.get("second")), "creates after the first has ended", 2, e.cloud.count(asyncstate.Create),
		)
	})
}

func TestSemaphore_NothingIsKeptForRemovedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		removed := []string{"gone", "gone-2", "gone-3"}
		e := newEnvironment(t, plainClient, bucket("first"), bucket("gone"), bucket("gone-2"), bucket("gone-3"))
		e.manualReconciles = true
		e.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}
		p := e.startProvider()
		mustReconcile(t, p, "first")
		for _, name := range removed {
			mustReconcile(t, p, name)
			e.edit(name, func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			e.delete(name)
		}
		advanceClock(10*time.Minute + 10*time.Second)
		mustReconcile(t, p, "first")
		advanceClock(2 * time.Minute)
		expectEqual(
			t, "The semaphore of an account should be removed when nothing waits for it.", "operations in memory", 0,
			asyncstate.OperationsInMemory(p.tracker),
		)
	})
}

// Creates that hang should delay neither deletions nor a create that is repeated to delete its result.
func TestSemaphore_DeletionsHaveTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment(t, token, bucket("b"))
		e.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
		e.startAndKill(6 * time.Minute)
		e.delete("b")
		e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			if mg.GetName() == "b" {
				return p.client(mg), nil
			}
			return newClient(
				false, func(ctx context.Context, _ resource.Managed) error { return sleep(ctx, 24*time.Hour) },
			), nil
		}
		e.add("hangs")
		e.add("waits")
		e.startProvider()
		advanceClock(time.Hour)
		expectEqual(t, describe(e.get("b")), "gone, in the cloud", []any{true, 0}, []any{
			e.objectGone(), len(e.cloud.names("uid-1")),
		})
		expectEqual(
			t, "One of the hanging creates should run.", "the same reason", false,
			reason(e.get("hangs"), asyncstate.TypeOperation) == reason(e.get("waits"), asyncstate.TypeOperation),
		)
	})
}

func TestMaxOperations_HangingAccountDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment(t, plainClient)
		e.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
		e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
			if mg.GetName() == "b" {
				return p.client(mg), nil
			}
			return newClient(
				false, func(ctx context.Context, _ resource.Managed) error { return sleep(ctx, 24*time.Hour) },
			), nil
		}
		e.startProvider()
		e.add("hangs")
		e.add("waits")
		advanceClock(time.Minute)
		e.add("b", func(b *v1alpha1.Bucket) {
			b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: "other"}
		})
		advanceClock(time.Hour)
		expectEqual(
			t, "An account whose creates hang should not delay the creates of another.", "made", 1,
			len(e.cloud.names(string(e.get("b").GetUID()))),
		)
		expectEqual(
			t, "The limit should hold within an account.", "both say the same", false,
			reason(e.get("hangs"), asyncstate.TypeOperation) == reason(e.get("waits"), asyncstate.TypeOperation),
		)
	})
}

package asyncstate_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// Many objects want an operation at once, and have it in their order.
func TestManyObjects(t *testing.T) {
	const objects, most = 60, 6

	synctest.Test(t, func(t *testing.T) {
		var objs []client.Object
		for i := range objects {
			objs = append(objs, bucket(fmt.Sprintf("b-%02d", i)))
		}

		w := newWorld(t, nothing, objs...)
		w.cloud.takes = time.Minute
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(most)}
		p := w.start()

		// Some go while they wait.
		pass(30 * time.Second)

		for i := 30; i < 40; i++ {
			name := fmt.Sprintf("b-%d", i)
			w.edit(name, func(b *testkit.Bucket) { b.SetFinalizers(nil) })
			w.delete(name)
		}

		begun := time.Now()

		for w.cloud.count(asyncstate.Create) < objects-10 && time.Since(begun) < time.Hour {
			pass(time.Minute)
		}

		pass(2 * time.Minute)

		if d := time.Since(begun); d > 13*time.Minute || w.cloud.most != most || len(w.cloud.names()) != objects-10 {
			t.Errorf("%d operations of a minute, %d at once, took %s: %d were made", objects, w.cloud.most, d, len(w.cloud.names()))
		}

		for i := range 30 {
			// The cloud counts what it makes.
			if id, _ := strconv.Atoi(strings.TrimPrefix(meta.GetExternalName(w.get(fmt.Sprintf("b-%02d", i))), "id-")); id <= i-most || id > i+most {
				t.Errorf("Object %d was made as number %d: it was overtaken, or has overtaken", i, id)
			}
		}

		if n := p.reconciles.Load(); n > 20*objects {
			t.Errorf("%d reconciles of %d objects", n, objects)
		}

		w.end()

		if n := asyncstate.Remembered(p.tracker); n != 0 {
			t.Errorf("%d things are remembered", n)
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
		defer w.end()

		for _, name := range []string{"first", "gone", "second"} {
			reconciled(t, p, name)
		}

		if got := condition(w.get("second"), asyncstate.TypeOperation); got != "False Queued: Waiting for operations of other objects to end." {
			t.Error(got)
		}

		w.edit("gone", func(b *testkit.Bucket) { b.SetFinalizers(nil) })
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

		pass(11 * time.Minute)
		reconciled(t, p, "second")
		pass(11 * time.Minute)
		reconciled(t, p, "second")

		for _, name := range []string{"first", "third"} {
			reconciled(t, p, name)
		}

		if n := w.cloud.made[string(w.get("second").GetUID())]; n != 1 || asyncstate.Remembered(p.tracker) != 0 {
			t.Errorf("%d made, %d things are remembered: %s", n, asyncstate.Remembered(p.tracker), describe(w.get("second")))
		}
	})
}

// Creates that hang hold up no deletions.
func TestSlots_DeletionsHaveTheirOwn(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   clientKind

		// The operation of b that is interrupted before b is deleted, if it is not
		// empty.
		interrupted asyncstate.Type
	}{
		"Delete":         {reason: "What was created before the others hang is deleted.", kind: nothing},
		"RepeatedCreate": {reason: "An interrupted create is repeated to find out what to delete.", kind: token, interrupted: asyncstate.Create},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.kind, bucket("b"))
				w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
				p := w.start()
				defer w.end()

				if tc.interrupted == "" {
					pass(11 * time.Minute)
				} else {
					pass(6 * time.Minute)
				}

				p.kill()

				if tc.interrupted != "" {
					w.delete("b")
				}

				w.connector = func(p *process) upstream.ExternalConnector {
					return upstream.ExternalConnectorFn(func(_ context.Context, mg resource.Managed) (upstream.ExternalClient, error) {
						c := w.cloud.client(tc.kind, p.dead.Load)
						if mg.GetName() == "b" {
							return c, nil
						}

						return hanging{c}, nil
					})
				}

				for _, name := range []string{"hangs", "waits"} {
					if err := w.api.Server().Create(t.Context(), bucket(name)); err != nil {
						t.Fatal(err)
					}
				}

				w.start()
				pass(time.Second)
				w.delete("b")
				pass(time.Hour)

				if !w.gone() || len(w.cloud.ownedBy("uid-1")) != 0 {
					t.Errorf("\n%s\n%s", tc.reason, describe(w.get("b")))
				}

				if a, b := reason(w.get("hangs"), asyncstate.TypeOperation), reason(w.get("waits"), asyncstate.TypeOperation); a == b {
					t.Errorf("\n%s\nBoth others say %s", tc.reason, a)
				}
			})
		})
	}
}

// A hanging client's Create returns when it is cancelled.
type hanging struct{ upstream.ExternalClient }

func (hanging) Create(ctx context.Context, _ resource.Managed) (upstream.ExternalCreation, error) {
	<-ctx.Done()
	return upstream.ExternalCreation{}, ctx.Err()
}

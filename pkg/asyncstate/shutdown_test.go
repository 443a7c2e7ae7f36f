package asyncstate_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A process that ends stores the results of what runs for as long as it may, and begins nothing.
func TestShutdown(t *testing.T) {
	cases := map[string]struct {
		reason string
		takes  time.Duration
		deaf   bool // whether a create that is cancelled learns no name

		// The API server fails from then on, for that long, both counted from when
		// the process is asked to end.
		from, lasts time.Duration
		within      time.Duration
		name        string
	}{
		"EndsInTime": {
			reason: "What comes during shutdown is stored.",
			takes:  30 * time.Second,
			within: 16 * time.Second,
			name:   "id-0001",
		},
		"TakesTooLong": {
			reason: "It is cancelled, and its record survives.",
			takes:  time.Hour,
			deaf:   true,
			within: 21 * time.Second,
		},
		"OneFailureAfterCancellation": {
			reason: "An operation that is cancelled has learned the name, and the first try to store it fails.",
			takes:  time.Hour,
			from:   20 * time.Second, lasts: 500 * time.Millisecond, within: 23 * time.Second, name: "id-0001",
		},
		"AwayUntilShortlyBeforeTheEnd": {
			reason: "The API server is restarted at the same time.",
			takes:  time.Hour,
			lasts:  38 * time.Second,
			within: 40 * time.Second,
			name:   "id-0001",
		},
		"EndsInTimeWhileAway": {
			reason: "An operation that ends by itself is stored for as long.",
			takes:  20 * time.Second,
			lasts:  30 * time.Second,
			within: 33 * time.Second,
			name:   "id-0001",
		},
		"AwayForLong": {
			reason: "The wait between two tries is not the long one that it has become.",
			takes:  time.Second,
			from:   -10 * time.Minute, lasts: 10*time.Minute + 3*time.Second, within: 6 * time.Second, name: "id-0001",
		},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"), bucket("other"))
			w.manual = true
			w.cloud.takes, w.cloud.cancellable = tc.takes, !tc.deaf
			p := w.start()
			reconciled(t, p, "b")
			switch {
			case tc.from < 0:
				p.faults(away, nil)
				pass(-tc.from)
			case tc.deaf:
				pass(15 * time.Second)
			default:
				pass(tc.takes/2 + time.Second)
			}
			p.cancel()
			synctest.Wait()
			asked := time.Now()
			var wg sync.WaitGroup
			defer wg.Wait()
			if tc.lasts > 0 {
				wg.Go(func() {
					time.Sleep(max(0, tc.from) - time.Nanosecond)
					p.faults(away, nil)
					time.Sleep(tc.lasts + min(0, tc.from))
					p.faults(nil, nil)
				})
			} else {
				// Nothing may begin, and so nothing may be announced.
				reconciled(t, p, "other")
				if b := w.get("other"); record(b) != "" || meta.ExternalCreateIncomplete(b) ||
					reason(b, asyncstate.TypeOperation) != asyncstate.ReasonQueued {
					t.Errorf("\n%s\nSomething was begun: %s", tc.reason, describe(b))
				}
			}
			<-p.ended
			if d := time.Since(asked); d > tc.within {
				t.Errorf("\n%s\nIt took %s", tc.reason, d)
			}
			if b := w.get("b"); meta.GetExternalName(b) != tc.name || (record(b) == "") != (tc.takes < time.Hour) ||
				w.cloud.count(asyncstate.Create) != 1 {
				t.Errorf("\n%s\n%s", tc.reason, describe(b))
			}

			// The next process begins the other operation.
			p = w.start()
			reconciled(t, p, "other")
			pass(2 * time.Hour)
			wants(
				t, tc.reason+"\n"+describe(w.get("other")), "without a name", false,
				meta.GetExternalName(w.get("other")) == "",
			)
		})
	}
}

func TestShutdown_Interrupts(t *testing.T) {
	live(t, map[string]life{
		"BetweenAnnouncementAndCreate": {
			reason: "A create that could not begin during a shutdown should need no person, even if the process dies then.",
			happens: func(_ *testing.T, w *world) {
				p := w.start()
				p.loses(func(verb string, o client.Object) bool {
					switch {
					case verb == testkit.Update && record(o) != "":
						p.cancel()
						synctest.Wait()
					case verb == testkit.Patch:
						p.kill()
					}
					return false
				})
				p.again(1, 0)
				w.start().again(2, time.Hour)
			},
			want: finished(1, "id-0001"),
		},
		"ResultIsNotStored": {
			reason: "A process that is slow to end does not take a result that it could not store for an operation that it never began.",
			happens: func(t *testing.T, w *world) {
				w.cloud.takes = 10 * time.Second
				p := w.start()
				reconciled(t, p, "b")
				p.faults(away, nil)
				p.stop()
				p.faults(nil, nil)
				w.delete("b")
				p.again(3, 0)
			},
			want: ending{
				Creates: 1, Made: 1, Left: 1, Name: "id-0001", Operation: asyncstate.ReasonQueued,
				Ready:  xpv2.ReasonDeleting,
				Synced: xpv2.ReasonReconcileSuccess, Deleting: reconciler.ReasonWaitingForAsyncOperation,
			},
		},
	})
}

// A request that hangs does not use up the time that is left.
func TestShutdown_RequestHangs(t *testing.T) {
	cases := map[string]struct {
		reason string
		learn  func(ctx context.Context, mg resource.Managed) error
	}{
		"Result": {
			reason: "It is that for the result.",
			learn: func(_ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "id-0001")
				return nil
			},
		},
		"SetExternalName": {
			reason: "It is that for the name, which a create that is cancelled has learned.",
			learn: func(ctx context.Context, _ resource.Managed) error {
				return asyncstate.SetExternalName(ctx, "id-0001")
			},
		},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			var stopping, hung atomic.Bool
			w := acting(t, false, func(ctx context.Context, mg resource.Managed) error {
				<-ctx.Done()
				return errors.Join(tc.learn(ctx, mg), ctx.Err())
			})
			w.api.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.LiveGet && stopping.Load() && !hung.Swap(true) {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			p := w.start()
			reconciled(t, p, "b")
			synctest.Wait()
			stopping.Store(true)
			p.stop()

			// A later result is too late.
			b := w.get("b")
			wants(t, tc.reason+"\n"+describe(b), "name, hung", []any{"id-0001", true}, []any{
				meta.GetExternalName(b), hung.Load(),
			})
			pass(time.Minute)
		})
	}
}

package asyncstate_test

import (
	"context"
	"errors"
	"strings"
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

// A process that shuts down should store the results of its operations within twice the shutdown
// timeout, and begin no operation.
func TestShutdown(t *testing.T) {
	cases := map[string]struct {
		reason string
		create time.Duration // the duration of the create
		noName bool          // A create that is cancelled returns no name.

		// The API server is unavailable from down after the start of the shutdown, for
		// downFor.
		down, downFor time.Duration

		// The shutdown ends within this time, and the object then has this name.
		within time.Duration
		name   string
	}{
		"EndsInTime": {
			reason: "The result of an operation that ends during shutdown should be stored.",
			create: 30 * time.Second, within: 16 * time.Second, name: "id-0001",
		},
		"TakesTooLong": {
			reason: "An operation that outlives the shutdown timeout should be cancelled, and keep its record.",
			create: time.Hour, noName: true, within: 21 * time.Second,
		},
		"OneFailureAfterCancellation": {
			reason: "The name that a cancelled create returns should be stored, with a retry.",
			create: time.Hour,
			down:   20 * time.Second, downFor: 500 * time.Millisecond, within: 23 * time.Second, name: "id-0001",
		},
		"DownUntilShortlyBeforeTheEnd": {
			reason: "The name should be stored even if the API server becomes available shortly before the end.",
			create: time.Hour, downFor: 38 * time.Second, within: 40 * time.Second, name: "id-0001",
		},
		"EndsInTimeWhileDown": {
			reason: "The result of an operation that ends in time should be stored with retries, too.",
			create: 20 * time.Second, downFor: 30 * time.Second, within: 33 * time.Second, name: "id-0001",
		},
		"DownForLong": {
			reason: "The delay between retries, which has grown before, should be short during shutdown.",
			create: time.Second, down: -10 * time.Minute, downFor: 10*time.Minute + 3*time.Second,
			within: 6 * time.Second, name: "id-0001",
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"), bucket("other"))
			e.manualReconciles = true
			e.cloud.requestDuration, e.cloud.cancellable = tc.create, !tc.noName
			p := e.startProvider()
			mustReconcile(t, p, "b")
			switch {
			case tc.down < 0:
				p.setFaults(apiServerUnavailable, nil)
				advanceClock(-tc.down)
			case tc.noName:
				advanceClock(15 * time.Second)
			default:
				advanceClock(tc.create/2 + time.Second)
			}
			p.cancel()
			synctest.Wait()
			shutdown := time.Now()
			var wg sync.WaitGroup
			defer wg.Wait()
			if tc.downFor > 0 {
				wg.Go(func() {
					time.Sleep(max(0, tc.down) - time.Nanosecond)
					p.setFaults(apiServerUnavailable, nil)
					time.Sleep(tc.downFor + min(0, tc.down))
					p.setFaults(nil, nil)
				})
			} else {
				// No operation may begin, so no create may be announced.
				mustReconcile(t, p, "other")
				if b := e.get("other"); record(b) != "" || meta.ExternalCreateIncomplete(b) ||
					reason(b, asyncstate.TypeOperation) != asyncstate.ReasonQueued {
					t.Errorf("\n%s\nAn operation was begun: %s", tc.reason, describe(b))
				}
			}
			<-p.ended
			if d := time.Since(shutdown); d > tc.within {
				t.Errorf("\n%s\nThe shutdown took %s", tc.reason, d)
			}
			expectEqual(
				t, tc.reason, "logged that operations did not end", false,
				strings.Contains(e.events.All(), "Operations did not end"),
			)
			if b := e.get("b"); meta.GetExternalName(b) != tc.name || (record(b) == "") != (tc.create < time.Hour) ||
				e.cloud.count(asyncstate.Create) != 1 {
				t.Errorf("\n%s\n%s", tc.reason, describe(b))
			}

			// The next process begins the other operation.
			p = e.startProvider()
			mustReconcile(t, p, "other")
			advanceClock(2 * time.Hour)
			expectEqual(
				t, tc.reason+"\n"+describe(e.get("other")), "without a name", false,
				meta.GetExternalName(e.get("other")) == "",
			)
		})
	}
}

func TestShutdown_Interrupts(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"BetweenAnnouncementAndCreate": {
			reason: "A create that could not begin during a shutdown should need no person, even if the process dies then.",
			steps: func(_ *testing.T, e *environment) {
				p := e.startProvider()
				p.loseAnswers(func(verb string, o client.Object) bool {
					switch {
					case verb == testkit.Update && record(o) != "":
						p.cancel()
						synctest.Wait()
					case verb == testkit.Patch:
						p.kill()
					}
					return false
				})
				p.reconcileRepeatedly(1, 0)
				e.startProvider().reconcileRepeatedly(2, time.Hour)
			},
			want: readyAfterCreates(1, "id-0001"),
		},
		"ResultIsNotStored": {
			reason: "An operation whose result was not stored during shutdown should be left to the next process.",
			steps: func(t *testing.T, e *environment) {
				e.cloud.requestDuration = 10 * time.Second
				p := e.startProvider()
				mustReconcile(t, p, "b")
				p.setFaults(apiServerUnavailable, nil)
				p.stop()
				expectContains(t, "the log", e.events.All(), "Operations did not end")
				p.setFaults(nil, nil)
				e.delete("b")
				p.reconcileRepeatedly(3, 0)
			},
			want: finalState{
				Creates: 1, Created: 1, Remaining: 1, Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonDeleting,
				Synced: xpv2.ReasonReconcileError, Deleting: reconciler.ReasonObserveFailed,
				Recorded: true, Incomplete: true,
			},
		},
	})
}

// A request that hangs during shutdown should leave time to store the result.
func TestShutdown_RequestHangs(t *testing.T) {
	cases := map[string]struct {
		reason  string
		setName func(ctx context.Context, mg resource.Managed) error
	}{
		"Result": {
			reason: "The result should be stored after a read that hangs.",
			setName: func(_ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "id-0001")
				return nil
			},
		},
		"SetExternalName": {
			reason: "The name that a cancelled create sets should be stored after a read that hangs.",
			setName: func(ctx context.Context, _ resource.Managed) error {
				return asyncstate.SetExternalName(ctx, "id-0001")
			},
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			var stopping, hung atomic.Bool
			e := newEnvironmentWithClient(t, false, func(ctx context.Context, mg resource.Managed) error {
				<-ctx.Done()
				return errors.Join(tc.setName(ctx, mg), ctx.Err())
			})
			e.api.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.LiveGet && stopping.Load() && !hung.Swap(true) {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
			p := e.startProvider()
			mustReconcile(t, p, "b")
			synctest.Wait()
			stopping.Store(true)
			p.stop()

			// A later result is too late.
			b := e.get("b")
			expectEqual(t, tc.reason+"\n"+describe(b), "name, hung", []any{"id-0001", true}, []any{
				meta.GetExternalName(b), hung.Load(),
			})
			advanceClock(time.Minute)
		})
	}
}

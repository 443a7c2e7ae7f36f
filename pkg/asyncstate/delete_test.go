package asyncstate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestDeleteWhileOperationRuns(t *testing.T) {
	cancellable := []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()}
	deleted := func(creates, updates int) ending {
		return ending{Creates: creates, Updates: updates, Deletes: 1, Made: 1, Gone: true}
	}
	crash := func(w *world) {
		pass(6 * time.Minute)
		w.processes[0].kill()
		w.delete("b")
		w.start()
	}

	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption
		plain   bool
		prime   func(w *world)
		within  time.Duration
		want    ending
	}{
		"Waits":              {reason: "A create that can't be cancelled is waited for, and what it made is deleted.", within: 25 * time.Minute, want: deleted(1, 0)},
		"WaitsUnderUpstream": {reason: "As above, without Graft's reconciler.", plain: true, within: 25 * time.Minute, want: deleted(1, 0)},
		"CancelsBeforeAnythingWasMade": {
			reason: "A create that can be cancelled is, and has made nothing.", options: cancellable, within: 4 * time.Minute, want: ending{Creates: 1, Gone: true},
		},
		"CancelsAfterSomethingWasMade": {
			reason: "A create that was cancelled and says what it made leaves that to be deleted.", options: cancellable,
			prime: func(*world) { pass(6 * time.Minute) }, within: 15 * time.Minute, want: deleted(1, 0),
		},
		"UpdateRuns": {
			reason: "An update is waited for.", within: 25 * time.Minute, want: deleted(1, 1),
			prime: func(w *world) {
				pass(15 * time.Minute)
				w.ask(asyncstate.Update)
				pass(time.Minute)
			},
		},
		"RepetitionIsNotCancelled": {
			reason: "An attempt that is repeated to find out what it made is not cancelled: it would never be found out.",
			kind:   token, options: cancellable, prime: crash, within: 30 * time.Minute, want: deleted(2, 0),
		},
		"ResumptionIsNotCancelled": {reason: "Nor is what is resumed.", kind: resumer, options: cancellable, prime: crash, within: 30 * time.Minute, want: deleted(1, 0)},
	}

	lives := map[string]life{}

	for name, tc := range cases {
		lives[name] = life{reason: tc.reason, kind: tc.kind, options: tc.options, plain: tc.plain, auto: true, want: tc.want, happens: func(t *testing.T, w *world) {
			w.cloud.cancellable = len(tc.options) > 0
			w.start()
			pass(2 * time.Minute)

			if tc.prime != nil {
				tc.prime(w)
			}

			w.delete("b")
			pass(time.Second)

			if got := reason(w.get("b"), reconciler.TypeDeleting); !tc.plain && tc.want.Deletes > 0 && got != reconciler.ReasonWaitingForAsyncOperation {
				t.Errorf("\n%s\nDeleting says %q: %s", tc.reason, got, describe(w.get("b")))
			}

			pass(tc.within)
		}}
	}

	live(t, lives)
}

// What is accepted again and again, and deletes nothing, is asked for ever less often.
func TestDeleteIsAcceptedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deletes := 0

		w := acting(t, true, nil)
		w.manual = false
		w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
			c := actor(true, nil)
			c.ObserveFn = func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
				return upstream.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
			}
			c.DeleteFn = func(context.Context, resource.Managed) (upstream.ExternalDelete, error) {
				deletes++
				return upstream.ExternalDelete{}, nil
			}

			return c, nil
		}
		w.start()

		pass(time.Minute)
		w.delete("b")
		pass(3 * time.Hour)

		if deletes > 200 {
			t.Errorf("%d deletes in 3 hours", deletes)
		}
	})
}

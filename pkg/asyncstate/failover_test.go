package asyncstate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A process that loses the leadership begins nothing any more. If it lingers, what it
// runs is cancelled when the time for a shutdown is over. The next leader determines
// the outcome of that, and never makes a second external resource.
func TestFailover(t *testing.T) {
	// What the create of the old leader is at.
	const (
		early = 3 * time.Minute // Nothing was made.
		late  = 6 * time.Minute // It was made.
	)

	cases := map[string]struct {
		reason string
		kind   clientKind
		after  time.Duration

		// deaf clients don't heed that they are cancelled.
		deaf bool

		// want is what the new leader says of it half a minute after it was
		// elected, and in the end.
		want, finally xpv2.ConditionReason
		creates       int
	}{
		"NothingToGoByDeaf": {
			reason: "The old leader stores the outcome when it is over: it is still true.",
			kind:   nothing, after: late, deaf: true, want: asyncstate.ReasonResultUnknown, finally: asyncstate.ReasonFinished, creates: 1,
		},
		"FinderFindsNothing": {
			reason: "The old leader has said that it has ended, and so it is believed earlier.",
			kind:   finder, after: early, want: asyncstate.ReasonRunning, finally: asyncstate.ReasonFinished, creates: 2,
		},
		"FinderFindsNothingDeaf": {
			reason: "It does come.",
			kind:   finder, after: early, deaf: true, want: asyncstate.ReasonInterrupted, finally: asyncstate.ReasonFinished, creates: 1,
		},
		"TokenDeaf": {
			reason: "While the old leader is at it, too.",
			kind:   token, after: early, deaf: true, want: asyncstate.ReasonRunning, finally: asyncstate.ReasonFinished, creates: 2,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
			w.cloud.deaf = tc.deaf

			old := w.start()
			pass(tc.after)
			old.cancel()

			// As long as a lease lasts.
			pass(17 * time.Second)

			next := w.start()
			pass(30 * time.Second)

			if b := w.get("b"); reason(b, asyncstate.TypeOperation) != tc.want {
				t.Errorf("\n%s\nSoon after the new one was elected, want %s: %s", tc.reason, tc.want, describe(b))
			}

			pass(2 * time.Hour)

			b := w.get("b")
			if got := reason(b, asyncstate.TypeOperation); got != tc.finally {
				t.Errorf("\n%s\nIn the end, want %s: %s", tc.reason, tc.finally, describe(b))
			}

			if made, creates := w.cloud.Stats("uid-1").Created, w.cloud.count(asyncstate.Create); made != 1 || creates != tc.creates || !slices.Contains(w.cloud.names(), meta.GetExternalName(b)) {
				t.Errorf("\n%s\n%d creates were asked for, want %d, and %d were made, of which the cloud has %v: %s", tc.reason, creates, tc.creates, made, w.cloud.names(), describe(b))
			}

			if n := asyncstate.Remembered(old.tracker) + asyncstate.Remembered(next.tracker); n != 0 {
				t.Errorf("\n%s\n%d things are remembered", tc.reason, n)
			}
		})
	}
}

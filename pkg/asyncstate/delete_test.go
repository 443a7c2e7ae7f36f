package asyncstate_test

import (
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

func TestDeleteWhileOperationRuns(t *testing.T) {
	type want struct {
		deletes int
		within  time.Duration
		made    int
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
		want    want
	}{
		"Waits":              {reason: "A create that can't be cancelled is waited for, and what it made is deleted.", kind: nothing, want: want{deletes: 1, within: 25 * time.Minute, made: 1}},
		"WaitsUnderUpstream": {reason: "As above, without Graft's reconciler.", kind: nothing, plain: true, want: want{deletes: 1, within: 25 * time.Minute, made: 1}},
		"CancelsBeforeAnythingWasMade": {
			reason: "A create that can be cancelled is, and has made nothing.",
			kind:   nothing, options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()}, want: want{within: 4 * time.Minute},
		},
		"CancelsAfterSomethingWasMade": {
			reason: "A create that was cancelled and says what it made leaves that to be deleted.",
			kind:   nothing, options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()}, prime: func(*world) { pass(6 * time.Minute) },
			want: want{deletes: 1, within: 15 * time.Minute, made: 1},
		},
		"UpdateRuns": {
			reason: "An update is waited for.",
			kind:   nothing,
			prime: func(w *world) {
				pass(15 * time.Minute)
				w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				pass(time.Minute)
			},
			want: want{deletes: 1, within: 25 * time.Minute, made: 1},
		},
		"RepetitionIsNotCancelled": {
			reason:  "An attempt that is repeated to find out what it made is not cancelled: it would never be found out.",
			kind:    token,
			options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()},
			prime:   crash,
			want:    want{deletes: 1, within: 30 * time.Minute, made: 1},
		},
		"ResumptionIsNotCancelled": {
			reason:  "Nor is what is resumed.",
			kind:    resumer,
			options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()},
			prime:   crash,
			want:    want{deletes: 1, within: 30 * time.Minute, made: 1},
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.plain, w.options = tc.plain, tc.options
			w.cloud.cancellable = len(tc.options) > 0
			w.start()

			pass(2 * time.Minute)

			if tc.prime != nil {
				tc.prime(w)
			}

			begun := time.Now()

			w.delete("b")
			pass(time.Second)

			if b := w.get("b"); b.GetName() != "" && !tc.plain && tc.want.deletes > 0 {
				if got := reason(b, reconciler.TypeDeleting); got != reconciler.ReasonWaitingForAsyncOperation {
					t.Errorf("\n%s\nDeleting says %q: %s", tc.reason, got, describe(b))
				}
			}

			for !w.gone() && time.Since(begun) < 3*time.Hour {
				pass(time.Minute)
			}

			if !w.gone() {
				t.Errorf("\n%s\nIt is still there: %s", tc.reason, describe(w.get("b")))
			}

			if d := time.Since(begun); d > tc.want.within {
				t.Errorf("\n%s\nIt took %s, longer than %s", tc.reason, d, tc.want.within)
			}

			if n := w.cloud.count(asyncstate.Delete); n != tc.want.deletes {
				t.Errorf("\n%s\n%d deletes, want %d", tc.reason, n, tc.want.deletes)
			}

			if n := w.cloud.Stats("uid-1").Created; n != tc.want.made || len(w.cloud.names()) > 0 {
				t.Errorf("\n%s\n%d were made, want %d, and there are %v", tc.reason, n, tc.want.made, w.cloud.names())
			}
		})
	}
}

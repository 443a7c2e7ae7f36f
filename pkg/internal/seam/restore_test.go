package seam

import (
	"strconv"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A condition that another writer replaces is restored three times in a row, and then once an
// interval.
func TestRestores(t *testing.T) {
	const none, ours, news, theirs = "", "Ours", "News", "Theirs"

	type step struct {
		after   time.Duration // The time since the step before.
		stored  string        // The reason of the stored condition.
		written string        // The reason of the condition to write, or Ours.
		want    bool
	}
	first := step{stored: none, want: true}
	again := step{stored: theirs, want: true}
	left := step{stored: theirs}

	cases := map[string]struct {
		reason  string
		steps   []step
		requeue time.Duration
	}{
		"ThreeTimes": {
			reason: "The first report is no restoration. The fourth restoration waits for the interval.",
			steps:  []step{first, again, again, again, left, left}, requeue: 10 * time.Second,
		},
		"UnknownAtFirst": {
			reason: "After a restart a stored condition counts as another writer's.",
			steps:  []step{again, again, again, left}, requeue: 10 * time.Second,
		},
		"OnceAnInterval": {
			reason: "After the interval it is restored once.",
			steps: []step{
				again, again, again, left, {after: 10 * time.Second, stored: theirs, want: true}, left,
			}, requeue: 10 * time.Second,
		},
		"PartOfAnInterval": {
			reason: "The object is reconciled again when the interval is over.",
			steps:  []step{again, again, again, {after: 4 * time.Second, stored: theirs}}, requeue: 6 * time.Second,
		},
		"Quiet": {
			reason: "After two intervals the count starts again.",
			steps: []step{again, again, again, left, {
				after:  20 * time.Second,
				stored: theirs,
				want:   true,
			}, again, again, left}, requeue: 10 * time.Second,
		},
		"Removed": {
			reason: "A condition that another writer removes each time is restored as often.",
			steps: []step{
				first,
				{stored: none, want: true},
				{stored: none, want: true},
				{stored: none, want: true},
				{stored: none},
			}, requeue: 10 * time.Second,
		},
		"News": {
			reason: "A report that is new is written at once.",
			steps: []step{
				again, again, again, left, {stored: theirs, written: news, want: true}, left,
			}, requeue: 10 * time.Second,
		},
		"TheirsIsKept": {
			reason: "A report that keeps the condition of another writer doesn't make it a condition of this process.",
			steps: []step{
				again, again, again, left, {stored: theirs, written: theirs, want: true}, left,
			}, requeue: 10 * time.Second,
		},
		"OwnReports": {
			reason: "A condition of this process may be written as often as its report changes.",
			steps: []step{
				first,
				{stored: ours, written: news, want: true},
				{stored: news, want: true},
				{stored: ours, written: news, want: true},
				{stored: news, want: true},
				{stored: ours, written: news, want: true},
			},
		},
		"Unchanged": {
			reason: "A condition that is stored already is not restored.",
			steps: []step{
				first,
				{stored: ours, want: true},
				{stored: ours, want: true},
				{stored: ours, want: true},
				{stored: ours, want: true},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			w := &histories{store: &store.Store{}}
			condition := func(reason string) xpv2.Condition {
				if reason == none {
					return xpv2.Condition{Type: "Deleting", Status: corev1.ConditionUnknown}
				}
				return xpv2.Condition{
					Type:   "Deleting",
					Status: corev1.ConditionTrue,
					Reason: xpv2.ConditionReason(reason),
				}
			}
			for i, at := range tc.steps {
				now = now.Add(at.after)
				s := &Session{
					histories: w,
					options:   Options{Now: func() time.Time { return now }},
					base: &metav1.PartialObjectMetadata{
						ObjectMeta: metav1.ObjectMeta{Name: "o", UID: "u", ResourceVersion: strconv.Itoa(i + 1)},
					},
					patches: []Patch{{}, {Restored: []xpv2.ConditionType{"Deleting"}}},
				}
				if at.written == "" {
					at.written = ours
				}
				for range 2 { // One reconcile may set a condition more than once.
					wants(
						t, tc.reason, "step "+strconv.Itoa(i)+" writes", at.want,
						s.restores(condition(at.stored), condition(at.written)),
					)
				}
				if i == len(tc.steps)-1 {
					wants(t, tc.reason, "requeue", tc.requeue, s.requeue.decide(reconcile.Result{}).RequeueAfter)
				}
				wants(
					t, "Other conditions have no limit.", "Synced is written", true,
					s.restores(xpv2.ReconcilePaused(), xpv2.ReconcileSuccess()),
				)
			}
		})
	}
}

// A condition that may be stale is not taken for another writer's.
func TestHashOf_Unknown(t *testing.T) {
	for reason, want := range map[xpv2.ConditionReason]bool{"": false, "Waiting": true} {
		got := hashOf(xpv2.Condition{Status: corev1.ConditionUnknown, Reason: reason}) != 0
		wants(t, "A condition with the status Unknown should be set if it has a reason.", string(reason), want, got)
	}
}

func TestRestores_StaleRead(t *testing.T) {
	w := &histories{store: &store.Store{}}
	at := func(version string) *Session {
		return &Session{
			histories: w, options: Options{Now: time.Now},
			base: &metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: "o", UID: "u", ResourceVersion: version},
			},
			patches: []Patch{{Restored: []xpv2.ConditionType{"Deleting"}}},
		}
	}
	w.noteWrite(at("100").base)
	for i := range 10 {
		stale := xpv2.Condition{Type: "Deleting", Status: corev1.ConditionTrue, Reason: "Old"}
		wants(
			t, "The cache lags behind the writes of this process.", "written", true,
			at(strconv.Itoa(i+1)).restores(stale, xpv2.Condition{
				Type:   "Deleting",
				Status: corev1.ConditionTrue,
				Reason: "Ours",
			}),
		)
	}
}

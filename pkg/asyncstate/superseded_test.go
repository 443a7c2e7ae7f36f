package asyncstate_test

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A record says nothing of a create that upstream announced after it, and that was
// interrupted, too.
func TestObserve_CreateOfUpstreamInterrupted(t *testing.T) {
	interrupted := func(t *testing.T, w *world, p *process) {
		t.Helper()
		reconciled(t, p, "b")
		pass(3 * time.Minute)
	}

	// made by the create of the record, before the external resource was deleted.
	made := func(t *testing.T, w *world, p *process) {
		t.Helper()
		reconciled(t, p, "b")
		pass(6 * time.Minute)
		w.cloud.clear()
	}

	refused := func(t *testing.T, w *world, p *process) {
		t.Helper()
		w.cloud.refuses(errQuota)
		reconciled(t, p, "b")
		synctest.Wait()
		w.cloud.refuses(nil)
	}

	updating := func(t *testing.T, w *world, p *process) {
		t.Helper()
		reconciled(t, p, "b")
		pass(11 * time.Minute)
		reconciled(t, p, "b")
		w.edit("b", func(b *v1alpha1.Bucket) {
			b.Generation++
			b.Spec.ForProvider.Region = "elsewhere"
		})
		reconciled(t, p, "b")
		pass(time.Minute)
		w.cloud.clear()
		w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "") })
	}

	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption

		// recorded leaves a record.
		recorded func(t *testing.T, w *world, p *process)

		// kept is set if the annotations of the earlier create stay. Upstream's
		// message asks to remove external-create-pending.
		kept bool

		// clock says by how much upstream's was ahead.
		clock time.Duration

		// theirs is what upstream's create made, "theirs" if it isn't said, unless
		// that is absent.
		theirs string
		absent bool

		deleting bool

		// finished is whether the outcome becomes known, without a person.
		finished bool
		name     string
		creates  int // of operations; 1 if it is 0
	}{
		"Nothing":            {reason: "The client cannot look it up.", kind: nothing, recorded: interrupted},
		"Token":              {reason: "To repeat the create of the record makes a second external resource.", kind: token, recorded: interrupted},
		"TokenClockBehind":   {reason: "As above, if upstream's clock is an hour behind.", kind: token, recorded: interrupted, clock: -time.Hour},
		"TokenClockFarAhead": {reason: "As above, if upstream's clock is ten years ahead.", kind: token, recorded: interrupted, clock: 10 * 365 * 24 * time.Hour},
		"TokenKept":          {reason: "As above, under upstream's option for deterministic names, which does not stop.", kind: token, recorded: interrupted, kept: true},
		"TokenDeleted":       {reason: "To repeat the create of the record leaks what upstream's made.", kind: token, recorded: interrupted, deleting: true},
		"Resumer":            {reason: "The handle is that of another create.", kind: resumer, recorded: made},
		"Named":              {reason: "The name is that of another create.", kind: namedMid, recorded: made, name: "id-0001"},
		"Finder":             {reason: "It is found.", kind: finder, recorded: interrupted, finished: true, name: "theirs"},
		"FinderWithTokens": {
			reason: "As above: the token of the record is that of another create.",
			kind:   finder, options: []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}, recorded: interrupted, finished: true, name: "theirs",
		},
		"FinderAbsent": {reason: "It made nothing, and is made once absence is believed.", kind: finder, recorded: interrupted, absent: true, finished: true, name: "id-0001", creates: 2},
		"FinderWithTokensAbsent": {
			reason: "As above: without its token it cannot be repeated earlier.",
			kind:   finder, options: []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}, recorded: interrupted, absent: true, finished: true, name: "id-0001", creates: 2,
		},
		"Deterministic": {reason: "It is observed by its name.", kind: deterministic, recorded: interrupted, theirs: "of-uid-1", finished: true},
		"DeterministicAbsent": {
			reason: "It made nothing, and a second one of that name cannot be made.",
			kind:   deterministic, recorded: interrupted, absent: true, finished: true, name: "of-uid-1", creates: 3,
		},
		"Refused":            {reason: "That the recorded create failed says nothing of upstream's.", kind: nothing, recorded: refused},
		"RefusedClockBehind": {reason: "As above, if upstream's clock is an hour behind.", kind: nothing, recorded: refused, kept: true, clock: -time.Hour},
		"RefusedFinder":      {reason: "It is found.", kind: finder, recorded: refused, finished: true, name: "theirs"},
		"Updating":           {reason: "Nor does an update of what was deleted meanwhile.", kind: nothing, recorded: updating},
		"UpdatingFinder":     {reason: "It is found.", kind: finder, recorded: updating, finished: true, name: "theirs"},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.manual, w.options = true, tc.options
			p := w.start()

			tc.recorded(t, w, p)
			p.kill()
			pass(time.Minute)

			old := record(w.get("b"))
			if old == "" {
				t.Fatalf("\n%s\nThere is no record: %s", tc.reason, describe(w.get("b")))
			}

			w.edit("b", func(b *v1alpha1.Bucket) {
				if !tc.kept {
					meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
				}

				meta.SetExternalCreatePending(b, time.Now().Add(tc.clock))

				if !tc.absent {
					w.cloud.add(cmp.Or(tc.theirs, "theirs"), b.Spec.ForProvider.Region)
				}
			})

			if tc.deleting {
				w.delete("b")
			}

			// The first process dies, too.
			p = w.start()
			_, _ = p.reconcile("b")
			pass(3 * time.Minute)
			p.kill()
			p = w.start()

			for range 8 {
				_, _ = p.reconcile("b")
				pass(15 * time.Minute)
			}

			want := asyncstate.ReasonResultUnknown
			if tc.finished {
				want = asyncstate.ReasonFinished
			}

			b := w.get("b")
			if got, n := reason(b, asyncstate.TypeOperation), w.cloud.count(asyncstate.Create); got != want || meta.GetExternalName(b) != tc.name || n != cmp.Or(tc.creates, 1) || len(w.cloud.names("uid-1")) != 1 {
				t.Errorf("\n%s\n%d creates, and the cloud has %v: %s", tc.reason, n, w.cloud.names("uid-1"), describe(b))
			}

			if tc.finished != (record(b) == "") {
				t.Errorf("\n%s\nThe record: %s", tc.reason, describe(b))
			}

			if m := condition(b, asyncstate.TypeOperation); strings.Contains(m, "with token") {
				t.Errorf("\n%s\nThe token of the record is that of another create: %s", tc.reason, m)
			}
		})
	}
}

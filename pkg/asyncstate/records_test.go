package asyncstate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// recorded returns a record of a create with one thing replaced.
func recorded(old, now string) string {
	return strings.Replace(
		`{"version":1,"uid":"uid-1","type":"create","phase":"failed","attempt":1,"token":"t","holder":"h","started":"2000-01-01T00:00:00Z","deadline":"2000-01-01T01:00:00Z","ended":"2000-01-01T00:30:00Z","failures":1,"error":"quota"}`,
		old, now, 1,
	)
}

// A record that can't be used stops the object, and is left as it is.
func TestUnusableRecord(t *testing.T) {
	cases := map[string]struct {
		reason string
		record string
		want   string
	}{
		"Empty": {reason: "It is no JSON.", record: "", want: asyncstate.AnnotationKeyOperation},
		"Null":  {reason: "It has no version.", record: "null", want: `"version"`},
		"Newer": {
			reason: "A record of a newer version should not be used.",
			record: recorded(`"version":1`, `"version":2`),
			want:   `"version": it is 2`,
		},
		"VersionIsText": {reason: "As above.", record: recorded(`"version":1`, `"version":"1"`), want: `"version"`},
		"AnotherUID": {
			reason: "The object was restored, or copied.",
			record: recorded("uid-1", "uid-9"),
			want:   `"uid": it belongs to another object, "uid-9"`,
		},
		"UnknownType": {
			reason: "An unknown type should not be used.",
			record: recorded("create", "repair"),
			want:   `"type": "repair"`,
		},
		"UnknownPhase": {
			reason: "An unknown phase should not be used.",
			record: recorded("failed", "asleep"),
			want:   `"phase": "asleep"`,
		},
		"NoAttempt": {
			reason: "They count from 1.",
			record: recorded(`"attempt":1`, `"attempt":0`),
			want:   `"attempt": 0`,
		},
		"NoToken":  {reason: "It is needed.", record: recorded(`"t"`, `""`), want: `"token"`},
		"NoHolder": {reason: "It is needed.", record: recorded(`"h"`, `""`), want: `"holder"`},
		"NoStart":  {reason: "It is needed.", record: recorded("started", "begun"), want: `"started"`},
		"StartIsNoTime": {
			reason: "It is no time.",
			record: recorded("2000-01-01T00:00:00Z", "yesterday"),
			want:   `"started"`,
		},
		"NoDeadline": {reason: "It is needed.", record: recorded("deadline", "until"), want: `"deadline"`},
		"DeadlineFirst": {
			reason: "That can't be.",
			record: recorded("2000-01-01T01", "1999-01-01T01"),
			want:   `"deadline"`,
		},
		"NoEnd": {
			reason: "It has ended at an unknown time.",
			record: recorded("ended", "over"),
			want:   `"ended"`,
		},
		"NegativeFailures": {
			reason: "That can't be.",
			record: recorded(`"failures":1`, `"failures":-1`),
			want:   `"failures": -1`,
		},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			w.edit("b", func(b *v1alpha1.Bucket) {
				b.SetFinalizers([]string{"finalizer.managedresource.crossplane.io"})
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: tc.record})
				meta.SetExternalCreatePending(b, time.Now())
			})
			p := w.start()
			check := func(when string) {
				t.Helper()
				b := w.get("b")
				contains(
					t, tc.reason+" "+when+": OperationRunning", condition(b, asyncstate.TypeOperation),
					"RecordUnusable", tc.want,
				)
				contains(t, tc.reason+" "+when+": Synced", condition(b, xpv2.TypeSynced), "ReconcileError", tc.want)
				wants(t, tc.reason, when+": record, events", []any{tc.record, 1}, []any{
					record(b), len(w.said.Events("RecordUnusable")),
				})
				wants(t, tc.reason, when+": requests of the cloud", 0, len(w.cloud.calls)+len(w.cloud.Counts()))
			}
			pass(3 * time.Hour)
			check("at rest")
			if n := p.reconciles.Load(); n > 40 {
				t.Errorf("\n%s\n%d reconciles in 3 hours", tc.reason, n)
			}
			w.delete("b")
			pass(3 * time.Hour)
			check("while it is deleted")
			contains(t, "Deleting", condition(w.get("b"), reconciler.TypeDeleting), "True CreateResultUnknown", tc.want)
			w.edit("b", func(b *v1alpha1.Bucket) {
				meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending)
			})
			pass(time.Minute)
			wants(t, tc.reason+"\n"+describe(w.get("b")), "gone, since the record was removed by hand", true, w.gone())
		})
	}
}

// A clock that is ahead holds up nothing, and numbers that are far out do no harm.
func TestStrangeRecord(t *testing.T) {
	cases := map[string]string{
		"EndedInTheFuture": recorded("2000-01-01T00:30", "2030-01-01T00:30"),
		"VeryManyFailures": strings.Replace(
			recorded(`"attempt":1`, `"attempt":9223372036854775806`), `"failures":1`, `"failures":9223372036854775806`,
			1,
		),
		"UnknownField": recorded("{", `{"more":{},`),
	}
	lives := map[string]life{}
	for name, text := range cases {
		l := life{
			reason: "The create is made in the end.", auto: true, want: finished(1, "id-0001"),
			happens: func(_ *testing.T, w *world) {
				w.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: text})
				})
				pass(time.Hour)
				w.start()
				pass(5 * time.Hour)

				// Of the second, a change of the spec is the way out.
				w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				pass(time.Hour)
			},
		}
		if name == "VeryManyFailures" {
			l.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Second, 1<<63-1)}
		} else {
			l.want.Updates = 1
		}
		lives[name] = l
	}
	live(t, lives)
}

// A record of a create that upstream's annotations say has ended stops nothing.
func TestObserve_CreateSettledElsewhere(t *testing.T) {
	type edit func(w *world, b *v1alpha1.Bucket)
	untouched := func(*world, *v1alpha1.Bucket) {}
	removed := func(_ *world, b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending) }

	// theirs has another writer, whose clock is ahead, have created the external resource.
	theirs := func(pending bool, clock time.Duration, more edit) edit {
		return func(w *world, b *v1alpha1.Bucket) {
			w.cloud.add("theirs", "")
			meta.SetExternalName(b, "theirs")
			if pending {
				meta.SetExternalCreatePending(b, time.Now().Add(clock))
			}
			meta.SetExternalCreateSucceeded(b, time.Now().Add(clock))
			more(w, b)
		}
	}
	succeeded := unknown(1)
	succeeded.Incomplete = false
	cases := map[string]struct {
		reason string
		plain  bool

		// before is called if a first attempt is refused in the second in which the
		// second attempt is announced, then after the attempt that is interrupted.
		before, then edit
		want         ending
	}{
		"Untouched": {reason: "The outcome is unknown.", then: untouched, want: unknown(1)},
		"UntouchedUnderUpstream": {
			reason: "Upstream says that a create has succeeded as soon as it has begun.",
			plain:  true,
			then:   untouched,
			want:   succeeded,
		},
		"PendingRemoved": {
			reason: "Upstream's message asks for this annotation to be removed if it is safe to go on.",
			then:   removed,
			want:   finished(2, "id-0001"),
		},
		"PendingRemovedAndNamed": {
			reason: "A person has found the external resource.",
			then: theirs(false, 0, func(_ *world, b *v1alpha1.Bucket) {
				meta.RemoveAnnotations(
					b, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded,
				)
			}),
			want: finished(1, "theirs"),
		},
		"CreatedByUpstream": {
			reason: "The provider was rolled back to upstream, which created the external resource, and then updated.",
			then:   theirs(true, 0, untouched), want: finished(1, "theirs"),
		},
		"CreatedByUpstreamWithAClockBehind": {
			reason: "As above, on a machine whose clock is an hour behind.",
			then:   theirs(true, -time.Hour, untouched),
			want:   finished(1, "theirs"),
		},
		"RefusedUnderUpstream": {
			reason: "The provider was rolled back to upstream, whose create failed, and then updated.",
			then: func(_ *world, b *v1alpha1.Bucket) {
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			},
			want: finished(2, "id-0001"),
		},
		"SucceededByHand": {
			reason: "A person says that the create has succeeded, and under which name.",
			then:   theirs(false, 0, untouched),
			want:   finished(1, "theirs"),
		},
		"AnnouncedByUpstream": {
			reason: "A create of upstream's that has not ended settles nothing.",
			then:   func(_ *world, b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) },
			want:   unknown(1),
		},
		"SecondAttemptInTheSameSecond": {
			reason: "That the first attempt failed says nothing of the second, although the annotations say the same second.",
			before: untouched, then: untouched, want: unknown(2),
		},
		"SecondAttemptPendingRemoved": {
			reason: "A person says that it is safe to go on after the second attempt.",
			before: untouched,
			then:   removed,
			want:   finished(3, "id-0001"),
		},
		"SecondAttemptByAClockBehind": {
			reason: "As above, if the first attempt failed on a machine whose clock is ten minutes ahead.",
			before: func(_ *world, b *v1alpha1.Bucket) {
				meta.SetExternalCreateFailed(b, time.Now().Add(10*time.Minute))
			},
			then: untouched, want: unknown(2),
		},
	}
	lives := map[string]life{}
	for name, tc := range cases {
		lives[name] = life{reason: tc.reason, plain: tc.plain, want: tc.want, happens: func(t *testing.T, w *world) {
			p := w.start()
			if tc.before != nil {
				p.refused()
				w.edit("b", func(b *v1alpha1.Bucket) {
					// Who changes the spec need not wait.
					b.Spec.ForProvider.Region = "elsewhere"
					tc.before(w, b)
				})
			}
			for tries := 0; w.cloud.count(asyncstate.Create) < 1+boolToInt(tc.before != nil); tries++ {
				// Graft's package managed waits for the next second.
				p.again(1, time.Duration(tries/3)*time.Second)
			}
			pass(3 * time.Minute)
			p.kill()
			w.edit("b", func(b *v1alpha1.Bucket) { tc.then(w, b) })
			w.start().again(4, 15*time.Minute)
			wants(
				t, tc.reason, "settled elsewhere", tc.want.Operation == asyncstate.ReasonFinished,
				strings.Contains(w.said.All(), "settled by another writer"),
			)
		}}
	}
	live(t, lives)
}

// A record says nothing of a create that upstream announced after it.
func TestObserve_CreateOfUpstreamInterrupted(t *testing.T) {
	interrupted := func(p *process) { p.again(1, 3*time.Minute) }

	// made by the create of the record, before the external resource was deleted.
	made := func(p *process) {
		p.again(1, 6*time.Minute)
		p.w.cloud.clear()
	}
	updating := func(p *process) {
		p.again(2, 11*time.Minute)
		p.w.ask(asyncstate.Update)
		p.again(1, time.Minute)
		p.w.cloud.clear()
		p.w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "") })
	}
	left := func(made int, name string) ending {
		e := unknown(1)
		e.Made, e.Left, e.Name = made, 1, name
		return e
	}
	updated, deleting, refusedBefore := left(2, ""), left(1, ""), left(1, "")
	updated.Updates, updated.Ready, refusedBefore.Incomplete = 1, xpv2.ReasonAvailable, false
	deleting.Ready, deleting.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption

		// recorded leaves a record.
		recorded func(p *process)

		// kept is set if the annotations of the earlier create stay. Upstream's
		// message asks to remove external-create-pending.
		kept bool

		// clock says by how much upstream's was ahead.
		clock time.Duration

		// absent is whether upstream's create made nothing.
		absent, deleting bool
		want             ending
	}{
		"Nothing": {
			reason:   "The client cannot look it up.",
			kind:     nothing,
			recorded: interrupted,
			want:     left(1, ""),
		},
		"Token": {
			reason:   "To repeat the create of the record makes a second external resource.",
			kind:     token,
			recorded: interrupted,
			want:     left(1, ""),
		},
		"TokenClockBehind": {
			reason:   "As above, if upstream's clock is an hour behind.",
			kind:     token,
			recorded: interrupted,
			clock:    -time.Hour,
			want:     left(1, ""),
		},
		"TokenKept": {
			reason:   "As above, under upstream's option for deterministic names, which does not stop.",
			kind:     token,
			recorded: interrupted,
			kept:     true,
			want:     left(1, ""),
		},
		"TokenDeleted": {
			reason:   "A repetition would leak the external resource of upstream's create.",
			kind:     token,
			recorded: interrupted,
			deleting: true,
			want:     deleting,
		},
		"Resumer": {
			reason:   "The handle belongs to another create.",
			kind:     resumer,
			recorded: made,
			want:     left(2, ""),
		},
		"Named": {
			reason:   "The name belongs to another create.",
			kind:     namedMid,
			recorded: made,
			want:     left(2, "id-0001"),
		},
		"Finder": {reason: "It is found.", kind: finder, recorded: interrupted, want: finished(1, "theirs")},
		"FinderAbsent": {
			reason:   "It made nothing, and is made once absence is believed.",
			kind:     finder,
			recorded: interrupted,
			absent:   true,
			want:     finished(2, "id-0001"),
		},
		"FinderWithTokensAbsent": {
			reason:   "As above: without its token it cannot be repeated earlier.",
			kind:     finder,
			options:  []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()},
			recorded: interrupted, absent: true, want: finished(2, "id-0001"),
		},
		"DeterministicAbsent": {
			reason: "It made nothing, and a second one of that name cannot be made.",
			kind:   deterministic, recorded: interrupted, absent: true, want: finished(3, "of-uid-1"),
		},
		"Refused": {
			reason:   "That the recorded create failed says nothing of upstream's.",
			kind:     nothing,
			recorded: (*process).refused,
			want:     left(1, ""),
		},
		"RefusedClockBehind": {
			reason:   "As above, if upstream's clock is an hour behind.",
			kind:     nothing,
			recorded: (*process).refused,
			kept:     true,
			clock:    -time.Hour,
			want:     refusedBefore,
		},
		"Updating": {
			reason:   "Nor should an update of an external resource that was deleted meanwhile.",
			kind:     nothing,
			recorded: updating,
			want:     updated,
		},
	}
	lives := map[string]life{}
	for name, tc := range cases {
		lives[name] = life{
			reason:  tc.reason,
			kind:    tc.kind,
			options: tc.options,
			want:    tc.want,
			happens: func(t *testing.T, w *world) {
				p := w.start()
				tc.recorded(p)
				p.kill()
				pass(time.Minute)
				if record(w.get("b")) == "" {
					t.Fatalf("\n%s\nThere is no record: %s", tc.reason, describe(w.get("b")))
				}
				w.edit("b", func(b *v1alpha1.Bucket) {
					if !tc.kept {
						meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
					}
					meta.SetExternalCreatePending(b, time.Now().Add(tc.clock))
					if !tc.absent {
						w.cloud.add("theirs", b.Spec.ForProvider.Region)
					}
				})
				if tc.deleting {
					w.delete("b")
				}

				// The first process dies, too.
				p = w.start()
				p.again(1, 3*time.Minute)
				p.kill()
				w.start().again(8, 15*time.Minute)
				wants(
					t, tc.reason, "has the token of another create", false,
					strings.Contains(condition(w.get("b"), asyncstate.TypeOperation), "with token"),
				)
			},
		}
	}
	live(t, lives)
}

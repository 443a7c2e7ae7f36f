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

// failedRecordWith returns a record of a create with one thing replaced.
func failedRecordWith(old, now string) string {
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
		"Empty": {reason: "An empty record should not be used.", record: "", want: asyncstate.AnnotationKeyOperation},
		"Null":  {reason: "A record without a version should not be used.", record: "null", want: `"version"`},
		"Newer": {
			reason: "A record of a newer version should not be used.",
			record: failedRecordWith(`"version":1`, `"version":2`), want: `"version": it is 2`,
		},
		"VersionIsText": {
			reason: "A version that is a string should not be used.",
			record: failedRecordWith(`"version":1`, `"version":"1"`), want: `"version"`,
		},
		"AnotherUID": {
			reason: "The object was restored, or copied.",
			record: failedRecordWith("uid-1", "uid-9"), want: `"uid": it belongs to another object, "uid-9"`,
		},
		"UnknownType": {
			reason: "An unknown type should not be used.",
			record: failedRecordWith("create", "repair"), want: `"type": "repair"`,
		},
		"UnknownPhase": {
			reason: "An unknown phase should not be used.",
			record: failedRecordWith("failed", "asleep"), want: `"phase": "asleep"`,
		},
		"NoAttempt": {
			reason: "Attempts should count from 1.",
			record: failedRecordWith(`"attempt":1`, `"attempt":0`), want: `"attempt": 0`,
		},
		"NoToken":  {reason: "A record should have a token.", record: failedRecordWith(`"t"`, `""`), want: `"token"`},
		"NoHolder": {reason: "A record should have a holder.", record: failedRecordWith(`"h"`, `""`), want: `"holder"`},
		"NoStart": {
			reason: "A record should have a start.",
			record: failedRecordWith("started", "begun"), want: `"started"`,
		},
		"StartIsNoTime": {
			reason: "The start should be a timestamp.",
			record: failedRecordWith("2000-01-01T00:00:00Z", "yesterday"), want: `"started"`,
		},
		"NoDeadline": {
			reason: "A record should have a deadline.",
			record: failedRecordWith("deadline", "until"), want: `"deadline"`,
		},
		"DeadlineFirst": {
			reason: "A deadline should not be before the start.",
			record: failedRecordWith("2000-01-01T01", "1999-01-01T01"), want: `"deadline"`,
		},
		"NoEnd": {
			reason: "A failed operation should have an end.",
			record: failedRecordWith("ended", "over"), want: `"ended"`,
		},
		"NegativeFailures": {
			reason: "Failures should not be negative.",
			record: failedRecordWith(`"failures":1`, `"failures":-1`), want: `"failures": -1`,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, finder, bucket("b"))
			e.edit("b", func(b *v1alpha1.Bucket) {
				b.SetFinalizers([]string{"finalizer.managedresource.crossplane.io"})
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: tc.record})
				meta.SetExternalCreatePending(b, time.Now())
			})
			p := e.startProvider()
			check := func(when string) {
				t.Helper()
				b := e.get("b")
				expectContains(
					t, tc.reason+" "+when+": OperationRunning", condition(b, asyncstate.TypeOperation),
					"RecordUnusable", tc.want,
				)
				expectContains(
					t, tc.reason+" "+when+": Synced", condition(b, xpv2.TypeSynced), "ReconcileError", tc.want,
				)
				expectEqual(t, tc.reason, when+": record, events", []any{tc.record, 1}, []any{
					record(b), len(e.events.Events("RecordUnusable")),
				})
				expectEqual(t, tc.reason, when+": requests of the cloud", 0, len(e.cloud.calls)+len(e.cloud.Counts()))
			}
			advanceClock(3 * time.Hour)
			check("at rest")
			if n := p.reconciles.Load(); n > 40 {
				t.Errorf("\n%s\n%d reconciles in 3 hours", tc.reason, n)
			}
			e.delete("b")
			advanceClock(3 * time.Hour)
			check("while it is deleted")
			expectContains(
				t, "Deleting", condition(e.get("b"), reconciler.TypeDeleting), "True CreateResultUnknown", tc.want,
			)
			e.edit("b", func(b *v1alpha1.Bucket) {
				meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending)
			})
			advanceClock(time.Minute)
			expectEqual(
				t, tc.reason+"\n"+describe(e.get("b")), "gone, after the record was removed", true, e.objectGone(),
			)
		})
	}
}

// An operation should neither wait for years nor fail because of extreme values in a record.
func TestExtremeRecordFields(t *testing.T) {
	cases := map[string]struct {
		reason  string
		record  string
		options []asyncstate.TrackerOption
		updates int
	}{
		"EndedInTheFuture": {
			reason: "The backoff should not wait for the clock of another machine that is years ahead.",
			record: failedRecordWith("2000-01-01T00:30", "2030-01-01T00:30"), updates: 1,
		},
		"VeryManyFailures": {
			reason: "A changed spec should end a backoff of years.",
			record: strings.Replace(
				failedRecordWith(`"attempt":1`, `"attempt":9223372036854775806`),
				`"failures":1`, `"failures":9223372036854775806`, 1,
			),
			options: []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Second, 1<<63-1)},
		},
		"UnknownField": {
			reason: "A field of a later version should be ignored.",
			record: failedRecordWith("{", `{"more":{},`), updates: 1,
		},
	}
	for name, tc := range cases {
		want := readyAfterCreates(1, "id-0001")
		want.Updates = tc.updates
		runScenario(t, name, scenario{
			reason: tc.reason, options: tc.options, autoReconciled: true, want: want,
			steps: func(_ *testing.T, e *environment) {
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: tc.record})
				})
				advanceClock(time.Hour)
				e.startProvider()
				advanceClock(5 * time.Hour)
				e.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				advanceClock(time.Hour)
			},
		})
	}
}

// A record of a create that upstream's annotations say has ended stops nothing.
func TestObserve_CreateSettledElsewhere(t *testing.T) {
	type edit func(e *environment, b *v1alpha1.Bucket)
	untouched := func(*environment, *v1alpha1.Bucket) {}
	removed := func(_ *environment, b *v1alpha1.Bucket) {
		meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
	}

	// theirs has another writer, whose clock is ahead, have created the external resource.
	theirs := func(pending bool, clock time.Duration, more edit) edit {
		return func(e *environment, b *v1alpha1.Bucket) {
			e.cloud.add("theirs", "")
			meta.SetExternalName(b, "theirs")
			if pending {
				meta.SetExternalCreatePending(b, time.Now().Add(clock))
			}
			meta.SetExternalCreateSucceeded(b, time.Now().Add(clock))
			more(e, b)
		}
	}
	cases := map[string]struct {
		reason string

		// before is called if a first attempt is refused in the second in which the
		// second attempt is announced, then after the attempt that is interrupted.
		before, then edit
		want         finalState
	}{
		"Untouched": {reason: "The outcome is unknown.", then: untouched, want: unknownAfterCreates(1)},
		"PendingRemoved": {
			reason: "Upstream's message asks for this annotation to be removed if it is safe to go on.",
			then:   removed, want: readyAfterCreates(2, "id-0001"),
		},
		"PendingRemovedAndNamed": {
			reason: "A person has found the external resource.",
			then: theirs(false, 0, func(_ *environment, b *v1alpha1.Bucket) {
				meta.RemoveAnnotations(
					b, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded,
				)
			}),
			want: readyAfterCreates(1, "theirs"),
		},
		"CreatedByUpstream": {
			reason: "The provider was rolled back to upstream, which created the external resource, and then updated.",
			then:   theirs(true, 0, untouched), want: readyAfterCreates(1, "theirs"),
		},
		"CreatedByUpstreamWithAClockBehind": {
			reason: "A create by upstream should settle the record although its clock is an hour behind.",
			then:   theirs(true, -time.Hour, untouched), want: readyAfterCreates(1, "theirs"),
		},
		"RefusedUnderUpstream": {
			reason: "The provider was rolled back to upstream, whose create failed, and then updated.",
			then: func(_ *environment, b *v1alpha1.Bucket) {
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			},
			want: readyAfterCreates(2, "id-0001"),
		},
		"SucceededByHand": {
			reason: "A person says that the create has succeeded, and under which name.",
			then:   theirs(false, 0, untouched), want: readyAfterCreates(1, "theirs"),
		},
		"AnnouncedByUpstream": {
			reason: "A create of upstream's that has not ended settles nothing.",
			then:   func(_ *environment, b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) },
			want:   unknownAfterCreates(1),
		},
		"SecondAttemptInTheSameSecond": {
			reason: "A second attempt should have an unknown outcome although the first failed in the same second.",
			before: untouched, then: untouched, want: unknownAfterCreates(2),
		},
		"SecondAttemptPendingRemoved": {
			reason: "A person says that it is safe to go on after the second attempt.",
			before: untouched, then: removed, want: readyAfterCreates(3, "id-0001"),
		},
		"SecondAttemptByAClockBehind": {
			reason: "A second attempt should have an unknown outcome if the first failed by a clock that is ahead.",
			before: func(_ *environment, b *v1alpha1.Bucket) {
				meta.SetExternalCreateFailed(b, time.Now().Add(10*time.Minute))
			},
			then: untouched, want: unknownAfterCreates(2),
		},
	}
	for name, tc := range cases {
		steps := func(t *testing.T, e *environment) {
			p := e.startProvider()
			if tc.before != nil {
				p.reconcileRejected()
				e.edit("b", func(b *v1alpha1.Bucket) {
					// A changed spec ends the backoff.
					b.Spec.ForProvider.Region = "elsewhere"
					tc.before(e, b)
				})
			}
			for tries := 0; e.cloud.count(asyncstate.Create) < 1+boolToInt(tc.before != nil); tries++ {
				// Graft's package managed waits for the next second.
				p.reconcileRepeatedly(1, time.Duration(tries/3)*time.Second)
			}
			advanceClock(3 * time.Minute)
			p.kill()
			e.edit("b", func(b *v1alpha1.Bucket) { tc.then(e, b) })
			e.startProvider().reconcileRepeatedly(4, 15*time.Minute)
			expectEqual(
				t, tc.reason, "settled elsewhere", tc.want.Operation == asyncstate.ReasonFinished,
				strings.Contains(e.events.All(), "settled by another writer"),
			)
		}
		runScenario(t, name, scenario{reason: tc.reason, want: tc.want, steps: steps})
	}
}

// A record does not describe a create that upstream announced after it.
func TestObserve_CreateOfUpstreamInterrupted(t *testing.T) {
	interrupted := func(p *process) { p.reconcileRepeatedly(1, 3*time.Minute) }

	// made by the create of the record, before the external resource was deleted.
	made := func(p *process) {
		p.reconcileRepeatedly(1, 6*time.Minute)
		p.environment.cloud.clear()
	}
	updating := func(p *process) {
		p.reconcileRepeatedly(2, 11*time.Minute)
		p.environment.requestOperation(asyncstate.Update)
		p.reconcileRepeatedly(1, time.Minute)
		p.environment.cloud.clear()
		p.environment.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "") })
	}
	left := func(made int, name string) finalState {
		e := unknownAfterCreates(1)
		e.Created, e.Remaining, e.Name = made, 1, name
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
		want             finalState
	}{
		"Nothing": {
			reason: "The client cannot look it up.",
			kind:   plainClient, recorded: interrupted, want: left(1, ""),
		},
		"Token": {
			reason: "To repeat the create of the record makes a second external resource.",
			kind:   token, recorded: interrupted, want: left(1, ""),
		},
		"TokenClockBehind": {
			reason: "The create of the record should not be repeated if upstream's clock is an hour behind.",
			kind:   token, recorded: interrupted, clock: -time.Hour, want: left(1, ""),
		},
		"TokenKept": {
			reason: "The create of the record should not be repeated under upstream's option for deterministic names.",
			kind:   token, recorded: interrupted, kept: true, want: left(1, ""),
		},
		"TokenDeleted": {
			reason: "A repetition would leak the external resource of upstream's create.",
			kind:   token, recorded: interrupted, deleting: true, want: deleting,
		},
		"Resumer": {
			reason: "The handle belongs to another create.",
			kind:   resumer, recorded: made, want: left(2, ""),
		},
		"Named": {
			reason: "The name belongs to another create.",
			kind:   namesEarly, recorded: made, want: left(2, "id-0001"),
		},
		"Finder": {
			reason: "The external resource of upstream's create should be found.",
			kind:   finder, recorded: interrupted, want: readyAfterCreates(1, "theirs"),
		},
		"FinderAbsent": {
			reason: "A new create should begin once the absence of the external resource is believed.",
			kind:   finder, recorded: interrupted, absent: true, want: readyAfterCreates(2, "id-0001"),
		},
		"FinderWithTokensAbsent": {
			reason: "Upstream's create, whose token is unknown, should not be repeated before absence is believed.",
			kind:   finder, options: withTokens(),
			recorded: interrupted, absent: true, want: readyAfterCreates(2, "id-0001"),
		},
		"DeterministicAbsent": {
			reason: "An absent external resource with a deterministic name should be created.",
			kind:   deterministic, recorded: interrupted, absent: true, want: readyAfterCreates(3, "of-uid-1"),
		},
		"Refused": {
			reason: "The outcome of upstream's create should be unknown although the recorded create failed.",
			kind:   plainClient, recorded: (*process).reconcileRejected, want: left(1, ""),
		},
		"RefusedClockBehind": {
			reason: "The outcome of upstream's create should be unknown if its clock is an hour behind, too.",
			kind:   plainClient, recorded: (*process).reconcileRejected,
			kept: true, clock: -time.Hour, want: refusedBefore,
		},
		"Updating": {
			reason: "Nor should an update of an external resource that was deleted meanwhile.",
			kind:   plainClient, recorded: updating, want: updated,
		},
	}
	for name, tc := range cases {
		runScenario(t, name, scenario{
			reason: tc.reason,
			kind:   tc.kind, options: tc.options, want: tc.want,
			steps: func(t *testing.T, e *environment) {
				p := e.startProvider()
				tc.recorded(p)
				p.kill()
				advanceClock(time.Minute)
				if record(e.get("b")) == "" {
					t.Fatalf("\n%s\nThere is no record: %s", tc.reason, describe(e.get("b")))
				}
				e.edit("b", func(b *v1alpha1.Bucket) {
					if !tc.kept {
						meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
					}
					meta.SetExternalCreatePending(b, time.Now().Add(tc.clock))
					if !tc.absent {
						e.cloud.add("theirs", b.Spec.ForProvider.Region)
					}
				})
				if tc.deleting {
					e.delete("b")
				}

				// The first process dies, too.
				p = e.startProvider()
				p.reconcileRepeatedly(1, 3*time.Minute)
				p.kill()
				e.startProvider().reconcileRepeatedly(8, 15*time.Minute)
				expectEqual(
					t, tc.reason, "has the token of another create", false,
					strings.Contains(condition(e.get("b"), asyncstate.TypeOperation), "with token"),
				)
			},
		})
	}
}

// The record of an update or a delete belongs to the object from which this one was restored, and stops nothing.
func TestRestoredObject(t *testing.T) {
	for _, typ := range []string{"update", "delete"} {
		for name, policies := range map[string]xpv2.ManagementPolicies{
			"All": {xpv2.ManagementActionAll}, "ObserveOnly": {xpv2.ManagementActionObserve},
		} {
			runInBubble(t, typ+"/"+name, func(t *testing.T) {
				e := newEnvironment(t, plainClient, bucket("b"))
				e.manualReconciles = true
				e.cloud.add("id-1", "")
				e.edit("b", func(b *v1alpha1.Bucket) {
					b.Spec.ManagementPolicies = policies
					meta.SetExternalName(b, "id-1")
					meta.SetExternalCreateSucceeded(b, time.Now())
					text := strings.Replace(failedRecordWith("uid-1", "uid-9"), "create", typ, 1)
					meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: text})
				})
				p := e.startProvider()
				p.reconcileRepeatedly(2, time.Minute)
				b := e.get("b")
				expectEqual(t, describe(b), "Synced, Ready", []xpv2.ConditionReason{
					xpv2.ReasonReconcileSuccess, xpv2.ReasonAvailable,
				}, []xpv2.ConditionReason{reason(b, xpv2.TypeSynced), reason(b, xpv2.TypeReady)})
				e.delete("b")
				p.reconcileRepeatedly(3, time.Hour)
				expectEqual(t, describe(e.get("b")), "gone", true, e.objectGone())
			})
		}
	}
}

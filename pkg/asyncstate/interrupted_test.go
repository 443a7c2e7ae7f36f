package asyncstate_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A create that is interrupted, or fails, should lead to one external resource with its name stored, or to none.
func TestInterrupted(t *testing.T) {
	cases := map[string]scenario{
		"HandleIsStoredLate": {
			reason: "A handle that could not be stored at once should be stored with the result, and be resumed.",
			kind:   resumer,
			steps: func(_ *testing.T, e *environment) {
				p := e.startProvider()
				p.reconcileRepeatedly(1, 4*time.Minute)
				p.setFaults(apiServerUnavailable, nil)
				advanceClock(2 * time.Minute) // The create sets the handle after five minutes.
				p.setFaults(nil, nil)
				advanceClock(time.Minute)
				p.reconcileRepeatedly(4, 10*time.Minute)
			},
			want: readyAfterCreates(1, "id-0001"),
		},
		"AnswerToResumptionIsLost": {
			reason: "An operation should be resumed again if the answer to the write of its record is lost.",
			kind:   resumer,
			steps: func(t *testing.T, e *environment) {
				p := e.crashAndRestart(6 * time.Minute)

				// Exhaust the retries of the writer.
				for range 3 {
					n := 1
					p.loseAnswers(func(verb string, _ client.Object) bool {
						n--
						return n >= 0 && verb == testkit.Patch
					})
					mustReconcile(t, p, "b")
				}
				advanceClock(time.Hour)
				mustReconcile(t, p, "b")
			},
			want: readyAfterCreates(1, "id-0001"),
		},
		"EndOfBackoff": {
			reason: "The repetition should begin in a reconcile at the very end of the backoff, which no other reconcile may follow.",
			kind:   token, options: []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Minute, time.Minute)},
			steps: func(t *testing.T, e *environment) {
				p := e.crashAndRestart(3 * time.Minute)
				p.reconcileRejected()
				advanceClock(time.Minute)
				mustReconcile(t, p, "b")
				synctest.Wait()
			},
			want: finalState{
				Creates: 3, Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileError, Recorded: true, Incomplete: true,
			},
		},
		"NamedAndRepeatedInVain": {
			reason: "A create that has stored a name should still be settled by that name after its repetition failed: the object is deleted without another create.",
			kind:   token,
			steps: func(_ *testing.T, e *environment) {
				e.connect = func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
					c := newClient(false, func(ctx context.Context, mg resource.Managed) error {
						if p != e.processes[0] {
							return errQuota
						}
						return stderrors.Join(asyncstate.SetExternalName(ctx, "chosen"), sleep(ctx, time.Hour))
					})
					c.ObserveFn = func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
						return upstream.ExternalObservation{}, nil
					}
					return c, nil
				}
				p := e.crashAndRestart(time.Minute)
				p.reconcileRepeatedly(1, time.Minute)
				e.delete("b")
				p.reconcileRepeatedly(3, 2*time.Hour)
			},
			want: finalState{Gone: true},
		},
		"ConnectFails": {
			reason:         "An interrupted operation should not be reported as running while the provider cannot be connected to.",
			autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.startAndKill(time.Minute)
				e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return nil, errQuota }
				e.startProvider()
				advanceClock(time.Hour)
				expectEqual(
					t, "", "OperationRunning",
					"False Interrupted: The create was interrupted. Its outcome is determined when the external resource can be observed.",
					condition(e.get("b"), asyncstate.TypeOperation),
				)
			},
			want: finalState{
				Creates: 1, Operation: asyncstate.ReasonInterrupted, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileError, Recorded: true, Incomplete: true,
			},
		},
	}
	runScenarios(t, cases)
}

// The absence of an external resource should be believed once its create can no longer be in progress.
func TestInterrupted_Absence(t *testing.T) {
	cases := map[string]scenario{
		"ClockWasAhead": {
			reason: "A create that was begun by a clock that is ahead can be repeated more than once.",
			kind:   token, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.startAndKill(3 * time.Minute)
				skew(t, e, 3*time.Hour)
				e.crashAndRestart(3 * time.Minute)
				advanceClock(30 * time.Minute)
			},
			want: readyAfterCreates(3, "id-0001"),
		},
		"AnnouncedBefore": {
			reason: "A create that is announced again while the last one is incomplete is recorded with its announcement.",
			kind:   deterministic,
			steps: func(t *testing.T, e *environment) {
				e.reconcilerOptions = []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)}
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now().Add(-time.Minute)) })
				p := e.startProvider()
				p.setFaults(nil, func(_ string, o client.Object) error {
					if now := meta.GetExternalCreatePending(o); now.Equal(time.Now()) && record(o) == "" {
						t.Errorf("It is announced without a record: %v", o.GetAnnotations())
					}
					return nil
				})
				p.reconcileRepeatedly(2, 11*time.Minute)
			},
			want: readyAfterCreates(1, "of-uid-1"),
		},
		"FinderWithTokensDeleted": {
			reason: "An object should be deleted once its create can no longer be in progress.",
			kind:   finder, options: withTokens(),
			steps: func(t *testing.T, e *environment) {
				p := e.crashAndRestart(3 * time.Minute)
				e.delete("b")
				p.reconcileRepeatedly(2, 11*time.Minute)
				expectEqual(t, "The create may be in progress.", "gone", false, e.objectGone())
				advanceClock(time.Hour)
				mustReconcile(t, p, "b")
			},
			want: finalState{Creates: 1, Gone: true},
		},
		"FinderChangesNothing": {
			reason: "Changes of the managed resource by a Finder should not be stored.",
			kind:   finder, autoReconciled: true,
			steps: func(_ *testing.T, e *environment) {
				e.cloud.requestDuration = 0
				e.cloud.loseAnswer = func() error { return errors.New("cannot tag the resource") }
				e.lookUpWith(func(mg resource.Managed) (asyncstate.Finding, error, bool) {
					meta.SetExternalName(mg, "guess")
					return asyncstate.Finding{}, nil, false
				})
				e.startProvider()
				advanceClock(time.Minute)
			},
			want: finalState{
				Creates: 1, Created: 1, Remaining: 1, Operation: asyncstate.ReasonInterrupted,
				Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileError, Recorded: true,
			},
		},
	}
	cases["AbsenceIsStored"] = scenario{
		reason: "The absence of the external resource should be determined once, although the next create has to wait, and the process is replaced.",
		kind:   finder, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
		steps: func(t *testing.T, e *environment) {
			p := e.crashAndRestart(3 * time.Minute)
			e.add("other")
			p.reconcileRepeatedly(1, time.Hour)
			mustReconcile(t, p, "other")
			p.reconcileRepeatedly(3, time.Minute)
			expectEqual(t, describe(e.get("b")), "events, operation", []any{1, asyncstate.ReasonQueued}, []any{
				len(e.events.Events("ExternalResourceAbsent")), reason(e.get("b"), asyncstate.TypeOperation),
			})
			p.kill()
			e.startProvider().reconcileRepeatedly(1, time.Second)
		},
		want: finalState{
			Creates: 3, Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating,
			Synced: xpv2.ReasonReconcileError, Recorded: true, Incomplete: true,
		},
	}

	// When absence is believed doesn't depend on the clock of the process that died.
	const decade = 10 * 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		reason string
		skew   time.Duration
		option asyncstate.TrackerOption
		until  time.Duration
	}{
		"Ahead": {
			"A clock that is ten years ahead does not make the object wait for ten years.", decade,
			asyncstate.WithTimeout(time.Hour), time.Hour,
		},
		"ALittleBehind": {
			"Nor does one that is 50 minutes behind.", -50 * time.Minute,
			asyncstate.WithTimeout(time.Hour), time.Hour,
		},
		"AbsenceAfterAhead": {
			"As above, ten years ahead.", decade, asyncstate.WithAbsenceAfter(10 * time.Minute),
			10 * time.Minute,
		},
	} {
		cases["Absence/"+name] = scenario{
			reason: tc.reason, kind: finder, autoReconciled: true, options: []asyncstate.TrackerOption{tc.option},
			steps: func(t *testing.T, e *environment) {
				e.startAndKill(3 * time.Minute)
				skew(t, e, tc.skew)
				advanceClock(5 * time.Minute)
				e.startProvider()
				advanceClock(tc.until + 30*time.Second - time.Second)
				expectEqual(
					t, tc.reason, "creates while the other process may be running", 1,
					e.cloud.count(asyncstate.Create),
				)
				advanceClock(2*time.Second + e.cloud.requestDuration)
			},
			want: readyAfterCreates(2, "id-0001"),
		}
	}
	runScenarios(t, cases)
}

// The external resource of a create should be found, however and whenever its process ended.
func TestInterrupted_Found(t *testing.T) {
	cases := map[string]scenario{}
	for name, tc := range map[string]struct {
		reason  string
		deaf    bool
		within  time.Duration
		creates int
	}{
		"Ended": {
			"A leader that was replaced has said that its create was cancelled: absence is believed earlier.", false,
			11 * time.Minute, 2,
		},
		"GoesOn": {"A create that a replaced leader completes is not repeated.", true, 2 * time.Hour, 1},
	} {
		cases[name] = scenario{
			reason: tc.reason, kind: finder, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.cloud.ignoresCancel = tc.deaf
				p := e.startProvider()
				advanceClock(3 * time.Minute)
				p.cancel()
				advanceClock(17 * time.Second) // As long as a lease lasts.
				next := e.startProvider()
				advanceClock(tc.within)
				expectEqual(
					t, "", "operations in memory", 0,
					asyncstate.OperationsInMemory(p.tracker)+asyncstate.OperationsInMemory(next.tracker),
				)
			},
			want: readyAfterCreates(tc.creates, "id-0001"),
		}
	}
	for name, deleting := range map[string]bool{"Found": false, "FoundDeleted": true} {
		l := scenario{
			reason: "The external resource that a Finder found should be observed by a client that was connected with its name. A client that was connected before would create a second one, or leak it.",
			kind:   finder,
			steps: func(t *testing.T, e *environment) {
				e.reconcilerOptions = []managed.ReconcilerOption{managed.WithCreationGracePeriod(0)}
				p := e.crashAndRestart(6 * time.Minute)
				if deleting {
					e.delete("b")
				}
				p.reconcileRepeatedly(3, 11*time.Minute)
				expectEqual(
					t, "", "events that say that it was found", 1, len(e.events.Events("FoundExternalResource")),
				)
			},
			want: readyAfterCreates(1, "id-0001"),
		}
		if deleting {
			l.want = finalState{Creates: 1, Deletes: 1, Created: 1, Gone: true}
		}
		cases[name] = l
	}

	for name, err := range map[string]error{"Absent": nil, "Fails": errQuota, "Unknown": nil, "NameIsNoText": nil} {
		cases["AppearsLater/"+name] = scenario{
			reason: "What appears after the first look-up is found soon.",
			kind:   finder, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.startAndKill(6 * time.Minute)
				ready := time.Now().Add(3 * time.Second)
				answer := map[string]asyncstate.Finding{
					"Absent":       asyncstate.Absent(),
					"Fails":        asyncstate.Found("wrong"),
					"NameIsNoText": asyncstate.Found("a\nb"),
				}[name]
				e.lookUpWith(func(resource.Managed) (asyncstate.Finding, error, bool) {
					return answer, err, !time.Now().Before(ready)
				})
				p := e.startProvider()
				advanceClock(time.Second)
				why := map[string]string{
					"Absent": "It may still be in progress", "Unknown": "cannot tell yet",
					"Fails": "looking it up failed", "NameIsNoText": "looking it up failed",
				}[name]
				expectContains(t, "OperationRunning", condition(e.get("b"), asyncstate.TypeOperation), why)
				advanceClock(7 * time.Second)
				if n := p.reconciles.Load(); n > 20 {
					t.Errorf("%d reconciles", n)
				}
			},
			want: readyAfterCreates(1, "id-0001"),
		}
	}
	for _, k := range []clientKind{resumer, token, deterministic} {
		after, creates, as := 6*time.Minute, 2, "id-0001"
		switch k {
		case deterministic:
			after, as = 3*time.Minute, "of-uid-1" // It would be observed to exist.
		case resumer:
			creates = 1
		}
		cases["Stopped/"+string(k)] = scenario{
			reason: "An operation should keep its record if the tracker is stopped between the write of the record and the begin of the operation.",
			kind:   k,
			steps: func(t *testing.T, e *environment) {
				p := e.crashAndRestart(after)
				p.loseAnswers(func(verb string, _ client.Object) bool {
					if verb == testkit.Patch {
						p.cancel()
						synctest.Wait()
					}
					return false
				})
				mustReconcile(t, p, "b")
				expectEqual(
					t, describe(e.get("b")), "the record of an interrupted create is gone", false,
					record(e.get("b")) == "",
				)
				e.startProvider().reconcileRepeatedly(2, time.Hour)
			},
			want: readyAfterCreates(creates, as),
		}
	}
	runScenarios(t, cases)
}

// The announcement of a create whose record has gone should not stop its object.
func TestInterrupted_Announced(t *testing.T) {
	cases := map[string]scenario{}
	for _, k := range []clientKind{finder, resumer, token, deterministic, namesEarly} {
		l := scenario{
			reason: "Who resumes may have a clock that is behind.",
			kind:   k,
			steps: func(_ *testing.T, e *environment) {
				p := e.crashAndRestart(6 * time.Minute)
				e.edit("b", func(b *v1alpha1.Bucket) {
					pending := func() string {
						return `"pending":"` + b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
					}
					had := pending()
					meta.SetExternalCreatePending(b, time.Now().Add(2*time.Hour))
					meta.AddAnnotations(b, map[string]string{
						asyncstate.AnnotationKeyOperation: strings.Replace(record(b), had, pending(), 1),
					})
				})
				p.reconcileWithoutAPIServer()
				p.reconcileRepeatedly(3, 15*time.Minute)
			},
			want: readyAfterCreates(1, "id-0001"),
		}
		switch k {
		case token:
			l.want.Creates = 2
		case deterministic:
			l.want.Name = ""
		}
		cases["ClockIsBehind/"+string(k)] = l
	}

	// Whatever ends the record of a create leaves upstream's announcement of it concluded,
	// or the object would be stuck.
	adopted := func(updates int) finalState {
		return finalState{
			Updates: updates, Created: 1, Remaining: 1, Name: "theirs", Ready: xpv2.ReasonAvailable,
			Synced: xpv2.ReasonReconcileSuccess,
		}
	}
	for name, tc := range map[string]struct {
		reason string
		then   func(e *environment)
		want   finalState
	}{
		"TurnsOutToExist": {
			"A user says which external resource it is, and there is nothing left to do.", func(*environment) {},
			adopted(0),
		},
		"Update": {
			"An adopted external resource that is not up to date should be updated.",
			func(e *environment) { e.requestOperation(asyncstate.Update) }, adopted(1),
		},
		"Delete": {"It is to be deleted.", func(e *environment) {
			e.delete("b")
		}, finalState{Deletes: 1, Created: 1, Gone: true}},
	} {
		cases["Announced/"+name] = scenario{
			reason: tc.reason,
			steps: func(t *testing.T, e *environment) {
				p := e.startProvider()

				// The create is announced, and the answer to that is lost.
				p.loseAnswers(func(verb string, o client.Object) bool {
					return verb == testkit.Update && record(o) != ""
				})
				mustReconcile(t, p, "b")
				if !meta.ExternalCreateIncomplete(e.get("b")) || e.cloud.count(asyncstate.Create) != 0 {
					t.Fatal(describe(e.get("b")))
				}
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") })
				e.cloud.add("theirs", "")
				tc.then(e)
				p.reconcileWithoutAPIServer()
				p.reconcileRepeatedly(3, 15*time.Minute)
			},
			want: tc.want,
		}
	}

	cases["AnnouncedInTheSecondInWhichAnotherEnded"] = scenario{
		reason: "Annotations count seconds. The record is stored with each announcement.",
		steps: func(t *testing.T, e *environment) {
			p := e.startProvider()
			e.edit("b", func(b *v1alpha1.Bucket) {
				b.SetFinalizers([]string{managed.FinalizerName})
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			})
			p.loseAnswers(func(verb string, _ client.Object) bool { return verb == testkit.Update })
			mustReconcile(t, p, "b")
			p.loseAnswers(func(string, client.Object) bool { return false })
			p.reconcileRepeatedly(3, 15*time.Minute)
		},
		want: readyAfterCreates(1, "id-0001"),
	}

	runScenarios(t, cases)
}

// A create that another process repeats should not be carried out after a deletion.
func TestInterrupted_TakenOver(t *testing.T) {
	cases := map[string]scenario{}
	// A repetition that failed does not mean that the create failed: another process may still
	// have it in progress.
	for k, options := range map[clientKind][]asyncstate.TrackerOption{deterministic: nil, finder: withTokens()} {
		cases["RepetitionRefusedAndDeleted/"+string(k)] = scenario{
			reason: "The external resource that the create of the first process makes two minutes later should be deleted.",
			kind:   k, options: options,
			steps: func(t *testing.T, e *environment) {
				mustReconcile(t, e.startProvider(), "b")
				advanceClock(3 * time.Minute)
				p := e.startProvider()
				p.reconcileRejected()
				e.delete("b")
				p.reconcileRepeatedly(10, 11*time.Minute)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		}
	}
	for _, k := range []clientKind{token, deterministic} {
		cases["TakenOver/"+string(k)] = scenario{
			reason: "A create that another process repeats should be given up: after a deletion by that process it would make a second external resource.",
			kind:   k,
			steps: func(t *testing.T, e *environment) {
				first := e.startProvider()
				mustReconcile(t, first, "b")
				advanceClock(time.Second)
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = time.Minute })
				second := e.startProvider()
				mustReconcile(t, second, "b")
				mustReconcile(t, first, "b")
				advanceClock(2 * time.Minute)
				e.delete("b")
				second.reconcileRepeatedly(10, time.Minute)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		}
		cases["LateStart/"+string(k)] = scenario{
			reason: "A create that starts late, after the last write of its reconcile took long, should not start once another process has taken over.",
			kind:   k,
			steps: func(t *testing.T, e *environment) {
				e.cloud.requestDuration = time.Second
				first := e.startProvider()
				var hung atomic.Bool
				e.api.Before = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.StatusUpdate && !hung.Swap(true) {
						time.Sleep(time.Hour)
						return errors.New("i/o timeout")
					}
					return nil
				}
				go func() { _, _ = first.reconcile("b") }()
				advanceClock(time.Second)
				second := e.startProvider()
				second.reconcileRepeatedly(20, time.Minute)
				e.delete("b")
				second.reconcileRepeatedly(10, time.Minute)
				advanceClock(time.Hour)
			},
			want: finalState{Creates: 1, Deletes: 1, Created: 1, Gone: true},
		}
		cases["LateStartUnread/"+string(k)] = scenario{
			reason: "A create that was not started, because its object could not be read again, should be repeated: nothing was requested.",
			kind:   k,
			steps: func(t *testing.T, e *environment) {
				e.cloud.requestDuration = time.Second
				e.startLate(context.DeadlineExceeded)
				p := e.startProvider()
				mustReconcile(t, p, "b")
				p.reconcileRepeatedly(10, time.Minute)
				e.delete("b")
				p.reconcileRepeatedly(10, time.Minute)
			},
			want: finalState{Creates: 1, Created: 1, Deletes: 1, Gone: true},
		}
		cases["MovedToAnotherShard/"+string(k)] = scenario{
			reason: "The process from whose shard the object has moved should not create after the next process has deleted.",
			kind:   k,
			steps: func(t *testing.T, e *environment) {
				e.cloud.requestDuration = 40 * time.Minute
				first := e.startProvider()
				mustReconcile(t, first, "b")
				first.moved.Store(true)
				advanceClock(time.Minute)
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = time.Second })
				second := e.startProvider()
				second.reconcileRepeatedly(2, 3*time.Minute)
				e.delete("b")
				second.reconcileRepeatedly(10, time.Minute)
				advanceClock(time.Hour)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		}
		cases["RepeatedElsewhere/"+string(k)] = scenario{
			reason: "A create that another process repeats may make a second external resource once the first is deleted: external systems forget tokens and names when they delete.",
			kind:   k, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				for range 2 {
					e.startAndKill(3 * time.Minute)
				}

				// The process that was replaced stores its external name after all.
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "of-uid-1") })
				e.cloud.add("of-uid-1", "")
				e.delete("b")
				e.startProvider()
				advanceClock(50 * time.Minute)
				expectEqual(t, describe(e.get("b")), "deletes while the create may be repeated, Deleting", []any{
					0, reconciler.ReasonCreateResultUnknown,
				}, []any{e.cloud.count(asyncstate.Delete), reason(e.get("b"), reconciler.TypeDeleting)})
				advanceClock(30 * time.Minute)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		}
	}

	runScenarios(t, cases)
}

// A create that may not be made any more should not be repeated, and another operation should be resumed.
func TestInterrupted_NotAllowed(t *testing.T) {
	unknownDeleting, failed := unknownAfterCreates(1), unknownAfterCreates(1)
	unknownDeleting.Ready, unknownDeleting.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
	failed.Operation, failed.Incomplete = asyncstate.ReasonFailed, false
	cases := map[string]scenario{}
	// A create that may not be made any more is not repeated either.
	for name, tc := range map[string]struct {
		reason   string
		kind     clientKind
		deleting bool
		want     finalState
	}{
		"Token": {
			reason: "A person should determine the outcome if only a repetition could.",
			kind:   token, want: unknownAfterCreates(1),
		},
		"TokenDeleted": {
			reason: "A create should not be repeated for an object that is being deleted.",
			kind:   token, deleting: true, want: unknownDeleting,
		},
		"Deterministic": {
			reason: "The external resource should be absent once its create can no longer be in progress.",
			kind:   deterministic, want: failed,
		},
		"DeterministicDeleted": {
			reason: "An object without an external resource should be deleted.",
			kind:   deterministic, deleting: true, want: finalState{Creates: 1, Gone: true},
		},
	} {
		cases["NotAllowed/"+name] = scenario{
			reason: tc.reason, kind: tc.kind,
			steps: func(_ *testing.T, e *environment) {
				p := e.crashAndRestart(3 * time.Minute)
				e.edit("b", func(b *v1alpha1.Bucket) {
					b.SetManagementPolicies(xpv2.ManagementPolicies{
						xpv2.ManagementActionObserve, xpv2.ManagementActionDelete,
					})
				})
				if tc.deleting {
					e.delete("b")
				}
				p.reconcileRepeatedly(6, 15*time.Minute)
			},
			want: tc.want,
		}
	}

	cases["NamedBeforeItIsMade"] = scenario{
		reason: "A create that has stored a name before it made anything may still be in progress.",
		steps: func(t *testing.T, e *environment) {
			creates := 0
			e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
				c := newClient(false, func(ctx context.Context, _ resource.Managed) error {
					creates++
					return stderrors.Join(asyncstate.SetExternalName(ctx, "chosen"), sleep(ctx, 10*time.Minute))
				})
				c.ObserveFn = func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
					return upstream.ExternalObservation{ResourceExists: creates > 1, ResourceUpToDate: true}, nil
				}
				return c, nil
			}
			p := e.crashAndRestart(time.Minute)
			for _, want := range []int{1, 2} {
				p.reconcileRepeatedly(1, 2*time.Hour)
				expectEqual(t, describe(e.get("b")), "creates", want, creates)
			}
		},
		want: finalState{
			Name: "chosen", Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating,
			Synced: xpv2.ReasonReconcileError,
		},
	}
	for name, tc := range map[string]struct {
		end    func(p *process)
		synced xpv2.ConditionReason
	}{
		"Killed":               {(*process).kill, xpv2.ReasonReconcileSuccess},
		"StoppedInItsOwnWords": {(*process).stop, xpv2.ReasonReconcileError},
	} {
		cases["UpdateIsResumed/"+name] = scenario{
			reason: "An operation with a handle should be resumed, however the process ended.",
			steps: func(t *testing.T, e *environment) {
				updates, resumed := 0, 0
				e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					return struct {
						upstream.ExternalClient
						resumerFn
					}{newClient(true, func(ctx context.Context, _ resource.Managed) error {
						updates++
						err := stderrors.Join(asyncstate.SetHandle(ctx, "h"), sleep(ctx, 50*time.Minute))
						if name == "StoppedInItsOwnWords" {
							err = errQuota
						}
						return err
					}), func() error { resumed++; return nil }}, nil
				}
				p := e.startProvider()
				p.reconcileRepeatedly(1, time.Minute)
				tc.end(p)
				p = e.startProvider()
				advanceClock(time.Minute) // A backoff.
				p.reconcileRepeatedly(1, time.Second)
				expectEqual(t, "", "updates, resumed", []int{1, 1}, []int{updates, resumed})
			},
			want: finalState{Operation: asyncstate.ReasonRunning, Synced: tc.synced},
		}
	}

	runScenarios(t, cases)
}

// A create may fail after it created the external resource, with an error that does not show it.
func TestCreateFailed(t *testing.T) {
	cases := map[string]scenario{}
	for name, tc := range map[string]struct {
		reason            string
		options           []asyncstate.TrackerOption
		refused, deleting bool
		beforeObserve     func(e *environment, mg resource.Managed)
		want              finalState
	}{
		"Wanted": {
			reason: "The Finder should be called before a create that failed is repeated.",
			want:   readyAfterCreates(1, "id-0001"),
		},
		"WithTokens": {
			reason:  "Also if there are tokens, since the next attempt has another.",
			options: withTokens(), want: readyAfterCreates(1, "id-0001"),
		},
		"Deleted": {
			reason:   "It is asked before an object goes whose create failed.",
			deleting: true, want: finalState{Creates: 1, Deletes: 1, Created: 1, Gone: true},
		},
		"BackoffEndsWhileObserved": {
			reason:        "The Finder should be called although the backoff ends while the external resource is observed.",
			beforeObserve: func(*environment, resource.Managed) { time.Sleep(2 * time.Second) },
			want:          readyAfterCreates(1, "id-0001"),
		},
		"DeletedWhileObserved": {
			reason: "The Finder should be called before a managed resource is removed that is deleted while it is observed.",
			beforeObserve: func(e *environment, mg resource.Managed) {
				if record(mg) != "" {
					e.changeDuringCall(mg, nil)
				}
			},
			want: finalState{Creates: 1, Deletes: 1, Created: 1, Gone: true},
		},
		"Refused": {
			reason:  "A refused create made nothing, and should be repeated after the backoff.",
			refused: true, want: readyAfterCreates(2, "id-0001"),
		},
		"RefusedWithTokens": {
			reason:  "An attempt that failed is not repeated with its token.",
			options: withTokens(),
			refused: true,
			want:    readyAfterCreates(2, "id-0001"),
		},
		"RefusedAndDeleted": {
			reason:  "An object without an external resource should be deleted.",
			refused: true, deleting: true, want: finalState{Creates: 1, Gone: true},
		},
	} {
		cases["Failed/"+name] = scenario{
			reason: tc.reason, kind: finder, options: tc.options, autoReconciled: true,
			steps: func(_ *testing.T, e *environment) {
				e.cloud.requestDuration = 0
				once := func() error {
					e.cloud.reject, e.cloud.loseAnswer = nil, nil
					return errors.New("cannot tag the resource")
				}
				if tc.refused {
					e.cloud.reject = func(asyncstate.Type) error { return once() }
				} else {
					e.cloud.loseAnswer = once
				}
				if tc.beforeObserve != nil {
					e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
						inner, _ := p.client(mg).(findingClient)
						before := func(mg resource.Managed) { tc.beforeObserve(e, mg) }
						return struct {
							changingClient
							asyncstate.FinderFn
						}{changingClient{inner, before}, inner.Find}, nil
					}
				}
				p := e.startProvider()
				advanceClock(0)
				if tc.deleting {
					e.delete("b")
				}

				// Sooner than an interrupted create would be believed to be over.
				advanceClock(time.Minute)
				p.reconcileRepeatedly(1, 0)
			},
			want: tc.want,
		}
	}

	runScenarios(t, cases)
}

// The external resource of an interrupted create should be found before it is deleted, however long that has to wait.
func TestInterrupted_Deleted(t *testing.T) {
	cases := map[string]scenario{}
	queue := func(p *process) { mustReconcile(p.environment.t, p, "other") }
	for name, tc := range map[string]struct {
		reason  string
		kind    clientKind
		prime   func(p *process)
		creates int // of both
	}{
		"Backoff": {
			reason: "A repetition that failed is backed off from.",
			kind:   token, prime: (*process).reconcileRejected, creates: 3,
		},
		"Queue": {
			reason: "The repetition waits for other objects.",
			kind:   token, prime: queue, creates: 3,
		},
		"QueueOfResumption": {
			reason: "A resumption should wait for a permit, too.",
			kind:   resumer, prime: queue, creates: 2,
		},
	} {
		cases["DeleteWaits/"+name] = scenario{
			reason: tc.reason, kind: tc.kind,
			options: []asyncstate.TrackerOption{
				asyncstate.WithMaxOperations(1), asyncstate.WithBackoff(time.Minute, time.Minute),
			},
			steps: func(t *testing.T, e *environment) {
				e.add("other")
				p := e.crashAndRestart(6 * time.Minute)
				tc.prime(p)
				e.delete("b")
				mustReconcile(t, p, "b")
				if n := e.cloud.count(asyncstate.Delete); n != 0 ||
					reason(e.get("b"), reconciler.TypeDeleting) != reconciler.ReasonWaitingForAsyncOperation {
					t.Errorf("\n%s\n%d deletes of an unknown resource: %s", tc.reason, n, describe(e.get("b")))
				}
				p.reconcileRepeatedly(20, 2*time.Minute)
			},
			want: finalState{Creates: tc.creates, Deletes: 1, Created: 1, Gone: true},
		}
	}

	// The create of the first process may still be in progress.
	for name, tc := range map[string]struct {
		reason  string
		kind    clientKind
		twice   bool // The repetition is interrupted, too.
		deletes int  // while the create may arrive
	}{
		"Tokens": {
			reason: "The external resource should be kept, because the token prevents a second one only while it exists.",
			kind:   token,
		},
		"Names": {
			reason: "The finalizer should be kept, because the external resource may be created again.",
			kind:   deterministic, deletes: 1,
		},
		"NamesTwice": {
			reason: "The finalizer should be kept when the repetition was interrupted, too.",
			kind:   deterministic, twice: true, deletes: 1,
		},
	} {
		cases["DeletedAfterRepetition/"+name] = scenario{
			reason: tc.reason, kind: tc.kind,
			steps: func(t *testing.T, e *environment) {
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = 10 * time.Second })
				e.startAndKill(time.Second)
				if tc.twice {
					e.startAndKill(6 * time.Second)
				}
				p := e.startProvider()
				p.reconcileRepeatedly(2, 10*time.Second)
				e.delete("b")
				p.reconcileRepeatedly(3, 10*time.Second)
				message := e.get("b").GetCondition(asyncstate.TypeOperation).Message
				p.reconcileRepeatedly(2, 10*time.Second)
				if now := e.get("b").GetCondition(asyncstate.TypeOperation).Message; now != message {
					t.Errorf("\n%s\nthe message changes: %q, then %q", tc.reason, message, now)
				}
				if n := e.cloud.count(asyncstate.Delete); n != tc.deletes || e.objectGone() {
					t.Errorf("\n%s\n%d deletes while the create may arrive: %s", tc.reason, n, describe(e.get("b")))
				}
				p.reconcileRepeatedly(6, time.Minute)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		}
	}
	resumeFailed := readyAfterCreates(3, "id-0001")
	for name, tc := range map[string]struct {
		reason    string
		resumeErr error
		steps     func(t *testing.T, e *environment, p *process)
		want      finalState
	}{
		"Deleted": {
			reason: "The external resource should be kept while the first create may arrive, although the repeated create was resumed.",
			steps: func(t *testing.T, e *environment, p *process) {
				p.reconcileRepeatedly(1, time.Second)
				e.delete("b")
				p.reconcileRepeatedly(5, 10*time.Second)
				expectEqual(t, "", "deletes", 0, e.cloud.count(asyncstate.Delete))
				p.reconcileRepeatedly(6, time.Minute)
			},
			want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
		},
		"ResumeFails": {
			reason:    "The same attempt should be repeated after its resumption failed, because the first create may have succeeded.",
			resumeErr: errQuota,
			steps:     func(_ *testing.T, _ *environment, p *process) { p.reconcileRepeatedly(6, time.Minute) },
			want:      resumeFailed,
		},
	} {
		cases["RepeatedAndResumed/"+name] = scenario{
			reason: tc.reason, kind: token,
			steps: func(t *testing.T, e *environment) {
				e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					inner, _ := p.client(mg).(*cloudClient)
					return &unansweredClient{cloudClient: inner, resumeErr: tc.resumeErr}, nil
				}
				p := e.repeatCreate()
				tc.steps(t, e, p)
			},
			want: tc.want,
		}
	}

	runScenarios(t, cases)
}

// The error of a poll should not end an operation that the external system carries out.
func TestInterrupted_PollFails(t *testing.T) {
	cases := map[string]scenario{}
	const late = 100 * time.Hour
	for name, tc := range map[string]struct {
		pollErr  error
		finds    bool
		duration time.Duration // of pollErr
		rest     time.Duration // of the provider after its crash
	}{
		"NotReached":      {pollErr: &net.OpError{Op: "dial", Err: errQuota}, duration: 10 * time.Minute},
		"Unauthorized":    {pollErr: kerrors.NewUnauthorized("expired"), duration: 10 * time.Minute},
		"AWSToken":        {pollErr: &loginError{"ExpiredTokenException"}, duration: 10 * time.Minute},
		"Throttled":       {pollErr: ratelimit.Throttled(errQuota, time.Minute), duration: 10 * time.Minute},
		"NotListed":       {pollErr: errNotFound, duration: 10 * time.Minute},
		"ForbiddenFinder": {pollErr: errForbidden, finds: true, duration: late},
		"ExpiredFinder":   {pollErr: errNotFound, finds: true, duration: late},
		"FailedFinder":    {pollErr: status.Error(codes.Internal, "it failed"), finds: true, duration: late},
		"Rested":          {pollErr: errForbidden, rest: 2 * time.Hour, duration: 127 * time.Minute},
	} {
		for _, crashes := range []bool{true, false} {
			cases[fmt.Sprintf("PollFails/%s/Crash=%t", name, crashes)] = scenario{
				reason: "The error of a poll should not end an operation that the external system carries out.",
				kind:   resumer,
				steps: func(_ *testing.T, e *environment) {
					end := time.Now().Add(tc.duration)
					e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
						inner, _ := p.client(mg).(resumingClient)
						c := &pollingClient{cloudClient: inner.cloudClient, pollErr: func() error {
							if time.Now().Before(end) {
								return tc.pollErr
							}
							return nil
						}, pollsInCreate: !crashes}
						if tc.finds {
							return pollingFinder{c, findingClient(inner).Find}, nil
						}
						return c, nil
					}
					var p *process
					if crashes {
						e.startAndKill(6 * time.Minute)
						advanceClock(tc.rest)
						p = e.startProvider()
					} else {
						p = e.startProvider()
					}
					p.reconcileRepeatedly(40, 10*time.Minute)
				},
				want: readyAfterCreates(1, "id-0001"),
			}
		}
	}
	runScenarios(t, cases)
}

// The handle of a create should be kept after an error that says nothing about the operation itself.
func TestKeepsHandle(t *testing.T) {
	token400 := &url.Error{Op: "Get", URL: "https://cloud", Err: kerrors.NewBadRequest("invalid_grant")}
	undialed := "cannot poll: dial tcp 192.0.2.1:443: connect: connection refused"
	expired := errors.New("https response error StatusCode: 400, api error ExpiredToken: expired")
	azure := func(code int, text string) error {
		return &azureLoginError{&http.Response{StatusCode: code}, text}
	}
	refused := azure(http.StatusBadRequest, "ClientSecretCredential authentication failed. AADSTS700024")
	unread := errors.New("WorkloadIdentityCredential: open /t: no such file")
	oauth2 := azure(http.StatusBadRequest, `oauth2: "invalid_grant"`)
	grpcText := errors.New("rpc error: code = Unauthenticated desc = no token")
	throttled := errors.New("api error ThrottlingException: Rate exceeded")
	webIdentity := fmt.Errorf("get identity: get credentials: %w", &loginError{"PackedPolicyTooLarge"})
	noRole := fmt.Errorf("get credentials: no EC2 IMDS role found: %w", azure(http.StatusNotFound, "StatusCode: 404"))
	noToken := errors.New("failed to retrieve jwt from provide source, unable to read file at /t: open /t: no such file")
	for name, err := range map[string]error{
		"NotReached":      &net.OpError{Op: "dial", Err: errQuota},
		"Unauthorized":    kerrors.NewUnauthorized("expired"),
		"Token":           token400,
		"AWSToken":        &loginError{"ExpiredTokenException"},
		"AWSWebIdentity":  &loginError{"InvalidIdentityToken"},
		"AWSCredentials":  webIdentity,
		"AWSNoToken":      noToken,
		"AWSNotListed":    &loginError{"InvalidInstanceID.NotFound"},
		"AWSFirstSDK":     wrappedLoginError{firstLoginError{}},
		"AWSText":         expired,
		"Azure":           azure(http.StatusUnauthorized, "refused"),
		"AzureBadRequest": refused,
		"AzureNoAnswer":   unread,
		"OAuth2":          oauth2,
		"GRPCText":        grpcText,
		"StatusText":      errors.New("unexpected status code 401"),
		"ThrottledText":   throttled,
		"QuotedDial":      errors.New(undialed),
		"Throttled":       ratelimit.Throttled(errQuota, time.Minute),
		"NotListed":       errNotFound,
		"RestedLogin":     noRole,
	} {
		if !asyncstate.KeepsHandle(err) {
			t.Errorf("%s: the create is not resumed after %v", name, err)
		}
	}
	if err := errors.New("the disk is too large"); asyncstate.KeepsHandle(err) {
		t.Errorf("the create is resumed after %v", err)
	}
}

// An operation without a result should be settled by a person, or when it is forgotten.
func TestInterrupted_NoResult(t *testing.T) {
	createdAgain := readyAfterCreates(2, "id-0002")
	createdAgain.Created = 2
	cases := map[string]scenario{}
	for name, tc := range map[string]struct {
		reason  string
		deletes bool
		exists  bool
		want    finalState
	}{
		"Exists": {
			reason: "A person should be able to name the external resource of an operation without a result.",
			exists: true, want: readyAfterCreates(1, "id-0001"),
		},
		"Absent": {
			reason: "A person should be able to say that an operation without a result created nothing.",
			want:   createdAgain,
		},
		"DeletedExists": {
			reason:  "A person should be able to name the external resource that is to be deleted.",
			deletes: true, exists: true, want: finalState{Creates: 1, Deletes: 1, Created: 1, Gone: true},
		},
		"DeletedAbsent": {
			reason:  "A person should be able to say that there is no external resource to delete.",
			deletes: true, want: finalState{Creates: 1, Created: 1, Gone: true},
		},
	} {
		cases["NoResult/"+name] = scenario{
			reason: tc.reason, kind: resumer,
			steps: func(t *testing.T, e *environment) {
				e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					inner, _ := p.client(mg).(resumingClient)
					return &pollingClient{cloudClient: inner.cloudClient, pollErr: func() error {
						return status.Error(codes.Internal, "it failed")
					}}, nil
				}
				p := e.crashAndRestart(6 * time.Minute)
				p.reconcileRepeatedly(10, 10*time.Minute)
				reason, typ := string(asyncstate.ReasonOutcomeUnknown), asyncstate.TypeOperation
				if tc.deletes {
					e.delete("b")
					reason, typ = string(reconciler.ReasonCreateResultUnknown), reconciler.TypeDeleting
				}
				p.reconcileRepeatedly(2, time.Second)
				expectContains(
					t, tc.reason, condition(e.get("b"), typ), reason, "it failed", "Look for the external resource",
				)
				p.reconcileRepeatedly(10, 10*time.Minute)
				expectEqual(t, tc.reason, "gone", false, e.objectGone())
				if !tc.exists {
					e.cloud.clear()
				}
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.RemoveAnnotations(
						b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending,
					)
					if tc.exists {
						meta.SetExternalName(b, "id-0001")
					}
				})
				p.reconcileRepeatedly(4, 11*time.Minute)
			},
			want: tc.want,
		}
	}

	for name, tc := range map[string]struct {
		reason  string
		deletes bool
		want    finalState
	}{
		"Repeated": {
			reason: "A create should be repeated when its operation is forgotten and nothing was found for its time.",
			want:   createdAgain,
		},
		"Deleted": {
			reason:  "A managed resource should be deleted when its operation is forgotten and nothing was found for its time.",
			deletes: true, want: finalState{Creates: 1, Created: 1, Gone: true},
		},
	} {
		cases["Forgotten/"+name] = scenario{
			reason: tc.reason, kind: resumer,
			steps: func(t *testing.T, e *environment) {
				e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					inner, _ := p.client(mg).(resumingClient)
					return pollingFinder{&pollingClient{
						cloudClient: inner.cloudClient, pollErr: func() error { return errNotFound },
					}, findingClient(inner).Find}, nil
				}
				p := e.crashAndRestart(6 * time.Minute)
				e.cloud.clear()
				if tc.deletes {
					e.delete("b")
				}
				p.reconcileRepeatedly(11, 10*time.Minute)
				expectEqual(t, tc.reason, "creates", 1, e.cloud.calls[asyncstate.Create])
				expectEqual(t, tc.reason, "gone", false, e.objectGone())
				p.reconcileRepeatedly(30, 10*time.Minute)
			},
			want: tc.want,
		}
	}

	runScenarios(t, cases)
}

// A create that was accepted should not be repeated while it may be in progress.
func TestInterrupted_Accepted(t *testing.T) {
	cases := map[string]scenario{}
	cases["AcceptedWithoutResumer"] = scenario{
		reason: "A create that was accepted should not be repeated while it may be in progress, although no poll can be made again.",
		kind:   finder,
		steps: func(_ *testing.T, e *environment) {
			e.cloud.requestDuration = 0
			e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				inner, _ := p.client(mg).(findingClient)
				return struct {
					*acceptedClient
					asyncstate.FinderFn
				}{&acceptedClient{inner.cloudClient, func(ctx context.Context) error {
					return stderrors.Join(asyncstate.SetHandle(ctx, "op"), errNotFound)
				}}, inner.Find}, nil
			}
			p := e.startProvider()
			p.reconcileRepeatedly(10, time.Minute)
			e.cloud.add("late", "")
			p.reconcileRepeatedly(3, time.Minute)
		},
		want: readyAfterCreates(1, "late"),
	}
	forgotten := cases["AcceptedWithoutResumer"]
	forgotten.reason = "An assurance that the old process is dead should not shorten the time of an accepted create."
	forgotten.options = []asyncstate.TrackerOption{asyncstate.WithAbsenceAfter(time.Minute)}
	cases["AcceptedWithAbsenceAfter"] = forgotten
	cases["AcceptedRepetition"] = scenario{
		reason: "The operation of a repeated create should be waited for, although it is not listed yet, before the managed resource is deleted.",
		kind:   deterministic,
		steps: func(t *testing.T, e *environment) {
			e.cloud.requestDuration = 0
			e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				inner, _ := p.client(mg).(*cloudClient)
				return struct {
					*acceptedClient
					resumerFn
				}{&acceptedClient{inner, func(ctx context.Context) error {
					if e.cloud.calls[asyncstate.Create] == 1 {
						return asyncstate.ErrOutcomeUnknown
					}
					return stderrors.Join(asyncstate.SetHandle(ctx, "op"), errNotFound)
				}}, func() error {
					if len(e.cloud.names("uid-1")) == 0 {
						return errNotFound
					}
					return nil
				}}, nil
			}
			p := e.startProvider()
			p.reconcileRepeatedly(1, 70*time.Minute)
			p.reconcileRepeatedly(1, 10*time.Second)
			e.delete("b")
			p.reconcileRepeatedly(6, time.Minute)
			expectEqual(t, "", "gone", false, e.objectGone())
			e.cloud.add("of-uid-1", "")
			p.reconcileRepeatedly(12, 10*time.Minute)
		},
		want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
	}

	runScenarios(t, cases)
}

// A change of the managed resource during a call of the external client should be noticed.
func TestInterrupted_ChangedWhileObserved(t *testing.T) {
	cases := map[string]scenario{}
	for name, tc := range map[string]struct {
		reason string
		change func(b *v1alpha1.Bucket) // nil for a deletion
		want   finalState
	}{
		"Deleted": {
			reason: "An interrupted create should not be repeated for a managed resource that is deleted while it is observed.",
			want:   finalState{Creates: 1, Gone: true},
		},
		"Paused": {
			reason: "An interrupted create should not be repeated for a managed resource that is paused while it is observed.",
			change: func(b *v1alpha1.Bucket) {
				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
			},
			want: finalState{
				Creates: 1, Synced: xpv2.ReasonReconcilePaused, Ready: xpv2.ReasonCreating, Recorded: true,
				Incomplete: true, Operation: asyncstate.ReasonInterrupted,
			},
		},
		"CreateForbidden": {
			reason: "An interrupted create should not be repeated when the management policies change while the external resource is observed.",
			change: func(b *v1alpha1.Bucket) {
				b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve})
			},
			want: finalState{
				Creates: 1, Synced: xpv2.ReasonReconcileError, Ready: xpv2.ReasonCreating, Recorded: true,
				Operation: asyncstate.ReasonFailed,
			},
		},
	} {
		cases["ChangedWhileObserved/"+name] = scenario{
			reason: tc.reason,
			kind:   deterministic,
			steps: func(_ *testing.T, e *environment) {
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = 10 * time.Second })
				e.startAndKill(time.Second)
				changed := false
				e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					return changingClient{p.client(mg), func(mg resource.Managed) {
						if !changed {
							e.changeDuringCall(mg, tc.change)
						}
						changed = true
					}}, nil
				}
				e.startProvider().reconcileRepeatedly(20, 10*time.Minute)
			},
			want: tc.want,
		}
	}

	cases["DeletedAfterRepetition/Backoff"] = scenario{
		reason: "A deletion that waits should have one message, and observe the external resource with backoff.",
		kind:   deterministic, autoReconciled: true,
		steps: func(t *testing.T, e *environment) {
			e.cloud.set(func(c *fakeCloud) { c.requestDuration = 50 * time.Second })
			e.startAndKill(time.Second)
			p := e.startProvider()
			advanceClock(52 * time.Second)
			e.cloud.set(func(c *fakeCloud) { c.requestDuration = 0 })
			e.delete("b")
			advanceClock(5 * time.Second)
			message, reconciles := e.get("b").GetCondition(asyncstate.TypeOperation).Message, p.reconciles.Load()
			advanceClock(30 * time.Second)
			expectEqual(t, "", "message", message, e.get("b").GetCondition(asyncstate.TypeOperation).Message)
			if n := p.reconciles.Load() - reconciles; n > 5 {
				t.Errorf("%d reconciles in 30 seconds", n)
			}
			advanceClock(5 * time.Minute)
		},
		want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
	}
	cases["DeletedAfterRepetition/SlowAnswer"] = scenario{
		reason: "An absence should not count that was asked for while the other create may arrive, and answered later.",
		kind:   deterministic,
		steps: func(t *testing.T, e *environment) {
			p := e.repeatCreate()
			e.delete("b")
			p.reconcileRepeatedly(6, 10*time.Second)
			e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return slowClient{p.client(mg)}, nil
			}
			p.reconcileRepeatedly(1, 0) // It takes from 81 to 101 seconds, and the wait ends at 91.
			expectEqual(t, "", "gone", false, e.objectGone())
			p.reconcileRepeatedly(2, 10*time.Second)
		},
		want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
	}
	cases["DeletedAfterRepetition/ClockWasAhead"] = scenario{
		reason: "A deletion should not wait for a time that was stored by a clock that is hours ahead.",
		kind:   deterministic,
		steps: func(_ *testing.T, e *environment) {
			p := e.repeatCreate()
			e.edit("b", func(b *v1alpha1.Bucket) {
				meta.AddAnnotations(b, map[string]string{
					creation.AnnotationKeyOpenUntil: time.Now().Add(3 * time.Hour).Format(time.RFC3339),
				})
			})
			e.delete("b")
			p.reconcileRepeatedly(5, time.Minute)
		},
		want: finalState{Creates: 2, Deletes: 1, Created: 1, Gone: true},
	}
	runScenarios(t, cases)
}

// withTokens returns the options of a provider whose external system takes tokens.
func withTokens() []asyncstate.TrackerOption {
	return []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}
}

// repeatCreate kills a process in a create of ten seconds, and has the next process repeat it.
func (e *environment) repeatCreate() *process {
	e.cloud.set(func(c *fakeCloud) { c.requestDuration = 10 * time.Second })
	p := e.crashAndRestart(time.Second)
	p.reconcileRepeatedly(2, 10*time.Second)
	return p
}

// changeDuringCall changes b, or deletes it if change is nil, and has the client of mg see that, as
// one does that writes it.
func (e *environment) changeDuringCall(mg resource.Managed, change func(b *v1alpha1.Bucket)) {
	b, ok := mg.(*v1alpha1.Bucket)
	switch {
	case !ok || meta.WasDeleted(b):
		return
	case change == nil:
		e.delete("b")
	default:
		e.edit("b", change)
	}
	e.get("b").DeepCopyInto(b)
}

// A changingClient calls before at the start of each Observe.
type changingClient struct {
	upstream.ExternalClient

	before func(mg resource.Managed)
}

func (c changingClient) Observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	c.before(mg)
	return c.ExternalClient.Observe(ctx, mg)
}

// A slowClient answers 20 seconds after it has looked.
type slowClient struct{ upstream.ExternalClient }

func (c slowClient) Observe(ctx context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
	o, err := c.ExternalClient.Observe(ctx, mg)
	time.Sleep(20 * time.Second)
	return o, err
}

// An unansweredClient gets a handle for its first create, and no other answer.
type unansweredClient struct {
	*cloudClient

	resumeErr error
}

func (c *unansweredClient) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	if c.cloud.count(asyncstate.Create) >= 2 {
		return c.cloudClient.Create(ctx, mg)
	}
	id := ""
	err := c.change(ctx, asyncstate.Create, func() (err error) {
		id, err = c.commit(ctx, mg)
		return err
	})
	if err == nil {
		err = stderrors.Join(asyncstate.SetHandle(ctx, "op-"+id), asyncstate.ErrOutcomeUnknown)
	}
	return upstream.ExternalCreation{}, err
}

func (c *unansweredClient) Resume(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) error {
	if c.resumeErr != nil {
		return c.resumeErr
	}
	return resumingClient{c.cloudClient}.Resume(ctx, mg, a)
}

// Errors of requests that poll an operation.
var (
	errNotFound  = kerrors.NewNotFound(schema.GroupResource{Resource: "operations"}, "op")
	errForbidden = kerrors.NewForbidden(schema.GroupResource{Resource: "operations"}, "op", errQuota)
)

// A loginError is AWS's for credentials that have expired.
type loginError struct{ code string }

func (*loginError) Error() string       { return "the security token cannot be used" }
func (*loginError) HTTPStatusCode() int { return http.StatusBadRequest }
func (e *loginError) ErrorCode() string { return e.code }

// A firstLoginError is an error of AWS's first SDK, which has no Unwrap.
type firstLoginError struct{}

func (firstLoginError) Error() string   { return "cannot log in" }
func (firstLoginError) StatusCode() int { return http.StatusBadRequest }
func (firstLoginError) Code() string    { return "InvalidClientTokenId" }

type wrappedLoginError struct{ error }

func (e wrappedLoginError) OrigErr() error { return e.error }

// An azureLoginError is an error of Azure's credentials, which has no Unwrap either.
type azureLoginError struct {
	RawResponse *http.Response
	text        string
}

func (e *azureLoginError) Error() string { return e.text }

// A pollingClient polls the operation that makes the external resource.
type pollingClient struct {
	*cloudClient

	pollErr       func() error
	pollsInCreate bool
}

func (c *pollingClient) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	if !c.pollsInCreate || c.cloud.count(asyncstate.Create) > 0 {
		return c.cloudClient.Create(ctx, mg)
	}
	err := c.change(ctx, asyncstate.Create, func() error {
		_, err := c.commit(ctx, mg)
		return stderrors.Join(err, c.pollErr())
	})
	return upstream.ExternalCreation{}, err
}

func (c *pollingClient) Resume(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) error {
	if err := c.pollErr(); err != nil {
		return err
	}
	return resumingClient{c.cloudClient}.Resume(ctx, mg, a)
}

// A pollingFinder is a pollingClient that can be asked for the external resource, too.
type pollingFinder struct {
	*pollingClient
	asyncstate.FinderFn
}

// An acceptedClient calls create in place of a create.
type acceptedClient struct {
	*cloudClient

	create func(ctx context.Context) error
}

func (c *acceptedClient) Create(ctx context.Context, _ resource.Managed) (upstream.ExternalCreation, error) {
	return upstream.ExternalCreation{}, c.change(ctx, asyncstate.Create, func() error { return c.create(ctx) })
}

type resumerFn func() error

func (fn resumerFn) Resume(context.Context, resource.Managed, asyncstate.Attempt) error { return fn() }

// skew has the record of b, as it is stored, come from a clock that is ahead by d.
func skew(t *testing.T, e *environment, d time.Duration) {
	t.Helper()
	e.edit("b", func(b *v1alpha1.Bucket) {
		text := regexp.MustCompile(`"(started|deadline)":"[^"]*"`).ReplaceAllStringFunc(record(b),
			func(field string) string {
				key, value, _ := strings.Cut(field, ":")
				at, err := time.Parse(`"`+time.RFC3339+`"`, value)
				if err != nil {
					t.Fatal(err)
				}
				return key + at.Add(d).Format(`:"`+time.RFC3339+`"`)
			})
		meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: text})
	})
}

// lookUpWith has clients be connected that find what answer says until they are ready.
func (e *environment) lookUpWith(answer func(mg resource.Managed) (f asyncstate.Finding, err error, ready bool)) {
	e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
		inner, _ := p.client(mg).(findingClient)
		return struct {
			*cloudClient
			asyncstate.FinderFn
		}{
			inner.cloudClient,
			func(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
				if f, err, ready := answer(mg); !ready {
					return f, err
				}
				return inner.Find(ctx, mg, a)
			},
		}, nil
	}
}

// A resumed operation that is not started, because its object could not be read again, keeps its handle.
func TestInterrupted_LateResume(t *testing.T) {
	runScenario(t, "Unread", scenario{
		reason: "A create that was accepted should not be repeated after an error that says nothing of it.",
		kind:   resumer,
		steps: func(t *testing.T, e *environment) {
			p := e.crashAndRestart(6 * time.Minute)
			e.startLate(errors.New("etcdserver: leader changed"))
			mustReconcile(t, p, "b")
			advanceClock(time.Minute)
			p.reconcileRepeatedly(10, 10*time.Minute)
		},
		want: readyAfterCreates(1, "id-0001"),
	})
}

// startLate makes the next status write take ten seconds, so that an operation starts late. The next read from the
// API server then fails with err.
func (e *environment) startLate(err error) {
	var hung, failed atomic.Bool
	e.api.Before = func(_ context.Context, r testkit.Request) error {
		switch {
		case r.Verb == testkit.StatusUpdate && !hung.Swap(true):
			time.Sleep(10 * time.Second)
		case hung.Load() && r.Verb == testkit.LiveGet && !failed.Swap(true):
			return err
		}
		return nil
	}
}

package asyncstate_test

import (
	"context"
	stderrors "errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A create that is interrupted, or fails, should lead to one external resource with its name stored, or to none.
func TestInterrupted(t *testing.T) {
	tokens := []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}
	own := []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}
	unknownDeleting, failed := unknown(1), unknown(1)
	unknownDeleting.Ready, unknownDeleting.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
	failed.Operation, failed.Incomplete = asyncstate.ReasonFailed, false
	cases := map[string]life{
		"AnswerToResumptionIsLost": {
			reason: "It is resumed again.",
			kind:   resumer,
			happens: func(t *testing.T, w *world) {
				p := w.crash(6 * time.Minute)

				// Exhaust the retries of the writer.
				for range 3 {
					n := 1
					p.loses(func(verb string, _ client.Object) bool { n--; return n >= 0 && verb == testkit.Patch })
					reconciled(t, p, "b")
				}
				pass(time.Hour)
				reconciled(t, p, "b")
			},
			want: finished(1, "id-0001"),
		},
		"ClockWasAhead": {
			reason: "A create that was begun by a clock that is ahead can be repeated more than once.",
			kind:   token, auto: true,
			happens: func(t *testing.T, w *world) {
				w.dies(3 * time.Minute)
				skew(t, w, 3*time.Hour)
				w.crash(3 * time.Minute)
				pass(30 * time.Minute)
			},
			want: finished(3, "id-0001"),
		},
		"AnnouncedBefore": {
			reason: "A create that is announced again while the last one is incomplete is recorded with its announcement.",
			kind:   deterministic,
			happens: func(t *testing.T, w *world) {
				w.graft = []managed.ReconcilerOption{managed.WithDeterministicExternalName(true)}
				w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now().Add(-time.Minute)) })
				p := w.start()
				p.faults(nil, func(_ string, o client.Object) error {
					if now := meta.GetExternalCreatePending(o); now.Equal(time.Now()) && record(o) == "" {
						t.Errorf("It is announced without a record: %v", o.GetAnnotations())
					}
					return nil
				})
				p.again(2, 11*time.Minute)
			},
			want: finished(1, "of-uid-1"),
		},
		"FinderWithTokensDeleted": {
			reason: "What wasn't made need not be deleted, once it can't be made any more.",
			kind:   finder, options: tokens,
			happens: func(t *testing.T, w *world) {
				p := w.crash(3 * time.Minute)
				w.delete("b")
				p.again(2, 11*time.Minute)
				wants(t, "The create may be in progress.", "gone", false, w.gone())
				pass(time.Hour)
				reconciled(t, p, "b")
			},
			want: ending{Creates: 1, Gone: true},
		},
		"FinderChangesNothing": {
			reason: "Changes of the managed resource by a Finder should not be stored.",
			kind:   finder, auto: true,
			happens: func(_ *testing.T, w *world) {
				w.cloud.takes = 0
				w.cloud.lose = func() error { return errors.New("cannot tag the resource") }
				w.late(func(mg resource.Managed) (asyncstate.Finding, error, bool) {
					meta.SetExternalName(mg, "guess")
					return asyncstate.Finding{}, nil, false
				})
				w.start()
				pass(time.Minute)
			},
			want: ending{
				Creates:   1,
				Made:      1,
				Left:      1,
				Operation: asyncstate.ReasonInterrupted,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcileError,
				Recorded:  true,
			},
		},
	}
	cases["AbsenceIsStored"] = life{
		reason: "The absence of the external resource should be determined once, although the next create has to wait, and the process is replaced.",
		kind:   finder, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
		happens: func(t *testing.T, w *world) {
			p := w.crash(3 * time.Minute)
			w.add("other")
			p.again(1, time.Hour)
			reconciled(t, p, "other")
			p.again(3, time.Minute)
			wants(t, describe(w.get("b")), "how often it was said, operation", []any{1, asyncstate.ReasonQueued}, []any{
				len(w.said.Events("ExternalResourceAbsent")), reason(w.get("b"), asyncstate.TypeOperation),
			})
			p.kill()
			w.start().again(1, time.Second)
		},
		want: ending{
			Creates:    3,
			Operation:  asyncstate.ReasonRunning,
			Ready:      xpv2.ReasonCreating,
			Synced:     xpv2.ReasonReconcileError,
			Recorded:   true,
			Incomplete: true,
		},
	}
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
		cases[name] = life{
			reason: tc.reason, kind: finder, auto: true,
			happens: func(t *testing.T, w *world) {
				w.cloud.deaf = tc.deaf
				p := w.start()
				pass(3 * time.Minute)
				p.cancel()
				pass(17 * time.Second) // As long as a lease lasts.
				next := w.start()
				pass(tc.within)
				wants(t, "", "remembered", 0, asyncstate.Remembered(p.tracker)+asyncstate.Remembered(next.tracker))
			},
			want: finished(tc.creates, "id-0001"),
		}
	}
	for name, deleting := range map[string]bool{"Found": false, "FoundDeleted": true} {
		l := life{
			reason: "The external resource that a Finder found should be observed by a client that was connected with its name. A client that was connected before would create a second one, or leak it.",
			kind:   finder,
			happens: func(t *testing.T, w *world) {
				w.graft = []managed.ReconcilerOption{managed.WithCreationGracePeriod(0)}
				p := w.crash(6 * time.Minute)
				if deleting {
					w.delete("b")
				}
				p.again(3, 11*time.Minute)
				wants(t, "", "events that say that it was found", 1, len(w.said.Events("FoundExternalResource")))
			},
			want: finished(1, "id-0001"),
		}
		if deleting {
			l.want = ending{Creates: 1, Deletes: 1, Made: 1, Gone: true}
		}
		cases[name] = l
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
		cases["Absence/"+name] = life{
			reason: tc.reason, kind: finder, auto: true, options: []asyncstate.TrackerOption{tc.option},
			happens: func(t *testing.T, w *world) {
				w.dies(3 * time.Minute)
				skew(t, w, tc.skew)
				pass(5 * time.Minute)
				w.start()
				pass(tc.until + 30*time.Second - time.Second)
				wants(
					t, tc.reason, "creates while the other process may be running", 1,
					w.cloud.count(asyncstate.Create),
				)
				pass(2*time.Second + w.cloud.takes)
			},
			want: finished(2, "id-0001"),
		}
	}
	for name, err := range map[string]error{"Absent": nil, "Fails": errQuota, "Unknown": nil, "NameIsNoText": nil} {
		cases["AppearsLater/"+name] = life{
			reason: "What appears after the first look-up is found soon.",
			kind:   finder, auto: true,
			happens: func(t *testing.T, w *world) {
				w.dies(6 * time.Minute)
				ready := time.Now().Add(3 * time.Second)
				answer := map[string]asyncstate.Finding{
					"Absent":       asyncstate.Absent(),
					"Fails":        asyncstate.Found("wrong"),
					"NameIsNoText": asyncstate.Found("a\nb"),
				}[name]
				w.late(func(resource.Managed) (asyncstate.Finding, error, bool) {
					return answer, err, !time.Now().Before(ready)
				})
				p := w.start()
				pass(8 * time.Second)
				if n := p.reconciles.Load(); n > 20 {
					t.Errorf("%d reconciles", n)
				}
			},
			want: finished(1, "id-0001"),
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
		cases["Stopped/"+string(k)] = life{
			reason: "An operation should keep its record if the tracker is stopped between the write of the record and the begin of the operation.",
			kind:   k,
			happens: func(t *testing.T, w *world) {
				p := w.crash(after)
				p.loses(func(verb string, _ client.Object) bool {
					if verb == testkit.Patch {
						p.cancel()
						synctest.Wait()
					}
					return false
				})
				reconciled(t, p, "b")
				wants(
					t, describe(w.get("b")), "the record of an interrupted create is gone", false,
					record(w.get("b")) == "",
				)
				w.start().again(2, time.Hour)
			},
			want: finished(creates, as),
		}
	}
	for _, k := range []clientKind{finder, resumer, token, deterministic, namedMid} {
		l := life{
			reason: "Who resumes may have a clock that is behind.",
			kind:   k,
			happens: func(_ *testing.T, w *world) {
				p := w.crash(6 * time.Minute)
				w.edit("b", func(b *v1alpha1.Bucket) {
					pending := func() string {
						return `"pending":"` + b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
					}
					had := pending()
					meta.SetExternalCreatePending(b, time.Now().Add(2*time.Hour))
					meta.AddAnnotations(b, map[string]string{
						asyncstate.AnnotationKeyOperation: strings.Replace(record(b), had, pending(), 1),
					})
				})
				p.away()
				p.again(3, 15*time.Minute)
			},
			want: finished(1, "id-0001"),
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
	adopted := func(updates int) ending {
		return ending{
			Updates: updates,
			Made:    1,
			Left:    1,
			Name:    "theirs",
			Ready:   xpv2.ReasonAvailable,
			Synced:  xpv2.ReasonReconcileSuccess,
		}
	}
	for name, tc := range map[string]struct {
		reason string
		then   func(w *world)
		want   ending
	}{
		"TurnsOutToExist": {
			"A user says which external resource it is, and there is nothing left to do.", func(*world) {},
			adopted(0),
		},
		"Update": {"It is not as it should be.", func(w *world) { w.ask(asyncstate.Update) }, adopted(1)},
		"Delete": {"It is to be deleted.", func(w *world) {
			w.delete("b")
		}, ending{Deletes: 1, Made: 1, Gone: true}},
	} {
		cases["Announced/"+name] = life{
			reason: tc.reason,
			happens: func(t *testing.T, w *world) {
				p := w.start()

				// The create is announced, and the answer to that is lost.
				p.loses(func(verb string, o client.Object) bool { return verb == testkit.Update && record(o) != "" })
				reconciled(t, p, "b")
				if !meta.ExternalCreateIncomplete(w.get("b")) || w.cloud.count(asyncstate.Create) != 0 {
					t.Fatal(describe(w.get("b")))
				}
				w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") })
				w.cloud.add("theirs", "")
				tc.then(w)
				p.away()
				p.again(3, 15*time.Minute)
			},
			want: tc.want,
		}
	}

	cases["AnnouncedInTheSecondInWhichAnotherEnded"] = life{
		reason: "Annotations count seconds. The record is stored with each announcement.",
		happens: func(t *testing.T, w *world) {
			p := w.start()
			w.edit("b", func(b *v1alpha1.Bucket) {
				b.SetFinalizers([]string{managed.FinalizerName})
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			})
			p.loses(func(verb string, _ client.Object) bool { return verb == testkit.Update })
			reconciled(t, p, "b")
			p.loses(func(string, client.Object) bool { return false })
			p.again(3, 15*time.Minute)
		},
		want: finished(1, "id-0001"),
	}

	// That the repetition of a create was refused says nothing of the create itself, which
	// another process may still have in progress.
	for k, options := range map[clientKind][]asyncstate.TrackerOption{deterministic: nil, finder: tokens} {
		cases["RepetitionRefusedAndDeleted/"+string(k)] = life{
			reason: "The external resource that the create of the first process makes two minutes later should be deleted.",
			kind:   k, options: options,
			happens: func(t *testing.T, w *world) {
				reconciled(t, w.start(), "b")
				pass(3 * time.Minute)
				p := w.start()
				p.refused()
				w.delete("b")
				p.again(10, 11*time.Minute)
			},
			want: ending{Creates: 2, Deletes: 1, Made: 1, Gone: true},
		}
	}
	for _, k := range []clientKind{token, deterministic} {
		cases["TakenOver/"+string(k)] = life{
			reason: "A create that another process repeats should be given up: after a deletion by that process it would make a second external resource.",
			kind:   k,
			happens: func(t *testing.T, w *world) {
				first := w.start()
				reconciled(t, first, "b")
				pass(time.Second)
				w.cloud.set(func(c *fakeCloud) { c.takes = time.Minute })
				second := w.start()
				reconciled(t, second, "b")
				reconciled(t, first, "b")
				pass(2 * time.Minute)
				w.delete("b")
				second.again(10, time.Minute)
			},
			want: ending{Creates: 2, Deletes: 1, Made: 1, Gone: true},
		}
		cases["RepeatedElsewhere/"+string(k)] = life{
			reason: "A create that another process repeats may make a second external resource once the first is deleted: external systems forget tokens and names when they delete.",
			kind:   k, auto: true,
			happens: func(t *testing.T, w *world) {
				for range 2 {
					w.dies(3 * time.Minute)
				}

				// The process that was replaced stores its external name after all.
				w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "of-uid-1") })
				w.cloud.add("of-uid-1", "")
				w.delete("b")
				w.start()
				pass(50 * time.Minute)
				wants(t, describe(w.get("b")), "deletes while the create may be repeated, Deleting", []any{
					0, reconciler.ReasonCreateResultUnknown,
				}, []any{w.cloud.count(asyncstate.Delete), reason(w.get("b"), reconciler.TypeDeleting)})
				pass(30 * time.Minute)
			},
			want: ending{Creates: 2, Deletes: 1, Made: 1, Gone: true},
		}
	}

	// A create that may not be made any more is not repeated either.
	for name, tc := range map[string]struct {
		reason   string
		kind     clientKind
		deleting bool
		want     ending
	}{
		"Token": {reason: "Only repeating it would tell its name: a person has to.", kind: token, want: unknown(1)},
		"TokenDeleted": {
			reason:   "Nor is anything made only to be deleted.",
			kind:     token,
			deleting: true,
			want:     unknownDeleting,
		},
		"Deterministic": {
			reason: "It is absent once it can't be made any more.",
			kind:   deterministic,
			want:   failed,
		},
		"DeterministicDeleted": {
			reason:   "There is nothing to delete.",
			kind:     deterministic,
			deleting: true,
			want:     ending{Creates: 1, Gone: true},
		},
	} {
		cases["NotAllowed/"+name] = life{
			reason: tc.reason, kind: tc.kind,
			happens: func(_ *testing.T, w *world) {
				p := w.crash(3 * time.Minute)
				w.edit("b", func(b *v1alpha1.Bucket) {
					b.SetManagementPolicies(xpv2.ManagementPolicies{
						xpv2.ManagementActionObserve, xpv2.ManagementActionDelete,
					})
				})
				if tc.deleting {
					w.delete("b")
				}
				p.again(6, 15*time.Minute)
			},
			want: tc.want,
		}
	}

	cases["NamedBeforeItIsMade"] = life{
		reason: "A create that has stored a name before it made anything may still be in progress.",
		happens: func(t *testing.T, w *world) {
			creates := 0
			w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
				c := actor(false, func(ctx context.Context, _ resource.Managed) error {
					creates++
					return stderrors.Join(asyncstate.SetExternalName(ctx, "chosen"), sleep(ctx, 10*time.Minute))
				})
				c.ObserveFn = func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
					return upstream.ExternalObservation{ResourceExists: creates > 1, ResourceUpToDate: true}, nil
				}
				return c, nil
			}
			p := w.crash(time.Minute)
			for _, want := range []int{1, 2} {
				p.again(1, 2*time.Hour)
				wants(t, describe(w.get("b")), "creates", want, creates)
			}
		},
		want: ending{
			Name:      "chosen",
			Operation: asyncstate.ReasonRunning,
			Ready:     xpv2.ReasonCreating,
			Synced:    xpv2.ReasonReconcileError,
		},
	}
	for name, tc := range map[string]struct {
		end    func(p *process)
		synced xpv2.ConditionReason
	}{
		"Killed":               {(*process).kill, xpv2.ReasonReconcileSuccess},
		"StoppedInItsOwnWords": {(*process).stop, xpv2.ReasonReconcileError},
	} {
		cases["UpdateIsResumed/"+name] = life{
			reason: "An operation with a handle should be resumed, however the process ended.",
			happens: func(t *testing.T, w *world) {
				updates, resumed := 0, 0
				w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					return struct {
						upstream.ExternalClient
						resumerFn
					}{actor(true, func(ctx context.Context, _ resource.Managed) error {
						updates++
						err := stderrors.Join(asyncstate.SetHandle(ctx, "h"), sleep(ctx, 50*time.Minute))
						if name == "StoppedInItsOwnWords" {
							err = errQuota
						}
						return err
					}), func() error { resumed++; return nil }}, nil
				}
				p := w.start()
				p.again(1, time.Minute)
				tc.end(p)
				p = w.start()
				pass(time.Minute) // A backoff.
				p.again(1, time.Second)
				wants(t, "", "updates, resumed", []int{1, 1}, []int{updates, resumed})
			},
			want: ending{Operation: asyncstate.ReasonRunning, Synced: tc.synced},
		}
	}

	// A create may fail after it made something, with an error that says nothing of it.
	for name, tc := range map[string]struct {
		reason                   string
		options                  []asyncstate.TrackerOption
		plain, refused, deleting bool
		want                     ending
	}{
		"Wanted": {reason: "A Finder is asked before a create that failed is repeated.", want: finished(1, "id-0001")},
		"WithTokens": {
			reason:  "Also if there are tokens, since the next attempt has another.",
			options: tokens,
			want:    finished(1, "id-0001"),
		},
		"Deleted": {
			reason:   "It is asked before an object goes whose create failed.",
			deleting: true,
			want:     ending{Creates: 1, Deletes: 1, Made: 1, Gone: true},
		},
		"Inline": {
			reason:  "It is asked, too, if a client that may have goroutines of its own began none.",
			options: own,
			want:    finished(1, "id-0001"),
		},
		"InlineUnderUpstream": {
			reason:  "As above, without Graft's reconciler.",
			plain:   true,
			options: own,
			want:    finished(1, "id-0001"),
		},
		"Refused": {
			reason:  "A refused create made nothing, and should be repeated after the backoff.",
			refused: true,
			want:    finished(2, "id-0001"),
		},
		"RefusedWithTokens": {
			reason:  "An attempt that failed is not repeated with its token.",
			options: tokens,
			refused: true,
			want:    finished(2, "id-0001"),
		},
		"RefusedAndDeleted": {
			reason:   "There is nothing to delete.",
			refused:  true,
			deleting: true,
			want:     ending{Creates: 1, Gone: true},
		},
	} {
		cases["Failed/"+name] = life{
			reason: tc.reason, kind: finder, options: tc.options, plain: tc.plain, auto: true,
			happens: func(_ *testing.T, w *world) {
				w.cloud.takes = 0
				once := func() error {
					w.cloud.refuse, w.cloud.lose = nil, nil
					return errors.New("cannot tag the resource")
				}
				if tc.refused {
					w.cloud.refuse = func(asyncstate.Type) error { return once() }
				} else {
					w.cloud.lose = once
				}
				p := w.start()
				pass(0)
				if tc.deleting {
					w.delete("b")
				}

				// Sooner than an interrupted create would be believed to be over.
				pass(time.Minute)
				p.again(1, 0)
			},
			want: tc.want,
		}
	}

	// The external resource of an interrupted create has to be found before it can be deleted, however
	// long that has to wait.
	queue := func(p *process) { reconciled(p.w.t, p, "other") }
	for name, tc := range map[string]struct {
		reason  string
		kind    clientKind
		plain   bool
		prime   func(p *process)
		creates int // of both
	}{
		"Backoff": {
			reason:  "A repetition that failed is backed off from.",
			kind:    token,
			prime:   (*process).refused,
			creates: 3,
		},
		"BackoffUnderUpstream": {
			reason:  "As above, without Graft's reconciler.",
			kind:    token,
			plain:   true,
			prime:   (*process).refused,
			creates: 3,
		},
		"Queue": {
			reason:  "The repetition waits for other objects.",
			kind:    token,
			prime:   queue,
			creates: 3,
		},
		"QueueOfResumption": {
			reason:  "As above, for a client that resumes.",
			kind:    resumer,
			prime:   queue,
			creates: 2,
		},
	} {
		cases["DeleteWaits/"+name] = life{
			reason: tc.reason, kind: tc.kind, plain: tc.plain,
			options: []asyncstate.TrackerOption{
				asyncstate.WithMaxOperations(1), asyncstate.WithBackoff(time.Minute, time.Minute),
			},
			happens: func(t *testing.T, w *world) {
				w.add("other")
				p := w.crash(6 * time.Minute)
				tc.prime(p)
				w.delete("b")
				reconciled(t, p, "b")
				if n := w.cloud.count(asyncstate.Delete); n != 0 || !tc.plain &&
					reason(w.get("b"), reconciler.TypeDeleting) != reconciler.ReasonWaitingForAsyncOperation {
					t.Errorf("\n%s\n%d deletes of an unknown resource: %s", tc.reason, n, describe(w.get("b")))
				}
				p.again(20, 2*time.Minute)
			},
			want: ending{Creates: tc.creates, Deletes: 1, Made: 1, Gone: true},
		}
	}
	live(t, cases)
}

type resumerFn func() error

func (fn resumerFn) Resume(context.Context, resource.Managed, asyncstate.Attempt) error { return fn() }

// skew has the record of b, as it is stored, come from a clock that is ahead by d.
func skew(t *testing.T, w *world, d time.Duration) {
	t.Helper()
	w.edit("b", func(b *v1alpha1.Bucket) {
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

// late has clients be connected that find what answer says until they are ready.
func (w *world) late(answer func(mg resource.Managed) (f asyncstate.Finding, err error, ready bool)) {
	w.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
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

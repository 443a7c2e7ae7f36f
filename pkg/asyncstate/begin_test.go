package asyncstate_test

import (
	"context"
	stderrors "errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// What external clients with goroutines of their own may do.
func TestOwnGoroutines(t *testing.T) {
	inline := func(_ *testing.T, _ *environment, _ *process, _ context.Context, mg resource.Managed) error {
		meta.SetExternalName(mg, "now")
		return nil
	}
	older := func(mg resource.Managed) {
		mg.SetAnnotations(nil)
		mg.SetResourceVersion("1")
	}
	unstored := func(
		name string,
	) func(t *testing.T, _ *environment, p *process, _ context.Context, mg resource.Managed) error {
		return func(t *testing.T, _ *environment, p *process, _ context.Context, mg resource.Managed) error {
			time.AfterFunc(
				10*time.Second, func() { expectContains(t, "metrics", exposed(t, p.metrics), "results_unstored 1") },
			)
			n := 30
			p.setFaults(func(verb string, o client.Object) error {
				if n--; n >= 0 && verb != testkit.StatusUpdate {
					return apiServerUnavailable(verb, o)
				}
				return nil
			}, nil)
			meta.SetExternalName(mg, name)
			return asyncstate.ErrOutcomeUnknown
		}
	}
	// setsHandleAfter begins an operation that sets a handle and the name after d. Each update takes a second.
	setsHandleAfter := func(
		d time.Duration,
	) func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
		return func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
			e.api.Before = updateSlowly
			op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
			if err != nil {
				return err
			}
			set := func() {
				expectEqual(
					t, "", "errors", error(nil),
					stderrors.Join(op.SetHandle(op.Context(), "handle"), op.SetExternalName(op.Context(), "now")),
				)
			}
			if d == 0 {
				set()
			} else {
				time.AfterFunc(d, set)
			}
			time.AfterFunc(30*time.Second, func() {
				expectContains(t, "record", record(e.get("b")), `"named":true,"handle":"handle"`)
				op.End(nil)
			})
			return nil
		}
	}
	cases := map[string]struct {
		reason string
		act    func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error
		plain  bool
		panics bool
		want   xpv2.ConditionReason // of Synced
		calls  int
		name   string
	}{
		"Begun": {
			reason: "The operation runs on after Create has returned, until it says that it has ended.",
			act: func(t *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err != nil {
					return err
				}
				go func() {
					_ = sleep(op.Context(), time.Minute)
					_ = op.SetExternalName(op.Context(), "late")
					op.End(nil)
					op.End(errQuota)
					for _, err := range []error{op.SetExternalName(
						ctx, "bad",
					), op.SetHandle(ctx, "bad"), op.Progress(1, "bad"), context.Cause(op.Context())} {
						expectEqual(t, "", "when it has ended", asyncstate.ErrEnded, err, cmpopts.EquateErrors())
					}
				}()
				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "late",
		},
		"ReadsAgain": {
			reason: "A record that has changed meanwhile should not count as an annotation of the client.",
			act: func(_ *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err != nil {
					return err
				}
				defer op.End(nil)
				return stderrors.Join(
					op.SetHandle(ctx, "handle"), e.api.Server().Get(ctx, key("b"), mg), op.SetExternalName(ctx, "now"),
				)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"RenamedAfterBegin": {
			reason: "A name that it had before is no other writer's.",
			act: func(_ *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "first")
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err != nil {
					return err
				}
				time.AfterFunc(time.Minute, func() { op.End(op.SetExternalName(op.Context(), "now")) })
				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"Inline": {
			reason: "A call that has ended before it returned should need no wait, and its name should be stored with its result.",
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				e.api.Before = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.Patch && strings.Contains(r.Body, asyncstate.AnnotationKeyOperation+`":null`) {
						expectContains(t, "patch", r.Body, `"now"`)
					}
					return nil
				}
				return inline(t, e, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"InlineAndReplaced": {
			reason: "If another writer replaces the record while Create is called, no operation should begin only to store the result.",
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: "theirs"})
				})
				return inline(t, e, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileError, calls: 1, name: "now",
		},
		"ErrorAfterBegin": {
			reason: "The operation has stopped and failed. The next attempt is made.",
			act: func(_ *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				if _, err := p.tracker.Begin(ctx, mg, asyncstate.Create); err != nil {
					return err
				}
				if e.cloud.count(asyncstate.Create) == 1 {
					return errQuota
				}
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if op != nil || !errors.Is(err, asyncstate.ErrRunning) {
					return errors.New("begun twice")
				}
				return errQuota
			},
			want: xpv2.ReasonReconcileError, calls: 3,
		},
		"WrongType": {
			reason: "A create is no update.",
			act: func(t *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				if _, err := p.tracker.Begin(
					ctx, mg, asyncstate.Update,
				); !errors.Is(err, asyncstate.ErrNotInOperation) {
					t.Errorf("got %v", err)
				}
				if _, err := p.tracker.Begin(
					context.Background(), mg, asyncstate.Create,
				); !errors.Is(err, asyncstate.ErrNotInOperation) {
					t.Errorf("got %v", err)
				}
				return inline(t, nil, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"Stopped": {
			reason: "No operation should begin after the tracker was stopped.",
			act: func(t *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				p.cancel()
				time.Sleep(time.Second)
				_, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				expectEqual(t, "", "Begin", asyncstate.ErrStopped, err, cmpopts.EquateErrors())
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1,
		},
		"TooLate": {
			reason: "When Create has returned, its outcome is settled.",
			act: func(t *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				late, _ := mg.DeepCopyObject().(resource.Managed)
				time.AfterFunc(time.Second, func() {
					if _, err := p.tracker.Begin(
						ctx, late, asyncstate.Create,
					); !errors.Is(err, asyncstate.ErrNotInOperation) {
						t.Errorf("got %v", err)
					}
				})
				return inline(t, nil, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"NamedAfterBegin": {
			reason: "The name at the end of the call should count, not the one at the begin of the operation.",
			act: func(_ *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "early")
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				meta.SetExternalName(mg, "late")
				time.AfterFunc(time.Minute, func() { op.End(nil) })
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "late",
		},
		"NamedAfterEnd": {
			reason: "A name that is set after the operation has ended should be stored before its record is removed.",
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "early")
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				op.End(nil)
				time.Sleep(time.Second)
				expectEqual(t, "While Create runs", "no record", false, record(e.get("b")) == "")
				meta.SetExternalName(mg, "late")
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "late",
		},
		"NamedTwice": {
			reason: "The argument of SetExternalName should come before the annotation.",
			act: func(_ *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err == nil {
					err = op.SetExternalName(ctx, "late")
				}
				meta.SetExternalName(mg, "early")
				time.AfterFunc(time.Minute, func() { op.End(nil) })
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "late",
		},
		"EndsBeforeUpstreamWrites": {
			reason: "Upstream writes annotations as they were when Create returned, also over others. A result is stored after that.",
			plain:  true,
			act: func(_ *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				e.api.Before = updateSlowly
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				op.End(asyncstate.ErrOutcomeUnknown)
				return err
			},
			want: xpv2.ReasonReconcileError, calls: 1,
		},
		"HandleUnderUpstream": {
			reason: "Upstream's write after Create should keep a handle and a name that were stored in Create.",
			plain:  true,
			act:    setsHandleAfter(0),
			want:   xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"HandleWhileUpstreamWrites": {
			reason: "Upstream's write after Create should keep a handle and a name that were stored meanwhile.",
			plain:  true,
			act:    setsHandleAfter(time.Second / 2),
			want:   xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"HandleWhileUpstreamWritesAndUnavailable": {
			reason: "A handle that upstream's write has replaced should be stored when the API server is available again.",
			plain:  true,
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				time.AfterFunc(time.Second, func() { p.setFaults(patchesUnavailable, nil) })
				time.AfterFunc(10*time.Second, func() { p.setFaults(nil, nil) })
				return setsHandleAfter(time.Second/2)(t, e, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"ReadsOlderAndUnknown": {
			reason: "A client may read the object again from a cache that lags. That the outcome is unknown is still stored.",
			act: func(_ *testing.T, _ *environment, _ *process, _ context.Context, mg resource.Managed) error {
				older(mg)
				return asyncstate.ErrOutcomeUnknown
			},
			want: xpv2.ReasonReconcileError, calls: 1,
		},
		"ReadsOlderUnderUpstream": {
			reason: "The name and the success should be stored after a read from a stale cache, too.", plain: true,
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				older(mg)
				return inline(t, e, p, ctx, mg)
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"RefusedAnnotation": {
			reason: "An annotation that the API server refuses should not prevent that a name is stored.",
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				e.api.Before = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.Patch && strings.Contains(r.Body, "not valid") {
						return kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
					}
					return nil
				}
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				meta.AddAnnotations(mg, map[string]string{"not valid": "v"})
				time.AfterFunc(time.Minute, func() {
					expectEqual(
						t, "", "errors", error(nil),
						stderrors.Join(op.SetHandle(op.Context(), "handle"), op.SetExternalName(op.Context(), "now")),
					)
					expectContains(t, "record", record(e.get("b")), `"named":true,"handle":"handle"`)
					op.End(nil)
				})
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"UnknownAndNotStored": {
			reason: "A create whose unknown outcome cannot be stored at once should not be repeated.",
			act:    unstored(""), want: xpv2.ReasonReconcileError, calls: 1,
		},
		"NamedAndNotStored": {
			reason: "The name should be stored later if it cannot be stored at once.",
			act:    unstored("now"),
			want:   xpv2.ReasonReconcileError,
			calls:  1,
			name:   "now",
		},
		"NamedAndNotStoredUnderUpstream": {
			reason: "The name should be stored later under upstream's reconciler, too.", plain: true,
			act: unstored("now"), want: xpv2.ReasonReconcileError, calls: 1, name: "now",
		},
		"NamedBeforeBegin": {
			reason: "Annotations from before the begin should be stored with the result at the latest, if upstream cannot store them.",
			plain:  true,
			act: func(t *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				err := unstored("now")(t, e, p, ctx, mg)
				op, berr := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if berr != nil {
					return berr
				}
				op.End(err)
				return nil
			},
			want: xpv2.ReasonReconcileError, calls: 1, name: "now",
		},
		"NamedBeforeBeginOfUpdate": {
			reason: "A name that is set before an update begins should be stored if no other writer has set it.",
			plain:  true,
			act: func(_ *testing.T, e *environment, p *process, ctx context.Context, mg resource.Managed) error {
				if e.cloud.count(asyncstate.Create) == 1 {
					meta.SetExternalName(mg, "old")
					return nil
				}
				meta.SetExternalName(mg, "now")
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Update)
				if err == nil {
					op.End(nil)
				}
				return err
			},
			want: xpv2.ReasonReconcileSuccess, calls: 2, name: "now",
		},
		"StoppedAndNotStored": {
			reason: "The record says that it was begun. The next process determines its outcome.",
			act: func(_ *testing.T, _ *environment, p *process, _ context.Context, _ resource.Managed) error {
				p.cancel()
				time.Sleep(time.Second)
				p.setFaults(apiServerUnavailable, nil)
				return errQuota
			},
			calls: 1,
		},
		"Panic": {
			reason: "The outcome is unknown. It is not made again.",
			act: func(*testing.T, *environment, *process, context.Context, resource.Managed) error {
				panic("oh")
			},
			panics: true, want: xpv2.ReasonReconcileError, calls: 1,
		},
		"PanicAfterBegin": {
			reason: "A create that panicked after Begin should have an unknown outcome, and not be repeated.",
			act: func(_ *testing.T, _ *environment, p *process, ctx context.Context, mg resource.Managed) error {
				_, _ = p.tracker.Begin(ctx, mg, asyncstate.Create)
				panic("oh")
			},
			panics: true, want: xpv2.ReasonReconcileError, calls: 1,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			var e *environment
			e = newEnvironmentWithClient(t, false, func(ctx context.Context, mg resource.Managed) error {
				e.cloud.set(func(c *fakeCloud) { c.calls[asyncstate.Create]++ })
				return tc.act(t, e, e.processes[0], ctx, mg)
			})
			e.upstreamOnly, e.options = tc.plain, []asyncstate.TrackerOption{
				asyncstate.WithOwnGoroutines(), asyncstate.WithBackoff(9*time.Minute, 9*time.Minute),
			}
			p := e.startProvider()
			func() {
				defer func() {
					expectEqual(t, tc.reason, "panicked", tc.panics, recover() != nil)
				}()
				if _, err := p.reconcile("b"); err != nil && name != "StoppedAndNotStored" {
					t.Error(err)
				}
			}()
			for range 25 {
				advanceClock(time.Minute)
				if b := e.get("b"); tc.name == "" || meta.GetExternalName(b) != tc.name ||
					reason(b, xpv2.TypeSynced) == "" {
					_, _ = p.reconcile("b")
				}
			}
			expectContains(t, "metrics", exposed(t, p.metrics), "results_unstored 0")
			b := e.get("b")
			want := []any{tc.calls, tc.want, tc.name}
			expectEqual(t, tc.reason+"\n"+describe(b), "creates, Synced, name", want, []any{
				e.cloud.count(asyncstate.Create), reason(b, xpv2.TypeSynced), meta.GetExternalName(b),
			})
			if record(b) != "" && tc.want == xpv2.ReasonReconcileSuccess && name != "Stopped" {
				t.Errorf("\n%s\nA record is left: %s", tc.reason, describe(b))
			}
			expectEqual(
				t, tc.reason, "said to have succeeded, though nothing was begun", false,
				strings.HasPrefix(name, "Inline") && len(e.events.Events("OperationSucceeded")) > 0,
			)
			expectEqual(
				t, tc.reason, "said to have replaced what no other writer set", false,
				name == "RenamedAfterBegin" && len(e.events.Events("OverwroteAnnotation")) > 0,
			)
		})
	}
}

// updateSlowly makes each update take a second.
func updateSlowly(ctx context.Context, r testkit.Request) error {
	if r.Verb == testkit.Update {
		return sleep(ctx, time.Second)
	}
	return nil
}

// After Create, upstream writes the annotations in memory over those on the API server. A process that starts then
// should observe the external resource by the name that the operation has set.
func TestBegin_RenamesUnderUpstream(t *testing.T) {
	cases := map[string]struct {
		reason string
		begun  func(t *testing.T, p *process, op *asyncstate.Operation) error
	}{
		"InCreate": {
			reason: "Upstream's write should keep a name that was stored in Create.",
			begun: func(_ *testing.T, _ *process, op *asyncstate.Operation) error {
				return op.SetExternalName(op.Context(), "now")
			},
		},
		"EndedInCreate": {
			reason: "Upstream's write should keep the name of an operation that has ended, because its result is stored later.",
			begun: func(_ *testing.T, p *process, op *asyncstate.Operation) error {
				err := op.SetExternalName(op.Context(), "now")
				op.End(nil)
				p.setFaults(patchesUnavailable, nil)
				return err
			},
		},
		"WhileUpstreamWrites": {
			reason: "A second name that is set during upstream's write should be stored again, although the record is the same.",
			begun: func(t *testing.T, _ *process, op *asyncstate.Operation) error {
				time.AfterFunc(time.Second/2, func() {
					expectEqual(t, "", "error", error(nil), op.SetExternalName(op.Context(), "now"))
				})
				return op.SetExternalName(op.Context(), "early")
			},
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			creates := 0
			e := newEnvironment(t, plainClient, bucket("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "b") }))
			e.upstreamOnly, e.options = true, []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}
			e.api.Before = updateSlowly
			e.connect = func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
				c := newClient(false, func(ctx context.Context, mg resource.Managed) error {
					creates++
					op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
					if err != nil {
						return err
					}
					return tc.begun(t, p, op)
				})
				c.ObserveFn = func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
					exists := meta.GetExternalName(mg) == "now"
					return upstream.ExternalObservation{ResourceExists: exists, ResourceUpToDate: exists}, nil
				}
				return c, nil
			}
			e.crashAndRestart(time.Minute)
			advanceClock(3 * time.Hour)
			b := e.get("b")
			got := []any{creates, meta.GetExternalName(b)}
			expectEqual(t, tc.reason+"\n"+describe(b), "creates, name", []any{1, "now"}, got)
		})
	}
}

// A client that forgets End holds up its object, and others, until the deadline only.
func TestBegin_EndIsForgotten(t *testing.T) {
	found, absent := asyncstate.Found("found"), asyncstate.Absent()
	cases := map[string]struct {
		reason string
		exists bool

		// gone is whether the object is meanwhile, replaced whether its record is.
		gone, replaced bool

		// named is whether the call that begins the operation sets the name of the copy that
		// it was given.
		named bool
		begun func(op *asyncstate.Operation)
		find  *asyncstate.Finding

		// calls within three hours of the deadline, want and name then.
		calls int
		want  xpv2.ConditionReason
		name  string
	}{
		"Create": {
			reason: "The outcome is unknown. The create is not made again.",
			calls:  1,
			want:   asyncstate.ReasonOutcomeUnknown,
		},
		"Found": {
			reason: "The Finder should find its external resource.",
			find:   &found,
			calls:  1,
			want:   asyncstate.ReasonFinished,
			name:   "found",
		},
		"Absent": {
			reason: "The create may still be in progress. Absence is believed as late as with another process.",
			find:   &absent, calls: 2, want: asyncstate.ReasonInterrupted,
		},
		"Gone": {
			reason: "The operation should not be waited for if the object no longer exists.",
			gone:   true, calls: 1,
		},
		"Replaced": {
			reason:   "The operation should not be waited for if another writer has replaced its record.",
			replaced: true,
			calls:    1,
			want:     asyncstate.ReasonRecordUnusable,
		},
		"EndsInTime": {
			reason: "A client that ends when its context does has not forgotten anything.",
			begun: func(op *asyncstate.Operation) {
				<-op.Context().Done()
				time.Sleep(30 * time.Second)
			},
			calls: 1, want: asyncstate.ReasonOutcomeUnknown,
		},
		"FailsLate": {
			reason: "A name that is set later should be stored. An error of a cancelled create is no refusal.",
			begun: func(op *asyncstate.Operation) {
				time.Sleep(2 * time.Hour)
				_ = op.SetExternalName(context.Background(), "late")
			},
			calls: 1, want: asyncstate.ReasonFinished, name: "late",
		},
		"Named": {
			reason: "The create should be observed by the name that it has set.", named: true,
			calls: 1, want: asyncstate.ReasonFinished, name: "early",
		},
		"Update": {
			reason: "An update that was abandoned should be repeated.",
			exists: true, calls: 3, want: asyncstate.ReasonRunning,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			calls := 0
			e := newEnvironment(t, plainClient, bucket("b"))
			e.options = []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines(), asyncstate.WithMaxOperations(1)}
			e.connect = func(of *process, _ resource.Managed) (upstream.ExternalClient, error) {
				c := newClient(tc.exists, func(ctx context.Context, mg resource.Managed) error {
					typ := asyncstate.Create
					if tc.exists {
						typ = asyncstate.Update
					}
					op, err := of.tracker.Begin(ctx, mg, typ)
					switch {
					case err != nil:
						return err
					case mg.GetName() == "other":
						meta.SetExternalName(mg, "other")
						op.End(nil)
					case tc.begun != nil:
						go func() {
							tc.begun(op)
							op.End(errQuota)
						}()
						fallthrough
					default:
						calls++
						if tc.named {
							meta.SetExternalName(mg, "early")
						}
					}
					return nil
				})
				if tc.find == nil {
					return c, nil
				}
				return withFinding(c, *tc.find), nil
			}
			p := e.startProvider()
			if tc.replaced {
				advanceClock(time.Minute)
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: "theirs"})
				})
			}
			if tc.gone {
				advanceClock(time.Minute)
				e.delete("b")
				e.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			}
			e.add("other")
			advanceClock(time.Minute)
			if b := e.get("other"); name != "Update" && reason(b, asyncstate.TypeOperation) != asyncstate.ReasonQueued {
				t.Errorf("\n%s\nA permit is free: %s", tc.reason, describe(b))
			}
			advanceClock(61*time.Minute + time.Second)
			if b := e.get("other"); name != "Update" && meta.GetExternalName(b) != "other" {
				t.Errorf("\n%s\nNo permit is free: %s", tc.reason, describe(b))
			}
			advanceClock(2*time.Hour + time.Minute)
			b := e.get("b")
			want := []any{tc.calls, tc.want, tc.name}
			expectEqual(t, tc.reason+"\n"+describe(b), "calls, operation, name", want, []any{
				calls, reason(b, asyncstate.TypeOperation), meta.GetExternalName(b),
			})
			asked := time.Now()
			p.stop()

			// The third update has not been abandoned.
			if d := time.Since(asked); d > 0 && !tc.exists {
				t.Errorf("\n%s\nA shutdown took %s", tc.reason, d)
			}
		})
	}
}

// An operation that ends after it was abandoned leaves the record of its repetition alone.
func TestBegin_EndsDuringRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ops []*asyncstate.Operation
		e := newEnvironment(t, plainClient, bucket("b"))
		e.options = []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines(), asyncstate.WithDeterministicNames()}
		e.useClient(false, func(ctx context.Context, mg resource.Managed) error {
			op, err := e.processes[0].tracker.Begin(ctx, mg, asyncstate.Create)
			ops = append(ops, op)
			return err
		})
		e.startProvider()
		advanceClock(70 * time.Minute)
		had := record(e.get("b"))
		ops[0].End(errQuota)
		advanceClock(time.Minute)
		expectEqual(
			t, describe(e.get("b")), "operations, record of the second", []any{2, had},
			[]any{len(ops), record(e.get("b"))},
		)
	})
}

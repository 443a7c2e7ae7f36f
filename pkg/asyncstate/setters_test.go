package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// newEnvironmentWithClient returns an environment whose external client calls act in Create and
// Update. The external resource exists if exists is true or the object has an external name, and
// is up to date if the name is neither empty nor "old".
func newEnvironmentWithClient(
	t *testing.T, exists bool, act func(ctx context.Context, mg resource.Managed) error,
) *environment {
	t.Helper()
	e := newEnvironment(t, plainClient, bucket("b"))
	e.manualReconciles = true
	e.useClient(exists, act)
	return e
}

func (e *environment) useClient(exists bool, act func(ctx context.Context, mg resource.Managed) error) {
	e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return newClient(exists, act), nil }
}

// withFinding returns a client whose Finder returns f.
func withFinding(c upstream.ExternalClient, f asyncstate.Finding) upstream.ExternalClient {
	return struct {
		upstream.ExternalClient
		asyncstate.Finder
	}{
		c,
		asyncstate.FinderFn(func(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
			return f, nil
		}),
	}
}

func newClient(exists bool, act func(ctx context.Context, mg resource.Managed) error) *upstream.ExternalClientFns {
	return &upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
			name := meta.GetExternalName(mg)
			return upstream.ExternalObservation{
				ResourceExists: exists || name != "", ResourceUpToDate: name != "" && name != "old",
			}, nil
		},
		CreateFn: func(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
			return upstream.ExternalCreation{}, act(ctx, mg)
		},
		UpdateFn: func(ctx context.Context, mg resource.Managed) (upstream.ExternalUpdate, error) {
			return upstream.ExternalUpdate{}, act(ctx, mg)
		},
		DisconnectFn: func(context.Context) error { return nil },
	}
}

// A refused argument stops no operation. A Create that returns the error has an unknown outcome.
func TestSettersRefuse(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   func(ctx context.Context) error
		want   string
	}{
		"EmptyName": {
			reason: "A name can't be taken away.",
			call:   func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "") }, want: "empty",
		},
		"ControlCharacters": {
			reason: "A name that can't be typed is none.",
			call:   func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "a\nb") },
			want:   "control characters",
		},
		"NameOfBytes": {
			reason: "The API server takes text.",
			call:   func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "a\xff") },
			want:   "not UTF-8",
		},
		"NameTooLong": {
			reason: "A name should have a limit.",
			call: func(ctx context.Context) error {
				return asyncstate.SetExternalName(ctx, strings.Repeat("a", 4<<10+1))
			},
			want: "4097 bytes, and 4096 is the most",
		},
		"HandleTooLong": {
			reason: "Annotations of an object have a limit together.",
			call:   func(ctx context.Context) error { return asyncstate.SetHandle(ctx, strings.Repeat("a", 32<<10+1)) },
			want:   "32769 bytes, and 32768 is the most",
		},
		"HandleEscaped": {
			reason: "The length of the escaped handle in the record should have a limit.",
			call:   func(ctx context.Context) error { return asyncstate.SetHandle(ctx, strings.Repeat(`"`, 30<<10)) },
			want:   "the record of the operation would have",
		},
		"ProgressTooSmall": {
			reason: "Progress should be 0 percent or more.",
			call:   func(ctx context.Context) error { return asyncstate.Progress(ctx, -1, "") }, want: "-1%",
		},
		"ProgressTooBig": {
			reason: "Progress should be 100 percent or less.",
			call:   func(ctx context.Context) error { return asyncstate.Progress(ctx, 101, "") }, want: "101%",
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			var got error
			e := newEnvironmentWithClient(t, false, func(ctx context.Context, _ resource.Managed) error {
				got = tc.call(ctx)
				return asyncstate.SetExternalName(ctx, "good")
			})
			p := e.startProvider()
			mustReconcile(t, p, "b")
			advanceClock(time.Second)
			if got == nil || !strings.Contains(got.Error(), tc.want) || !asyncstate.OutcomeUnknown(got) {
				t.Errorf("\n%s\n%v lacks %q", tc.reason, got, tc.want)
			}
			b := e.get("b")
			expectEqual(
				t, tc.reason+"\n"+describe(b), "name, record, since the operation should have gone on",
				[]string{"good", ""}, []string{
					meta.GetExternalName(b), record(b),
				},
			)
			if err := tc.call(context.Background()); !errors.Is(err, asyncstate.ErrNotInOperation) ||
				!asyncstate.OutcomeUnknown(err) || asyncstate.Token(context.Background()) != "" {
				t.Errorf("\n%s\nOutside an operation: %v", tc.reason, err)
			}
		})
	}
}

// OperationRunning should show the progress of an update that takes longer than the report interval.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironmentWithClient(t, true, func(ctx context.Context, _ resource.Managed) error {
			return errors.Join(
				asyncstate.Progress(ctx, 10, "first"), sleep(ctx, time.Second),
				asyncstate.Progress(ctx, 0, "second"),
				asyncstate.Progress(ctx, 0, "third\nmessage"), sleep(ctx, 16*time.Second),
				asyncstate.Progress(ctx, 42, "third\nmessage"), sleep(ctx, 15*time.Second),
				asyncstate.Progress(ctx, 90, ""), sleep(ctx, time.Hour),
			)
		})
		e.manualReconciles = false
		e.reconcilerOptions = []managed.ReconcilerOption{managed.WithPollInterval(10 * time.Hour)}
		p := e.startProvider()
		advanceClock(8 * time.Second)
		expectEqual(
			t, "An update within the report interval should not be reported.\n"+describe(e.get("b")), "running", false,
			reason(e.get("b"), asyncstate.TypeOperation) == asyncstate.ReasonRunning,
		)
		for _, step := range []struct {
			wait     time.Duration
			progress string
		}{
			{6 * time.Second, ": 0% third message"},
			{14 * time.Second, ": 42% third message"},
			{16 * time.Second, ": 90%"},
		} {
			advanceClock(step.wait)
			expectContains(
				t, "OperationRunning", condition(e.get("b"), asyncstate.TypeOperation), "True Running", step.progress,
			)
		}
		advanceClock(10 * time.Second)
		reconciles := p.reconciles.Load()
		advanceClock(20 * time.Minute)
		expectEqual(
			t, "An object should not be queued for progress that was reported.", "reconciles", reconciles,
			p.reconciles.Load(),
		)
	})
}

// A setting is a call of a client while its operation runs, and a write of another writer meanwhile.
type setting struct {
	reason string
	exists bool
	had    string // external name
	acts   acts
	during func(b *v1alpha1.Bucket) // What another writer does.
	want   string                   // external name
	record bool
}

// acts are the calls of a client in an operation.
type acts func(ctx context.Context, t *testing.T, e *environment, mg resource.Managed) error

func runSettings(t *testing.T, cases map[string]setting) {
	t.Helper()
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			var e *environment
			e = newEnvironmentWithClient(
				t, tc.exists, func(ctx context.Context, mg resource.Managed) error { return tc.acts(ctx, t, e, mg) },
			)
			e.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(5 * time.Minute)}
			if tc.had != "" {
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, tc.had) })
			}
			p := e.startProvider()
			mustReconcile(t, p, "b")
			advanceClock(time.Second)
			if tc.during != nil {
				e.edit("b", tc.during)
			}
			advanceClock(15 * time.Minute)
			b := e.get("b")
			expectEqual(t, tc.reason+"\n"+describe(b), "external name, record", []any{tc.want, tc.record}, []any{
				meta.GetExternalName(b), record(b) != "",
			})
			expectEqual(
				t, tc.reason, "lost the other writer's annotation", false,
				name == "AnnotationDuringUpdate" && b.GetAnnotations()["k"] != "theirs",
			)
			if got := append(
				e.events.Events("ExternalResourceOrphaned"), e.events.Events("OverwroteAnnotation")...,
			); len(got) > 0 != (name == "NameDuringCreate") {
				t.Errorf("\n%s\nIt has an owner, and no other writer had set it: %v", tc.reason, got)
			}
			if name == "RecordReplacedAndNamed" {
				expectContains(
					t, tc.reason, strings.Join(e.events.Events("OperationOverruled"), "\n"),
					`created "ours", which is not the external name`,
				)
				expectContains(t, "the log", e.events.All(), "not the external name of this managed resource")
			}
			expectEqual(t, tc.reason, "operations in memory", 0, asyncstate.OperationsInMemory(p.tracker))
		})
	}
}

// The annotations that a client sets while its operation runs should be stored.
func TestAnnotationsSetByClient(t *testing.T) {
	renames := func(ctx context.Context, t *testing.T, e *environment, _ resource.Managed) error {
		for _, name := range []string{"first", "second", "old", "second", "old"} {
			if err := asyncstate.SetExternalName(ctx, name); err != nil || meta.GetExternalName(e.get("b")) != name {
				t.Errorf("While it runs the name is %q, want %q: %v", meta.GetExternalName(e.get("b")), name, err)
			}
		}
		return nil
	}
	runSettings(t, map[string]setting{
		"MidCreate": {
			reason: "A name is where it survives everything before the call returns.",
			acts:   renames, want: "old",
		},
		"MidUpdate": {
			reason: "A name that goes back to an earlier value should be stored, too.",
			exists: true, had: "old", acts: renames, want: "old",
		},
		"Emptied": {
			reason: "A client that empties the name takes nothing away.",
			exists: true, had: "old", want: "old",
			acts: func(_ context.Context, _ *testing.T, _ *environment, mg resource.Managed) error {
				meta.SetExternalName(mg, "")
				return nil
			},
		},
		"Hangs": {
			reason: "A name that is set while a request hangs should be stored with the result.",
			want:   "name",
			acts: func(ctx context.Context, t *testing.T, e *environment, _ resource.Managed) error {
				var hung atomic.Bool
				e.api.Before = func(ctx context.Context, r testkit.Request) error {
					if hung.Swap(true) {
						return nil
					}
					return errors.Join(sleep(context.WithoutCancel(ctx), 10*time.Minute), errQuota)
				}
				go func() { _ = asyncstate.SetHandle(ctx, "handle") }()
				synctest.Wait()
				if err := asyncstate.SetExternalName(ctx, "name"); err == nil {
					t.Error("It was stored beside the request that hangs")
				}
				return nil
			},
		},
		"AtOnce": {
			reason: "Goroutines of a client may set at once.",
			want:   "last",
			acts: func(ctx context.Context, t *testing.T, _ *environment, _ resource.Managed) error {
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						_ = asyncstate.SetExternalName(ctx, fmt.Sprintf("name-%d", i))
						_ = asyncstate.SetHandle(ctx, fmt.Sprintf("handle-%d", i))
						_ = asyncstate.Progress(ctx, i, "going on")
						expectEqual(t, "", "without a token", false, asyncstate.Token(ctx) == "")
					})
				}
				wg.Wait()
				return asyncstate.SetExternalName(ctx, "last")
			},
		},
		"AfterDeadline": {
			reason: "Time may run out exactly when the name is known.",
			want:   "late-19", record: true,
			acts: func(ctx context.Context, t *testing.T, _ *environment, _ resource.Managed) error {
				<-ctx.Done()
				for i := range 20 {
					if err := asyncstate.SetExternalName(ctx, fmt.Sprintf("late-%d", i)); err != nil {
						t.Error(err)
					}
				}
				return ctx.Err()
			},
		},
		"Handle": {
			reason: "A handle is not escaped for web pages.",
			want:   "name",
			acts: func(ctx context.Context, t *testing.T, e *environment, mg resource.Managed) error {
				handle := strings.Repeat("<&>", 10<<10)
				if err := asyncstate.SetHandle(ctx, handle); err != nil ||
					!strings.Contains(record(e.get("b")), handle) {
					t.Errorf("The record has %d bytes: %v", len(record(e.get("b"))), err)
				}
				meta.SetExternalName(mg, "name")
				return nil
			},
		},
	})
}

// A result should be stored although the API server refuses a part, or does not answer.
func TestAnnotationsSetByClient_Refused(t *testing.T) {
	// stores returns what stores a name while requests to the API server fail, or the
	// answers to writes are lost.
	stores := func(fault, lost, fails bool, err error) acts {
		return func(ctx context.Context, t *testing.T, e *environment, _ resource.Managed) error {
			p := e.processes[0]
			switch {
			case fault:
				p.setFaults(func(string, client.Object) error { return err }, nil)
			case lost:
				p.loseAnswers(func(verb string, _ client.Object) bool { return verb == testkit.Patch })
			}
			if got := asyncstate.SetExternalName(ctx, "name"); fails != (got != nil) || ctx.Err() != nil {
				t.Errorf("SetExternalName(...): %v, and the operation: %v", got, ctx.Err())
			}
			p.setFaults(nil, nil)
			return nil
		}
	}
	refused := func(_ context.Context, _ *testing.T, e *environment, mg resource.Managed) error {
		e.api.Before = func(_ context.Context, r testkit.Request) error {
			if r.Verb == testkit.Patch && strings.Contains(r.Body, "not valid") {
				return kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
			}
			return nil
		}
		meta.SetExternalName(mg, "name")
		meta.AddAnnotations(mg, map[string]string{"not valid": "v"})
		return nil
	}
	runSettings(t, map[string]setting{
		"Refused": {
			reason: "The API server doesn't want it.",
			acts:   stores(true, false, true, kerrors.NewInvalid(schema.GroupKind{Kind: "Bucket"}, "b", nil)),
			want:   "name",
		},
		"Away": {
			reason: "The API server can't be reached.",
			acts:   stores(true, false, true, errQuota), want: "name",
		},
		"Lost": {reason: "The answers are lost.", acts: stores(false, true, false, nil), want: "name"},
		"InvalidAnnotation": {
			reason: "An annotation that the API server refuses does not keep a result from being stored.", want: "name",
			acts: refused,
		},
		"InvalidAnnotationAndLost": {
			reason: "The result should be stored if the answer to its other annotations is lost, too.", want: "name",
			acts: func(ctx context.Context, t *testing.T, e *environment, mg resource.Managed) error {
				p, lost := e.processes[0], false
				unless := func(is bool, verb string, o client.Object) error {
					if is {
						return nil
					}
					return apiServerUnavailable(verb, o)
				}
				p.setFaults(func(verb string, o client.Object) error {
					return unless(!lost, verb, o)
				}, func(verb string, o client.Object) error {
					lost = lost || verb == testkit.Patch
					return unless(!lost, verb, o)
				})
				time.AfterFunc(time.Minute, func() { p.setFaults(nil, nil) })
				return refused(ctx, t, e, mg)
			},
		},
		"RefusedAsAWhole": {
			reason: "A result should be stored later if the first write failed.", want: "name",
			acts: func(_ context.Context, _ *testing.T, e *environment, mg resource.Managed) error {
				until := time.Now().Add(time.Minute)
				e.api.Before = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.Patch && time.Now().Before(until) {
						return kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
					}
					return nil
				}
				meta.SetExternalName(mg, "name")
				return nil
			},
		},
	})
}

// Another writer's values should stay, except for an external name that only the result of a create has.
func TestAnnotationsSetByClient_OtherWriter(t *testing.T) {
	// ends returns what ends after a minute, as our, and has the object be edited before.
	ends := func(err error) acts {
		return func(ctx context.Context, _ *testing.T, _ *environment, mg resource.Managed) error {
			_ = sleep(ctx, time.Minute)
			meta.SetExternalName(mg, "ours")
			meta.AddAnnotations(mg, map[string]string{"k": "ours"})
			return err
		}
	}

	theirs := func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") }
	settled := func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) }
	replaced := func(b *v1alpha1.Bucket) {
		meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: "mine now"})
	}
	runSettings(t, map[string]setting{
		"NameDuringCreate": {
			reason: "The name that a create returned should replace one of another writer: nothing else knows it.",
			acts:   ends(nil), during: theirs, want: "ours",
		},
		"NameDuringUpdate": {
			reason: "The name that an update set should yield to one of another writer, and its record should be removed.",
			exists: true, acts: ends(nil), during: theirs, want: "theirs",
		},
		"AnnotationDuringUpdate": {
			reason: "Only annotations of another writer should stay.", exists: true, acts: ends(nil),
			during: func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{"k": "theirs"}) }, want: "ours",
		},
		"NameDuringUpdateThatFails": {
			reason: "The failure of the update should be stored, too.",
			exists: true, acts: ends(errQuota), during: theirs, want: "theirs", record: true,
		},
		"RecordSettledByHand": {
			reason: "A person removes the record and so settles the matter; the name is stored.",
			acts:   ends(nil), during: settled, want: "ours",
		},
		"RecordSettledByHandAndFailed": {
			reason: "The record is not put back.",
			acts:   ends(errQuota), during: settled, want: "ours",
		},
		"RecordReplaced": {
			reason: "A record that is not ours any more is left alone.",
			acts:   ends(nil), during: replaced, want: "ours", record: true,
		},
		"RecordReplacedAndNamed": {
			reason: "Nor is a name.",
			acts:   ends(nil),
			during: func(b *v1alpha1.Bucket) { theirs(b); replaced(b) }, want: "theirs", record: true,
		},
	})
}

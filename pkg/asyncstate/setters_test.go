package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
)

// acting returns a world whose external client acts as told. Its external resource
// exists if it has a name, and is up to date then, or if exists says so.
func acting(t *testing.T, exists bool, act func(ctx context.Context, mg resource.Managed) error) *world {
	t.Helper()

	w := newWorld(t, nothing, bucket("b"))
	w.manual = true
	w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return actor(exists, act), nil }

	return w
}

func actor(exists bool, act func(ctx context.Context, mg resource.Managed) error) *upstream.ExternalClientFns {
	return &upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
			named := meta.GetExternalName(mg) != ""
			return upstream.ExternalObservation{ResourceExists: exists || named, ResourceUpToDate: named}, nil
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

// What is refused stops no operation. A Create that returns the error has created
// something, and its outcome is unknown.
func TestSettersRefuse(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   func(ctx context.Context) error
		want   string
	}{
		"EmptyName":         {reason: "A name can't be taken away.", call: func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "") }, want: "empty"},
		"ControlCharacters": {reason: "A name that can't be typed is none.", call: func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "a\nb") }, want: "control characters"},
		"NameOfBytes":       {reason: "The API server takes text.", call: func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, "a\xff") }, want: "not UTF-8"},
		"NameTooLong":       {reason: "There is a limit.", call: func(ctx context.Context) error { return asyncstate.SetExternalName(ctx, strings.Repeat("a", 4<<10+1)) }, want: "4097 bytes, and 4096 is the most"},
		"EmptyHandle":       {reason: "An empty handle stands for nothing.", call: func(ctx context.Context) error { return asyncstate.SetHandle(ctx, "") }, want: "empty"},
		"HandleOfBytes":     {reason: "As of a name.", call: func(ctx context.Context) error { return asyncstate.SetHandle(ctx, "\xff") }, want: "not UTF-8"},
		"HandleControl":     {reason: "As of a name.", call: func(ctx context.Context) error { return asyncstate.SetHandle(ctx, "\x00") }, want: "control characters"},
		"HandleTooLong":     {reason: "Annotations of an object have a limit together.", call: func(ctx context.Context) error { return asyncstate.SetHandle(ctx, strings.Repeat("a", 32<<10+1)) }, want: "32769 bytes, and 32768 is the most"},
		"HandleEscaped":     {reason: "What counts is how long the record gets.", call: func(ctx context.Context) error { return asyncstate.SetHandle(ctx, strings.Repeat(`"`, 30<<10)) }, want: "the record of the operation would have"},
		"ProgressTooSmall":  {reason: "It is a percentage.", call: func(ctx context.Context) error { return asyncstate.Progress(ctx, -1, "") }, want: "-1%"},
		"ProgressTooBig":    {reason: "It is a percentage.", call: func(ctx context.Context) error { return asyncstate.Progress(ctx, 101, "") }, want: "101%"},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			var got error

			w := acting(t, false, func(ctx context.Context, _ resource.Managed) error {
				got = tc.call(ctx)
				return asyncstate.SetExternalName(ctx, "good")
			})
			p := w.start()

			reconciled(t, p, "b")
			pass(time.Second)

			if got == nil || !strings.Contains(got.Error(), tc.want) || !asyncstate.OutcomeUnknown(got) {
				t.Errorf("\n%s\n%v lacks %q", tc.reason, got, tc.want)
			}

			if b := w.get("b"); meta.GetExternalName(b) != "good" || record(b) != "" {
				t.Errorf("\n%s\nThe operation should have gone on: %s", tc.reason, describe(b))
			}

			if err := tc.call(context.Background()); !errors.Is(err, asyncstate.ErrNotInOperation) || !asyncstate.OutcomeUnknown(err) {
				t.Errorf("\n%s\nOutside an operation: %v", tc.reason, err)
			}
		})
	}
}

func TestSettersAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var later context.Context

		w := acting(t, false, func(ctx context.Context, _ resource.Managed) error {
			later = ctx //nolint:fatcontext // It is what this test is about.
			return asyncstate.SetExternalName(ctx, "good")
		})
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Second)

		for _, err := range []error{
			asyncstate.SetExternalName(later, "bad"), asyncstate.SetHandle(later, "bad"), asyncstate.Progress(later, 1, "bad"),
		} {
			if !errors.Is(err, asyncstate.ErrEnded) {
				t.Errorf("got %v", err)
			}
		}

		if cause := context.Cause(later); !errors.Is(cause, asyncstate.ErrEnded) {
			t.Errorf("The context ended because: %v", cause)
		}

		if got := meta.GetExternalName(w.get("b")); got != "good" {
			t.Errorf("external name %q", got)
		}

		if asyncstate.Token(context.Background()) != "" {
			t.Error("There is a token outside an operation")
		}
	})
}

// A name is where it survives everything before the call returns.
func TestNameIsStoredMidOperation(t *testing.T) {
	for _, exists := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Exists=%t", exists), func(t *testing.T) {
			var w *world

			w = acting(t, exists, func(ctx context.Context, _ resource.Managed) error {
				for _, name := range []string{"first", "second", "old", "second", "old"} {
					if err := asyncstate.SetExternalName(ctx, name); err != nil {
						t.Errorf("%s: %v", name, err)
					}

					if got := meta.GetExternalName(w.get("b")); got != name {
						t.Errorf("While it runs the name is %q, want %q", got, name)
					}
				}

				return nil
			})
			if exists {
				// A name that goes back to what it was is stored, too.
				w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "old") })
			}

			p := w.start()

			reconciled(t, p, "b")
			pass(time.Second)

			if b := w.get("b"); meta.GetExternalName(b) != "old" || record(b) != "" {
				t.Error(describe(b))
			}

			if got := w.said.Events("OverwroteAnnotation"); len(got) > 0 {
				t.Errorf("No other writer had set it: %v", got)
			}
		})
	}
}

func TestSetterFails(t *testing.T) {
	refused := kerrors.NewInvalid(schema.GroupKind{Kind: "Bucket"}, "b", nil)

	cases := map[string]struct {
		reason string
		fault  error
		lost   error
		fails  bool
	}{
		"Refused": {reason: "The API server doesn't want it.", fault: refused, fails: true},
		"Away":    {reason: "The API server can't be reached.", fault: errors.New("connection refused"), fails: true},
		"Lost":    {reason: "The answers are lost.", lost: errors.New("connection reset")},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			var (
				p *process
				w *world
			)

			w = acting(t, false, func(ctx context.Context, _ resource.Managed) error {
				p.faults(func(string, client.Object) error { return tc.fault }, nil)

				if tc.lost != nil {
					p.faults(nil, func(verb string, _ client.Object) error {
						if verb == testkit.Patch {
							return tc.lost
						}

						return nil
					})
				}

				err := asyncstate.SetExternalName(ctx, "name")
				if tc.fails != (err != nil) {
					t.Errorf("\n%s\n%v", tc.reason, err)
				}

				if ctx.Err() != nil {
					t.Errorf("\n%s\nThe operation should go on: %v", tc.reason, ctx.Err())
				}

				p.faults(nil, nil)

				return nil
			})
			p = w.start()

			reconciled(t, p, "b")
			pass(10 * time.Minute)

			if b := w.get("b"); meta.GetExternalName(b) != "name" || record(b) != "" {
				t.Errorf("\n%s\n%s", tc.reason, describe(b))
			}
		})
	}
}

// An update is soon over and says nothing, unless it takes longer than the interval of
// reports; then it says how far it is.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, true, func(ctx context.Context, _ resource.Managed) error {
			return errors.Join(asyncstate.Progress(ctx, 10, "first"), sleep(ctx, 20*time.Second), asyncstate.Progress(ctx, 0, "again"), asyncstate.Progress(ctx, 0, "once more"), sleep(ctx, 10*time.Minute))
		})
		w.manual = false
		w.options = []asyncstate.TrackerOption{asyncstate.WithReportInterval(5 * time.Minute)}
		w.start()

		pass(4 * time.Minute)

		if got := reason(w.get("b"), asyncstate.TypeOperation); got == asyncstate.ReasonRunning {
			t.Error(describe(w.get("b")))
		}

		pass(2 * time.Minute)
		contains(t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "True Running", "once more")
	})
}

func TestSettersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, false, func(ctx context.Context, _ resource.Managed) error {
			var wg sync.WaitGroup

			for i := range 8 {
				wg.Go(func() {
					_ = asyncstate.SetExternalName(ctx, fmt.Sprintf("name-%d", i))
					_ = asyncstate.SetHandle(ctx, fmt.Sprintf("handle-%d", i))
					_ = asyncstate.Progress(ctx, i, "going on")

					if asyncstate.Token(ctx) == "" {
						t.Error("There is no token")
					}
				})
			}

			wg.Wait()

			return asyncstate.SetExternalName(ctx, "last")
		})
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "last" || record(b) != "" {
			t.Error(describe(b))
		}
	})
}

// Other writers may change the same object while an operation runs.
func TestSomebodyElseWrites(t *testing.T) {
	cases := map[string]struct {
		reason string
		exists bool
		theirs func(b *v1alpha1.Bucket)
		err    error
		want   string // external name
		record bool
	}{
		"NameDuringCreate": {reason: "What a create returned is known only once, and wins.", theirs: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") }, want: "ours"},
		"NameDuringUpdate": {
			reason: "What an update says can be learned again, and gives way; its record is removed.",
			exists: true, theirs: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") }, want: "theirs",
		},
		"NameDuringUpdateThatFails": {
			reason: "That it failed is stored, too.",
			exists: true, theirs: func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") }, err: errQuota, want: "theirs", record: true,
		},
		"RecordSettledByHand": {
			reason: "A person removes the record and so settles the matter; the name is stored.",
			theirs: func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) }, want: "ours",
		},
		"RecordSettledByHandAndFailed": {
			reason: "The record is not put back.",
			theirs: func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) }, err: errQuota, want: "ours",
		},
		"RecordReplaced": {
			reason: "A record that is not ours any more is left alone.",
			theirs: func(b *v1alpha1.Bucket) {
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: "mine now"})
			},
			want:   "ours",
			record: true,
		},
		"RecordReplacedAndNamed": {
			reason: "Nor is a name.",
			theirs: func(b *v1alpha1.Bucket) {
				meta.SetExternalName(b, "theirs")
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: "mine now"})
			},
			want:   "theirs",
			record: true,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := acting(t, tc.exists, func(ctx context.Context, mg resource.Managed) error {
				_ = sleep(ctx, time.Minute)
				meta.SetExternalName(mg, "ours")

				return tc.err
			})
			p := w.start()

			reconciled(t, p, "b")
			pass(time.Second)
			w.edit("b", tc.theirs)
			pass(2 * time.Minute)

			b := w.get("b")
			if got := meta.GetExternalName(b); got != tc.want {
				t.Errorf("\n%s\nexternal name %q, want %q", tc.reason, got, tc.want)
			}

			if got := record(b) != ""; got != tc.record {
				t.Errorf("\n%s\nthere is a record: %t, want %t: %s", tc.reason, got, tc.record, record(b))
			}

			if got := w.said.Events("ExternalResourceOrphaned"); len(got) > 0 {
				t.Errorf("\n%s\nIt has an owner: %v", tc.reason, got)
			}

			if n := asyncstate.Remembered(p.tracker); n != 0 {
				t.Errorf("\n%s\n%d things are remembered", tc.reason, n)
			}
		})
	}
}

// Time may run out exactly when the name is known.
func TestNameIsStoredAfterDeadline(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := acting(t, false, func(ctx context.Context, _ resource.Managed) error {
				<-ctx.Done()

				if err := asyncstate.SetExternalName(ctx, "late"); err != nil {
					t.Error(err)
				}

				return ctx.Err()
			})
			w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Minute)}
			p := w.start()

			reconciled(t, p, "b")
			pass(2 * time.Minute)

			if got := meta.GetExternalName(w.get("b")); got != "late" {
				t.Errorf("external name %q", got)
			}
		})
	}
}

func TestSetHandle_IsNotEscapedForWebPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := strings.Repeat("<&>", 10<<10)

		w := acting(t, false, func(ctx context.Context, _ resource.Managed) error {
			if err := asyncstate.SetHandle(ctx, handle); err != nil {
				t.Error(err)
			}

			return sleep(ctx, time.Minute)
		})
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Second)

		if r := record(w.get("b")); len(r) > 40<<10 || !strings.Contains(r, handle) {
			t.Errorf("The record has %d bytes", len(r))
		}

		pass(time.Hour)
	})
}

// Another writer sets one of the annotations that an update sets, and not the name.
func TestNameSurvivesAnotherAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, true, func(ctx context.Context, mg resource.Managed) error {
			_ = sleep(ctx, time.Minute)

			meta.SetExternalName(mg, "renamed")
			meta.AddAnnotations(mg, map[string]string{"k": "ours"})

			return nil
		})
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Second)
		w.edit("b", func(b *v1alpha1.Bucket) { meta.AddAnnotations(b, map[string]string{"k": "theirs"}) })
		pass(2 * time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "renamed" || b.GetAnnotations()["k"] != "theirs" || record(b) != "" {
			t.Errorf("annotations: %v", b.GetAnnotations())
		}
	})
}

// An annotation that the API server refuses does not keep a result from being stored.
func TestResultSurvivesInvalidAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, false, func(_ context.Context, mg resource.Managed) error {
			meta.SetExternalName(mg, "id-1")
			meta.AddAnnotations(mg, map[string]string{"not valid": "v"})

			return nil
		})
		w.api.Before = func(_ context.Context, r testkit.Request) error {
			if r.Verb == testkit.Patch && strings.Contains(r.Body, "not valid") {
				return kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
			}

			return nil
		}
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "id-1" || record(b) != "" || meta.ExternalCreateIncomplete(b) {
			t.Errorf("annotations: %v", b.GetAnnotations())
		}
	})
}

package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// What a create ends with when its deadline has passed.
func TestDeadline(t *testing.T) {
	cases := map[string]struct {
		reason  string
		returns func(ctx context.Context) error
		plain   bool
		named   bool // Whatever it returns.
		want    xpv2.ConditionReason
	}{
		"HeedsItsContext": {reason: "The outcome is unknown.", returns: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: asyncstate.ReasonResultUnknown},
		"HeedsItsContextUnderUpstream": {
			reason: "As above, without Graft's reconciler.",
			plain:  true, returns: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: asyncstate.ReasonResultUnknown,
		},
		"Named": {
			reason: "It is observed by the name that it was given.",
			named:  true, returns: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: asyncstate.ReasonFinished,
		},
		"SaysItInItsOwnWords": {
			reason: "Clients of cloud APIs have many ways to say that they were cancelled.",
			returns: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("RequestCanceled: request context canceled")
			},
			want: asyncstate.ReasonResultUnknown,
		},
		"IgnoresItsContextAndFails": {
			reason:  "It can't be told whether that is because of the deadline.",
			returns: func(context.Context) error { return errors.Join(sleep(context.Background(), 3*time.Hour), errQuota) }, want: asyncstate.ReasonResultUnknown,
		},
		"IgnoresItsContextAndSucceeds": {
			reason:  "A success is a success.",
			returns: func(context.Context) error { return sleep(context.Background(), 3*time.Hour) }, want: asyncstate.ReasonFinished,
		},
		"OwnTimeout": {
			reason: "The client has a shorter one of its own.",
			returns: func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()

				<-ctx.Done()

				return ctx.Err()
			},
			want: asyncstate.ReasonResultUnknown,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			calls := 0

			w := acting(t, false, func(ctx context.Context, mg resource.Managed) error {
				calls++

				err := tc.returns(ctx)
				if err == nil || tc.named {
					meta.SetExternalName(mg, "good")
				}

				return err
			})
			w.manual, w.plain = false, tc.plain
			w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
			w.start()

			pass(10 * time.Hour)

			b := w.get("b")
			if got := reason(b, asyncstate.TypeOperation); got != tc.want || calls != 1 {
				t.Errorf("\n%s\n%d calls: %s", tc.reason, calls, describe(b))
			}
		})
	}
}

// An operation that doesn't end although its time is over says so.
func TestPastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, false, func(context.Context, resource.Managed) error { return sleep(context.Background(), 3*time.Hour) })
		w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
		p := w.start()

		reconciled(t, p, "b")
		pass(2 * time.Hour)

		// No controller watches what ends, so it is looked at again soon.
		if res := reconciled(t, p, "b"); res.RequeueAfter != 10*time.Second {
			t.Errorf("It is reconciled again after %s", res.RequeueAfter)
		}

		contains(t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "True Running", "past its deadline, 2000-01-01T01:00:00Z")
		pass(2 * time.Hour)
	})
}

// Updates and deletes past their deadline are failures, and backed off from.
func TestUpdatePastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := acting(t, true, func(ctx context.Context, _ resource.Managed) error { <-ctx.Done(); return ctx.Err() })
		w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Minute)}
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Minute + 100*time.Millisecond)
		reconciled(t, p, "b")

		if got := condition(w.get("b"), xpv2.TypeSynced); got != "False ReconcileError: update failed: the deadline of the operation has passed" {
			t.Error(got)
		}

		contains(t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "Failed", "deadline")
	})
}

// A client that panics, or ends its goroutine, in the middle of a call ends the
// operation, too.
func TestPanic(t *testing.T) {
	const secret = "hunter2"

	cases := map[string]struct {
		reason string
		exists bool
		end    func()
		want   xpv2.ConditionReason
	}{
		"Create":       {reason: "The outcome is unknown.", end: func() { panic(secret) }, want: asyncstate.ReasonResultUnknown},
		"Error":        {reason: "As above.", end: func() { panic(errors.New(secret)) }, want: asyncstate.ReasonResultUnknown},
		"Update":       {reason: "It failed.", exists: true, end: func() { panic(secret) }, want: asyncstate.ReasonFailed},
		"Goexit":       {reason: "The outcome is unknown.", end: runtime.Goexit, want: asyncstate.ReasonResultUnknown},
		"UpdateGoexit": {reason: "It failed.", exists: true, end: runtime.Goexit, want: asyncstate.ReasonFailed},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := acting(t, tc.exists, func(context.Context, resource.Managed) error { tc.end(); return nil })
			p := w.start()

			reconciled(t, p, "b")
			pass(time.Second / 2)
			reconciled(t, p, "b")

			if b := w.get("b"); reason(b, asyncstate.TypeOperation) != tc.want || asyncstate.Remembered(p.tracker) != 0 || tc.exists && !strings.Contains(record(b), `"error":"panic"`) {
				t.Errorf("\n%s\n%d things are remembered: %s", tc.reason, asyncstate.Remembered(p.tracker), describe(b))
			}

			all := w.said.All() + fmt.Sprint(w.get("b"))
			if strings.Contains(all, secret) {
				t.Errorf("\n%s\nThe secret is out: %s", tc.reason, all)
			}

			if !strings.HasSuffix(name, "Goexit") {
				contains(t, "the log", all, "panicked", "end_test.go")
			}
		})
	}
}

// The object of a running operation is deleted past Graft, and created again.
func TestObjectIsReplaced(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   clientKind
		lost   bool
		name   string
		refuse error
	}{
		"Create":        {reason: "What was made has no owner, and an event says so.", kind: nothing, lost: true, name: "id-0001"},
		"Deterministic": {reason: "Its name is known.", kind: namedMid, lost: true, name: "id-0001"},
		"Refused":       {reason: "Nothing was made.", kind: nothing, refuse: errQuota},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			n := 0
			w.cloud.lose = func() error {
				if n++; n == 1 {
					return tc.refuse
				}

				return nil
			}
			p := w.start()

			pass(time.Minute)
			w.delete("b")
			w.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })

			if err := w.api.Server().Create(context.Background(), bucket("b")); err != nil {
				t.Fatal(err)
			}

			w.wake(w.get("b"))
			pass(time.Hour)

			b := w.get("b")
			if got := w.cloud.names(string(b.GetUID())); len(got) != 1 || meta.GetExternalName(b) != got[0] || record(b) != "" {
				t.Errorf("\n%s\nOf the new one the cloud has %v: %s", tc.reason, got, describe(b))
			}

			said := w.said.Events("ExternalResourceOrphaned")
			if tc.lost != (len(said) == 1) {
				t.Errorf("\n%s\n%v", tc.reason, said)
			}

			if tc.lost {
				contains(t, "the event", strings.Join(said, ""), tc.name)
				contains(t, "the log", w.said.All(), "managed resource is gone")
			}

			if n := asyncstate.Remembered(p.tracker); n != 0 {
				t.Errorf("\n%s\n%d things are remembered", tc.reason, n)
			}
		})
	}
}

// Connection details wait for a reconcile that publishes them, and are nowhere
// else.
func TestConnectionDetails(t *testing.T) {
	for _, plain := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Plain=%t", plain), func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b", func(b *v1alpha1.Bucket) {
				b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "s"})
			}))
			w.plain = plain
			p := w.start()

			pass(15 * time.Minute)

			var published []string

			secrets := &corev1.SecretList{}
			if err := w.api.Server().List(t.Context(), secrets); err != nil {
				t.Fatal(err)
			}

			for _, s := range secrets.Items {
				for _, v := range s.Data {
					published = append(published, string(v))
				}
			}

			if got := strings.Join(published, " "); got != secretOf("id-0001") {
				t.Errorf("Published were %q", published)
			}

			if n := asyncstate.Remembered(p.tracker); !plain && n != 0 {
				t.Errorf("%d things are remembered", n)
			}

			if all := w.said.All() + fmt.Sprint(w.get("b")); strings.Contains(all, "SECRET") {
				t.Errorf("The secret is out: %s", all)
			}

			pass(2 * time.Hour)

			if n := asyncstate.Remembered(p.tracker); n != 0 {
				t.Errorf("%d things are remembered", n)
			}
		})
	}
}

// An API server that is away for long loses nothing, and neither does one whose
// answers are lost.
func TestResultsSurvive(t *testing.T) {
	cases := map[string]struct {
		reason string
		fault  func(verb string, o client.Object) error
		lose   func(verb string, o client.Object) error
	}{
		"Away": {reason: "Requests fail for half an hour.", fault: away},
		"AnswersLost": {reason: "Writes are done, and their answers are lost.", lose: func(verb string, _ client.Object) error {
			if verb == testkit.LiveGet {
				return nil
			}

			return errors.New("connection reset")
		}},
	}

	for name, tc := range cases {
		for _, fails := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/Fails=%t", name, fails), func(t *testing.T) {
				w := newWorld(t, nothing, bucket("b"))
				w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
				w.cloud.lose = func() error {
					if fails {
						return errQuota
					}

					return nil
				}
				p := w.start()

				pass(5 * time.Minute)
				p.faults(tc.fault, tc.lose)

				before := p.reconciles.Load()

				pass(30 * time.Minute)

				if n := p.reconciles.Load() - before; n > 100 {
					t.Errorf("\n%s\n%d reconciles in half an hour", tc.reason, n)
				}

				p.faults(nil, nil)
				pass(3 * time.Minute)

				b := w.get("b")
				if fails {
					if got := condition(b, xpv2.TypeSynced); got != "False ReconcileError: create failed: quota" || meta.ExternalCreateIncomplete(b) {
						t.Errorf("\n%s\n%s", tc.reason, describe(b))
					}
				} else if meta.GetExternalName(b) != "id-0001" || record(b) != "" || reason(b, xpv2.TypeSynced) != xpv2.ReasonReconcileSuccess {
					t.Errorf("\n%s\n%s", tc.reason, describe(b))
				}

				if n := w.cloud.count(asyncstate.Create); n != 1 {
					t.Errorf("\n%s\n%d creates", tc.reason, n)
				}
			})
		}
	}
}

// A failure stands until its operation succeeds, whatever is observed, and
// by any process.
func TestFailureIsNotMasked(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		bubble(t, string(typ), func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.cloud.takes = time.Minute
			w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Second, 10*time.Minute)}
			refuse := func(verb asyncstate.Type) error {
				if verb == typ {
					return errQuota
				}

				return nil
			}
			w.cloud.refuse = refuse
			p := w.start()

			if typ != asyncstate.Create {
				pass(5 * time.Minute)
			}

			w.ask(typ)

			pass(2 * time.Second)

			want := fmt.Sprintf("False ReconcileError: %s failed: quota", typ)
			before, writes := p.reconciles.Load(), w.api.Writes()

			for i := range 3 * 60 {
				pass(time.Minute)

				if got := condition(w.get("b"), xpv2.TypeSynced); !strings.HasSuffix(got, string(typ)+" failed: quota") || got[:5] != want[:5] {
					t.Fatalf("After %d minutes: %s", i, got)
				}

				if i == 60 {
					p.kill()
					p = w.start()
				}
			}

			if n := w.cloud.count(typ); n < 15 || n > 40 {
				t.Errorf("%d attempts in 3 hours", n)
			}

			if n := w.processes[0].reconciles.Load() + p.reconciles.Load() - before; n > 650 {
				t.Errorf("%d reconciles in 3 hours", n)
			}

			if n := w.api.Writes() - writes; n > 160 {
				t.Errorf("%d writes in 3 hours", n)
			}

			w.cloud.refuses(nil)
			pass(15 * time.Minute)

			if b := w.get("b"); typ == asyncstate.Delete && !w.gone() || typ != asyncstate.Delete && reason(b, xpv2.TypeSynced) != xpv2.ReasonReconcileSuccess {
				t.Error(describe(b))
			}
		})
	}
}

// A changed spec ends the backoff.
func TestSpecChangeEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
		w.cloud.refuses(errQuota)
		w.start()

		pass(10 * time.Minute)

		if n := w.cloud.count(asyncstate.Create); n != 1 {
			t.Fatalf("%d creates", n)
		}

		w.edit("b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) })
		pass(time.Second)

		if n := w.cloud.count(asyncstate.Create); n != 1 {
			t.Errorf("%d creates when a label changed", n)
		}

		w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
		pass(time.Second)

		if n := w.cloud.count(asyncstate.Create); n != 2 {
			t.Errorf("%d creates when the spec changed", n)
		}
	})
}

// Removing the record is the documented way to retry a failed delete at once.
func TestRemovedRecordEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
		w.cloud.takes = time.Second
		w.start()

		pass(time.Minute)
		w.cloud.refuses(errQuota)
		w.delete("b")
		pass(time.Minute)
		w.cloud.refuses(nil)
		contains(t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "Failed", "delete, attempt 1, failed at 2000-01-01T00:01:00Z, next attempt at 2000-01-01T01:01:00Z: quota")

		w.edit("b", func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) })
		pass(time.Minute)

		if !w.gone() {
			t.Error(describe(w.get("b")))
		}
	})
}

// What is asked for while an update runs comes after it, and the last word counts.
func TestLatestSpecWins(t *testing.T) {
	for _, plain := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Plain=%t", plain), func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.plain = plain
			w.start()

			pass(15 * time.Minute)

			for i := range 4 {
				w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = fmt.Sprint("region-", i) })
				pass(time.Minute)
			}

			pass(25 * time.Minute)

			if got := w.cloud.region("id-0001"); got != "region-3" || w.cloud.most != 1 || w.cloud.count(asyncstate.Update) != 2 {
				t.Errorf("The region is %q after %d updates, %d at once", got, w.cloud.count(asyncstate.Update), w.cloud.most)
			}
		})
	}
}

// An external client may observe the same connection details for all objects. Those that
// a create returned are published for its own object alone.
func TestConnectionDetails_OfTheirObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publishes := func(b *v1alpha1.Bucket) {
			b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "of-" + b.GetName()})
		}

		w := newWorld(t, nothing, bucket("a", publishes), bucket("b", publishes))
		same := upstream.ConnectionDetails{"endpoint": []byte("here")}

		w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
			return &upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
					return upstream.ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true, ConnectionDetails: same}, nil
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
					meta.SetExternalName(mg, mg.GetName())
					return upstream.ExternalCreation{ConnectionDetails: upstream.ConnectionDetails{"password": []byte("of-" + mg.GetName())}}, nil
				},
				DisconnectFn: func(context.Context) error { return nil },
			}, nil
		}

		w.start()
		pass(time.Minute)

		secrets := &corev1.SecretList{}
		if err := w.api.Server().List(context.Background(), secrets); err != nil || len(secrets.Items) != 2 {
			t.Fatalf("%d secrets: %v", len(secrets.Items), err)
		}

		for _, s := range secrets.Items {
			if p := string(s.Data["password"]); p != s.GetName() {
				t.Errorf("secret %q has the password %q", s.GetName(), p)
			}
		}
	})
}

// A version that is not served for a while says nothing of the object.
func TestResultsSurviveUnservedVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		p := w.start()

		pass(5 * time.Minute)
		p.faults(func(verb string, _ client.Object) error {
			return kerrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{Resource: "buckets"}, "b", "404 page not found", 0, true)
		}, nil)
		pass(30 * time.Minute)
		p.faults(nil, nil)
		pass(3 * time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "id-0001" || record(b) != "" || w.cloud.count(asyncstate.Create) != 1 {
			t.Errorf("%d creates; %s", w.cloud.count(asyncstate.Create), describe(b))
		}
	})
}

package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	fake "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A client that panics, or ends its goroutine, ends the operation, too.
func TestPanic(t *testing.T) {
	const secret = "hunter2"
	cases := map[string]struct {
		reason string
		exists bool
		end    func()
		want   xpv2.ConditionReason

		disconnects bool // Whether it is Disconnect that panics.
	}{
		"Disconnect": {
			reason: "A create should have succeeded although Disconnect panics.",
			end:    func() {}, disconnects: true, want: asyncstate.ReasonFinished,
		},
		"Create": {
			reason: "The outcome is unknown.",
			end:    func() { panic(secret) }, want: asyncstate.ReasonOutcomeUnknown,
		},
		"Error": {
			reason: "The outcome should be unknown after a panic with an error, too.",
			end:    func() { panic(errors.New(secret)) }, want: asyncstate.ReasonOutcomeUnknown,
		},
		"Update": {
			reason: "An update that panicked should have failed.",
			exists: true, end: func() { panic(secret) }, want: asyncstate.ReasonFailed,
		},
		"Goexit": {reason: "The outcome is unknown.", end: runtime.Goexit, want: asyncstate.ReasonOutcomeUnknown},
		"UpdateGoexit": {
			reason: "An update whose goroutine was ended should have failed.",
			exists: true, end: runtime.Goexit, want: asyncstate.ReasonFailed,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			e.manualReconciles = true
			e.connect = func(_ *process, mg resource.Managed) (upstream.ExternalClient, error) {
				c := newClient(tc.exists, func(_ context.Context, mg resource.Managed) error {
					tc.end()
					meta.SetExternalName(mg, "good")
					return nil
				})
				if tc.disconnects && meta.GetExternalName(mg) == "" {
					c.DisconnectFn = func(context.Context) error { panic(secret) }
				}
				return c, nil
			}
			p := e.startProvider()
			mustReconcile(t, p, "b")
			advanceClock(time.Second / 2)
			mustReconcile(t, p, "b")
			if b := e.get("b"); reason(b, asyncstate.TypeOperation) != tc.want ||
				asyncstate.OperationsInMemory(p.tracker) != 0 ||
				tc.exists && !strings.Contains(record(b), `"error":"panic"`) {
				t.Errorf(
					"\n%s\n%d operations are in memory: %s",
					tc.reason, asyncstate.OperationsInMemory(p.tracker), describe(b),
				)
			}
			all := e.events.All() + fmt.Sprint(e.get("b"))
			expectEqual(t, tc.reason+"\n"+all, "the secret is out", false, strings.Contains(all, secret))
			if !strings.HasSuffix(name, "Goexit") {
				expectContains(t, "the log", all, "panicked", "end_test.go")
			}
			switch {
			case tc.disconnects:
				expectContains(t, "the events", all, "The create has succeeded")
			case !tc.exists:
				expectContains(t, "the events", all, "the outcome of the create is unknown")
			}
		})
	}
}

// The object of a running operation is deleted past Graft, and created again.
func TestObjectIsReplaced(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   clientKind
		lost   string // external name
		refuse error
		update bool // an update runs, not the create
	}{
		"Update": {
			reason: "An update says nothing about an external resource without an owner.",
			kind:   plainClient, update: true,
		},
		"Create": {
			reason: "An event should say that the external resource has no owner.",
			kind:   plainClient, lost: "id-0001",
		},
		"Named": {reason: "Its name is known.", kind: namesEarly, lost: "id-0001"},
		"Refused": {
			reason: "A create that failed should have created no external resource.",
			kind:   plainClient, refuse: errQuota,
		},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, tc.kind, bucket("b"))
			e.cloud.loseAnswer = func() error {
				e.cloud.loseAnswer = nil
				return tc.refuse
			}
			p := e.startProvider()
			if tc.update {
				advanceClock(time.Hour)
				e.requestOperation(asyncstate.Update)
			}
			advanceClock(time.Minute)
			e.delete("b")
			e.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			e.add("b")
			advanceClock(time.Hour)
			b := e.get("b")
			got := e.cloud.names(string(b.GetUID()))
			expectEqual(t, tc.reason+"\n"+describe(b), "in the cloud, record, operations in memory", []any{
				[]string{meta.GetExternalName(b)}, "", 0,
			}, []any{got, record(b), asyncstate.OperationsInMemory(p.tracker)})
			if said := e.events.Events("ExternalResourceOrphaned"); (tc.lost != "") != (len(said) == 1) ||
				!strings.Contains(strings.Join(said, ""), tc.lost) ||
				strings.Contains(e.events.All(), "managed resource no longer exists") != (tc.lost != "") {
				t.Errorf("\n%s\n%v", tc.reason, said)
			}
		})
	}
}

// The operation of an object that was deleted past Graft should take nothing from the object that has its name now.
func TestObjectIsReplaced_KeepsConnectionDetails(t *testing.T) {
	for name, err := range map[string]error{"Succeeds": nil, "Fails": errQuota} {
		runInBubble(t, name, func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			former := e.get("b").GetUID()
			e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
				c := newClient(false, nil)
				c.ObserveFn = func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
					return upstream.ExternalObservation{
						ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true,
					}, nil
				}
				c.CreateFn = func(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
					if mg.GetUID() == former {
						time.Sleep(30 * time.Minute)
						return upstream.ExternalCreation{}, err
					}
					meta.SetExternalName(mg, "good")
					return upstream.ExternalCreation{
						ConnectionDetails: upstream.ConnectionDetails{"endpoint": []byte("e")},
					}, nil
				}
				return c, nil
			}
			p := e.startProvider()
			advanceClock(time.Minute)
			e.delete("b")
			e.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			advanceClock(time.Minute)
			p.setFaults(func(verb string, o client.Object) error {
				if _, ok := o.(*corev1.Secret); ok && verb == testkit.Patch {
					return errors.New("the API server is unavailable")
				}
				return nil
			}, nil)
			e.add("b", func(b *v1alpha1.Bucket) {
				b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "s"})
			})
			advanceClock(40 * time.Minute)
			p.setFaults(nil, nil)
			advanceClock(time.Hour)
			s := &corev1.Secret{}
			if err := e.api.Server().Get(t.Context(), key("s"), s); err != nil || string(s.Data["endpoint"]) != "e" {
				t.Errorf("The secret should have connection details: got %q, %v: %s", s.Data, err, describe(e.get("b")))
			}
		})
	}
}

// Connection details wait for a reconcile that publishes them, and are nowhere else.
func TestConnectionDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publishes := func(b *v1alpha1.Bucket) {
			b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "of-" + b.GetName()})
		}
		e := newEnvironment(t, plainClient, bucket("a", publishes), bucket("b", publishes))
		e.cloud.connectionDetails = managed.ConnectionDetails{"same": []byte("for all")}
		p := e.startProvider()
		advanceClock(15 * time.Minute)
		for _, name := range []string{"a", "b"} {
			s, want := &corev1.Secret{}, secretOf(meta.GetExternalName(e.get(name)))
			if err := e.api.Server().Get(t.Context(), key("of-"+name), s); err != nil ||
				string(s.Data["endpoint"]) != want {
				t.Errorf("%q is published of %s, want %q: %v", s.Data["endpoint"], name, want, err)
			}
		}
		expectEqual(
			t, "", "the secret is out", false, strings.Contains(e.events.All()+fmt.Sprint(e.get("b")), "SECRET"),
		)
		expectEqual(t, "", "objects in memory", 0, asyncstate.ObjectsInMemory(p.tracker))
	})
}

// Connection details should be published although the API server refuses the secret for long.
func TestConnectionDetails_PublishedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment(t, plainClient, bucket("b", func(b *v1alpha1.Bucket) {
			b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "s"})
		}))
		e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
			c := newClient(false, nil)
			c.ObserveFn = func(_ context.Context, mg resource.Managed) (upstream.ExternalObservation, error) {
				exists := meta.GetExternalName(mg) != ""
				return upstream.ExternalObservation{ResourceExists: exists, ResourceUpToDate: true}, nil
			}
			c.CreateFn = func(_ context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
				meta.SetExternalName(mg, "good")
				return upstream.ExternalCreation{
					ConnectionDetails: upstream.ConnectionDetails{"endpoint": []byte("e")},
				}, nil
			}
			return c, nil
		}
		p := e.startProvider()
		p.setFaults(func(verb string, o client.Object) error {
			if _, ok := o.(*corev1.Secret); ok && verb == testkit.Patch {
				return errors.New("a quota is exceeded")
			}
			return nil
		}, nil)
		advanceClock(5 * time.Hour)
		p.setFaults(nil, nil)
		advanceClock(time.Hour)
		s := &corev1.Secret{}
		if err := e.api.Server().Get(t.Context(), key("s"), s); err != nil || string(s.Data["endpoint"]) != "e" {
			t.Errorf("The secret should have connection details: got %q, %v: %s", s.Data, err, describe(e.get("b")))
		}
		expectEqual(t, "", "objects in memory", 0, asyncstate.ObjectsInMemory(p.tracker))
	})
}

// A failure should stand until its operation succeeds, in each process. Its
// text is in conditions, and not in the record: many users may read annotations, which it may fill up.
func TestFailureIsNotMasked(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		runInBubble(t, string(typ), func(t *testing.T) {
			e := newEnvironment(t, plainClient, bucket("b"))
			e.cloud.requestDuration = time.Minute
			e.options = []asyncstate.TrackerOption{
				asyncstate.WithBackoff(time.Second, 10*time.Minute), asyncstate.WithTimeout(5 * time.Hour),
			}
			e.cloud.reject = func(verb asyncstate.Type) error {
				if verb == typ {
					return status.Error(
						codes.ResourceExhausted, `tenant "acme" has no quota`+strings.Repeat("<br>", 2<<10),
					)
				}
				return nil
			}
			p := e.startProvider()
			if typ != asyncstate.Create {
				advanceClock(5 * time.Minute)
			}
			e.requestOperation(typ)
			advanceClock(2 * time.Second)
			before, writes := p.reconciles.Load(), e.api.Writes()
			for i := range 3 * 60 {
				advanceClock(time.Minute)
				b := e.get("b")
				if got := condition(b, xpv2.TypeSynced); !strings.HasPrefix(got, "False ") ||
					!strings.Contains(got, string(typ)+" failed: ") || !strings.Contains(got, "acme") {
					t.Fatalf("After %d minutes: %s", i, got)
				}
				if got := condition(b, asyncstate.TypeOperation); i < 90 && !strings.Contains(got, "acme") {
					t.Fatalf("After %d minutes OperationRunning: %s", i, got)
				}
				if r := record(b); strings.Contains(r, "acme") || len(r) > 1<<10 || i < 90 &&
					!strings.Contains(r, `"error":"ResourceExhausted"`) {
					t.Fatalf("After %d minutes the record is %s", i, r)
				}
				switch i {
				case 60:
					p.kill()
					p = e.startProvider()
				case 90: // The last attempt takes longer than memory keeps the error.
					e.cloud.set(func(c *fakeCloud) { c.requestDuration, c.reject = 4*time.Hour, nil })
				}
			}
			if n := e.cloud.count(typ); n < 15 || n > 40 {
				t.Errorf("%d attempts in 3 hours", n)
			}
			most := map[asyncstate.Type]int64{
				asyncstate.Create: 280,
				asyncstate.Update: 280,
				asyncstate.Delete: 185,
			}[typ]
			if n := e.processes[0].reconciles.Load() + p.reconciles.Load() - before; n > most {
				t.Errorf("%d reconciles in 3 hours", n)
			}
			if n := e.api.Writes() - writes; n > 160 {
				t.Errorf("%d writes in 3 hours", n)
			}
			advanceClock(3 * time.Hour)
			if b := e.get("b"); typ == asyncstate.Delete && !e.objectGone() || typ != asyncstate.Delete &&
				reason(b, xpv2.TypeSynced) != xpv2.ReasonReconcileSuccess {
				t.Error(describe(b))
			}
		})
	}
}

// The deadline and the error of an operation should decide about its outcome.
func TestEnds(t *testing.T) {
	hour := []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
	backoff := []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
	// failsWithHandle has Create set a handle and return err.
	failsWithHandle := func(err error) func(t *testing.T, e *environment) {
		return func(t *testing.T, e *environment) {
			e.useClient(false, func(ctx context.Context, _ resource.Managed) error {
				return errors.Join(asyncstate.SetHandle(ctx, "handle"), err)
			})
			p := e.startProvider()
			mustReconcile(t, p, "b")
			advanceClock(time.Minute)
			p.reconcileRepeatedly(1, 0)
		}
	}

	// returns has Create return what fn does, once, and pass ten hours.
	returns := func(fn func(ctx context.Context, mg resource.Managed) error) func(t *testing.T, e *environment) {
		return func(t *testing.T, e *environment) {
			calls := 0
			e.useClient(false, func(ctx context.Context, mg resource.Managed) error {
				calls++
				return fn(ctx, mg)
			})
			e.startProvider()
			advanceClock(10 * time.Hour)
			expectEqual(t, "", "calls", 1, calls)
		}
	}
	heeds := func(ctx context.Context, _ resource.Managed) error { <-ctx.Done(); return ctx.Err() }
	cases := map[string]scenario{
		"HeedsItsContext": {
			reason:         "The outcome is unknown.",
			autoReconciled: true, options: hour, steps: returns(heeds), want: unknownAfterCreates(0),
		},
		"Named": {
			reason:         "It is observed by the name that it was given.",
			autoReconciled: true, options: hour, want: namedGood(),
			steps: returns(func(ctx context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "good")
				return heeds(ctx, mg)
			}),
		},
		"IgnoresItsContextAndFails": {
			reason:         "The outcome should be unknown, because the deadline may be the cause of the error.",
			autoReconciled: true, options: hour, want: unknownAfterCreates(0),
			steps: returns(func(context.Context, resource.Managed) error {
				return errors.Join(sleep(context.Background(), 3*time.Hour), errQuota)
			}),
		},
		"IgnoresItsContextAndSucceeds": {
			reason: "A success is a success.", autoReconciled: true, options: hour, want: namedGood(),
			steps: returns(func(_ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "good")
				return sleep(context.Background(), 3*time.Hour)
			}),
		},
		"FailsWithHandle": {
			reason: "An operation that has failed should not be resumed.", options: backoff,
			steps: failsWithHandle(errQuota),
			want: finalState{
				Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileError, Recorded: true,
			},
		},
		"FailsTerminallyWithHandle": {
			reason:  "A terminal error should be the result of the operation, also with the status of a refused request.",
			limited: true,
			steps:   failsWithHandle(ratelimit.Terminal(kerrors.NewBadRequest("no such size"))),
			want: finalState{
				Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
				Synced: ratelimit.ReasonTerminal, Recorded: true,
			},
		},
		"UpdatePastDeadline": {
			reason: "Updates and deletes past their deadline are failures, and backed off from.", options: hour,
			steps: func(t *testing.T, e *environment) {
				e.useClient(true, heeds)
				p := e.startProvider()
				mustReconcile(t, p, "b")
				advanceClock(time.Hour + 100*time.Millisecond)
				mustReconcile(t, p, "b")
				expectEqual(
					t, "", "Synced", "False ReconcileError: update failed: the deadline of the operation has passed",
					condition(e.get("b"), xpv2.TypeSynced),
				)
				expectContains(t, "record", record(e.get("b")), `"phase":"failed"`, `"error":"deadline exceeded"`)
			},
			want: finalState{
				Operation: asyncstate.ReasonFailed, Ready: "", Synced: xpv2.ReasonReconcileError,
				Recorded: true,
			},
		},
	}
	runScenarios(t, cases)
}

// The end of an operation should be reported although its account is closed.
func TestEnds_Throttled(t *testing.T) {
	// deleteThrottled starts a provider, and deletes b, which closes its account for five hours.
	deleteThrottled := func(e *environment) {
		e.startProvider()
		advanceClock(time.Hour)
		e.cloud.rejectRequests(ratelimit.Throttled(errQuota, 5*time.Hour))
		e.delete("b")
	}
	deleteFailed := finalState{
		Creates: 1, Created: 1, Deletes: 1, Remaining: 1, Name: "id-0001",
		Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonDeleting, Synced: xpv2.ReasonReconcileError,
		Deleting: reconciler.ReasonExternalDeleteFailed, Recorded: true,
	}

	cases := map[string]scenario{
		"Throttled": {
			reason:  "A create that is throttled should close the account: the client of the next object should not be connected.",
			limited: true,
			steps: func(t *testing.T, e *environment) {
				e.reconcilerOptions = []managed.ReconcilerOption{
					ratelimit.With(ratelimit.New(100, 100)),
				}
				e.cloud.rejectRequests(ratelimit.Throttled(errQuota, time.Hour))
				p := e.startProvider()
				mustReconcile(t, p, "b")
				synctest.Wait()
				e.add("other")
				mustReconcile(t, p, "other")
				expectEqual(t, "", "clients", 1, len(e.cloud.clients))
			},
			want: finalState{
				Creates: 1, Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileSuccess, Recorded: true,
			},
		},
		"ThrottledAndPostponed": {
			reason:  "A create that was throttled should be reported although its account is closed, once.",
			limited: true, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.useClient(false, func(ctx context.Context, _ resource.Managed) error {
					return errors.Join(sleep(ctx, time.Minute), ratelimit.Throttled(errQuota, 5*time.Hour))
				})
				e.startProvider()
				advanceClock(2 * time.Minute)
				writes := e.api.Writes()
				e.enqueue(e.get("b"))
				advanceClock(time.Hour)
				expectEqual(t, "", "writes of the next hour", writes, e.api.Writes())
			},
			want: finalState{
				Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
				Synced: ratelimit.ReasonThrottled, Recorded: true,
			},
		},
		"ChangedWhilePostponed": {
			reason:  "Synced should not say that a spec was reconciled that was changed while the account is closed.",
			limited: true, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				e.startProvider()
				advanceClock(time.Hour)
				e.cloud.rejectRequests(ratelimit.Throttled(errQuota, 5*time.Hour))
				for _, region := range []string{"one", "two"} {
					e.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = region })
					advanceClock(10 * time.Minute)
				}
				b := e.get("b")
				expectEqual(
					t, describe(b), "generations since", int64(1),
					b.GetGeneration()-b.GetCondition(xpv2.TypeSynced).ObservedGeneration,
				)
			},
			want: finalState{
				Creates: 1, Created: 1, Updates: 1, Remaining: 1, Name: "id-0001",
				Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonAvailable,
				Synced: ratelimit.ReasonThrottled, Recorded: true,
			},
		},
		"OtherIsThrottled": {
			reason:  "A create that succeeded should be reported although its account is closed.",
			limited: true, autoReconciled: true,
			steps: func(_ *testing.T, e *environment) {
				e.startProvider()
				advanceClock(time.Minute)
				e.cloud.rejectRequests(ratelimit.Throttled(errQuota, 5*time.Hour))
				e.add("other")
				advanceClock(time.Hour)
			},
			want: finalState{
				Creates: 2, Created: 1, Remaining: 1, Name: "id-0001",
				Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileSuccess,
			},
		},
		"DeleteEndsDuringReconcile": {
			reason:  "A delete that ended during a reconcile, which reported only that, should be reported although its account is closed.",
			limited: true, autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				deleteThrottled(e)
				advanceClock(time.Minute)
				b := e.get("b")
				b.SetConditions(xpv2.ReconcileSuccess(), xpv2.Condition{
					Type: reconciler.TypeDeleting, Status: corev1.ConditionTrue,
					Reason: reconciler.ReasonWaitingForAsyncOperation,
				})
				if err := e.api.Server().Status().Update(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				e.enqueue(b)
				advanceClock(time.Hour)
			},
			want: deleteFailed,
		},
	}
	runScenarios(t, cases)
}

// An operation that waits should begin when it may.
func TestEnds_Queued(t *testing.T) {
	backoff := []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
	cases := map[string]scenario{
		"QueuedDeleteIsPostponed": {
			reason:         "A delete that waits for a permit should still say so while its account is closed.",
			limited:        true,
			autoReconciled: true, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
			steps: func(_ *testing.T, e *environment) {
				e.startProvider()
				e.add("other")
				advanceClock(time.Hour)
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = 50 * time.Minute })
				e.delete("other")
				advanceClock(time.Minute)
				e.delete("b")
				advanceClock(time.Minute)
				e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					return nil, ratelimit.Throttled(errQuota, 5*time.Hour)
				}
				e.add("throttled")
				advanceClock(time.Minute)
				e.enqueue(e.get("b"))
				advanceClock(time.Minute)
			},
			want: finalState{
				Creates: 2, Created: 1, Deletes: 1, Remaining: 1, Name: "id-0001",
				Operation: asyncstate.ReasonQueued, Ready: xpv2.ReasonDeleting, Synced: xpv2.ReasonReconcileSuccess,
				Deleting: reconciler.ReasonWaitingForAsyncOperation,
			},
		},
		"QueuedAgain": {
			reason:         "An external resource that no longer exists should not be Ready while its create waits for a permit.",
			autoReconciled: true, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
			steps: func(_ *testing.T, e *environment) {
				e.startProvider()
				advanceClock(time.Hour)
				e.cloud.set(func(c *fakeCloud) { c.requestDuration = 50 * time.Minute })
				e.add("other")
				advanceClock(time.Minute)
				e.cloud.clear()
				e.enqueue(e.get("b"))
				advanceClock(time.Minute)
			},
			want: finalState{
				Creates: 2, Created: 1, Name: "id-0001",
				Operation: asyncstate.ReasonQueued, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileSuccess,
			},
		},
		"InLine": {
			reason:         "Operations should wait for a permit, one after the other.",
			autoReconciled: true, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
			steps: func(t *testing.T, e *environment) {
				for _, name := range []string{"c", "d", "e"} {
					e.add(name)
				}
				e.startProvider()
				advanceClock(time.Hour)
				if e.cloud.mostRunning != 1 {
					t.Errorf("%d at once", e.cloud.mostRunning)
				}
			},
			want: readyAfterCreates(4, "id-0001"),
		},
		"RemovedRecord": {
			reason:         "Removing the record is the documented way to retry a failed delete at once.",
			autoReconciled: true, options: backoff,
			steps: func(t *testing.T, e *environment) {
				e.cloud.requestDuration = time.Second
				e.startProvider()
				advanceClock(time.Minute)
				e.cloud.rejectRequests(errQuota)
				e.delete("b")
				advanceClock(time.Minute)
				e.cloud.rejectRequests(nil)
				expectContains(
					t, "OperationRunning", condition(e.get("b"), asyncstate.TypeOperation), "Failed",
					"delete, attempt 1, failed at 2000-01-01T00:01:00Z, next attempt at 2000-01-01T01:01:00Z: quota",
				)
				e.edit("b", func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) })
				advanceClock(time.Minute)
			},
			want: finalState{Creates: 1, Deletes: 2, Created: 1, Gone: true},
		},
	}
	l := scenario{
		reason:         "A spec that changes while an update runs should be applied after it, and only the last one.",
		autoReconciled: true,
		steps: func(t *testing.T, e *environment) {
			e.startProvider()
			advanceClock(15 * time.Minute)
			for i := range 4 {
				e.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = fmt.Sprint("region-", i) })
				advanceClock(time.Minute)
			}
			advanceClock(25 * time.Minute)
			expectEqual(t, "", "region after updates, at once", []any{"region-3", 1}, []any{
				e.cloud.region("id-0001"), e.cloud.mostRunning,
			})
		},
		want: readyAfterCreates(1, "id-0001"),
	}
	l.want.Updates = 2
	cases["LatestSpec"] = l
	cases["SpecChange"] = scenario{
		reason: "A changed spec ends the backoff.", autoReconciled: true, options: backoff,
		steps: func(t *testing.T, e *environment) {
			e.cloud.rejectRequests(errQuota)
			e.startProvider()
			advanceClock(10 * time.Minute)
			e.edit("b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) })
			advanceClock(time.Second)
			expectEqual(t, "", "creates when a label changed", 1, e.cloud.count(asyncstate.Create))
			e.requestOperation(asyncstate.Update)
			advanceClock(time.Second)
			expectContains(
				t, "OperationRunning", condition(e.get("b"), asyncstate.TypeOperation),
				"create, attempt 2, failed",
			)
			expectContains(t, "record", record(e.get("b")), `"error":"error"`)
		},
		want: finalState{
			Creates: 2, Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
			Synced: xpv2.ReasonReconcileError, Recorded: true,
		},
	}
	runScenarios(t, cases)
}

// The end of an operation should be stored although its object has changed.
func TestEnds_Changed(t *testing.T) {
	cases := map[string]scenario{
		"PausedWhileItRuns": {
			reason: "A pause does not interrupt what runs in this process.",
			steps: func(t *testing.T, e *environment) {
				p := e.startProvider()
				mustReconcile(t, p, "b")
				e.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
				})
				mustReconcile(t, p, "b")
				expectContains(t, "OperationRunning", condition(e.get("b"), asyncstate.TypeOperation), "True Running")
				advanceClock(11 * time.Minute)
				writes := 0
				p.setFaults(func(verb string, o client.Object) error {
					writes++
					return apiServerUnavailable(verb, o)
				}, nil)
				p.reconcileRepeatedly(1, 0)
				p.setFaults(nil, nil)
				expectEqual(t, "The next reconcile should retry the write of status.", "failed writes", 1, writes)
				mustReconcile(t, p, "b")
			},
			want: finalState{
				Creates: 1, Created: 1, Remaining: 1, Name: "id-0001", Operation: asyncstate.ReasonFinished,
				Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcilePaused,
			},
		},
		"ObjectIsGone": {
			reason: "Nothing about an object that no longer exists should stay in memory.",
			steps: func(t *testing.T, e *environment) {
				p := e.startProvider()
				mustReconcile(t, p, "b")
				e.delete("b")
				e.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
				advanceClock(11 * time.Minute)
				expectEqual(t, "", "objects in memory", 0, asyncstate.ObjectsInMemory(p.tracker))
			},
			want: finalState{Creates: 1, Created: 1, Remaining: 1, Gone: true},
		},
		"ReadsAgain": {
			reason: "A client that reads the object again, from a cache that lags, does not take back that this create was announced. It is repeated with its token.",
			options: []asyncstate.TrackerOption{
				asyncstate.WithIdempotentTokens(), asyncstate.WithBackoff(time.Second, time.Second),
			},
			steps: func(t *testing.T, e *environment) {
				var tokens []string
				e.useClient(false, func(ctx context.Context, mg resource.Managed) error {
					switch tokens = append(tokens, asyncstate.Token(ctx)); len(tokens) {
					case 1:
						return errQuota
					case 2:
						return errors.Join(
							e.processes[0].GetClient().Get(ctx, key("b"), mg), asyncstate.ErrOutcomeUnknown,
						)
					default:
						meta.SetExternalName(mg, "good")
						return nil
					}
				})
				p := e.startProvider()
				p.reconcileRepeatedly(1, 5*time.Second)
				if err := e.api.Freeze(t.Context(), e.get("b")); err != nil {
					t.Fatal(err)
				}
				p.reconcileRepeatedly(1, 0)
				e.api.Thaw()
				advanceClock(5 * time.Second)
				expectEqual(t, "", "incomplete", true, meta.ExternalCreateIncomplete(e.get("b")))
				p.reconcileRepeatedly(4, 5*time.Second)
				expectEqual(t, "", "tokens", []string{tokens[1]}, tokens[2:])
			},
			want: finalState{
				Name: "good", Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileSuccess,
			},
		},
	}
	runScenarios(t, cases)
}

// A delete should be observed, and repeated with backoff.
func TestEnds_Delete(t *testing.T) {
	confirmation := []managed.ReconcilerOption{confirm.With(2, time.Minute)}
	// deletingOld starts a provider that confirms deletions, after b was deleted, whose external name is old.
	deletingOld := func(e *environment) *process {
		e.reconcilerOptions = confirmation
		e.cloud.add("old", "")
		e.edit("b", func(b *v1alpha1.Bucket) {
			b.SetFinalizers([]string{managed.FinalizerName})
			meta.SetExternalName(b, "old")
		})
		e.delete("b")
		return e.startProvider()
	}
	cases := map[string]scenario{
		"UpdateOfWhatIsAbsent": {
			reason:  "Upstream updates an absent external resource if the management policies allow only that. The next update should wait like any other.",
			options: []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)},
			steps: func(t *testing.T, e *environment) {
				calls := 0
				e.useClient(false, func(context.Context, resource.Managed) error {
					calls++
					return errQuota
				})
				e.edit("b", func(b *v1alpha1.Bucket) {
					b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
						xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate,
					}
				})
				e.startProvider().reconcileRepeatedly(3, 0)
				expectEqual(t, "", "updates", 1, calls)
			},
			want: finalState{Operation: asyncstate.ReasonFailed, Synced: xpv2.ReasonReconcileError, Recorded: true},
		},
		"DeleteDoesNothing": {
			reason:         "Deletes that succeed and delete nothing should be repeated less and less often.",
			autoReconciled: true,
			steps: func(t *testing.T, e *environment) {
				deletes := 0
				e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					c := newClient(true, nil)
					c.DeleteFn = func(context.Context, resource.Managed) (upstream.ExternalDelete, error) {
						deletes++
						return upstream.ExternalDelete{}, nil
					}
					return c, nil
				}
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "there") })
				e.startProvider()
				advanceClock(time.Minute)
				e.delete("b")
				advanceClock(3 * time.Hour)
				if deletes > 200 {
					t.Errorf("%d deletes in 3 hours", deletes)
				}
			},
			want: finalState{
				Name: "there", Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonDeleting,
				Synced: xpv2.ReasonReconcileSuccess, Deleting: reconciler.ReasonWaitingForExternalResource,
			},
		},
		"AbsentAndNeverDeleted": {
			reason: "The absence of an external resource that was never deleted should be confirmed.",
			steps: func(_ *testing.T, e *environment) {
				e.reconcilerOptions = confirmation
				e.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers([]string{managed.FinalizerName}) })
				e.delete("b")
				e.startProvider().reconcileRepeatedly(1, 0)
			},
			want: finalState{Ready: xpv2.ReasonDeleting, Deleting: reconciler.ReasonConfirmingAbsence},
		},
		"CreatedWithoutName": {
			reason: "A create that sets no external name should be stored as a success when it ends.",
			steps: func(_ *testing.T, e *environment) {
				e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					return newClient(false, func(context.Context, resource.Managed) error { return nil }), nil
				}
				e.startProvider().reconcileRepeatedly(1, time.Second)
			},
			want: finalState{
				Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileSuccess,
			},
		},
		"StillVisibleAfterDelete": {
			reason: "The absence of an external resource needs no confirmation if it was only visible for a moment after its delete.",
			steps: func(_ *testing.T, e *environment) {
				p := deletingOld(e)
				p.reconcileRepeatedly(1, 10*time.Minute)
				e.cloud.add("old", "")
				p.reconcileRepeatedly(1, time.Second/2)
				e.cloud.clear()
				p.reconcileRepeatedly(1, 0)
			},
			want: finalState{Deletes: 1, Created: 2, Gone: true},
		},
		"FoundAfterDelete": {
			reason: "The absence of an external resource should be confirmed if it was found again after a delete that succeeded.",
			steps: func(_ *testing.T, e *environment) {
				p := deletingOld(e)
				p.reconcileRepeatedly(1, time.Hour)
				e.cloud.add("old", "")
				e.cloud.rejectRequests(errQuota)
				p.reconcileRepeatedly(1, time.Hour)
				e.cloud.clear()
				p.reconcileRepeatedly(1, 0)
			},
			want: finalState{
				Deletes: 2, Created: 2, Name: "old",
				Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonDeleting, Synced: xpv2.ReasonReconcileError,
				Deleting: reconciler.ReasonConfirmingAbsence, Recorded: true,
			},
		},
		"RenamedAfterDelete": {
			reason: "The absence of an external resource should be confirmed if the delete was one of another external name.",
			steps: func(_ *testing.T, e *environment) {
				p := deletingOld(e)
				p.reconcileRepeatedly(1, time.Hour)
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "new") })
				p.reconcileRepeatedly(1, 0)
			},
			want: finalState{
				Deletes: 1, Created: 1, Name: "new", Operation: asyncstate.ReasonFinished,
				Ready: xpv2.ReasonDeleting, Synced: xpv2.ReasonReconcileSuccess,
				Deleting: reconciler.ReasonConfirmingAbsence,
			},
		},
	}
	runScenarios(t, cases)
}

// A result should be stored, also if the API server is away for a while.
func TestEnds_Stored(t *testing.T) {
	backoff := []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
	failed := finalState{
		Creates: 1, Created: 1, Remaining: 1, Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
		Synced: xpv2.ReasonReconcileError, Recorded: true,
	}

	cases := map[string]scenario{
		"FailsAndIsInterrupted": {
			reason:  "The failure should be reported by the next process, although the create began and failed in the same second.",
			options: backoff,
			steps: func(_ *testing.T, e *environment) {
				p := e.startProvider()
				p.reconcileRejected()
				p.kill()
				e.startProvider().reconcileRepeatedly(1, 0)
			},
			want: finalState{
				Creates: 1, Operation: asyncstate.ReasonFailed, Ready: xpv2.ReasonCreating,
				Synced: xpv2.ReasonReconcileError, Recorded: true,
			},
		},
		"ResultNotStored": {
			reason:         "Synced should show soon that the result of an operation cannot be stored.",
			autoReconciled: true,
			steps: func(_ *testing.T, e *environment) {
				e.reconcilerOptions = []managed.ReconcilerOption{managed.WithPollInterval(10 * time.Hour)}
				p := e.startProvider()
				advanceClock(5 * time.Minute)
				p.setFaults(func(verb string, o client.Object) error {
					if verb == testkit.StatusUpdate {
						return nil
					}
					return apiServerUnavailable(verb, o)
				}, nil)
				advanceClock(5*time.Minute + 2*time.Second)
			},
			want: finalState{
				Creates: 1, Created: 1, Remaining: 1,
				Operation: asyncstate.ReasonRunning, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileError,
				Recorded: true, Incomplete: true,
			},
		},
	}
	l := scenario{
		reason: "An operation does not begin without its record.",
		want:   readyAfterCreates(1, "id-0001"),
		steps: func(t *testing.T, e *environment) {
			p := e.startProvider()
			p.reconcileRepeatedly(3, 6*time.Minute)
			e.requestOperation(asyncstate.Update)
			p.setFaults(patchesUnavailable, nil)
			p.reconcileRepeatedly(2, time.Hour)
		},
	}
	l.want.Synced = xpv2.ReasonReconcileError
	cases["RecordNotStored"] = l

	// An API server that is away for half an hour loses nothing, and neither does one whose
	// answers are lost, that refuses all, or that does not serve the version.
	for name, fault := range map[string]func(p *process){
		"Away": func(p *process) { p.setFaults(apiServerUnavailable, nil) },
		"AnswersLost": func(p *process) {
			p.loseAnswers(func(verb string, _ client.Object) bool { return verb != testkit.LiveGet })
		},
		"Forbidden": func(p *process) {
			p.setFaults(
				func(string, client.Object) error {
					return kerrors.NewForbidden(schema.GroupResource{}, "b", errQuota)
				},
				nil,
			)
		},
		"NotServed": func(p *process) {
			p.setFaults(func(verb string, _ client.Object) error {
				return kerrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{
					Resource: "buckets",
				}, "b", "404 page not found", 0, true)
			}, nil)
		},
	} {
		for failure, want := range map[error]finalState{nil: readyAfterCreates(1, "id-0001"), errQuota: failed} {
			cases[fmt.Sprintf("%s/%v", name, failure)] = scenario{
				reason:         "The result is stored when the API server is back.",
				autoReconciled: true, options: backoff, want: want,
				steps: func(t *testing.T, e *environment) {
					e.cloud.loseAnswer = func() error { return failure }
					p := e.startProvider()
					advanceClock(5 * time.Minute)
					fault(p)
					before := p.reconciles.Load()
					advanceClock(30 * time.Minute)
					if n := p.reconciles.Load() - before; n > 100 {
						t.Errorf("%d reconciles in half an hour", n)
					}
					p.setFaults(nil, nil)
					advanceClock(3 * time.Minute)
				},
			}
		}
	}
	runScenarios(t, cases)
}

// namedGood returns the final state after a create that has set the external name "good".
func namedGood() finalState {
	return finalState{
		Name: "good", Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonCreating,
		Synced: xpv2.ReasonReconcileSuccess,
	}
}

// The cache can catch up with a result at any moment, also between two looks.
func TestCacheCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment(t, plainClient, bucket("b"))
		e.manualReconciles = true
		p := e.startProvider()
		e.cloud.set(func(c *fakeCloud) { c.loseAnswer = func() error { return errQuota } })
		mustReconcile(t, p, "b")
		if err := e.api.Freeze(context.Background(), e.get("b")); err != nil {
			t.Fatal(err)
		}
		advanceClock(11*time.Minute + 300*time.Millisecond)
		observed := e.cloud.Counts()[fake.OpGet]
		mustReconcile(t, p, "b")
		expectEqual(
			t, "What is read is older than the result, so nothing is to be observed or said.", "Synced, observations",
			[]any{
				xpv2.ReasonReconcileSuccess, observed,
			},
			[]any{reason(e.get("b"), xpv2.TypeSynced), e.cloud.Counts()[fake.OpGet]},
		)
		e.cloud.set(func(c *fakeCloud) { c.loseAnswer = nil })
		e.api.Thaw()
		advanceClock(time.Second)
		mustReconcile(t, p, "b")
		b := e.get("b")
		expectEqual(
			t, "The second attempt should run.\n"+describe(b), "operation, incomplete",
			[]any{asyncstate.ReasonRunning, true},
			[]any{
				reason(b, asyncstate.TypeOperation), meta.ExternalCreateIncomplete(b),
			},
		)

		// A process that ends does not wait for its cache.
		if err := e.api.Freeze(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		p.stop()
	})
}

func TestDeleteWhileOperationRuns(t *testing.T) {
	cancellable := []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()}
	deleted := func(creates, updates int) finalState {
		return finalState{Creates: creates, Updates: updates, Deletes: 1, Created: 1, Gone: true}
	}
	crash := func(e *environment) {
		advanceClock(6 * time.Minute)
		e.processes[0].kill()
		e.delete("b")
		e.startProvider()
	}
	update := func(e *environment) {
		advanceClock(15 * time.Minute)
		e.requestOperation(asyncstate.Update)
		advanceClock(time.Minute)
	}
	updating := readyAfterCreates(1, "id-0001")
	updating.Updates, updating.Recorded, updating.Operation = 1, true, asyncstate.ReasonRunning
	updating.Ready, updating.Deleting = xpv2.ReasonDeleting, reconciler.ReasonWaitingForAsyncOperation
	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption
		prime   func(e *environment)
		within  time.Duration
		want    finalState
	}{
		"Waits": {
			reason: "A create that cannot be cancelled should be waited for, and its external resource deleted.",
			within: 25 * time.Minute, want: deleted(1, 0),
		},
		"CancelsBeforeAnythingWasMade": {
			reason:  "A create that can be cancelled is, and has made nothing.",
			options: cancellable, within: 4 * time.Minute, want: finalState{Creates: 1, Gone: true},
		},
		"CancelsAfterSomethingWasMade": {
			reason:  "The external resource of a cancelled create that returned its name should be deleted.",
			options: cancellable, prime: func(*environment) { advanceClock(6 * time.Minute) },
			within: 15 * time.Minute, want: deleted(1, 0),
		},
		"UpdateRuns": {
			reason: "An update is waited for.", within: 25 * time.Minute, want: deleted(1, 1), prime: update,
		},
		"UpdateIsNotCancelled": {
			reason:  "An update should not be cancelled although creates are.",
			options: cancellable, within: 8 * time.Minute, want: updating, prime: update,
		},
		"RepetitionIsNotCancelled": {
			reason: "A repeated attempt should not be cancelled: its external resource would never be found.",
			kind:   token, options: cancellable, prime: crash, within: 30 * time.Minute, want: deleted(2, 0),
		},
		"ResumptionIsNotCancelled": {
			reason: "Nor should a resumed operation.",
			kind:   resumer, options: cancellable, prime: crash, within: 30 * time.Minute, want: deleted(1, 0),
		},
	}
	for name, tc := range cases {
		runScenario(t, name, scenario{
			reason: tc.reason,
			kind:   tc.kind, options: tc.options, autoReconciled: true, want: tc.want,
			steps: func(t *testing.T, e *environment) {
				e.cloud.cancellable = len(tc.options) > 0
				e.startProvider()
				advanceClock(2 * time.Minute)
				if tc.prime != nil {
					tc.prime(e)
				}
				e.delete("b")
				advanceClock(time.Second)
				if got := reason(e.get("b"), reconciler.TypeDeleting); tc.want.Deletes > 0 &&
					got != reconciler.ReasonWaitingForAsyncOperation {
					t.Errorf("\n%s\nDeleting says %q: %s", tc.reason, got, describe(e.get("b")))
				}
				advanceClock(tc.within)
			},
		})
	}
}

// wordyClient is a client whose errors about a cancelled context do not wrap context.Canceled.
type wordyClient struct {
	*cloudClient

	word func(err error) error
}

func (c wordyClient) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	cr, err := c.cloudClient.Create(ctx, mg)
	if err != nil {
		err = c.word(err)
	}
	return cr, err
}

func TestDeleteWhileOperationRuns_CancelledInOtherWords(t *testing.T) {
	gone := finalState{Creates: 1, Gone: true}
	waits := unknownAfterCreates(1)
	waits.Ready, waits.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
	cases := map[string]struct {
		reason string
		word   func(err error) error
		want   finalState
	}{
		"GRPC": {
			reason: "A create that was cancelled should have made nothing if gRPC says so.",
			word:   func(err error) error { return status.FromContextError(err).Err() }, want: gone,
		},
		"WrappedGRPC": {
			reason: "A create that was cancelled should have made nothing if a wrapped gRPC error says so.",
			word: func(err error) error {
				return fmt.Errorf("cannot create: %w", status.FromContextError(err).Err())
			}, want: gone,
		},
		"Text": {
			reason: "A create that was cancelled should have made nothing if the text says so.",
			word:   func(err error) error { return errors.New("cannot create: " + err.Error()) }, want: gone,
		},
		"Said": {
			reason: "The outcome should be unknown if the client says so.",
			word: func(err error) error {
				return fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, status.FromContextError(err).Err())
			}, want: waits,
		},
		"Stated": {
			reason: "The outcome should be unknown if the client states it in the other way.",
			word:   func(err error) error { return managed.NoAnswer(status.FromContextError(err).Err()) }, want: waits,
		},
		"SaidOfCancelled": {
			reason: "The outcome should be unknown if the client wraps ErrOutcomeUnknown.",
			word:   func(err error) error { return fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err) },
			want:   waits,
		},
		"LostAnswer": {
			reason: "The outcome should be unknown if the answer was lost meanwhile.",
			word:   func(error) error { return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET} },
			want:   waits,
		},
	}
	for name, tc := range cases {
		runScenario(t, name, scenario{
			reason: tc.reason, options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()},
			autoReconciled: true, want: tc.want,
			steps: func(_ *testing.T, e *environment) {
				e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					c, _ := p.client(mg).(*cloudClient)
					return wordyClient{c, tc.word}, nil
				}
				e.startProvider()
				advanceClock(2 * time.Minute)
				e.delete("b")
				advanceClock(4 * time.Minute)
			},
		})
	}
}

// The methods of a nil pointer may panic, so that nothing can read such an error.
func TestNilPointerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		creates := 0
		e := newEnvironmentWithClient(t, false, func(context.Context, resource.Managed) error {
			creates++
			return (*url.Error)(nil)
		})
		e.startProvider().reconcileRepeatedly(5, time.Minute)
		const reason = "The outcome of a create that returned such an error should be unknown, and the process should live on."
		expectEqual(t, reason+"\n"+describe(e.get("b")), "creates", 1, creates)
		expectEqual(t, reason, "incomplete", true, meta.ExternalCreateIncomplete(e.get("b")))
	})
}

package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
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
			reason:      "It has succeeded by then.",
			end:         func() {},
			disconnects: true,
			want:        asyncstate.ReasonFinished,
		},
		"Create": {
			reason: "The outcome is unknown.",
			end:    func() { panic(secret) },
			want:   asyncstate.ReasonOutcomeUnknown,
		},
		"Error": {
			reason: "As above.",
			end:    func() { panic(errors.New(secret)) },
			want:   asyncstate.ReasonOutcomeUnknown,
		},
		"Update": {
			reason: "It failed.",
			exists: true,
			end:    func() { panic(secret) },
			want:   asyncstate.ReasonFailed,
		},
		"Goexit":       {reason: "The outcome is unknown.", end: runtime.Goexit, want: asyncstate.ReasonOutcomeUnknown},
		"UpdateGoexit": {reason: "It failed.", exists: true, end: runtime.Goexit, want: asyncstate.ReasonFailed},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.manual = true
			w.connect = func(_ *process, mg resource.Managed) (upstream.ExternalClient, error) {
				c := actor(tc.exists, func(_ context.Context, mg resource.Managed) error {
					tc.end()
					meta.SetExternalName(mg, "good")
					return nil
				})
				if tc.disconnects && meta.GetExternalName(mg) == "" {
					c.DisconnectFn = func(context.Context) error { panic(secret) }
				}
				return c, nil
			}
			p := w.start()
			reconciled(t, p, "b")
			pass(time.Second / 2)
			reconciled(t, p, "b")
			if b := w.get("b"); reason(b, asyncstate.TypeOperation) != tc.want ||
				asyncstate.Remembered(p.tracker) != 0 || tc.exists && !strings.Contains(record(b), `"error":"panic"`) {
				t.Errorf("\n%s\n%d things are remembered: %s", tc.reason, asyncstate.Remembered(p.tracker), describe(b))
			}
			all := w.said.All() + fmt.Sprint(w.get("b"))
			wants(t, tc.reason+"\n"+all, "the secret is out", false, strings.Contains(all, secret))
			if !strings.HasSuffix(name, "Goexit") {
				contains(t, "the log", all, "panicked", "end_test.go")
			}
			switch {
			case tc.disconnects:
				contains(t, "the events", all, "The create has succeeded")
			case !tc.exists:
				contains(t, "the events", all, "the outcome of the create is unknown")
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
	}{
		"Create": {
			reason: "An event should say that the external resource has no owner.",
			kind:   nothing,
			lost:   "id-0001",
		},
		"Named":   {reason: "Its name is known.", kind: namedMid, lost: "id-0001"},
		"Refused": {reason: "Nothing was made.", kind: nothing, refuse: errQuota},
	}
	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.cloud.lose = func() error {
				w.cloud.lose = nil
				return tc.refuse
			}
			p := w.start()
			pass(time.Minute)
			w.delete("b")
			w.edit("b", func(b *v1alpha1.Bucket) { b.SetFinalizers(nil) })
			w.add("b")
			pass(time.Hour)
			b := w.get("b")
			got := w.cloud.names(string(b.GetUID()))
			wants(t, tc.reason+"\n"+describe(b), "in the cloud, record, remembered", []any{
				[]string{meta.GetExternalName(b)}, "", 0,
			}, []any{got, record(b), asyncstate.Remembered(p.tracker)})
			if said := w.said.Events("ExternalResourceOrphaned"); (tc.lost != "") != (len(said) == 1) ||
				!strings.Contains(strings.Join(said, ""), tc.lost) ||
				strings.Contains(w.said.All(), "managed resource is gone") != (tc.lost != "") {
				t.Errorf("\n%s\n%v", tc.reason, said)
			}
		})
	}
}

// Connection details wait for a reconcile that publishes them, and are nowhere else.
func TestConnectionDetails(t *testing.T) {
	for _, plain := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Plain=%t", plain), func(t *testing.T) {
			publishes := func(b *v1alpha1.Bucket) {
				b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "of-" + b.GetName()})
			}
			w := newWorld(t, nothing, bucket("a", publishes), bucket("b", publishes))
			w.plain, w.cloud.same = plain, managed.ConnectionDetails{"same": []byte("for all")}
			p := w.start()
			pass(15 * time.Minute)
			for _, name := range []string{"a", "b"} {
				s, want := &corev1.Secret{}, secretOf(meta.GetExternalName(w.get(name)))
				if err := w.api.Server().Get(t.Context(), key("of-"+name), s); err != nil ||
					string(s.Data["endpoint"]) != want {
					t.Errorf("%q is published of %s, want %q: %v", s.Data["endpoint"], name, want, err)
				}
			}
			wants(t, "", "the secret is out", false, strings.Contains(w.said.All()+fmt.Sprint(w.get("b")), "SECRET"))
			wants(t, "", "remembers something", false, !plain && asyncstate.Known(p.tracker) > 0)
			for range 2 {
				pass(2 * time.Hour)
				w.wake(w.get("a"))
				w.wake(w.get("b"))
			}
			pass(0)
			wants(t, "", "remembered", 0, asyncstate.Known(p.tracker))
		})
	}
}

// Connection details of a repeated create should be published, too, if the client has goroutines of its own.
func TestConnectionDetails_OfRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(
			t, nothing,
			bucket(
				"b",
				func(b *v1alpha1.Bucket) {
					b.SetWriteConnectionSecretToReference(&xpv2.LocalSecretReference{Name: "s"})
				},
			),
		)
		w.options = []asyncstate.TrackerOption{asyncstate.WithDeterministicNames(), asyncstate.WithOwnGoroutines()}
		w.connect = func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
			c := actor(false, nil)
			c.CreateFn = func(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
				if p == w.processes[0] {
					_, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
					return upstream.ExternalCreation{}, err
				}
				meta.SetExternalName(mg, "good")
				return upstream.ExternalCreation{
					ConnectionDetails: upstream.ConnectionDetails{"endpoint": []byte("e")},
				}, nil
			}
			return c, nil
		}
		w.dies(time.Minute)
		p := w.start()
		pass(10 * time.Minute)
		s := &corev1.Secret{}
		if err := w.api.Server().Get(t.Context(), key("s"), s); err != nil || string(s.Data["endpoint"]) != "e" ||
			asyncstate.Known(p.tracker) != 0 {
			t.Errorf(
				"Published: %q, %v; %d things are remembered: %s", s.Data["endpoint"], err,
				asyncstate.Known(p.tracker), describe(w.get("b")),
			)
		}
	})
}

// A failure should stand until its operation succeeds, in each process. Its
// text is in conditions, and not in the record: many users may read annotations, which it may fill up.
func TestFailureIsNotMasked(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		bubble(t, string(typ), func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.cloud.takes = time.Minute
			w.options = []asyncstate.TrackerOption{
				asyncstate.WithBackoff(time.Second, 10*time.Minute), asyncstate.WithTimeout(5 * time.Hour),
			}
			w.cloud.refuse = func(verb asyncstate.Type) error {
				if verb == typ {
					return status.Error(
						codes.ResourceExhausted, `tenant "acme" has no quota`+strings.Repeat("<br>", 10<<10),
					)
				}
				return nil
			}
			p := w.start()
			if typ != asyncstate.Create {
				pass(5 * time.Minute)
			}
			w.ask(typ)
			pass(2 * time.Second)
			before, writes := p.reconciles.Load(), w.api.Writes()
			for i := range 3 * 60 {
				pass(time.Minute)
				b := w.get("b")
				if got := condition(b, xpv2.TypeSynced); !strings.HasPrefix(got, "False ") ||
					!strings.Contains(got, string(typ)+" failed: ") || !strings.Contains(got, "acme") {
					t.Fatalf("After %d minutes: %s", i, got)
				}
				if r := record(b); strings.Contains(r, "acme") || len(r) > 1<<10 || i < 90 &&
					!strings.Contains(r, `"error":"ResourceExhausted"`) {
					t.Fatalf("After %d minutes the record is %s", i, r)
				}
				switch i {
				case 60:
					p.kill()
					p = w.start()
				case 90: // The last attempt takes longer than memory keeps the error.
					w.cloud.set(func(c *fakeCloud) { c.takes, c.refuse = 4*time.Hour, nil })
				}
			}
			if n := w.cloud.count(typ); n < 15 || n > 40 {
				t.Errorf("%d attempts in 3 hours", n)
			}
			most := map[asyncstate.Type]int64{
				asyncstate.Create: 280,
				asyncstate.Update: 280,
				asyncstate.Delete: 185,
			}[typ]
			if n := w.processes[0].reconciles.Load() + p.reconciles.Load() - before; n > most {
				t.Errorf("%d reconciles in 3 hours", n)
			}
			if n := w.api.Writes() - writes; n > 160 {
				t.Errorf("%d writes in 3 hours", n)
			}
			pass(3 * time.Hour)
			if b := w.get("b"); typ == asyncstate.Delete && !w.gone() || typ != asyncstate.Delete &&
				reason(b, xpv2.TypeSynced) != xpv2.ReasonReconcileSuccess {
				t.Error(describe(b))
			}
		})
	}
}

// How operations end.
func TestEnds(t *testing.T) {
	hour := []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
	backoff := []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
	unknownUnderUpstream := unknown(0)
	unknownUnderUpstream.Incomplete = false
	good := ending{
		Name:      "good",
		Operation: asyncstate.ReasonFinished,
		Ready:     xpv2.ReasonCreating,
		Synced:    xpv2.ReasonReconcileSuccess,
	}
	failed := ending{
		Creates:   1,
		Made:      1,
		Left:      1,
		Operation: asyncstate.ReasonFailed,
		Ready:     xpv2.ReasonCreating,
		Synced:    xpv2.ReasonReconcileError,
		Recorded:  true,
	}

	// returns has Create return what fn does, once, and pass ten hours.
	returns := func(fn func(ctx context.Context, mg resource.Managed) error) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) {
			calls := 0
			w.acts(false, func(ctx context.Context, mg resource.Managed) error {
				calls++
				return fn(ctx, mg)
			})
			w.start()
			pass(10 * time.Hour)
			wants(t, "", "calls", 1, calls)
		}
	}
	heeds := func(ctx context.Context, _ resource.Managed) error { <-ctx.Done(); return ctx.Err() }
	cases := map[string]life{
		"HeedsItsContext": {
			reason:  "The outcome is unknown.",
			auto:    true,
			options: hour,
			happens: returns(heeds),
			want:    unknown(0),
		},
		"HeedsItsContextUnderUpstream": {
			reason:  "As above, without Graft's reconciler.",
			auto:    true,
			plain:   true,
			options: hour,
			happens: returns(heeds),
			want:    unknownUnderUpstream,
		},
		"Named": {
			reason:  "It is observed by the name that it was given.",
			auto:    true,
			options: hour,
			want:    good,
			happens: returns(func(ctx context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "good")
				return heeds(ctx, mg)
			}),
		},
		"IgnoresItsContextAndFails": {
			reason: "It can't be told whether that is because of the deadline.",
			auto:   true, options: hour, want: unknown(0),
			happens: returns(func(context.Context, resource.Managed) error {
				return errors.Join(sleep(context.Background(), 3*time.Hour), errQuota)
			}),
		},
		"IgnoresItsContextAndSucceeds": {
			reason: "A success is a success.", auto: true, options: hour, want: good,
			happens: returns(func(_ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "good")
				return sleep(context.Background(), 3*time.Hour)
			}),
		},
		"FailsWithHandle": {
			reason: "An operation that has failed should not be resumed.", options: backoff,
			happens: func(t *testing.T, w *world) {
				w.acts(false, func(ctx context.Context, _ resource.Managed) error {
					return errors.Join(asyncstate.SetHandle(ctx, "handle"), errQuota)
				})
				p := w.start()
				reconciled(t, p, "b")
				pass(time.Minute)
				p.again(1, 0)
			},
			want: ending{
				Operation: asyncstate.ReasonFailed,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcileError,
				Recorded:  true,
			},
		},
		"InLine": {
			reason: "They take turns.",
			auto:   true, options: []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)},
			happens: func(t *testing.T, w *world) {
				for _, name := range []string{"c", "d", "e"} {
					w.add(name)
				}
				w.start()
				pass(time.Hour)
				if w.cloud.most != 1 {
					t.Errorf("%d at once", w.cloud.most)
				}
			},
			want: finished(4, "id-0001"),
		},
		"PastDeadline": {
			reason:  "An operation that doesn't end although its time is over says so.",
			options: hour,
			want: ending{
				Operation:  asyncstate.ReasonRunning,
				Ready:      xpv2.ReasonCreating,
				Synced:     xpv2.ReasonReconcileSuccess,
				Recorded:   true,
				Incomplete: true,
			},
			happens: func(t *testing.T, w *world) {
				w.acts(
					false,
					func(context.Context, resource.Managed) error { return sleep(context.Background(), 3*time.Hour) },
				)
				p := w.start()
				reconciled(t, p, "b")
				pass(2 * time.Hour)

				// No controller watches what ends, so it is looked at again soon.
				wants(t, "", "reconciled again after", 10*time.Second, reconciled(t, p, "b").RequeueAfter)
				contains(
					t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation),
					"True Running: create, attempt 1, since 2000-01-01T00:00:00Z, deadline 2000-01-01T01:00:00Z (past its deadline",
				)
			},
		},
		"UpdatePastDeadline": {
			reason: "Updates and deletes past their deadline are failures, and backed off from.", options: hour,
			happens: func(t *testing.T, w *world) {
				w.acts(true, heeds)
				p := w.start()
				reconciled(t, p, "b")
				pass(time.Hour + 100*time.Millisecond)
				reconciled(t, p, "b")
				wants(
					t, "", "Synced", "False ReconcileError: update failed: the deadline of the operation has passed",
					condition(w.get("b"), xpv2.TypeSynced),
				)
				contains(t, "record", record(w.get("b")), `"phase":"failed"`, `"error":"deadline exceeded"`)
			},
			want: ending{
				Operation: asyncstate.ReasonFailed,
				Ready:     "",
				Synced:    xpv2.ReasonReconcileError,
				Recorded:  true,
			},
		},
		"PausedWhileItRuns": {
			reason: "A pause does not interrupt what runs in this process.",
			happens: func(t *testing.T, w *world) {
				p := w.start()
				reconciled(t, p, "b")
				w.edit("b", func(b *v1alpha1.Bucket) {
					meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
				})
				reconciled(t, p, "b")
				contains(t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "True Running")
				pass(11 * time.Minute)
				reconciled(t, p, "b")
			},
			want: ending{
				Creates:   1,
				Made:      1,
				Left:      1,
				Name:      "id-0001",
				Operation: asyncstate.ReasonFinished,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcilePaused,
			},
		},
		"UpdateNotAllowedAnyMore": {
			reason: "An update that failed, and that the management policies do not allow any more, is nothing to report.",
			happens: func(_ *testing.T, w *world) {
				w.acts(true, func(context.Context, resource.Managed) error { return errQuota })
				p := w.start()
				p.again(2, 0)
				w.edit("b", func(b *v1alpha1.Bucket) {
					b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
						xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionDelete,
					}
				})
				p.again(2, time.Second)
			},
			want: ending{Operation: asyncstate.ReasonFinished, Synced: xpv2.ReasonReconcileSuccess},
		},
		"AnnouncedAgain": {
			reason: "If the answer to the write of its record is lost, upstream announces the create again. The record says so: one of an earlier announcement would count as settled.",
			plain:  true,
			happens: func(t *testing.T, w *world) {
				calls, lost := 0, false
				w.acts(false, func(context.Context, resource.Managed) error {
					calls++
					return asyncstate.ErrOutcomeUnknown
				})
				p := w.start()
				p.loses(func(verb string, _ client.Object) bool {
					had := lost
					lost = lost || verb == testkit.Patch
					return lost && !had
				})
				p.again(5, time.Minute)
				wants(t, "", "creates", 1, calls)
			},
			want: ending{
				Operation: asyncstate.ReasonOutcomeUnknown,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcileError,
				Recorded:  true,
			},
		},
		"NamedThoughUnknown": {
			reason:  "What Create has named is observed under that name, also if Create did it all while it was called.",
			options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()},
			happens: func(_ *testing.T, w *world) {
				w.acts(false, func(_ context.Context, mg resource.Managed) error {
					meta.SetExternalName(mg, "good")
					return asyncstate.ErrOutcomeUnknown
				})
				w.start().again(3, time.Second)
			},
			want: ending{Name: "good", Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileSuccess},
		},
		"ReadsAgain": {
			reason: "A client that reads the object again, from a cache that lags, does not take back that this create was announced. It is repeated with its token.",
			options: []asyncstate.TrackerOption{
				asyncstate.WithIdempotentTokens(), asyncstate.WithBackoff(time.Second, time.Second),
			},
			happens: func(t *testing.T, w *world) {
				var tokens []string
				w.acts(false, func(ctx context.Context, mg resource.Managed) error {
					switch tokens = append(tokens, asyncstate.Token(ctx)); len(tokens) {
					case 1:
						return errQuota
					case 2:
						return errors.Join(
							w.processes[0].GetClient().Get(ctx, key("b"), mg), asyncstate.ErrOutcomeUnknown,
						)
					default:
						meta.SetExternalName(mg, "good")
						return nil
					}
				})
				p := w.start()
				p.again(1, 5*time.Second)
				if err := w.api.Freeze(t.Context(), w.get("b")); err != nil {
					t.Fatal(err)
				}
				p.again(1, 0)
				w.api.Thaw()
				pass(5 * time.Second)
				wants(t, "", "incomplete", true, meta.ExternalCreateIncomplete(w.get("b")))
				p.again(4, 5*time.Second)
				wants(t, "", "tokens", []string{tokens[1]}, tokens[2:])
			},
			want: ending{
				Name:      "good",
				Operation: asyncstate.ReasonFinished,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcileSuccess,
			},
		},
		"UpdateOfWhatIsAbsent": {
			reason:  "Upstream updates an absent external resource if the management policies allow only that. The next update should wait like any other.",
			options: backoff,
			happens: func(t *testing.T, w *world) {
				calls := 0
				w.acts(false, func(context.Context, resource.Managed) error {
					calls++
					return errQuota
				})
				w.edit("b", func(b *v1alpha1.Bucket) {
					b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
						xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate,
					}
				})
				w.start().again(3, 0)
				wants(t, "", "updates", 1, calls)
			},
			want: ending{Operation: asyncstate.ReasonFailed, Synced: xpv2.ReasonReconcileError, Recorded: true},
		},
		"DeleteDoesNothing": {
			reason: "Deletes that succeed and delete nothing should be repeated less and less often.", auto: true,
			happens: func(t *testing.T, w *world) {
				deletes := 0
				w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
					c := actor(true, nil)
					c.DeleteFn = func(context.Context, resource.Managed) (upstream.ExternalDelete, error) {
						deletes++
						return upstream.ExternalDelete{}, nil
					}
					return c, nil
				}
				w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "there") })
				w.start()
				pass(time.Minute)
				w.delete("b")
				pass(3 * time.Hour)
				if deletes > 200 {
					t.Errorf("%d deletes in 3 hours", deletes)
				}
			},
			want: ending{
				Name:      "there",
				Operation: asyncstate.ReasonFinished,
				Ready:     xpv2.ReasonDeleting,
				Synced:    xpv2.ReasonReconcileSuccess,
				Deleting:  reconciler.ReasonWaitingForExternalResource,
			},
		},
		"RemovedRecord": {
			reason: "Removing the record is the documented way to retry a failed delete at once.",
			auto:   true, options: backoff,
			happens: func(t *testing.T, w *world) {
				w.cloud.takes = time.Second
				w.start()
				pass(time.Minute)
				w.cloud.refuses(errQuota)
				w.delete("b")
				pass(time.Minute)
				w.cloud.refuses(nil)
				contains(
					t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation), "Failed",
					"delete, attempt 1, failed at 2000-01-01T00:01:00Z, next attempt at 2000-01-01T01:01:00Z: quota",
				)
				w.edit("b", func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation) })
				pass(time.Minute)
			},
			want: ending{Creates: 1, Deletes: 2, Made: 1, Gone: true},
		},
	}
	for _, plain := range []bool{false, true} {
		l := life{
			reason: "A spec that changes while an update runs should be applied after it, and only the last one.",
			auto:   true, plain: plain,
			happens: func(t *testing.T, w *world) {
				w.start()
				pass(15 * time.Minute)
				for i := range 4 {
					w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = fmt.Sprint("region-", i) })
					pass(time.Minute)
				}
				pass(25 * time.Minute)
				wants(t, "", "region after updates, at once", []any{"region-3", 1}, []any{
					w.cloud.region("id-0001"), w.cloud.most,
				})
			},
			want: finished(1, "id-0001"),
		}
		l.want.Updates = 2
		cases[fmt.Sprintf("LatestSpec/Plain=%t", plain)] = l
		cases[fmt.Sprintf("SpecChange/Plain=%t", plain)] = life{
			reason: "A changed spec ends the backoff.", auto: true, plain: plain, options: backoff,
			happens: func(t *testing.T, w *world) {
				w.cloud.refuses(errQuota)
				w.start()
				pass(10 * time.Minute)
				w.edit("b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) })
				pass(time.Second)
				wants(t, "", "creates when a label changed", 1, w.cloud.count(asyncstate.Create))
				w.ask(asyncstate.Update)
				pass(time.Second)
				contains(
					t, "OperationRunning", condition(w.get("b"), asyncstate.TypeOperation),
					"create, attempt 2, failed",
				)
				contains(t, "record", record(w.get("b")), `"error":"error"`)
			},
			want: ending{
				Creates:   2,
				Operation: asyncstate.ReasonFailed,
				Ready:     xpv2.ReasonCreating,
				Synced:    xpv2.ReasonReconcileError,
				Recorded:  true,
			},
		}
		l = life{
			reason: "An operation does not begin without its record.", plain: plain, want: finished(1, "id-0001"),
			happens: func(t *testing.T, w *world) {
				p := w.start()
				p.again(3, 6*time.Minute)
				w.ask(asyncstate.Update)
				p.faults(func(verb string, o client.Object) error {
					if verb == testkit.Patch {
						return away(verb, o)
					}
					return nil
				}, nil)
				p.again(2, time.Hour)
			},
		}
		l.want.Synced = xpv2.ReasonReconcileError
		cases[fmt.Sprintf("RecordNotStored/Plain=%t", plain)] = l
	}

	// An API server that is away for half an hour loses nothing, and neither does one whose
	// answers are lost, that refuses all, or that does not serve the version.
	for name, fault := range map[string]func(p *process){
		"Away": func(p *process) { p.faults(away, nil) },
		"AnswersLost": func(p *process) {
			p.loses(func(verb string, _ client.Object) bool { return verb != testkit.LiveGet })
		},
		"Forbidden": func(p *process) {
			p.faults(
				func(string, client.Object) error {
					return kerrors.NewForbidden(schema.GroupResource{}, "b", errQuota)
				},
				nil,
			)
		},
		"NotServed": func(p *process) {
			p.faults(func(verb string, _ client.Object) error {
				return kerrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{
					Resource: "buckets",
				}, "b", "404 page not found", 0, true)
			}, nil)
		},
	} {
		for failure, want := range map[error]ending{nil: finished(1, "id-0001"), errQuota: failed} {
			cases[fmt.Sprintf("%s/%v", name, failure)] = life{
				reason: "The result is stored when the API server is back.", auto: true, options: backoff, want: want,
				happens: func(t *testing.T, w *world) {
					w.cloud.lose = func() error { return failure }
					p := w.start()
					pass(5 * time.Minute)
					fault(p)
					before := p.reconciles.Load()
					pass(30 * time.Minute)
					if n := p.reconciles.Load() - before; n > 100 {
						t.Errorf("%d reconciles in half an hour", n)
					}
					p.faults(nil, nil)
					pass(3 * time.Minute)
				},
			}
		}
	}
	live(t, cases)
}

// The cache can catch up with a result at any moment, also between two looks.
func TestCacheCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.manual = true
		p := w.start()
		w.cloud.set(func(c *fakeCloud) { c.lose = func() error { return errQuota } })
		reconciled(t, p, "b")
		if err := w.api.Freeze(context.Background(), w.get("b")); err != nil {
			t.Fatal(err)
		}
		pass(11*time.Minute + 300*time.Millisecond)
		observed := w.cloud.Counts()[fake.OpGet]
		reconciled(t, p, "b")
		wants(
			t, "What is read is older than the result, so nothing is to be observed or said.", "Synced, observations",
			[]any{
				xpv2.ReasonReconcileSuccess, observed,
			},
			[]any{reason(w.get("b"), xpv2.TypeSynced), w.cloud.Counts()[fake.OpGet]},
		)
		w.cloud.set(func(c *fakeCloud) { c.lose = nil })
		w.api.Thaw()
		reconciled(t, p, "b")
		b := w.get("b")
		wants(
			t, "The second attempt should run.\n"+describe(b), "operation, incomplete",
			[]any{asyncstate.ReasonRunning, true},
			[]any{
				reason(b, asyncstate.TypeOperation), meta.ExternalCreateIncomplete(b),
			},
		)

		// A process that ends does not wait for its cache.
		if err := w.api.Freeze(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		p.stop()
	})
}

func TestDeleteWhileOperationRuns(t *testing.T) {
	cancellable := []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()}
	deleted := func(creates, updates int) ending {
		return ending{Creates: creates, Updates: updates, Deletes: 1, Made: 1, Gone: true}
	}
	crash := func(w *world) {
		pass(6 * time.Minute)
		w.processes[0].kill()
		w.delete("b")
		w.start()
	}
	cases := map[string]struct {
		reason  string
		kind    clientKind
		options []asyncstate.TrackerOption
		plain   bool
		prime   func(w *world)
		within  time.Duration
		want    ending
	}{
		"Waits": {
			reason: "A create that cannot be cancelled should be waited for, and its external resource deleted.",
			within: 25 * time.Minute,
			want:   deleted(1, 0),
		},
		"WaitsUnderUpstream": {
			reason: "As above, without Graft's reconciler.",
			plain:  true,
			within: 25 * time.Minute,
			want:   deleted(1, 0),
		},
		"CancelsBeforeAnythingWasMade": {
			reason:  "A create that can be cancelled is, and has made nothing.",
			options: cancellable, within: 4 * time.Minute, want: ending{Creates: 1, Gone: true},
		},
		"CancelsAfterSomethingWasMade": {
			reason:  "The external resource of a cancelled create that returned its name should be deleted.",
			options: cancellable,
			prime:   func(*world) { pass(6 * time.Minute) }, within: 15 * time.Minute, want: deleted(1, 0),
		},
		"UpdateRuns": {
			reason: "An update is waited for.", within: 25 * time.Minute, want: deleted(1, 1),
			prime: func(w *world) {
				pass(15 * time.Minute)
				w.ask(asyncstate.Update)
				pass(time.Minute)
			},
		},
		"RepetitionIsNotCancelled": {
			reason: "A repeated attempt should not be cancelled: its external resource would never be found.",
			kind:   token, options: cancellable, prime: crash, within: 30 * time.Minute, want: deleted(2, 0),
		},
		"ResumptionIsNotCancelled": {
			reason:  "Nor should a resumed operation.",
			kind:    resumer,
			options: cancellable,
			prime:   crash,
			within:  30 * time.Minute,
			want:    deleted(1, 0),
		},
	}
	lives := map[string]life{}
	for name, tc := range cases {
		lives[name] = life{
			reason:  tc.reason,
			kind:    tc.kind,
			options: tc.options,
			plain:   tc.plain,
			auto:    true,
			want:    tc.want,
			happens: func(t *testing.T, w *world) {
				w.cloud.cancellable = len(tc.options) > 0
				w.start()
				pass(2 * time.Minute)
				if tc.prime != nil {
					tc.prime(w)
				}
				w.delete("b")
				pass(time.Second)
				if got := reason(w.get("b"), reconciler.TypeDeleting); !tc.plain && tc.want.Deletes > 0 &&
					got != reconciler.ReasonWaitingForAsyncOperation {
					t.Errorf("\n%s\nDeleting says %q: %s", tc.reason, got, describe(w.get("b")))
				}
				pass(tc.within)
			},
		}
	}
	live(t, lives)
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
	gone := ending{Creates: 1, Gone: true}
	waits := unknown(1)
	waits.Ready, waits.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
	cases := map[string]struct {
		reason string
		word   func(err error) error
		want   ending
	}{
		"GRPC": {
			reason: "A create that was cancelled should have made nothing if gRPC says so.",
			word:   func(err error) error { return status.FromContextError(err).Err() }, want: gone,
		},
		"WrappedGRPC": {
			reason: "As above.",
			word: func(err error) error {
				return fmt.Errorf("cannot create: %w", status.FromContextError(err).Err())
			}, want: gone,
		},
		"Text": {
			reason: "A create that was cancelled should have made nothing if the text says so.",
			word:   func(err error) error { return &opaqueError{"cannot create: " + err.Error()} }, want: gone,
		},
		"Said": {
			reason: "The outcome should be unknown if the client says so.",
			word: func(err error) error {
				return fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, status.FromContextError(err).Err())
			}, want: waits,
		},
		"SaidOfCancelled": {
			reason: "As above.",
			word:   func(err error) error { return fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err) }, want: waits,
		},
		"LostAnswer": {
			reason: "The outcome should be unknown if the answer was lost meanwhile.",
			word:   func(error) error { return read(syscall.ECONNRESET) }, want: waits,
		},
	}
	lives := map[string]life{}
	for name, tc := range cases {
		lives[name] = life{
			reason: tc.reason, options: []asyncstate.TrackerOption{asyncstate.WithCancellableCreates()},
			auto: true, want: tc.want,
			happens: func(_ *testing.T, w *world) {
				w.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
					c, _ := p.client(mg).(*cloudClient)
					return wordyClient{c, tc.word}, nil
				}
				w.start()
				pass(2 * time.Minute)
				w.delete("b")
				pass(4 * time.Minute)
			},
		}
	}
	live(t, lives)
}

// The methods of a nil pointer may panic, so that nothing can read such an error.
func TestNilPointerError(t *testing.T) {
	for name, own := range map[string]bool{"Background": false, "OwnGoroutines": true, "End": true} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.manual = true
			if own {
				w.options = []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}
			}
			creates := 0
			w.connect = func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
				return actor(false, func(ctx context.Context, mg resource.Managed) error {
					creates++
					if name != "End" {
						return (*url.Error)(nil)
					}
					op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
					if err == nil {
						go op.End((*url.Error)(nil))
					}
					return err
				}), nil
			}
			p := w.start()
			for range 5 {
				func() {
					defer func() { _ = recover() }()
					_, _ = p.reconcile("b")
				}()
				pass(time.Minute)
			}
			const reason = "The outcome of a create that returned such an error should be unknown, and the process should live on."
			wants(t, reason+"\n"+describe(w.get("b")), "creates", 1, creates)
			wants(t, reason, "incomplete", true, meta.ExternalCreateIncomplete(w.get("b")))
		})
	}
}

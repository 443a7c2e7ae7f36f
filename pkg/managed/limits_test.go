package managed

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
)

// A throttler counts the calls of an external client, and says what each returns.
type throttler struct {
	made   []string
	errs   map[string]error
	absent bool
	drift  bool
	late   bool
}

func (c *throttler) call(what string) error {
	c.made = append(c.made, what)
	return c.errs[what]
}

func (c *throttler) did(what string) int { return strings.Count(strings.Join(c.made, " "), what) }

func (c *throttler) connect() ReconcilerOption {
	return WithExternalConnector(ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
		if err := c.errs["connect"]; err != nil {
			return nil, err
		}
		ec := clientOf(ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				if err := c.call("observe"); err != nil {
					return ExternalObservation{}, err
				}
				mg.SetConditions(xpv2.Available())
				return ExternalObservation{ResourceExists: !c.absent, ResourceUpToDate: !c.drift, ResourceLateInitialized: c.late}, nil
			},
			CreateFn: func(context.Context, resource.Managed) (ExternalCreation, error) {
				err := c.call("create")
				c.absent = c.absent && err != nil
				return ExternalCreation{}, err
			},
			UpdateFn: func(context.Context, resource.Managed) (ExternalUpdate, error) {
				return ExternalUpdate{}, c.call("update")
			},
			DeleteFn: func(context.Context, resource.Managed) (ExternalDelete, error) {
				return ExternalDelete{}, c.call("delete")
			},
		})
		return &ec, nil
	}))
}

func usingConfig(name string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) {
		b.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ClusterProviderConfig", Name: name}
	}
}

func called(name string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.SetName(name) }
}

// settledOnce is what a reconcile of generation 1 leaves on a managed resource.
func settledOnce(b *v1alpha1.Bucket) {
	b.SetGeneration(1)
	b.SetFinalizers([]string{FinalizerName})
	ok, ready := xpv2.ReconcileSuccess(), xpv2.Available()
	ok.ObservedGeneration, ready.ObservedGeneration = 1, 1
	b.SetConditions(ok, ready)
}

func reconcileOnce(t *testing.T, r reconcile.Reconciler, name string) reconcile.Result {
	t.Helper()
	res, err := r.Reconcile(context.Background(), requestFor(name))
	must(t, err)
	return res
}

func TestWithRateLimits(t *testing.T) {
	requested := annotated(meta.AnnotationKeyReconcileRequestedAt, "now")
	changed := func(b *v1alpha1.Bucket) { b.SetGeneration(2) }
	unpaused := func(b *v1alpha1.Bucket) { b.SetConditions(xpv2.ReconcilePaused()) }

	// Before runtime v2.3 a managed resource does not say which request was handled.
	_, handles := any(&v1alpha1.Bucket{}).(requestHandler)

	cases := map[string]struct {
		reason string
		bucket []func(b *v1alpha1.Bucket)
		starts bool
	}{
		"Poll":         {reason: "A poll should leave the last tokens alone.", bucket: []func(b *v1alpha1.Bucket){settledOnce}},
		"New":          {reason: "A new managed resource should come first.", starts: true},
		"Changed":      {reason: "A changed spec should come first.", bucket: []func(b *v1alpha1.Bucket){settledOnce, changed}, starts: true},
		"Deleted":      {reason: "A deletion should come first.", bucket: []func(b *v1alpha1.Bucket){settledOnce, deleting}, starts: true},
		"Requested":    {reason: "A requested reconcile should come first.", bucket: []func(b *v1alpha1.Bucket){settledOnce, requested}, starts: handles},
		"Unpaused":     {reason: "A managed resource that is no longer paused should come first.", bucket: []func(b *v1alpha1.Bucket){settledOnce, unpaused}, starts: true},
		"OtherAccount": {reason: "Another provider config should have a bucket of its own.", bucket: []func(b *v1alpha1.Bucket){settledOnce, usingConfig("other")}, starts: true},
		"Paused":       {reason: "A paused managed resource should need no token.", bucket: []func(b *v1alpha1.Bucket){settledOnce, paused}, starts: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket(tc.bucket...))
				x := &throttler{}
				limits := NewRateLimits(1, 5)
				r := newBucketReconciler(a, x.connect(), WithRateLimits(limits), WithPollInterval(time.Nanosecond))

				// Others have left what is reserved.
				limits.accounts.Account(limit.Key{Kind: "ProviderConfig"}, "ProviderConfig", time.Now()).Charge(4, time.Now())

				res := reconcileOnce(t, r, "b")
				if started := a.Writes() > 0 || len(x.made) > 0; started != tc.starts {
					t.Errorf("%s\nstarted: %v, calls %v, requests %v", tc.reason, started, x.made, a.Requests())
				}
				if tc.starts {
					return
				}
				wants(t, "A reconcile without a token should read, and nothing else.", "requests", []int{1, 0}, []int{a.Count(testkit.Get), a.Writes()})
				wants(t, tc.reason, "result", time.Second, res.RequeueAfter)
				if res.Priority == nil || *res.Priority >= 0 {
					t.Errorf("A poll that waits should have a low priority: got %v", res.Priority)
				}
				time.Sleep(res.RequeueAfter)
				reconcileOnce(t, r, "b")
				wants(t, "A reconcile should start when its token is due.", "observations", 1, x.did("observe"))
			})
		})
	}
}

func TestWithRateLimits_Spreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		var objs []client.Object
		for i := range n {
			objs = append(objs, bucket(called(fmt.Sprint("b", i)), settledOnce))
		}
		a := testkit.NewAPI(append(objs, bucket(called("new")))...)
		x := &throttler{}
		r := newBucketReconciler(a, x.connect(), WithRateLimits(NewRateLimits(100, 100)), WithPollInterval(time.Hour))
		early := 0
		for i := range n {
			res := reconcileOnce(t, r, fmt.Sprint("b", i))
			if res.RequeueAfter > time.Hour {
				t.Errorf("Polls should be spread over the poll interval: got %s", res.RequeueAfter)
			}
			if res.RequeueAfter < 30*time.Minute {
				early++
			}
		}
		if early < n/5 || early > n*4/5 || x.did("observe") > 2 {
			t.Errorf("Polls after a start should be spread: %d of %d in the first half, %d at once", early, n, x.did("observe"))
		}
		before := len(x.made)
		reconcileOnce(t, r, "new")
		if len(x.made) == before {
			t.Error("A new managed resource should not wait for its time.")
		}
	})
}

func TestWithAccountKey(t *testing.T) {
	cases := map[string]struct {
		reason string
		key    func(ctx context.Context, mg resource.Managed) (string, error)
		shared bool
		want   string
	}{
		"Shared":  {reason: "Provider configs of one account should share a limit.", key: func(context.Context, resource.Managed) (string, error) { return "account", nil }, shared: true},
		"Fails":   {reason: "The provider config should be the account if the function fails.", key: func(context.Context, resource.Managed) (string, error) { return "account", errors.New("boom") }},
		"Empty":   {reason: "The provider config should be the account if the function says none.", key: func(context.Context, resource.Managed) (string, error) { return "", nil }},
		"Panics":  {reason: "A function that panics should be named in Synced.", key: func(context.Context, resource.Managed) (string, error) { panic("secret") }, want: "managed.WithAccountKey panicked"},
		"Missing": {reason: "The provider config should be the account by default."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket(called("one"), usingConfig("one")), bucket(called("two"), usingConfig("two")))
				x := &throttler{}
				var o []RateLimitOption
				if tc.key != nil {
					o = append(o, WithAccountKey(tc.key))
				}
				r := newBucketReconciler(a, x.connect(), WithRateLimits(NewRateLimits(1, 1, o...)))
				reconcileOnce(t, r, "one")
				before := len(x.made)
				reconcileOnce(t, r, "two")
				message := bucketNamed(t, a, "two").GetCondition(xpv2.TypeSynced).Message
				if tc.want != "" {
					if !strings.Contains(message, tc.want) || strings.Contains(message, "secret") {
						t.Errorf("%s\ngot %q", tc.reason, message)
					}
					wants(t, tc.reason, "calls", 0, len(x.made))
					return
				}
				wants(t, tc.reason, "waits", tc.shared, len(x.made) == before)
			})
		})
	}
}

func TestThrottled(t *testing.T) {
	answer := &tooManyRequests{response: &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}}}
	marked := errors.Wrap(Throttled(errors.New("request 4711 was refused"), 30*time.Second), "wrapped")

	cases := map[string]struct {
		reason string
		at     string
		err    error
		x      throttler
		bucket []func(b *v1alpha1.Bucket)
	}{
		"Connect":          {reason: "Connect may be throttled.", at: "connect", err: marked},
		"Observe":          {reason: "Observe may be throttled.", at: "observe", err: marked},
		"Create":           {reason: "Create may be throttled.", at: "create", err: marked, x: throttler{absent: true}},
		"Update":           {reason: "Update may be throttled.", at: "update", err: marked, x: throttler{drift: true}},
		"Delete":           {reason: "Delete may be throttled.", at: "delete", err: marked, bucket: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}},
		"AnswerOfObserve":  {reason: "An answer should be recognised.", at: "observe", err: errors.Wrap(answer, "cannot observe")},
		"AnswerOfCreate":   {reason: "An answer should be recognised.", at: "create", err: answer, x: throttler{absent: true}},
		"AnswerToDeletion": {reason: "An answer should be recognised.", at: "delete", err: answer, bucket: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, limited := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					mod := append([]func(b *v1alpha1.Bucket){named("n")}, tc.bucket...)
					a := testkit.NewAPI(bucket(mod...), bucket(called("neighbour")), bucket(called("stranger"), usingConfig("other")))
					x := tc.x
					x.errs = map[string]error{tc.at: tc.err}
					said := &testkit.Said{}
					o := []ReconcilerOption{x.connect(), WithRecorder(said)}
					if limited {
						o = append(o, WithRateLimits(NewRateLimits(100, 100)))
					}
					r := newBucketReconciler(a, o...)

					res := reconcileOnce(t, r, "b")
					until := time.Now().Add(30 * time.Second).UTC().Format(time.RFC3339)
					c := get(t, a).GetCondition(xpv2.TypeSynced)
					wants(t, tc.reason, "Synced", []string{"False", "Throttled", "The external system throttles the calls of this account. No call is made until " + until + "."},
						[]string{string(c.Status), string(c.Reason), c.Message})
					wants(t, "The reconcile should run when the account opens.", "requeue", 30*time.Second, res.RequeueAfter)
					wants(t, "One event should say it.", "events", []int{1, 1}, []int{len(said.Events()), len(said.Events("Throttled"))})
					wants(t, "A create that was refused should not be pending.", "incomplete", false, meta.ExternalCreateIncomplete(get(t, a)))

					before := len(x.made)
					a.Forget()
					reconcileOnce(t, r, "b")
					reconcileOnce(t, r, "neighbour")
					wants(t, "No reconcile of the account should start while it is closed.", "calls, writes", []int{before, 0}, []int{len(x.made), a.Writes()})
					x.errs = nil
					reconcileOnce(t, r, "stranger")
					if len(x.made) == before {
						t.Error("Other accounts should go on.")
					}

					// The neighbour, which is new, comes first.
					time.Sleep(35 * time.Second)
					repeat(t, r, 1)
					time.Sleep(5 * time.Second)
					repeat(t, r, 1)
					if len(tc.bucket) == 0 {
						wants(t, "The reconcile should succeed when the account is open again.", "Synced", xpv2.ReasonReconcileSuccess, reasonOf(get(t, a), xpv2.TypeSynced))
					}
				})
			}
		})
	}
}

type tooManyRequests struct{ response *http.Response }

func (e *tooManyRequests) Error() string                { return "too many requests" }
func (e *tooManyRequests) HTTPResponse() *http.Response { return e.response }

func TestTerminal(t *testing.T) {
	label := func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) }
	spec := func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" }

	cases := map[string]struct {
		reason string
		x      throttler
		at     string
	}{
		"Create": {reason: "A create that fails with a terminal error should not be repeated.", at: "create", x: throttler{absent: true}},
		"Update": {reason: "An update that fails with a terminal error should not be repeated.", at: "update", x: throttler{drift: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pc := &v1alpha1.ClusterProviderConfig{}
				pc.SetName("pc")
				a := testkit.NewAPI(bucket(named("n"), usingConfig("pc")), pc)
				x := tc.x
				x.errs = map[string]error{tc.at: errors.Wrap(Terminal(errors.New("the region does not exist")), "cannot do it")}
				said := &testkit.Said{}
				limits := NewRateLimits(1000, 1000)
				o := []ReconcilerOption{x.connect(), WithRecorder(said), WithRateLimits(limits), WithPollInterval(time.Minute)}
				r := newBucketReconciler(a, o...)

				reconcileOnce(t, r, "b")
				c := get(t, a).GetCondition(xpv2.TypeSynced)
				if c.Reason != ReasonTerminal || c.Status != "False" || !strings.HasPrefix(c.Message, "cannot do it: the region does not exist: not tried again until") {
					t.Errorf("%s\nSynced: %v", tc.reason, c)
				}
				wants(t, tc.reason, "gauge", 1.0, gauge(t, limits, "graft_terminal_errors"))
				wants(t, "A create that was refused should not be pending.", "incomplete", false, meta.ExternalCreateIncomplete(get(t, a)))

				time.Sleep(time.Second) // Another create in this second would be one too early.
				reconcileOnce(t, r, "b")
				a.Forget()
				observed := x.did("observe")
				for range 60 {
					res := reconcileOnce(t, r, "b")
					if res.RequeueAfter < 50*time.Second || res.RequeueAfter > 70*time.Second {
						t.Fatalf("The external resource should be observed at each poll: got %+v", res)
					}
					time.Sleep(res.RequeueAfter)
				}
				wants(t, tc.reason, "calls in an hour", []int{1, observed + 60}, []int{x.did(tc.at), x.did("observe")})
				wants(t, "The same situation should be written once.", "writes", 0, a.Writes())
				wants(t, "One event should say it.", "events", 1, len(said.Events("CannotCreateExternalResource", "CannotUpdateExternalResource", "CannotObserveExternalResource")))
				wants(t, "Synced should keep saying it.", "reason", ReasonTerminal, reasonOf(get(t, a), xpv2.TypeSynced))

				for i, change := range []func(b *v1alpha1.Bucket){spec, label, annotated("example.org/retry", "1"), annotated(meta.AnnotationKeyReconcileRequestedAt, "1")} {
					edit(t, a, "b", change)
					time.Sleep(time.Second)
					reconcileOnce(t, r, "b")
					time.Sleep(time.Second)
					repeat(t, r, 3)
					wants(t, "A change should be tried once.", "calls", i+2, x.did(tc.at))
				}

				must(t, a.Server().Get(context.Background(), client.ObjectKey{Name: "pc"}, pc))
				pc.Status.Users++
				must(t, a.Server().Status().Update(context.Background(), pc))
				time.Sleep(time.Second)
				repeat(t, r, 2)
				wants(t, "A provider config that another managed resource uses has not changed.", "calls", 5, x.did(tc.at))
				pc.Spec.Token = "repaired"
				must(t, a.Server().Update(context.Background(), pc))
				repeat(t, r, 1)
				time.Sleep(time.Second)
				repeat(t, r, 2)
				wants(t, "A provider config that has changed should be tried once.", "calls", 6, x.did(tc.at))

				time.Sleep(time.Second)
				r = newBucketReconciler(a, o...)
				repeat(t, r, 1)
				time.Sleep(time.Minute)
				repeat(t, r, 3)
				wants(t, "A new process should try once.", "calls", 7, x.did(tc.at))

				x.errs = nil
				x.drift = false
				edit(t, a, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "somewhere" })
				time.Sleep(time.Second)
				repeat(t, r, 3)
				wants(t, "The repaired spec should be reconciled.", "Synced, gauge", []any{xpv2.ReasonReconcileSuccess, 0.0}, []any{reasonOf(get(t, a), xpv2.TypeSynced), gauge(t, limits, "graft_terminal_errors")})
			})
		})
	}
}

func TestTerminal_OfOtherCalls(t *testing.T) {
	cases := map[string]struct {
		reason string
		at     string
		bucket []func(b *v1alpha1.Bucket)
	}{
		"Connect": {reason: "A provider that can't be connected to should be tried at each poll.", at: "connect"},
		"Observe": {reason: "Observe should be called at each poll.", at: "observe"},
		"Delete":  {reason: "Delete should be called at each poll.", at: "delete", bucket: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket(append([]func(b *v1alpha1.Bucket){named("n")}, tc.bucket...)...))
				x := &throttler{errs: map[string]error{tc.at: Terminal(errors.New("no"))}}
				r := newBucketReconciler(a, x.connect(), WithPollInterval(time.Minute))
				for range 3 {
					res := reconcileOnce(t, r, "b")
					wants(t, tc.reason, "requeue, Synced", []any{time.Minute, ReasonTerminal}, []any{res.RequeueAfter, reasonOf(get(t, a), xpv2.TypeSynced)})
				}
				x.errs = nil
				repeat(t, r, 2)
				if len(tc.bucket) == 0 {
					wants(t, "The reconcile should succeed when the call does.", "Synced", xpv2.ReasonReconcileSuccess, reasonOf(get(t, a), xpv2.TypeSynced))
				}
			})
		})
	}
}

func TestTerminal_DoesNotHoldUpADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket(named("n")))
		x := &throttler{absent: true, errs: map[string]error{"create": Terminal(errors.New("no"))}}
		r := newBucketReconciler(a, x.connect())
		repeat(t, r, 2)
		remove(t, a, "b")
		repeat(t, r, 1)
		wants(t, "A managed resource with a terminal error should be deleted.", "name", "", get(t, a).GetName())
	})
}

func TestThrottled_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket(named("n")), bucket(called("neighbour")))
				x := &throttler{absent: at == "create", drift: at == "update", errs: map[string]error{at: Throttled(errors.New("slow down"), time.Minute)}}
				r := newBucketReconciler(a, x.connect(), WithAsync(newTracker(a)), WithRateLimits(NewRateLimits(100, 100)))
				repeat(t, r, 1)
				synctest.Wait()
				before := len(x.made)
				reconcileOnce(t, r, "b")
				reconcileOnce(t, r, "neighbour")
				wants(t, "An operation that is throttled should close the account.", "calls", before, len(x.made))
				wants(t, "A create that was refused should not be pending.", "incomplete", false, meta.ExternalCreateIncomplete(get(t, a)))

				x.errs, x.drift = nil, false
				time.Sleep(65 * time.Second)
				repeat(t, r, 1)
				time.Sleep(5 * time.Second)
				repeat(t, r, 3)
				synctest.Wait()
				repeat(t, r, 1)
				if at == "create" {
					wants(t, "A create that was refused should be made again, once.", "creates", 2, x.did("create"))
				}
				wants(t, "The reconcile should succeed when the account is open again.", "Synced", xpv2.ReasonReconcileSuccess, reasonOf(get(t, a), xpv2.TypeSynced))
			})
		})
	}
}

func TestTerminal_Async(t *testing.T) {
	for _, at := range []string{"create", "update"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket(named("n")))
				x := &throttler{absent: at == "create", drift: at == "update", errs: map[string]error{at: Terminal(errors.New("no such region"))}}
				r := newBucketReconciler(a, x.connect(), WithAsync(newTracker(a)), WithPollInterval(time.Minute))
				for range 60 {
					repeat(t, r, 1)
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				c := get(t, a).GetCondition(xpv2.TypeSynced)
				wants(t, "An operation that fails with a terminal error should not be repeated.", "calls, Synced", []any{1, ReasonTerminal}, []any{x.did(at), c.Reason})
				if !strings.HasPrefix(c.Message, "no such region: not tried again until") {
					t.Errorf("Synced should have the error: got %q", c.Message)
				}
				if x.did("observe") < 55 {
					t.Errorf("The external resource should be observed at each poll: got %d", x.did("observe"))
				}
				a.Forget()
				repeat(t, r, 3)
				wants(t, "The same situation should be written once.", "writes", 0, a.Writes())

				x.errs, x.drift = nil, false
				edit(t, a, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
				repeat(t, r, 1)
				synctest.Wait()
				repeat(t, r, 2)
				wants(t, "A changed spec should be tried at once.", "creates, Synced", []any{at == "create", xpv2.ReasonReconcileSuccess}, []any{x.did("create") == 2, reasonOf(get(t, a), xpv2.TypeSynced)})
			})
		})
	}
}

func TestCharge_Async(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket(named("n")))
		x := &throttler{absent: true}
		limits := NewRateLimits(0.001, 10)
		r := newBucketReconciler(a, x.connect(), WithAsync(newTracker(a)), WithRateLimits(limits))
		repeat(t, r, 1)
		synctest.Wait()
		wants(t, "An observation and an asynchronous create should take a token each.", "tokens", 8.0, gauge(t, limits, "graft_limit_tokens"))
	})
}

func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testkit.NewAPI(bucket(named("n")), bucket(called("other"), named("n")))
		x := &throttler{}
		o := WithExternalConnector(connectorTo(ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			Charge(ctx, 20)
			Charge(ctx, -5)
			x.made = append(x.made, "observe")
			return exists(ctx, mg)
		}}))
		limits := NewRateLimits(10, 10)
		r := newBucketReconciler(a, o, WithRateLimits(limits))
		reconcileOnce(t, r, "b")
		res := reconcileOnce(t, r, "other")
		wants(t, "Later reconciles should pay for what a client charges.", "requeue", 1200*time.Millisecond, res.RequeueAfter.Round(time.Millisecond))
		wants(t, "A reconcile that waits should be counted.", "metrics", []float64{1, -11}, []float64{gauge(t, limits, "graft_limited_reconciles_total"), gauge(t, limits, "graft_limit_tokens")})
		Charge(context.Background(), 5)
	})
}

// gauge returns the sum of a metric.
func gauge(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	must(t, reg.Register(c))
	families, err := reg.Gather()
	must(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

package asyncstate_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// How long a leader is one without renewing that, in which time it tries to.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// An election of the one process that may reconcile.
type election struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord

	// away is who can't take part.
	away map[string]bool
}

// cut a process off from the election: it can't know whether it still leads.
func (e *election) cut(who string) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.away[who] = true
}

// A vote is one process's part in an election.
type vote struct {
	*election

	who string
}

func (v vote) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()

	switch {
	case v.away[v.who]:
		return nil, nil, errors.New("the API server is away")
	case v.record == nil:
		return nil, nil, kerrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "leader")
	}

	raw, err := json.Marshal(v.record)

	return ptr.To(*v.record), raw, err
}

func (v vote) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return v.Update(ctx, r)
}

func (v vote) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.away[v.who] {
		return errors.New("the API server is away")
	}

	v.record = &r

	return nil
}

func (v vote) RecordEvent(string) {}
func (v vote) Identity() string   { return v.who }
func (v vote) Describe() string   { return "leader" }

// run starts a process that has a manager, and reconciles when it is elected.
func (w *world) run(e *election, who string) *process {
	w.t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	p := w.newProcess(cancel)

	m, err := manager.New(&rest.Config{Host: "nowhere.invalid"}, manager.Options{
		Scheme:  testkit.Scheme(),
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) {
			return apimeta.NewDefaultRESTMapper(nil), nil
		},
		NewCache:                            func(*rest.Config, cache.Options) (cache.Cache, error) { return &informertest.FakeInformers{}, nil },
		NewClient:                           func(*rest.Config, client.Options) (client.Client, error) { return p, nil },
		LeaderElection:                      true,
		LeaderElectionID:                    "leader",
		LeaderElectionResourceLockInterface: vote{election: e, who: who},
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       ptr.To(leaseDuration),
		RenewDeadline:                       ptr.To(renewDeadline),
		RetryPeriod:                         ptr.To(retryPeriod),
	})
	if err != nil {
		w.t.Fatal(err)
	}

	p.rec = p.newReconciler(m)

	c, err := controller.New("buckets", m, controller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			p.reconciles.Add(1)
			return p.rec.Reconcile(ctx, r)
		}),
	})
	if err != nil {
		w.t.Fatal(err)
	}

	for _, s := range []source.Source{p.tracker.Source(), source.Func(p.elected)} {
		if err := c.Watch(s); err != nil {
			w.t.Fatal(err)
		}
	}

	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()

	go func() {
		defer close(p.ended)

		p.err = m.Start(ctx)
	}()

	return p
}

// elected has everything reconciled that there is.
func (p *process) elected(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	list := &v1alpha1.BucketList{}
	if err := p.w.api.Server().List(context.Background(), list); err != nil {
		return err
	}

	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}

	p.w.mu.Lock()
	defer p.w.mu.Unlock()

	p.queue = q

	return nil
}

// A process that loses the leadership begins nothing any more, whether it ends at
// once, as it should, or lingers. The next leader determines the outcome of what ran,
// and never makes a second external resource.
func TestLeadershipIsLost(t *testing.T) {
	// What the create of the old leader is at.
	const (
		early = 3 * time.Minute // Nothing was made.
		late  = 6 * time.Minute // It was made.
	)

	cases := map[string]struct {
		reason string
		kind   clientKind
		after  time.Duration

		// lingers means that the process keeps running when it should have ended. What
		// it runs is cancelled when the time for a shutdown is over, and heeds
		// that.
		lingers bool

		// deaf means that it doesn't.
		deaf bool

		// want is what the new leader says of it half a minute after it was
		// elected, and in the end.
		want, finally xpv2.ConditionReason
		creates       int
	}{
		"NothingToGoByDeaf": {
			reason: "The old leader stores the outcome when it is over: it is still true.",
			kind:   nothing, after: late, lingers: true, deaf: true, want: asyncstate.ReasonResultUnknown, finally: asyncstate.ReasonFinished, creates: 1,
		},
		"FinderFindsNothingLingers": {
			reason: "The old leader has said that it has ended, and so it is believed earlier.",
			kind:   finder, after: early, lingers: true, want: asyncstate.ReasonRunning, finally: asyncstate.ReasonFinished, creates: 2,
		},
		"FinderFindsNothingDeaf": {
			reason: "It does come.",
			kind:   finder, after: early, lingers: true, deaf: true, want: asyncstate.ReasonInterrupted, finally: asyncstate.ReasonFinished, creates: 1,
		},
		"TokenDeaf": {
			reason: "While the old leader is at it, too.",
			kind:   token, after: early, lingers: true, deaf: true, want: asyncstate.ReasonRunning, finally: asyncstate.ReasonFinished, creates: 2,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour)}
			w.cloud.deaf = tc.deaf

			e := &election{away: map[string]bool{}}
			old := w.run(e, "old")

			pass(retryPeriod)

			next := w.run(e, "next")

			pass(tc.after - retryPeriod)

			if r, n := next.reconciles.Load(), w.cloud.count(asyncstate.Create); r != 0 || n != 1 || old.reconciles.Load() == 0 {
				t.Fatalf("\n%s\nWho isn't elected reconciled %d times, and there were %d creates", tc.reason, r, n)
			}

			e.cut("old")
			<-old.ended

			if old.err == nil || !strings.Contains(old.err.Error(), "leader election lost") {
				t.Errorf("\n%s\nThe old leader ended with: %v", tc.reason, old.err)
			}

			if !tc.lingers {
				old.kill()
			}

			// The old leader doesn't begin what comes up now.
			if err := w.api.Server().Create(context.Background(), bucket("other")); err != nil {
				t.Fatal(err)
			}

			synctest.Wait()

			before := old.reconciles.Load()

			w.wake(w.get("other"))
			pass(leaseDuration + retryPeriod)
			w.wake(w.get("other"))
			pass(30 * time.Second)

			if n := old.reconciles.Load() - before; n != 0 {
				t.Errorf("\n%s\nThe old leader reconciled %d times more", tc.reason, n)
			}

			if b := w.get("b"); reason(b, asyncstate.TypeOperation) != tc.want {
				t.Errorf("\n%s\nSoon after the new one was elected, want %s: %s", tc.reason, tc.want, describe(b))
			}

			if b := w.get("other"); reason(b, asyncstate.TypeOperation) != asyncstate.ReasonRunning {
				t.Errorf("\n%s\nThe new leader should have begun another create: %s", tc.reason, describe(b))
			}

			pass(2 * time.Hour)

			b := w.get("b")
			if got := reason(b, asyncstate.TypeOperation); got != tc.finally {
				t.Errorf("\n%s\nIn the end, want %s: %s", tc.reason, tc.finally, describe(b))
			}

			uid := string(b.GetUID())
			if made, creates := w.cloud.made[uid], w.cloud.createsOf[uid]; made != 1 || creates != tc.creates {
				t.Errorf("\n%s\n%d creates were asked for, want %d, and %d were made", tc.reason, creates, tc.creates, made)
			}

			if named := w.cloud.ownedBy(uid); tc.finally == asyncstate.ReasonFinished && tc.kind != deterministic && !slices.Contains(named, meta.GetExternalName(b)) {
				t.Errorf("\n%s\nThe cloud has %v: %s", tc.reason, named, describe(b))
			}

			if n := asyncstate.Remembered(old.tracker) + asyncstate.Remembered(next.tracker); n != 0 && tc.lingers {
				t.Errorf("\n%s\n%d things are remembered", tc.reason, n)
			}
		})
	}
}

// A leader that is asked to end doesn't hand over before what it runs has ended, and
// reconciles nothing meanwhile, so that the next one has nothing to find out.
func TestLeadershipIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.cloud.takes = time.Minute

		e := &election{away: map[string]bool{}}
		old := w.run(e, "old")

		pass(retryPeriod)

		next := w.run(e, "next")

		pass(45 * time.Second)
		old.cancel()
		synctest.Wait()

		before := old.reconciles.Load()

		if err := w.api.Server().Create(context.Background(), bucket("other")); err != nil {
			t.Fatal(err)
		}

		w.wake(w.get("other"))
		pass(12 * time.Second)

		if a, b := old.reconciles.Load()-before, next.reconciles.Load(); a+b != 0 {
			t.Errorf("While the create runs there should be no reconciles: %d by the old leader, %d by the next", a, b)
		}

		<-old.ended

		if b := w.get("b"); old.err != nil || meta.GetExternalName(b) != "id-1" || record(b) != "" {
			t.Errorf("The old leader ended with %v: %s", old.err, describe(b))
		}

		pass(5 * time.Minute)

		for _, name := range []string{"b", "other"} {
			if b := w.get(name); reason(b, xpv2.TypeReady) != xpv2.ReasonAvailable {
				t.Error(describe(b))
			}
		}

		if n := w.cloud.count(asyncstate.Create); n != 2 {
			t.Errorf("%d creates", n)
		}
	})
}

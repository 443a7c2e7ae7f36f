//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A limiter notes what a queue asks it about each object.
type limiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]

	mu    sync.Mutex
	asked map[string][]string
}

// When notes a backoff.
func (l *limiter) When(r reconcile.Request) time.Duration {
	d := l.TypedRateLimiter.When(r)
	l.note(r, d.String())

	return d
}

// Forget notes the end of backoff.
func (l *limiter) Forget(r reconcile.Request) {
	l.TypedRateLimiter.Forget(r)
	l.note(r, "forget")
}

func (l *limiter) note(r reconcile.Request, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.asked[r.Name] = append(l.asked[r.Name], what)
}

func (l *limiter) of(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return append([]string(nil), l.asked[name]...)
}

// A script is what a reconciler answers, in this order, about each object that is
// being deleted, and nothing from then on.
type script struct {
	answers []answered

	mu     sync.Mutex
	passes map[string]int
	at     map[string][]time.Time
}

type answered struct {
	result reconcile.Result
	err    error
}

func (s *script) build(c client.Client) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		cm := claim.New(claim.WithGroupVersionKind(appKind()))
		if err := c.Get(ctx, req.NamespacedName, cm); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}

		s.mu.Lock()
		defer s.mu.Unlock()

		n := s.passes[req.Name]
		s.passes[req.Name]++
		s.at[req.Name] = append(s.at[req.Name], time.Now())

		if n >= len(s.answers) {
			return reconcile.Result{}, nil
		}

		return s.answers[n].result, s.answers[n].err
	})
}

// What a reconciler asks for of an object that is being deleted is what it gets
// from the queue: the same backoff, the same delay, the same end of both, with
// Graft and without; although Graft would look at what it waits for later.
func TestDeletionKeepsBackoff(t *testing.T) {
	const (
		objects = 20
		later   = 300 * time.Millisecond
	)

	boom := errors.New("boom")
	answers := []answered{
		{err: boom},
		{err: boom},
		{result: reconcile.Result{Requeue: true}},
		{err: boom},
		{result: reconcile.Result{RequeueAfter: later}},
		{err: boom},
		{result: reconcile.Result{Requeue: true}},
		{result: reconcile.Result{RequeueAfter: later}},
		{err: reconcile.TerminalError(boom)},
	}
	want := []string{"5ms", "10ms", "20ms", "40ms", "forget", "5ms", "10ms", "forget"}

	for _, f := range []struct {
		name string
		bare bool
	}{{"Upstream", true}, {"Graft", false}} {
		t.Run(f.name, func(t *testing.T) {
			s := newPlatform(t)

			// They wait for objects that are never deleted.
			xr := object(xappKind(), "", "backoff")
			must(t, "cannot compose", s.compose(t.Context(), xr))

			// A deletion is all that happens to them, so that nothing but the
			// answers makes them be reconciled.
			for i := range objects {
				cm := object(appKind(), namespace, fmt.Sprintf("backoff-%d", i))
				setField(t, cm, referenceTo(xr), "spec", "resourceRef")
				cm.SetFinalizers([]string{claimFinalizer})
				must(t, "Create()", s.Create(t.Context(), cm))
				must(t, "Patch()", s.Status().Patch(t.Context(), cm, mergePatch(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Available","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)))
				must(t, "Delete()", s.Delete(t.Context(), cm))
			}

			l := &limiter{
				TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Second),
				asked:            map[string][]string{},
			}
			sc := &script{answers: answers, passes: map[string]int{}, at: map[string][]time.Time{}}
			x := startCrossplane(t, crossplaneSetup{
				bare:    f.bare,
				claims:  sc.build,
				events:  resource.DesiredStateChanged(),
				limiter: func() workqueue.TypedRateLimiter[reconcile.Request] { return l },
			})

			for i := range objects {
				cm := object(appKind(), namespace, fmt.Sprintf("backoff-%d", i))

				eventually(t, cm.GetName()+" is reconciled", func() (bool, string) {
					n := x.count(cm)
					return n >= len(answers), fmt.Sprintf("%d of %d times", n, len(answers))
				})

				if diff := cmp.Diff(want, l.of(cm.GetName())); diff != "" {
					t.Errorf("%s: what the queue was asked: -want, +got:\n%s", cm.GetName(), diff)
				}

				if n := x.count(cm); n != len(answers) {
					t.Errorf("%s: want %d reconciles, got %d", cm.GetName(), len(answers), n)
				}

				if got := saysOf(s.fetch(t, cm), reconciler.TypeDeleting).Reason; !f.bare && got != string(reconciler.ReasonWaitingForDependents) {
					t.Errorf("%s: want it to wait for its composite resource, got %s", cm.GetName(), got)
				}

				for _, n := range []int{5, 8} {
					if d := sc.between(cm.GetName(), n-1, n); d < later {
						t.Errorf("%s: want pass %d %s after the one before, got %s", cm.GetName(), n, later, d)
					}
				}
			}
		})
	}
}

func (s *script) between(name string, from, to int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.at[name][to].Sub(s.at[name][from])
}

package reconciler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// delayReads makes each read of a dependent take as long as takes returns for it, or until its
// context is done.
func delayReads(c *cluster, takes func(name string) time.Duration) {
	c.api.Before = func(ctx context.Context, r testkit.Request) error {
		if verbOf(r) != "get" || r.Object.GetObjectKind().GroupVersionKind() != things {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes(r.Key.Name)):
			return nil
		}
	}
}

// held returns n dependents of a composite resource that a finalizer holds.
func newThings(n int) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for i := range n {
		out = append(out, newObject(
			things, "", fmt.Sprintf("t%03d", i), withController(newComposite()), withDeletionTimestamp,
			withFinalizers("f"),
		))
	}
	return out
}

// newReconcilerWithDependents returns a reconciler of composite resources with dependents.
func newReconcilerWithDependents(c *cluster, inner func(client.Client) reconcile.Reconciler) *reconciler.Reconciler {
	return reconciler.New(c, composites, inner, reconciler.WithDependents(reconciler.ComposedResources()))
}

// A report settles, however many dependents can be read in time.
func TestReportSettles(t *testing.T) {
	ms := time.Millisecond
	cases := map[string]struct {
		reason string
		things int

		// takes is how long a read takes in one of the reconciles, which are apart.
		takes func(reconcile int) time.Duration
		apart time.Duration
		want  string

		// writes is the most that follow the first reconcile.
		writes int
	}{
		"AllRead": {
			reason: "Dependents that can be read in time should be counted at once.",
			things: 8, apart: 10 * time.Second,
			takes: func(int) time.Duration { return 600 * ms },
			want:  "0 of 8 dependents deleted, 0%. Thing/t000 since T: held by f. Thing/t001 since T: held by f. Thing/t002 since T: held by f. And 5 more.",
		},
		"SomeRead": {
			reason: "The next reconciles should read the other dependents, and then count all.",
			things: 12, apart: 10 * time.Second, writes: 1,
			takes: func(n int) time.Duration { return time.Duration(500+n%3*100) * ms },
			want:  "0 of 12 dependents deleted, 0%. Thing/t000 since T: held by f. Thing/t001 since T: held by f. Thing/t002 since T: held by f. And 9 more.",
		},
		"ManyReconciles": {
			reason: "A long list should be read in several reconciles.", things: 60, apart: 10 * time.Second, writes: 1,
			takes: func(n int) time.Duration { return time.Duration(500+n%3*100) * ms },
			want:  "0 of 60 dependents deleted, 0%. Thing/t000 since T: held by f. Thing/t001 since T: held by f. Thing/t002 since T: held by f. And 57 more.",
		},
		"AtTheLimit": {
			reason: "The report should not depend on the number of dependents that are read in time.",
			things: 9, apart: 10 * time.Second,
			takes: func(n int) time.Duration { return time.Duration(500+n%3*100) * ms },
			want:  "0 of 9 dependents deleted, 0%. Thing/t000 since T: held by f. Thing/t001 since T: held by f. Thing/t002 since T: held by f. And 6 more.",
		},
		"NotReadYet": {
			reason: "Dependents should be counted and named only after all have been read.",
			things: 60, apart: time.Second,
			takes: func(n int) time.Duration { return time.Duration(700+n%3*100) * ms },
			want:  "Some dependents may be unknown: they were not all read in time.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := newThings(tc.things)
				o := newComposite(list...)
				c := newCluster(append(list, o)...)
				n := 0
				delayReads(c, func(string) time.Duration { return tc.takes(n) })
				r := newReconcilerWithDependents(c, newIdleReconciler())
				mustReconcile(t, r, o)
				c.api.Forget()
				for n = 1; n < 16; n++ {
					time.Sleep(tc.apart)
					mustReconcile(t, r, o)
				}
				expectEqual(t, tc.reason, "message", tc.want, c.condition(t, o, reconciler.TypeDeleting).Message)
				expectEqual(t, tc.reason, "writes after the first reconcile", tc.writes, c.api.Writes())
			})
		})
	}
}

// A dependent that is read again replaces the earlier read.
func TestReportSettles_Changes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := newThings(12)
		o := newComposite(list...)
		c := newCluster(append(list, o)...)
		delayReads(c, func(string) time.Duration { return 600 * time.Millisecond })
		r := newReconcilerWithDependents(c, newIdleReconciler())
		for range 3 {
			mustReconcile(t, r, o)
			time.Sleep(10 * time.Second)
		}
		for _, gone := range list[:11] {
			c.release(t, gone, "f")
		}
		for range 3 {
			mustReconcile(t, r, o)
			time.Sleep(10 * time.Second)
		}
		expectEqual(
			t, "Two reconciles read all of them.", "message",
			"11 of 12 dependents deleted, 91%. Thing/t011 since T: held by f.",
			c.condition(t, o, reconciler.TypeDeleting).Message,
		)
	})
}

// Dependents are read once in a reconcile, and for no longer than its budget.
func TestOneLookInAReconcile(t *testing.T) {
	cases := map[string]struct {
		reason string
		things int
		takes  time.Duration

		wantTime  time.Duration
		wantReads int
	}{
		"Fast": {
			reason:    "Three status writes should have one look at the dependents.",
			things:    2,
			takes:     time.Millisecond,
			wantTime:  2 * time.Millisecond,
			wantReads: 2,
		},
		"Slow": {
			reason:    "Three status writes should share the budget of the reconcile, and read no dependent twice.",
			things:    40,
			takes:     400 * time.Millisecond,
			wantTime:  5 * time.Second,
			wantReads: 13,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newComposite(newThings(tc.things)...)
				c := newCluster(append(newThings(tc.things), o)...)
				delayReads(c, func(string) time.Duration { return tc.takes })
				r := newReconcilerWithDependents(c, newCompositeReconciler(writeStatusThrice))
				began := time.Now()
				mustReconcile(t, r, o)
				expectEqual(t, tc.reason, "time", tc.wantTime, time.Since(began))
				expectEqual(t, tc.reason, "reads", tc.wantReads, c.count("get Thing"))
			})
		})
	}
}

func writeStatusThrice(ctx context.Context, c client.Client, o *composite.Unstructured) (reconcile.Result, error) {
	for i := range 3 {
		withField(fieldPath("status", "phase"), fmt.Sprint(i))(&o.Unstructured)
		o.SetConditions(xpv2.Deleting())
		if err := c.Status().Update(ctx, o); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// An object whose dependents are slow to read takes half a worker, however often it is
// reconciled, and however many there are of them.
func TestSlowDependentsLeaveWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 8
		var all []*unstructured.Unstructured
		var objects []*unstructured.Unstructured
		for i := range slow {
			name := fmt.Sprintf("slow-%d", i)
			o := newObject(composites, "", name, withFinalizers("f"), withDeletionTimestamp, withConditions())
			refs := []any{}
			for j := range 20 {
				thing := newObject(
					things, "", fmt.Sprintf("slow-%d-%d", i, j), withController(o), withDeletionTimestamp,
					withFinalizers("f"),
				)
				refs, all = append(refs, referenceTo(thing)), append(all, thing)
			}
			withField(fieldPath("spec", "crossplane", "resourceRefs"), refs)(o)
			objects = append(objects, o)
		}
		quick := newComposite(newThings(3)...)
		all = append(append(all, newThings(3)...), quick)
		c := newCluster(append(all, objects...)...)
		delayReads(c, func(name string) time.Duration {
			if strings.HasPrefix(name, "slow") {
				return 500 * time.Millisecond
			}
			return time.Millisecond
		})
		r := newReconcilerWithDependents(c, newIdleReconciler())
		began, busy := time.Now(), time.Duration(0)
		for time.Since(began) < 3*time.Minute {
			for _, o := range objects {
				start := time.Now()
				mustReconcile(t, r, o)
				busy += time.Since(start)
			}
			time.Sleep(time.Second)
		}
		if total := time.Since(began); busy > total*6/10 {
			t.Errorf("The only worker was busy with slow dependents for %s of %s", busy, total)
		}
		start := time.Now()
		mustReconcile(t, r, quick)
		expectEqual(t, "An object whose dependents are read quickly has its report at once.", "message, at once",
			[]any{
				"0 of 3 dependents deleted, 0%. Thing/t000 since T: held by f. Thing/t001 since T: held by f. Thing/t002 since T: held by f.",
				true,
			},
			[]any{c.condition(t, quick, reconciler.TypeDeleting).Message, time.Since(start) < 50*time.Millisecond})
	})
}

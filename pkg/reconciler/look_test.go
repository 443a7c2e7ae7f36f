package reconciler_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// never is longer than any read may take.
const never = time.Hour

// delayReads makes each read of an object of a kind but the composite take that long, or until its context is done.
func delayReads(c *cluster, takes func(kind string) (time.Duration, error)) {
	c.api.Before = func(ctx context.Context, r testkit.Request) error {
		kind := r.Object.GetObjectKind().GroupVersionKind().Kind
		if verb := verbOf(r); verb != "get" && verb != "list" || kind == composites.Kind {
			return nil
		}
		d, err := takes(kind)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return err
		}
	}
}

// newDependents returns n dependents of a composite resource that a finalizer holds, and a Secret if there is another.
func newDependents(n int, secret bool) []*unstructured.Unstructured {
	mods := []func(*unstructured.Unstructured){
		withController(newComposite()), withDeletionTimestamp, withFinalizers("f"),
	}
	var out []*unstructured.Unstructured
	for i := range n {
		out = append(out, newObject(things, "", fmt.Sprintf("t%d", i), mods...))
	}
	if secret {
		out = append(out, newObject(secrets, "", "s", mods...))
	}
	return out
}

// One look has one deadline. What it did not read is not counted, and the same situation has the same text.
func TestLook(t *testing.T) {
	type look struct {
		After   time.Duration // Since the previous one.
		Takes   time.Duration
		Reads   int // Of Things.
		Message string
	}
	const (
		two       = "0 of 2 dependents deleted, 0%. Thing/t0 since T: held by f. Thing/t1 since T: held by f."
		unread    = "Some dependents may be unknown: they were not read in time."
		late      = "Some dependents may be unknown: Thing not read in time. Secret/s since T: held by f."
		forbidden = "0 of 3 dependents deleted, 0%. Thing/t0: unknown: forbidden. Thing/t1: unknown: forbidden. " +
			"Secret/s since T: held by f."
		lists = "Some dependents may be unknown: not read in time. Secret/s since T: held by f."
	)
	limited := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	cases := map[string]struct {
		reason string
		things int
		secret bool
		lister reconciler.DependentLister
		takes  func(look int) (time.Duration, error) // Of a Thing.
		live   error                                 // Of the API server, if it is asked.
		quick  int                                   // The number of Things that are read in no time.
		want   []look
	}{
		"InTime": {
			reason: "Dependents that are read before the deadline should be counted.",
			things: 2,
			takes:  func(int) (time.Duration, error) { return 900 * time.Millisecond, nil },
			want:   []look{{Takes: 1800 * time.Millisecond, Reads: 2, Message: two}},
		},
		"TooMany": {
			reason: "Of a list that takes too long nothing should be counted or named, and it should rest for a minute.",
			things: 9,
			takes:  func(int) (time.Duration, error) { return 600 * time.Millisecond, nil },
			want: []look{
				{Takes: 5 * time.Second, Reads: 9, Message: unread},
				{After: 10 * time.Second, Message: unread},
				{After: time.Minute, Takes: 5 * time.Second, Reads: 9, Message: unread},
			},
		},
		"LateKind": {
			reason: "A kind that a cache never gets should hide no other, and be waited for once a minute.",
			things: 2, secret: true,
			takes: func(int) (time.Duration, error) { return never, nil },
			want: []look{
				{Takes: time.Second, Reads: 1, Message: late},
				{After: 10 * time.Second, Message: late},
				{After: time.Minute, Takes: time.Second, Reads: 1, Message: late},
			},
		},
		"LateAfterOne": {
			reason: "Of a kind of which one object was read in time nothing should be counted or named.",
			things: 2, secret: true,
			takes: func(int) (time.Duration, error) { return never, nil },
			quick: 1,
			want:  []look{{Takes: time.Second, Reads: 2, Message: late}},
		},
		"LateKindIsBack": {
			reason: "A kind that was late should be counted again when it is read in time.",
			things: 2, secret: false,
			takes: func(n int) (time.Duration, error) { return map[int]time.Duration{0: never}[n], nil },
			want: []look{
				{Takes: time.Second, Reads: 1, Message: "Some dependents may be unknown: Thing not read in time."},
				{After: time.Minute, Reads: 2, Message: two},
			},
		},
		"Limiter": {
			reason: "A request that the client's own limiter refuses was not in time either.",
			things: 2, secret: true,
			takes: func(int) (time.Duration, error) { return 0, limited },
			want:  []look{{Reads: 1, Message: late}},
		},
		"LateAndForbidden": {
			reason: "The API server should be asked once why a cache never gets a kind, and its answer be kept for a minute.",
			things: 2, secret: true, live: kerrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")),
			takes: func(int) (time.Duration, error) { return never, nil },
			want: []look{
				{Takes: time.Second, Reads: 1, Message: forbidden},
				{After: 10 * time.Second, Message: forbidden},
				{After: time.Minute, Takes: time.Second, Reads: 1, Message: forbidden},
			},
		},
		"LateAndReadable": {
			reason: "That a kind can be read from the API server says nothing about the cache.",
			things: 2, secret: true, live: kerrors.NewNotFound(schema.GroupResource{}, ""),
			takes: func(int) (time.Duration, error) { return never, nil },
			want:  []look{{Takes: time.Second, Reads: 1, Message: late}},
		},
		"LateList": {
			reason: "A list of a kind should be waited for as a read of one object is.",
			things: 2, secret: true, lister: reconciler.OwnedObjects(things, secrets),
			takes: func(int) (time.Duration, error) { return never, nil },
			want: []look{
				{Takes: time.Second, Message: lists},
				{After: 10 * time.Second, Message: lists},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := newDependents(tc.things, tc.secret)
				o := newComposite(list...)
				c := newCluster(append(list, o)...)
				n := 0
				delayReads(c, func(kind string) (time.Duration, error) {
					if kind == secrets.Kind || kind == secrets.Kind+"List" {
						return 0, nil
					}
					if tc.quick--; tc.quick >= 0 {
						return 0, nil
					}
					return tc.takes(n)
				})
				if tc.lister == nil {
					tc.lister = reconciler.ComposedResources()
				}
				opts := []reconciler.Option{reconciler.WithDependents(tc.lister)}
				if tc.live != nil {
					live := newCluster()
					live.fail = refuseVerb("get", tc.live)
					opts = append(opts, reconciler.WithLiveReader(live),
						reconciler.WithWatchedKinds(func(schema.GroupVersionKind) bool { return true }))
				}
				r := reconciler.New(c, composites, newIdleReconciler(), opts...)
				for i, want := range tc.want {
					n = i
					time.Sleep(want.After)
					c.api.Forget()
					began := time.Now()
					mustReconcile(t, r, o)
					got := look{
						After: want.After, Takes: time.Since(began), Reads: c.count("get Thing"),
						Message: c.condition(t, o, reconciler.TypeDeleting).Message,
					}
					expectEqual(t, tc.reason, fmt.Sprintf("look %d", i), want, got)
					if i > 0 && want.Message == tc.want[i-1].Message {
						expectEqual(t, tc.reason, "writes for the same text", 0, c.api.Writes())
					}
				}
			})
		})
	}
}

// The many dependents of one object say nothing about another's.
func TestLook_AnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := newDependents(9, false)
		o := newComposite(list...)
		y := newObject(composites, "", "y", withFinalizers("f"), withDeletionTimestamp, withConditions())
		own := newObject(things, "", "own", withController(y), withDeletionTimestamp, withFinalizers("f"))
		withField(fieldPath("spec", "crossplane", "resourceRefs"), []any{referenceTo(own)})(y)
		c := newCluster(append(list, o, y, own)...)
		delayReads(c, func(string) (time.Duration, error) { return 600 * time.Millisecond, nil })
		r := reconciler.New(c, composites, newIdleReconciler(), withComposed)
		mustReconcile(t, r, o)
		mustReconcile(t, r, y)
		expectEqual(
			t, "A long list of one object should not keep another's dependents from being read.", "message",
			"0 of 1 dependents deleted, 0%. Thing/own since T: held by f.",
			c.condition(t, y, reconciler.TypeDeleting).Message,
		)
	})
}

// Dependents are read once in a reconcile.
func TestLook_OnceInAReconcile(t *testing.T) {
	list := newDependents(2, false)
	o := newComposite(list...)
	c := newCluster(append(list, o)...)
	pass := func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
		for i := range 3 {
			withField(fieldPath("status", "phase"), fmt.Sprint(i))(&o.Unstructured)
			o.SetConditions(xpv2.Deleting())
			must(t, c.Status().Update(ctx, o))
		}
		return nil
	}
	r := reconciler.New(c, composites, newCompositeReconciler(pass), withComposed)
	mustReconcile(t, r, o)
	expectEqual(t, "Three status writes should have one look at the dependents.", "reads", 2, c.count("get Thing"))
}

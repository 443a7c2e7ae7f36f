package seam

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func TestChangesLeft(t *testing.T) {
	theirs, remove := map[string]string{"k": "theirs"}, Change{Key: "k", Remove: true, Was: "old", Existed: true}
	cases := map[string]struct {
		reason    string
		live      map[string]string
		change    Change
		left      bool
		overruled bool
	}{
		"MissingAndEmpty":    {reason: "An empty value is not the same as no annotation.", change: Change{Key: "k"}, left: true},
		"Stored":             {reason: "An annotation with the value is stored.", live: map[string]string{"k": "v"}, change: Change{Key: "k", Value: "v"}},
		"SetByAnotherWriter": {reason: "Another value is a conflict.", live: theirs, change: Change{Key: "k", Value: "v"}, overruled: true},
		"Yield":              {reason: "A change that yields never replaces another value.", live: theirs, change: Change{Key: "k", Value: "v", Yield: true}, overruled: true},
		"YieldToRemoval":     {reason: "A change that yields does not set again what another writer removed.", change: Change{Key: "k", Value: "v", Was: "old", Existed: true, Yield: true}, overruled: true},
		"Removed":            {reason: "An annotation that is not there needs no removal.", change: remove},
		"Remove":             {reason: "An annotation that still has its earlier value is left to remove.", live: map[string]string{"k": "old"}, change: remove, left: true},
		"RemoveAnotherValue": {reason: "An annotation that another writer set is not removed.", live: theirs, change: remove, overruled: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := newBucket()
			live.SetAnnotations(tc.live)

			// The second is stored in any case.
			meta.AddAnnotations(live, map[string]string{"a": "1"})
			want := Changes(nil)
			if tc.left {
				want = Changes{tc.change}
			}
			left, err := Changes{tc.change, {Key: "a", Value: "1"}}.Left(live, StoreOptions{Insist: tc.change.Yield})
			wants(t, tc.reason, "left, overruled, conflict", []any{want, tc.overruled, tc.overruled}, []any{left, IsOverruled(err), kerrors.IsConflict(err)})
		})
	}
}

// A Writer tries again for as long as that can help, and starts from what the API
// server has.
func TestWriterStore(t *testing.T) {
	busy := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
	strict := StoreOptions{Strict: true}
	type want struct {
		Waits   []string
		Patches int
		Lives   int // Reads from the API server itself.
		Stored  string
		Err     metav1.StatusReason
	}
	cases := map[string]struct {
		reason string
		fails  error                                            // What patches end in.
		before func(ctx context.Context, c client.Client) error // What another writer does first.
		so     StoreOptions
		wait   error
		want   want
	}{
		"Patient": {
			reason: "A patient writer makes twelve attempts, at most five seconds apart.",
			fails:  busy,
			so:     StoreOptions{Patient: true},
			want: want{
				Waits:   []string{"50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s", "5s", "5s"},
				Patches: 12, Err: metav1.StatusReasonServerTimeout,
			},
		},
		"NoTimeLeft": {reason: "If waiting fails, the API server's error is returned.", fails: busy, wait: errors.New("stop"), want: want{Waits: []string{"50ms"}, Patches: 1, Err: metav1.StatusReasonServerTimeout}},
		"Permanent":  {reason: "A request that fails the same way again is not repeated.", fails: kerrors.NewBadRequest("no"), want: want{Patches: 1, Err: metav1.StatusReasonBadRequest}},
		"Invalid":    {reason: "If the object has not moved, the API server refuses the annotation itself.", fails: kerrors.NewInvalid(schema.GroupKind{}, "b", nil), want: want{Patches: 1, Lives: 1, Err: metav1.StatusReasonInvalid}},
		"MovedThere": {reason: "If another writer stored the same, there is nothing left to write.", before: annotates("k", "v"), want: want{Patches: 1, Lives: 1, Stored: "v"}},
		"Overruled":  {reason: "Another value is a conflict, and stays.", before: annotates("k", "theirs"), want: want{Patches: 1, Lives: 1, Stored: "theirs", Err: metav1.StatusReasonConflict}},
		"Strict":     {reason: "A strict writer returns the first conflict.", before: annotates("other", "x"), so: strict, want: want{Patches: 1, Err: metav1.StatusReasonConflict}},
		"StrictGone": {reason: "A strict writer reports that the object no longer exists.", before: removes, so: strict, want: want{Patches: 1, Err: metav1.StatusReasonNotFound}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, a := context.Background(), testkit.NewAPI(newBucket())
			current := stored(t, a)
			if tc.before != nil {
				must(t, "another writer", tc.before(ctx, a.Server()))
			}
			a.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Patch {
					return tc.fails
				}
				return nil
			}
			var got want
			w := Writer{Client: a.Client(), Live: a.Live(), Wait: func(_ context.Context, d time.Duration) error {
				got.Waits = append(got.Waits, d.String())
				return tc.wait
			}}
			server, _, err := w.Store(ctx, current, Changes{{Key: "k", Value: "v"}}, tc.so)
			live := stored(t, a)
			got.Patches, got.Lives, got.Stored, got.Err = a.Count(testkit.Patch), a.Count(testkit.LiveGet), live.GetAnnotations()["k"], kerrors.ReasonForError(err)
			if server != nil {
				wants(t, tc.reason, "version of what is returned", live.GetResourceVersion(), server.GetResourceVersion())
			}
			wants(t, tc.reason, "Store(...)", tc.want, got)
		})
	}
}

// What could not be stored is stored by the next reconcile, before it does anything
// else.
func TestStoreAnnotations(t *testing.T) {
	type want struct {
		err       metav1.StatusReason // Of storing.
		next      metav1.StatusReason // Of the next reconcile.
		seen      string              // By the next reconcile, if it got past its first read.
		stored    string
		overwrote []string
	}
	timeout := metav1.StatusReasonServerTimeout
	cases := map[string]struct {
		reason string
		so     StoreOptions
		old    bool // The object in memory has an older version, and the API server is well.
		again  bool // Storing fails in the next reconcile, too.
		theirs bool // Another writer sets it before that.
		want   want
	}{
		"FailedAgain": {reason: "The next reconcile does nothing unless it can store it.", again: true, want: want{err: timeout, next: timeout}},
		"Overruled":   {reason: "The value of another writer is a conflict once, and then stays.", theirs: true, want: want{err: timeout, next: metav1.StatusReasonConflict, stored: "theirs"}},
		"Insist":      {reason: "What insists replaces the value of another writer, also in the next reconcile.", so: StoreOptions{Insist: true}, theirs: true, want: want{err: timeout, seen: "v", stored: "v", overwrote: []string{"k: theirs, v"}}},
		"OlderObject": {reason: "The API server judges by the version of the object in memory.", so: StoreOptions{Strict: true, Forget: true}, old: true, want: want{err: metav1.StatusReasonConflict}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			must(t, "Update", annotate(context.Background(), a.Server(), "other", "x"))
			var got want
			fails, first := !tc.old, true
			a.Before = func(_ context.Context, r testkit.Request) error {
				if fails && r.Verb == testkit.Patch {
					return kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
				}
				return nil
			}
			r := withSession(t, a, Options{Wait: func(context.Context, time.Duration) error { return nil }}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
				if !first {
					got.seen = b.GetAnnotations()["k"]
					return nil
				}
				first = false
				if tc.old {
					b.SetResourceVersion("1")
				}
				got.err = kerrors.ReasonForError(s.StoreAnnotations(ctx, b, Changes{{Key: "k", Value: "v"}}, tc.so))
				return nil
			}, PendingAnnotations(func(_ client.Object, key, theirs, ours string) {
				got.overwrote = append(got.overwrote, key+": "+theirs+", "+ours)
			}))
			must(t, "Reconcile", run(t, r))
			if tc.theirs {
				must(t, "another writer", annotate(context.Background(), a.Server(), "k", "theirs"))
			}
			fails = tc.again
			got.next, got.stored = kerrors.ReasonForError(run(t, r)), stored(t, a).GetAnnotations()["k"]
			wants(t, tc.reason, "", tc.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

// What insists does so until it is stored, and no longer: what could not be stored later
// gives way to another writer, as it would have without it.
func TestInsistEndsWithWhatInsisted(t *testing.T) {
	a, fails, n := testkit.NewAPI(newBucket()), true, 0
	a.Before = func(_ context.Context, r testkit.Request) error {
		if fails && r.Verb == testkit.Patch {
			return kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
		}
		return nil
	}
	r := withSession(t, a, Options{Wait: func(context.Context, time.Duration) error { return nil }}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
		n++
		switch n {
		case 1:
			_ = s.StoreAnnotations(ctx, b, Changes{{Key: "created", Value: "v"}}, StoreOptions{Insist: true})
			b.SetAnnotations(map[string]string{"created": "v"})

			// The whole object is written with it.
			return NewClient(a.Client()).Update(ctx, b)
		case 2:
			_ = s.StoreAnnotations(ctx, b, Changes{{Key: "k", Value: "v"}}, StoreOptions{})
		}
		return nil
	}, PendingAnnotations(func(client.Object, string, string, string) {}))
	must(t, "first", run(t, r))
	must(t, "second", run(t, r))
	fails = false
	must(t, "another writer", annotate(context.Background(), a.Server(), "k", "theirs"))
	if err := run(t, r); !kerrors.IsConflict(err) {
		t.Errorf("Reconcile(...): want a conflict, got %v", err)
	}
	wants(t, "", "annotation", "theirs", stored(t, a).GetAnnotations()["k"])
}

func annotate(ctx context.Context, c client.Client, k, v string) error {
	o := newBucket()
	if err := c.Get(ctx, key(), o); err != nil {
		return err
	}
	o.SetAnnotations(map[string]string{k: v})
	return c.Update(ctx, o)
}

func annotates(k, v string) func(ctx context.Context, c client.Client) error {
	return func(ctx context.Context, c client.Client) error { return annotate(ctx, c, k, v) }
}

func removes(ctx context.Context, c client.Client) error { return c.Delete(ctx, newBucket()) }

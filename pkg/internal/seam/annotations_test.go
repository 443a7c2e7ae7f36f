package seam

import (
	"context"
	"slices"
	"testing"
	"time"

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
	set := func(key, value string) Change { return Change{Key: key, Value: value} }

	type want struct {
		left      Changes
		overwrote []string
		overruled bool
	}

	cases := map[string]struct {
		reason string
		live   map[string]string
		cs     Changes
		insist bool
		want   want
	}{
		"MissingAndEmpty":    {reason: "An empty value is not the same as no annotation.", cs: Changes{set("k", "")}, want: want{left: Changes{set("k", "")}}},
		"Stored":             {reason: "An annotation with the value is stored.", live: map[string]string{"k": "v"}, cs: Changes{set("k", "v")}},
		"SetByAnotherWriter": {reason: "Another value is a conflict.", live: map[string]string{"k": "theirs"}, cs: Changes{set("k", "v")}, want: want{overruled: true}},
		"Yield": {
			reason: "A change that yields never replaces another value.",
			live:   map[string]string{"k": "theirs"},
			cs:     Changes{{Key: "k", Value: "v", Yield: true}},
			insist: true,
			want:   want{overruled: true},
		},
		"YieldToRemoval": {
			reason: "A change that yields does not set again what another writer removed.",
			cs:     Changes{{Key: "k", Value: "v", Was: "old", Existed: true, Yield: true}},
			insist: true,
			want:   want{overruled: true},
		},
		"Removed": {reason: "An annotation that is not there needs no removal.", cs: Changes{{Key: "k", Remove: true, Was: "old", Existed: true}}},
		"Remove": {
			reason: "An annotation that still has its earlier value is left to remove.",
			live:   map[string]string{"k": "old"},
			cs:     Changes{{Key: "k", Remove: true, Was: "old", Existed: true}},
			want:   want{left: Changes{{Key: "k", Remove: true, Was: "old", Existed: true}}},
		},
		"RemoveAnotherValue": {
			reason: "An annotation that another writer set is not removed.",
			live:   map[string]string{"k": "theirs"},
			cs:     Changes{{Key: "k", Remove: true, Was: "old", Existed: true}},
			want:   want{overruled: true},
		},
		"Some": {reason: "Of several changes those that are not stored are left.", live: map[string]string{"a": "1"}, cs: Changes{set("a", "1"), set("b", "2")}, want: want{left: Changes{set("b", "2")}}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := newBucket()
			live.SetAnnotations(tc.live)

			var got want

			left, err := tc.cs.Left(live, StoreOptions{Insist: tc.insist, Overwrote: func(key, theirs, ours string) {
				got.overwrote = append(got.overwrote, key+": "+theirs+", "+ours)
			}})
			got.left, got.overruled = left, IsOverruled(err)

			if err != nil && (!got.overruled || !kerrors.IsConflict(err)) {
				t.Errorf("\n%s\nLeft(...): unexpected error %v", tc.reason, err)
			}

			wants(t, tc.reason, "Left(...)", tc.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

// A Writer tries again for as long as that can help, and starts from what the API
// server has.
func TestWriterStore(t *testing.T) {
	busy := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
	stop := errors.New("stop")
	always := slices.Repeat([]error{busy}, 20)

	type want struct {
		waits    []string
		patches  int
		lives    int // Reads from the API server itself.
		stored   string
		followed bool
		gone     bool
		err      metav1.StatusReason
	}

	cases := map[string]struct {
		reason string
		fails  []error                                          // What the first patches end in.
		before func(ctx context.Context, c client.Client) error // What another writer does first.
		so     StoreOptions
		wait   error
		want   want
	}{
		"Patient": {
			reason: "A patient writer makes twelve attempts, at most five seconds apart.",
			fails:  always,
			so:     StoreOptions{Patient: true},
			want: want{
				waits:   []string{"50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s", "5s", "5s"},
				patches: 12, err: metav1.StatusReasonServerTimeout,
			},
		},
		"NoTimeLeft": {reason: "If waiting fails, the API server's error is returned.", fails: always, wait: stop, want: want{waits: []string{"50ms"}, patches: 1, err: metav1.StatusReasonServerTimeout}},
		"Permanent":  {reason: "A request that fails the same way again is not repeated.", fails: []error{kerrors.NewBadRequest("no")}, want: want{patches: 1, err: metav1.StatusReasonBadRequest}},
		"Invalid": {
			reason: "If the object has not moved, the API server refuses the annotation itself.",
			fails:  []error{kerrors.NewInvalid(schema.GroupKind{}, "b", nil)},
			want:   want{patches: 1, lives: 1, err: metav1.StatusReasonInvalid},
		},
		"MovedThere": {reason: "If another writer stored the same, there is nothing left to write.", before: annotates("k", "v"), want: want{patches: 1, lives: 1, stored: "v"}},
		"Overruled":  {reason: "Another value is a conflict, and stays.", before: annotates("k", "theirs"), want: want{patches: 1, lives: 1, stored: "theirs", err: metav1.StatusReasonConflict}},
		"Strict":     {reason: "A strict writer returns the first conflict.", before: annotates("other", "x"), so: StoreOptions{Strict: true}, want: want{patches: 1, err: metav1.StatusReasonConflict}},
		"StrictGone": {reason: "A strict writer reports that the object no longer exists.", before: removes, so: StoreOptions{Strict: true}, want: want{patches: 1, err: metav1.StatusReasonNotFound}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, a := context.Background(), testkit.NewAPI(newBucket())
			current := stored(t, a)

			if tc.before != nil {
				must(t, "another writer", tc.before(ctx, a.Server()))
			}

			var got want

			a.Before = func(_ context.Context, r testkit.Request) error {
				switch r.Verb {
				case testkit.LiveGet:
					got.lives++
				case testkit.Patch:
					if got.patches++; got.patches <= len(tc.fails) {
						return tc.fails[got.patches-1]
					}
				}

				return nil
			}

			w := Writer{Client: a.Client(), Live: a.Live(), Wait: func(_ context.Context, d time.Duration) error {
				got.waits = append(got.waits, d.String())
				return tc.wait
			}}

			server, followed, err := w.Store(ctx, current, Changes{{Key: "k", Value: "v"}}, tc.so)
			got.followed, got.gone, got.err = followed, server == nil && err == nil, kerrors.ReasonForError(err)

			live := stored(t, a)
			got.stored = live.GetAnnotations()["k"]

			if server != nil {
				wants(t, tc.reason, "version of what is returned", live.GetResourceVersion(), server.GetResourceVersion())
			}

			wants(t, tc.reason, "Store(...)", tc.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

// What could not be stored is stored by the next reconcile, before it does anything
// else.
func TestStoreAnnotations(t *testing.T) {
	busy := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
	cs := Changes{{Key: "k", Value: "v"}}

	type want struct {
		err       metav1.StatusReason // Of storing.
		next      metav1.StatusReason // Of the next reconcile.
		ran       bool                // Whether the next reconcile got past its first read,
		seen      string              // and what it saw.
		stored    string
		overwrote []string
	}

	cases := map[string]struct {
		reason  string
		fails   error // What storing ends in.
		so      StoreOptions
		old     bool                                             // The object in memory has an older version.
		between func(ctx context.Context, c client.Client) error // What another writer does before the next reconcile.
		again   error                                            // What storing in the next reconcile ends in.
		want    want
	}{
		"FailedAgain": {reason: "The next reconcile does nothing unless it can store it.", fails: busy, again: busy, want: want{err: metav1.StatusReasonServerTimeout, next: metav1.StatusReasonServerTimeout}},
		"Overruled": {
			reason:  "The value of another writer is a conflict once, and then stays.",
			fails:   busy,
			between: annotates("k", "theirs"),
			want:    want{err: metav1.StatusReasonServerTimeout, next: metav1.StatusReasonConflict, stored: "theirs"},
		},
		"Insist": {
			reason:  "What insists replaces the value of another writer, also in the next reconcile.",
			fails:   busy,
			so:      StoreOptions{Insist: true},
			between: annotates("k", "theirs"),
			want:    want{err: metav1.StatusReasonServerTimeout, ran: true, seen: "v", stored: "v", overwrote: []string{"k: theirs, v"}},
		},
		"OlderObject": {
			reason: "The API server judges by the version of the object in memory.",
			so:     StoreOptions{Strict: true, Forget: true},
			old:    true,
			want:   want{err: metav1.StatusReasonConflict, ran: true},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			must(t, "Update", annotate(context.Background(), a.Server(), "other", "x"))

			var got want

			fails := tc.fails
			a.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Patch {
					return fails
				}

				return nil
			}

			first := true
			r := withSession(t, a, Options{Wait: func(context.Context, time.Duration) error { return nil }}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
				if !first {
					got.ran, got.seen = true, b.GetAnnotations()["k"]
					return nil
				}

				first = false

				if tc.old {
					b.SetResourceVersion("1")
				}

				err := s.StoreAnnotations(ctx, b, cs, tc.so)
				got.err = kerrors.ReasonForError(err)

				if err == nil {
					wants(t, tc.reason, "version in memory", stored(t, a).GetResourceVersion(), b.GetResourceVersion())
				}

				return nil
			}, PendingAnnotations(func(_ client.Object, key, theirs, ours string) {
				got.overwrote = append(got.overwrote, key+": "+theirs+", "+ours)
			}))

			must(t, "Reconcile", run(t, r))

			if tc.between != nil {
				must(t, "another writer", tc.between(context.Background(), a.Server()))
			}

			fails = tc.again
			got.next = kerrors.ReasonForError(run(t, r))

			got.stored = stored(t, a).GetAnnotations()["k"]

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

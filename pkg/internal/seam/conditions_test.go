package seam

import (
	"context"
	"strconv"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func withSession(t *testing.T, a *testkit.API, o Options, fn func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error, p ...Patch) *Reconciler {
	t.Helper()
	o.Live = a.Live()
	return NewReconciler(a.Client(), NewKind(testkit.BucketKind(), testkit.Scheme()), func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			b := &v1alpha1.Bucket{}
			if err := c.Get(ctx, key(), b); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, fn(ctx, From(ctx), b)
		})
	}, o, p...)
}

func TestWriteConditions(t *testing.T) {
	busy, notFound := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1), kerrors.NewNotFound(schema.GroupResource{}, "b")
	type want struct {
		Waits    []string
		Patches  int
		Lives    int // Reads from the API server itself.
		Err      metav1.StatusReason
		NoStatus bool
	}
	cases := map[string]struct {
		reason string
		moves  bool  // Another writer writes before each patch.
		fails  error // What patches end in.
		wait   error
		live   error
		want   want
	}{
		"MovesAlways":         {reason: "After five attempts the conflict is returned.", moves: true, want: want{Waits: []string{"20ms", "40ms", "80ms", "160ms"}, Patches: 5, Lives: 5, Err: metav1.StatusReasonConflict}},
		"NoTimeLeft":          {reason: "If waiting fails, that error is returned.", moves: true, wait: kerrors.NewTimeoutError("stop", 0), want: want{Waits: []string{"20ms"}, Patches: 1, Lives: 1, Err: metav1.StatusReasonTimeout}},
		"NoStatusSubresource": {reason: "If the object is there, it is its status that was not found.", fails: notFound, want: want{Patches: 1, Lives: 1, NoStatus: true}},
		"Invalid":             {reason: "If the object has not moved, the API server refuses the condition itself.", fails: kerrors.NewInvalid(schema.GroupKind{}, "b", nil), want: want{Patches: 1, Lives: 1, Err: metav1.StatusReasonInvalid}},
		"OtherError":          {reason: "Another error is returned at once: the next reconcile tries again.", fails: busy, want: want{Patches: 1, Err: metav1.StatusReasonServerTimeout}},
		"NoLiveRead":          {reason: "If the live read fails, its error is returned.", fails: notFound, live: busy, want: want{Patches: 1, Lives: 1, Err: metav1.StatusReasonServerTimeout}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			var got want
			a.Before = func(ctx context.Context, r testkit.Request) error {
				switch {
				case r.Verb == testkit.LiveGet:
					got.Lives++
					return tc.live
				case r.Verb != testkit.StatusPatch:
					return nil
				}
				if got.Patches++; tc.moves {
					must(t, "another writer", annotate(ctx, a.Server(), "other", strconv.Itoa(got.Patches)))
				}
				return tc.fails
			}
			wait := func(_ context.Context, d time.Duration) error {
				got.Waits = append(got.Waits, d.String())
				return tc.wait
			}
			must(t, "Reconcile", run(t, withSession(t, a, Options{Wait: wait}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
				err := s.WriteConditions(ctx, b, func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} })
				got.NoStatus, got.Err = errors.Is(err, ErrNoStatus), kerrors.ReasonForError(err)
				return nil
			})))
			wants(t, tc.reason, "WriteConditions(...)", tc.want, got)
		})
	}
}

// A reconcile whose conditions can't be announced fails five times in a row, and
// then goes on without. A success starts a new count.
func TestAnnounceFails(t *testing.T) {
	a, fail, failed := testkit.NewAPI(newBucket()), true, 0
	a.Before = func(_ context.Context, r testkit.Request) error {
		if fail && r.Verb == testkit.StatusPatch {
			return kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
		}
		return nil
	}
	r := withSession(t, a, Options{}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
		err := s.Announce(ctx, b, func(client.Object, error) { failed++ }, func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} })
		wants(t, "", "Unannounced()", fail, s.Unannounced())
		if !fail {
			wants(t, "", "Ready", xpv2.ReasonDeleting, b.GetCondition(xpv2.TypeReady).Reason)
		}
		return err
	})

	// goesOn reports whether each of n reconciles goes on.
	goesOn := func(n int) []bool {
		var got []bool
		for range n {
			before := failed
			err := run(t, r)
			got = append(got, err == nil && failed == before+1)
		}
		return got
	}
	wants(t, "", "Announce(...)", []bool{false, false, false, false, false, true, true}, goesOn(7))
	fail = false
	must(t, "Reconcile", run(t, r))
	fail = true
	must(t, "Update", annotate(context.Background(), a.Server(), "k", "v"))
	theirs(t, a, func(b *v1alpha1.Bucket) { b.SetConditions(xpv2.Available()) })
	wants(t, "", "Announce(...) after a success", []bool{false}, goesOn(1))
}

// Patches run when the inner reconciler has returned. A conflict of theirs is no
// failure, but the object must be looked at again.
func TestClose(t *testing.T) {
	boom, bang := errors.New("boom"), errors.New("bang")
	cases := map[string]struct {
		reason  string
		inner   error
		close   []error
		want    error
		requeue bool
	}{
		"Nothing":        {reason: "Without errors nothing changes.", close: []error{nil}},
		"Conflict":       {reason: "After a conflict the reconcile runs again with backoff.", close: []error{kerrors.NewConflict(schema.GroupResource{}, "b", nil)}, requeue: true},
		"Error":          {reason: "An error is the reconcile's.", close: []error{boom}, want: boom},
		"First":          {reason: "The first of two errors is the reconcile's.", close: []error{boom, bang}, want: boom},
		"InnerFirst":     {reason: "The inner reconciler's error comes first.", inner: boom, close: []error{bang}, want: boom},
		"ConflictBefore": {reason: "An error after a conflict is the reconcile's.", close: []error{kerrors.NewConflict(schema.GroupResource{}, "b", nil), boom}, want: boom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			closed := 0
			patches := []Patch{{}} // One that does nothing.
			for _, err := range tc.close {
				patches = append(patches, Patch{Close: func(context.Context, *Session) error { closed++; return err }})
			}
			r := withSession(t, testkit.NewAPI(newBucket()), Options{}, func(context.Context, *Session, *v1alpha1.Bucket) error { return tc.inner }, patches...)
			result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key()})
			wants(t, tc.reason, "error", tc.want, err, cmpopts.EquateErrors())
			wants(t, tc.reason, "requeue with backoff, patches closed", []any{tc.requeue, len(tc.close)}, []any{result.Requeue, closed}) //nolint:staticcheck // A requeue with backoff.
		})
	}
}

func TestRemoveFinalizers(t *testing.T) {
	cases := map[string]struct {
		reason string
		remove []string
		left   []string
		gone   bool
	}{
		"Some": {reason: "The object gets the version that the API server then has.", remove: []string{"a"}, left: []string{"b"}},
		"All":  {reason: "An object without finalizers is gone.", remove: []string{"a", "b"}, gone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBucket()
			b.SetFinalizers([]string{"a", "b"})
			a := testkit.NewAPI(b)
			must(t, "Delete", a.Server().Delete(context.Background(), newBucket()))
			must(t, "Reconcile", run(t, withSession(t, a, Options{}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
				ok, err := s.RemoveFinalizers(ctx, b, tc.remove)
				must(t, "RemoveFinalizers", err)
				live := stored(t, a)
				wants(t, tc.reason, "RemoveFinalizers(...), gone, left", []any{true, tc.gone, tc.left}, []any{ok, s.Gone(), live.GetFinalizers()})
				if !tc.gone {
					wants(t, tc.reason, "version and finalizers in memory", []any{live.GetResourceVersion(), tc.left}, []any{b.GetResourceVersion(), b.GetFinalizers()})
				}
				return nil
			})))
		})
	}
}

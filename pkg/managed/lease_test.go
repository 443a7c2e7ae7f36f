package managed

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A lease that another holder writes at the same time is read and written again, up
// to five times.
func TestHoldLease(t *testing.T) {
	gr := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	// A lease without a holder.
	released := func(t *testing.T, a *testkit.API) {
		t.Helper()

		u := emptyLease(leaseNamespace, leaseName("key"))
		(&leases{namespace: leaseNamespace}).fill(u, "key", holder{}, now)

		must(t, a.Server().Create(t.Context(), u))
	}

	deleted := func(t *testing.T, a *testkit.API) {
		t.Helper()

		must(t, a.Server().Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
	}

	type want struct {
		Holders map[string]string
		Writes  int
		Err     string
	}

	held := map[string]string{"key": "mine"}

	cases := map[string]struct {
		reason string
		given  func(t *testing.T, a *testkit.API)
		then   func(t *testing.T, a *testkit.API) // Before the first write.
		err    error                              // What writes end in, the first n of them.
		n      int
		want   want
	}{
		"New":              {reason: "A lease that does not exist is created.", want: want{Holders: held, Writes: 1}},
		"Released":         {reason: "A lease that has no holder is updated.", given: released, want: want{Holders: held, Writes: 1}},
		"CreatedMeanwhile": {reason: "A lease that was created meanwhile is read again.", then: released, want: want{Holders: held, Writes: 2}},
		"DeletedMeanwhile": {reason: "A lease that was deleted meanwhile is created again.", given: released, then: deleted, want: want{Holders: held, Writes: 2}},
		"Conflict":         {reason: "After a conflict the lease is read again.", given: released, err: kerrors.NewConflict(gr, "x", nil), n: 1, want: want{Holders: held, Writes: 2}},
		"Conflicts":        {reason: "After five attempts it is an error.", given: released, err: kerrors.NewConflict(gr, "x", nil), n: 9, want: want{Holders: map[string]string{"key": ""}, Writes: 5, Err: "too many conflicting writes (5 attempts)"}},
		"NoNamespace":      {reason: "A lease can't be created in a namespace that does not exist.", err: kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, leaseNamespace), n: 9, want: want{Holders: map[string]string{}, Writes: 1, Err: "does the namespace exist?"}},
		"Forbidden":        {reason: "Another error is returned at once.", err: kerrors.NewForbidden(gr, "x", nil), n: 9, want: want{Holders: map[string]string{}, Writes: 1, Err: "cannot write lease"}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI()
			if tc.given != nil {
				tc.given(t, a)
			}

			var got want

			a.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb != testkit.Create && r.Verb != testkit.Update {
					return nil
				}

				if got.Writes++; got.Writes == 1 && tc.then != nil {
					tc.then(t, a)
				}

				if got.Writes <= tc.n {
					return tc.err
				}

				return nil
			}

			l := &leases{client: a.Client(), live: a.Live(), namespace: leaseNamespace}

			if _, err := l.hold(t.Context(), "key", mine, lease{}, false, now); err != nil {
				got.Err = tc.want.Err
				if tc.want.Err == "" || !strings.Contains(err.Error(), tc.want.Err) {
					got.Err = err.Error()
				}
			}

			a.Before = nil
			got.Holders = holders(t, a)

			wants(t, tc.reason, "hold(...)", tc.want, got)
		})
	}
}

// Only its holder releases a lease, whatever the holder had in memory about it.
func TestReleaseOnlyByHolder(t *testing.T) {
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	now := newClock().now

	// rewrite the lease.
	rewrite := func(fn func(l *leases, u *unstructured.Unstructured)) func(t *testing.T, l *leases) {
		return func(t *testing.T, l *leases) {
			t.Helper()

			u, err := l.get(t.Context(), leaseName("key"))
			must(t, err)
			fn(l, u)
			must(t, l.client.Update(t.Context(), u))
		}
	}

	cases := map[string]struct {
		reason string
		then   func(t *testing.T, l *leases)
		forget bool
		want   map[string]string
	}{
		"Mine":        {reason: "The holder releases its lease.", want: map[string]string{}},
		"MineUnknown": {reason: "The holder releases its lease if nothing is in memory.", forget: true, want: map[string]string{}},
		"Rewritten": {
			reason: "The holder releases its lease if another writer has changed it since.",
			then:   rewrite(func(_ *leases, u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }),
			want:   map[string]string{},
		},
		"TakenOver": {
			reason: "A lease that another holder has taken over since stays.",
			then: rewrite(func(l *leases, u *unstructured.Unstructured) {
				l.fill(u, "key", holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}, now)
			}),
			want: map[string]string{"key": "theirs"},
		},
		"Gone": {
			reason: "What isn't there needs nothing.",
			then: func(t *testing.T, l *leases) {
				must(t, l.client.Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
			},
			want: map[string]string{},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI()
			l := &leases{client: a.Client(), live: a.Live(), namespace: leaseNamespace}

			known, err := l.hold(t.Context(), "key", mine, lease{}, false, now)
			must(t, err)

			if tc.then != nil {
				tc.then(t, l)
			}

			if tc.forget {
				known = lease{name: leaseName("key")}
			}

			_, err = l.release(t.Context(), known, mine, never)
			must(t, err)
			wants(t, tc.reason, "holders", tc.want, holders(t, a))
		})
	}
}

// Only an answer about the object itself says that it does not exist.
func TestIsObjectNotFound(t *testing.T) {
	gr := schema.GroupResource{Resource: "buckets"}

	noPath := kerrors.NewGenericServerResponse(404, "get", gr, "b", "404 page not found", 0, true)

	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Object":    {reason: "The object does not exist.", err: kerrors.NewNotFound(gr, "b"), want: true},
		"Wrapped":   {reason: "What the error is wrapped in does not matter.", err: errors.Wrap(kerrors.NewNotFound(gr, "b"), "cannot get"), want: true},
		"Other":     {reason: "Another object does not exist, such as the namespace.", err: kerrors.NewNotFound(gr, "other")},
		"NoName":    {reason: "A kind that is not served has no name.", err: kerrors.NewNotFound(gr, "")},
		"NoPath":    {reason: "A version of the kind is not served.", err: noPath},
		"NoDetails": {reason: "Without details the error says nothing of the object.", err: &kerrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}},
		"Forbidden": {reason: "Another error says nothing of the object.", err: kerrors.NewForbidden(gr, "b", nil)},
		"None":      {reason: "No error says that it exists.", err: nil},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "isObjectNotFound(...)", tc.want, isObjectNotFound(tc.err, "b"))
		})
	}
}

package managed

import (
	"context"
	"strings"
	"testing"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A lease that another holder writes at the same time is read and written again, up
// to five times. Only its holder releases it, whatever the holder had in memory about it.
func TestLeases(t *testing.T) {
	gr := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	theirs := holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}
	now := newClock().now
	hasNone := func(t *testing.T, a *testkit.API) {
		t.Helper()
		u := emptyLease(leaseNamespace, leaseName("key"))
		(&leases{namespace: leaseNamespace}).fill(u, "key", holder{}, now)
		must(t, a.Server().Create(t.Context(), u))
	}
	deleted := func(t *testing.T, a *testkit.API) {
		t.Helper()
		must(t, a.Server().Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
	}
	rewritten := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, a *testkit.API) {
		return func(t *testing.T, a *testkit.API) {
			t.Helper()
			u := leasesIn(t, a)["key"]
			fn(&u)
			must(t, a.Server().Update(t.Context(), &u))
		}
	}
	type want struct {
		Holders map[string]string
		Writes  int
		Err     string
	}
	held, none := map[string]string{"key": "mine"}, map[string]string{}
	cases := map[string]struct {
		reason  string
		given   func(t *testing.T, a *testkit.API)
		release bool                               // What is held.
		forget  bool                               // What is in memory.
		then    func(t *testing.T, a *testkit.API) // Before the first write.
		err     error                              // What writes end in, the first n of them.
		n       int
		want    want
	}{
		"New":              {reason: "A lease that does not exist is created.", want: want{Holders: held, Writes: 1}},
		"Released":         {reason: "A lease that has no holder is updated.", given: hasNone, want: want{Holders: held, Writes: 1}},
		"CreatedMeanwhile": {reason: "A lease that was created meanwhile is read again.", then: hasNone, want: want{Holders: held, Writes: 2}},
		"DeletedMeanwhile": {reason: "A lease that was deleted meanwhile is created again.", given: hasNone, then: deleted, want: want{Holders: held, Writes: 2}},
		"Conflict":         {reason: "After a conflict the lease is read again.", given: hasNone, err: kerrors.NewConflict(gr, "x", nil), n: 1, want: want{Holders: held, Writes: 2}},
		"Conflicts":        {reason: "After five attempts it is an error.", given: hasNone, err: kerrors.NewConflict(gr, "x", nil), n: 9, want: want{Holders: map[string]string{"key": ""}, Writes: 5, Err: "too many conflicting writes (5 attempts)"}},
		"NoNamespace":      {reason: "A lease can't be created in a namespace that does not exist.", err: kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, leaseNamespace), n: 9, want: want{Holders: none, Writes: 1, Err: "does the namespace exist?"}},
		"Forbidden":        {reason: "Another error is returned at once.", err: kerrors.NewForbidden(gr, "x", nil), n: 9, want: want{Holders: none, Writes: 1, Err: "cannot write lease"}},
		"Release":          {reason: "The holder releases its lease.", release: true, want: want{Holders: none, Writes: 1}},
		"ReleaseUnknown":   {reason: "Also if nothing is in memory.", release: true, forget: true, want: want{Holders: none, Writes: 1}},
		"Rewritten":        {reason: "Also if another writer has changed it since.", release: true, then: rewritten(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }), want: want{Holders: none, Writes: 2}},
		"TakenOver": {
			reason:  "A lease that another holder has taken over since stays.",
			release: true,
			then:    rewritten(func(u *unstructured.Unstructured) { (&leases{namespace: leaseNamespace}).fill(u, "key", theirs, now) }),
			want:    want{Holders: map[string]string{"key": "theirs"}, Writes: 1},
		},
		"Gone": {reason: "What isn't there needs nothing.", release: true, then: deleted, want: want{Holders: none, Writes: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI()
			if tc.given != nil {
				tc.given(t, a)
			}
			l, known, err := &leases{client: a.Client(), live: a.Live(), namespace: leaseNamespace}, lease{}, error(nil)
			if tc.release {
				known, err = l.hold(t.Context(), "key", mine, lease{}, false, now)
				must(t, err)
			}
			var got want
			a.Before = func(_ context.Context, r testkit.Request) error {
				if !isWrite(r) {
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
			if tc.forget {
				known = lease{name: leaseName("key")}
			}
			if tc.release {
				_, err = l.release(t.Context(), known, mine, never)
			} else {
				_, err = l.hold(t.Context(), "key", mine, lease{}, false, now)
			}
			if err != nil {
				got.Err = tc.want.Err
				if tc.want.Err == "" || !strings.Contains(err.Error(), tc.want.Err) {
					got.Err = err.Error()
				}
			}
			got.Holders = holders(t, a)
			wants(t, tc.reason, "holders, writes, error", tc.want, got)
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

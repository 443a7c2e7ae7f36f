package managed

import (
	"context"
	"fmt"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A cache that stands still at any point of a create, for any time, must cost
// neither the name nor a second external resource.
func TestStaleCacheDuringCreate(t *testing.T) {
	for wayName, w := range ways() {
		for k := 1; k <= 8; k++ {
			for _, lasts := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/BeforeWrite%d/For%d", wayName, k, lasts), func(t *testing.T) {
					a, x := testkit.NewAPI(bucket()), newOutside()
					frozen := false
					a.Before = on(k, isWrite, func(testkit.Request) error {
						frozen = true
						return a.Freeze(context.Background(), bucket())
					})

					r := newBucketReconciler(a, append(w.opts(a), connects(x.client()))...)

					for n := 0; n < 10 && !frozen; n++ {
						_, _ = r.Reconcile(context.Background(), request())
					}

					for range lasts {
						// What a stale read leads to is a conflict, which is quiet.
						if _, err := r.Reconcile(context.Background(), request()); err != nil {
							t.Errorf("\n%s\nReconcile: %v", w.reason, err)
						}
					}

					a.Thaw()
					drive(t, r, a)

					// Observing without a name is what a stale read leads to.
					x.nameless = 0
					settledAs(t, w.reason, a, x)
				})
			}
		}
	}
}

// A status that is equal to a stale read is not what the API server has. The
// write must be tried, so that it meets a conflict and is tried again.
func TestStaleReadDropsNoStatusWrite(t *testing.T) {
	cases := map[string]struct {
		reason string
		after  func(testkit.Request) error
	}{
		"Answered": {
			reason: "The cache lags behind our own last status write.",
			after:  func(testkit.Request) error { return nil },
		},
		"AnswerLost": {
			reason: "The cache lags behind our own last status write, whose answer was lost.",
			after:  broken,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket()), newOutside()
			r := newBucketReconciler(a, connects(x.client()))
			drive(t, r, a)

			must(t, a.Freeze(context.Background(), bucket()))

			x.fact = "new"
			a.After = on(1, func(r testkit.Request) bool { return r.Verb == testkit.StatusUpdate }, tc.after)

			_, _ = r.Reconcile(context.Background(), request())

			if got := get(t, a).Status.AtProvider.Facts["fact"]; got != "new" {
				t.Fatalf("\n%s\nstatus: want new, got %q", tc.reason, got)
			}

			// Back to what the cache still serves.
			x.fact = ""

			a.Forget()

			for range 3 {
				result, err := r.Reconcile(context.Background(), request())

				//nolint:staticcheck // Upstream asks for a requeue this way.
				if err != nil || !result.Requeue {
					t.Errorf("\n%s\nReconcile: want a quiet requeue, got %+v, %v", tc.reason, result, err)
				}
			}

			if n := a.Count(testkit.StatusUpdate); n != 3 {
				t.Errorf("\n%s\nstatus updates: want 3, got %d", tc.reason, n)
			}

			a.Thaw()
			drive(t, r, a)
			settledAs(t, tc.reason, a, x)

			if got := get(t, a).Status.AtProvider.Facts["fact"]; got != "" {
				t.Errorf("\n%s\nstatus: want nothing, got %q", tc.reason, got)
			}
		})
	}
}

// What is remembered of an object must not be taken for another one's that has
// its name.
func TestSameNameInSequence(t *testing.T) {
	cases := map[string]struct {
		reason string

		// seen is whether the first object is read as not found in between.
		seen bool
	}{
		"Seen":   {reason: "The first was seen to go.", seen: true},
		"Unseen": {reason: "The first was replaced unseen."},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket()), newOutside()
			down := false
			x.created = func(context.Context, resource.Managed) error {
				down = x.creates == 1
				return nil
			}
			a.Before = func(_ context.Context, r testkit.Request) error {
				if down && isWrite(r) {
					return broken(r)
				}

				return nil
			}

			r := newBucketReconciler(a, connects(x.client()))

			for range 3 {
				// The name of the first could not be stored.
				_, _ = r.Reconcile(context.Background(), request())
			}

			down = false
			must(t, a.Server().Delete(context.Background(), edit(t, a, "b", finalizers())))

			if tc.seen {
				run(t, r, "b")

				if n := r.seam.Memory().Len(); n != 0 {
					t.Errorf("\n%s\nMemory.Len: want 0, got %d", tc.reason, n)
				}
			}

			must(t, a.Server().Create(context.Background(), bucket()))

			x.nameless, x.creates = 0, 1
			drive(t, r, a)

			got := get(t, a)
			if diff := cmp.Diff([]any{"id-2", "id-2", 2}, []any{meta.GetExternalName(got), got.Status.AtProvider.ID, x.creates}); diff != "" {
				t.Errorf("\n%s\nname, status, creates: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMemoryIsEmptyInTheEnd(t *testing.T) {
	for wayName, w := range ways() {
		t.Run(wayName, func(t *testing.T) {
			a, x := testkit.NewAPI(bucket()), newOutside()
			r := newBucketReconciler(a, append(w.opts(a), connects(x.client()))...)
			drive(t, r, a)

			if n := r.seam.Memory().Len(); n != 1 {
				t.Errorf("\n%s\nMemory.Len: want 1, got %d", w.reason, n)
			}

			must(t, a.Server().Delete(context.Background(), get(t, a)))

			var err error

			// The read that would find nothing may never come.
			for n := 0; n < 10 && err == nil; n++ {
				run(t, r, "b")

				err = a.Server().Get(context.Background(), request().NamespacedName, bucket())
			}

			if diff := cmp.Diff([]any{true, 0}, []any{kerrors.IsNotFound(err), r.seam.Memory().Len()}); diff != "" {
				t.Errorf("\n%s\ngone, Memory.Len: -want, +got:\n%s", w.reason, diff)
			}
		})
	}
}

// A read that is older than what the same reconcile stored before must not make
// the name go again.
func TestNameSurvivesStaleRetry(t *testing.T) {
	a := testkit.NewAPI(bucket(annotated(keptKey, "kept")))
	created := 0

	r := newBucketReconciler(a, WithoutExternalNamePersistence(), connects(upstream.ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			if meta.GetExternalName(mg) == "" {
				return absent(ctx, mg)
			}

			return exists(ctx, mg)
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
			created++
			// Upstream's updater, which is used here, reads from the cache when
			// it meets a conflict.
			if err := a.Freeze(context.Background(), mg); err != nil {
				return ExternalCreation{}, err
			}

			meta.SetExternalName(mg, "id-1")

			return ExternalCreation{}, nil
		},
	}))

	for range 3 {
		_, _ = r.Reconcile(context.Background(), request())
	}

	a.Thaw()
	drive(t, r, a)

	if b := get(t, a); created != 1 || meta.GetExternalName(b) != "id-1" || b.Status.AtProvider.ID != "id-1" {
		t.Errorf("want one create and its name, got %d, %q, %+v", created, meta.GetExternalName(b), b.Status)
	}
}

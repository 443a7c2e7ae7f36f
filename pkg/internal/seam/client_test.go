package seam_test

import (
	"context"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

func key() types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: "b"} }

func newBucket() *v1alpha1.Bucket {
	return &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
}

// inner is an inner reconciler.
type inner func(ctx context.Context, c client.Client) error

// over returns a reconcile seam over fn.
func over(a *testkit.API, fn inner) *seam.Reconciler {
	return seam.NewReconciler(a.Client(), seam.NewKind(testkit.BucketKind(), testkit.Scheme()), func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, fn(ctx, c)
		})
	}, seam.Options{Live: a.Live(), Wait: func(context.Context, time.Duration) error { return nil }})
}

func run(t *testing.T, r *seam.Reconciler) error {
	t.Helper()

	_, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key()})

	return err
}

func must(t *testing.T, what string, err error) {
	t.Helper()

	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// read the bucket in some form.
func read(ctx context.Context, t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	must(t, "Get", c.Get(ctx, key(), o))
}

func asUnstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(testkit.BucketKind())

	return u
}

// Reads in a reconcile are never older than what it wrote itself, whatever the
// cache serves.
func TestReadYourWrites(t *testing.T) {
	annotate := func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }

	cases := map[string]struct {
		reason string
		write  func(ctx context.Context, c client.Client, o client.Object) error
	}{
		"Update": {
			reason: "An update is read back.",
			write: func(ctx context.Context, c client.Client, o client.Object) error {
				annotate(o)
				return c.Update(ctx, o)
			},
		},
		"Patch": {
			reason: "A patch is read back.",
			write: func(ctx context.Context, c client.Client, o client.Object) error {
				return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))
			},
		},
		"StatusAfterUpdate": {
			reason: "An update is read back after a status update too.",
			write: func(ctx context.Context, c client.Client, o client.Object) error {
				annotate(o)

				if err := c.Update(ctx, o); err != nil {
					return err
				}

				return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"x"}}}`)))
			},
		},
	}

	forms := map[string]func() client.Object{
		"Typed":        func() client.Object { return &v1alpha1.Bucket{} },
		"Unstructured": func() client.Object { return asUnstructured() },
	}

	for name, tc := range cases {
		for formName, form := range forms {
			t.Run(name+"/"+formName, func(t *testing.T) {
				a := testkit.NewAPI(newBucket())
				must(t, "Freeze", a.Freeze(context.Background(), newBucket()))

				err := run(t, over(a, func(ctx context.Context, c client.Client) error {
					o := form()
					read(ctx, t, c, o)
					must(t, "write", tc.write(ctx, c, o))

					again := form()
					read(ctx, t, c, again)

					if diff := cmp.Diff([]string{"b", o.GetResourceVersion()}, []string{again.GetAnnotations()["a"], again.GetResourceVersion()}); diff != "" {
						t.Errorf("\n%s\nannotation, version: -want, +got:\n%s", tc.reason, diff)
					}

					if again.GetObjectKind().GroupVersionKind() != testkit.BucketKind() {
						t.Errorf("\n%s\nkind: want what the cache says, got %s", tc.reason, again.GetObjectKind().GroupVersionKind())
					}

					// What is handed out is the reader's own.
					again.GetAnnotations()["a"] = "changed"

					third := form()
					read(ctx, t, c, third)

					if third.GetAnnotations()["a"] != "b" {
						t.Errorf("\n%s\nannotation: a reader's change is seen by another", tc.reason)
					}

					return nil
				}))
				must(t, "Reconcile", err)
			})
		}
	}
}

// A status write is dropped if it is known to change nothing, and only then.
func TestUnchangedStatus(t *testing.T) {
	cases := map[string]struct {
		reason string

		// do something before the status is written.
		do     func(ctx context.Context, t *testing.T, a *testkit.API, c client.Client, b *v1alpha1.Bucket)
		opts   []client.SubResourceUpdateOption
		writes int
		fails  bool
	}{
		"Unchanged": {reason: "It changes nothing."},
		"Changed": {
			reason: "It changes something.",
			do: func(_ context.Context, _ *testing.T, _ *testkit.API, _ client.Client, b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID = "x"
			},
			writes: 1,
		},
		"ChangedAndBack": {
			reason: "The second write changes back what the first changed, the third nothing.",
			do: func(ctx context.Context, t *testing.T, _ *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID = "x"
				must(t, "first", c.Status().Update(ctx, b))

				b.Status.AtProvider.ID = ""
				must(t, "second", c.Status().Update(ctx, b))
			},
			writes: 2,
		},
		"ChangedInPlace": {
			reason: "What is in memory shares nothing with what was read.",
			do: func(_ context.Context, _ *testing.T, _ *testkit.API, _ client.Client, b *v1alpha1.Bucket) {
				b.Status.Conditions[0].Message = "changed in place"
			},
			writes: 1,
		},
		"AfterUpdate": {
			reason: "An update of the rest leaves status as it was.",
			do: func(ctx context.Context, t *testing.T, _ *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				b.SetLabels(map[string]string{"a": "b"})
				must(t, "Update", c.Update(ctx, b))
			},
			writes: 1, // The update.
		},
		"KeptThroughUpdate": {
			reason: "What is in memory survives an update, and is written.",
			do: func(ctx context.Context, t *testing.T, _ *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID = "x"
				b.SetLabels(map[string]string{"a": "b"})
				must(t, "Update", c.Update(ctx, b))
			},
			writes: 2,
		},
		"KeptThroughUpdateOfNothing": {
			reason: "What is in memory survives an update that changes nothing.",
			do: func(ctx context.Context, t *testing.T, _ *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID = "x"
				must(t, "Update", c.Update(ctx, b))
			},
			writes: 2,
		},
		"AnotherWriter": {
			reason: "A read that returns another writer's change doesn't confirm the object in memory.",
			do: func(ctx context.Context, t *testing.T, a *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				other := newBucket()
				must(t, "Get", a.Server().Get(ctx, key(), other))
				other.Status.AtProvider.ID = "theirs"
				must(t, "Update", a.Server().Status().Update(ctx, other))
				read(ctx, t, c, newBucket())
			},
			writes: 1,
			fails:  true,
		},
		"WrittenInAnotherForm": {
			reason: "What was written in another form is not what is in memory.",
			do: func(ctx context.Context, t *testing.T, _ *testkit.API, c client.Client, b *v1alpha1.Bucket) {
				u := asUnstructured()
				read(ctx, t, c, u)
				must(t, "SetNestedField", unstructured.SetNestedField(u.Object, "x", "status", "atProvider", "id"))
				must(t, "Update", c.Status().Update(ctx, u))
			},
			writes: 2,
			fails:  true,
		},
		"AnotherVersion": {
			reason: "The object in memory has another resource version than the one that was confirmed.",
			do: func(_ context.Context, _ *testing.T, _ *testkit.API, _ client.Client, b *v1alpha1.Bucket) {
				b.SetResourceVersion("999")
			},
			writes: 1,
			fails:  true,
		},
		"WrittenWithOptions": {
			reason: "A write with options is made.",
			opts:   []client.SubResourceUpdateOption{client.FieldOwner("me")},
			writes: 1,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBucket()
			b.SetConditions(xpv2.Condition{Type: "Some", Status: corev1.ConditionTrue})
			a := testkit.NewAPI(b)

			var got error

			must(t, "Reconcile", run(t, over(a, func(ctx context.Context, c client.Client) error {
				b := newBucket()
				read(ctx, t, c, b)

				if tc.do != nil {
					tc.do(ctx, t, a, c, b)
				}

				got = c.Status().Update(ctx, b, tc.opts...)

				return nil
			})))

			if diff := cmp.Diff([]any{tc.writes, tc.fails}, []any{a.Writes(), kerrors.IsConflict(got)}); diff != "" {
				t.Errorf("\n%s\nwrites, conflict: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An update writes the status of a kind that has no status subresource. That
// must not hide that a status write fails.
func TestNoStatusSubresource(t *testing.T) {
	a := testkit.NewAPIWithoutStatus(newBucket())

	err := run(t, over(a, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		read(ctx, t, c, b)

		b.Status.AtProvider.ID = "x"
		b.SetLabels(map[string]string{"a": "b"})
		must(t, "Update", c.Update(ctx, b))

		return c.Status().Update(ctx, b)
	}))
	if !kerrors.IsNotFound(err) {
		t.Errorf("Status().Update(...): want NotFound, got %v", err)
	}
}

// A read in the next reconcile may be older than what this one wrote, in
// whatever form and with whatever options.
func TestStaleReadOfNextReconcile(t *testing.T) {
	cases := map[string]struct {
		reason string
		write  func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error
	}{
		"StatusUpdateWithOptions": {
			reason: "After a status update with options.",
			write: func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
				return c.Status().Update(ctx, b, client.FieldOwner("me"))
			},
		},
		"StatusPatch": {
			reason: "After a status patch.",
			write: func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
				return c.Status().Patch(ctx, b, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"x"}}}`)))
			},
		},
		"UnstructuredStatusPatch": {
			reason: "After a status patch in another form.",
			write: func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
				u := asUnstructured()
				u.SetName(b.GetName())
				u.SetNamespace(b.GetNamespace())

				return c.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"x"}}}`)))
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			must(t, "Freeze", a.Freeze(context.Background(), newBucket()))

			n := 0
			r := over(a, func(ctx context.Context, c client.Client) error {
				b := newBucket()
				read(ctx, t, c, b)

				if n++; n == 1 {
					b.Status.AtProvider.ID = "x"
					return tc.write(ctx, c, b)
				}

				return c.Status().Update(ctx, b)
			})

			must(t, "first", run(t, r))

			if err := run(t, r); !kerrors.IsConflict(err) {
				t.Errorf("\n%s\nwant the write tried, which meets a conflict; got %v", tc.reason, err)
			}
		})
	}
}

// What is not this session's object passes untouched.
func TestEverythingElsePasses(t *testing.T) {
	other := newBucket()
	other.SetName("other")

	a := testkit.NewAPI(newBucket(), other)

	must(t, "Reconcile", run(t, over(a, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		read(ctx, t, c, b)

		o := newBucket()
		must(t, "Get", c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "other"}, o))

		// Unchanged, but not ours to judge.
		must(t, "Status().Update", c.Status().Update(ctx, o))

		o.Status.AtProvider.ID = "lost"
		o.SetLabels(map[string]string{"a": "b"})
		must(t, "Update", c.Update(ctx, o))

		if o.Status.AtProvider.ID != "" {
			t.Errorf("want the API server's answer, got %+v", o.Status)
		}

		return nil
	})))

	// Neither is anything without a session.
	c := seam.NewClient(a.Client())
	b := newBucket()
	read(context.Background(), t, c, b)
	must(t, "Status().Update", c.Status().Update(context.Background(), b))

	if diff := cmp.Diff([]int{2, 1}, []int{a.Count(testkit.StatusUpdate), a.Count(testkit.Update)}); diff != "" {
		t.Errorf("status updates, updates: -want, +got:\n%s", diff)
	}
}

package seam

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func key() types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: "b"} }

func newBucket() *v1alpha1.Bucket {
	return &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
}

func stored(t *testing.T, a *testkit.API) *v1alpha1.Bucket {
	t.Helper()
	b := newBucket()
	must(t, "Get", client.IgnoreNotFound(a.Server().Get(context.Background(), key(), b)))
	return b
}

func theirs(t *testing.T, a *testkit.API, fn func(b *v1alpha1.Bucket)) {
	t.Helper()
	b := stored(t, a)
	fn(b)
	must(t, "another writer", a.Server().Status().Update(context.Background(), b))
}

// over returns a reconciler of b over c, a client of a. It waits for nothing by default.
func over(
	c client.Client, a *testkit.API, o Options, fn func(ctx context.Context, c client.Client) error, p ...Patch,
) *Reconciler {
	if o.Live = a.Live(); o.Wait == nil {
		o.Wait = func(context.Context, time.Duration) error { return nil }
	}
	inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, fn(ctx, NewClient(c))
	})
	return NewReconciler(c, NewKind(testkit.BucketKind(), testkit.Scheme()), inner, o, p...)
}

func run(t *testing.T, r *Reconciler) error {
	t.Helper()
	_, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key()})
	return err
}

func read(ctx context.Context, t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	must(t, "Get", c.Get(ctx, key(), o))
}

func asUnstructured() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(testkit.BucketKind())
	u.SetName("b")
	u.SetNamespace("default")
	return u
}

func statusPatch() client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(`{"status":{"atProvider":{"id":"x"}}}`))
}

// TestReadYourWrites shows that a read is never older than the reconcile's own writes, also
// with a stale cache.
func TestReadYourWrites(t *testing.T) {
	update := func(ctx context.Context, _ *testkit.API, c client.Client, o client.Object) error {
		o.SetAnnotations(map[string]string{"a": "b"})
		return c.Update(ctx, o)
	}
	cases := map[string]func(ctx context.Context, a *testkit.API, c client.Client, o client.Object) error{
		"Update": update,
		"Patch": func(ctx context.Context, _ *testkit.API, c client.Client, o client.Object) error {
			return c.Patch(
				ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
			)
		},
		"PatchOfMetadata": func(ctx context.Context, _ *testkit.API, c client.Client, o client.Object) error {
			m := &metav1.PartialObjectMetadata{}
			m.SetGroupVersionKind(testkit.BucketKind())
			m.SetNamespace(o.GetNamespace())
			m.SetName(o.GetName())
			err := c.Patch(
				ctx, m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
			)
			o.SetResourceVersion(m.GetResourceVersion())
			return err
		},
		"StatusAfterUpdate": func(ctx context.Context, a *testkit.API, c client.Client, o client.Object) error {
			must(t, "Update", update(ctx, a, c, o))
			return c.Status().Patch(ctx, o, statusPatch())
		},
		"StatusOfAnotherVersion": func(ctx context.Context, a *testkit.API, c client.Client, o client.Object) error {
			must(t, "Update", update(ctx, nil, a.Server(), o))
			return c.Status().Update(ctx, o)
		},
		"UpdateBesideGoNumbers": func(ctx context.Context, a *testkit.API, c client.Client, o client.Object) error {
			// JSON can encode an int, a deep copy panics.
			if u, ok := o.(*unstructured.Unstructured); ok {
				u.Object["status"] = map[string]any{"atProvider": map[string]any{"generation": 3}}
			}
			return update(ctx, a, c, o)
		},
	}
	forms := map[string]func() client.Object{
		"Typed":        func() client.Object { return &v1alpha1.Bucket{} },
		"Unstructured": func() client.Object { return asUnstructured() },
	}
	for name, write := range cases {
		for formName, form := range forms {
			t.Run(name+"/"+formName, func(t *testing.T) {
				a := testkit.NewAPI(newBucket())
				must(t, "Freeze", a.Freeze(context.Background(), newBucket()))
				must(
					t, "Reconcile",
					run(t, over(encoding{a.Client()}, a, Options{}, func(ctx context.Context, c client.Client) error {
						o, again, third := form(), form(), form()
						read(ctx, t, c, o)
						must(t, "write", write(ctx, a, c, o))
						read(ctx, t, c, again)
						wants(t, "It is read back.", "annotation, version, kind", []any{
							"b", o.GetResourceVersion(), testkit.BucketKind(),
						},
							[]any{
								again.GetAnnotations()["a"], again.GetResourceVersion(),
								again.GetObjectKind().GroupVersionKind(),
							})
						again.GetAnnotations()["a"] = "changed"
						read(ctx, t, c, third)
						read(ctx, t, c, newBucket()) // In another form, or not.
						wants(
							t, "What is handed out is the reader's own.", "annotation", "b",
							third.GetAnnotations()["a"],
						)
						return nil
					})),
				)
			})
		}
	}
}

func TestReadYourWrites_Unsent(t *testing.T) {
	writes := map[string]func(ctx context.Context, c client.Client, o client.Object) error{
		"Patch": func(ctx context.Context, c client.Client, o client.Object) error {
			return c.Patch(
				ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
			)
		},
		"PatchAndStatus": func(ctx context.Context, c client.Client, o client.Object) error {
			if err := c.Patch(
				ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
			); err != nil {
				return err
			}
			b, _ := o.(*v1alpha1.Bucket)
			b.Status.AtProvider.ID = "x"
			return c.Status().Update(ctx, o)
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			const reason = "A read after a write should return what the API server has, without changes that were not sent."
			a := testkit.NewAPI(newBucket())
			must(t, "Freeze", a.Freeze(context.Background(), newBucket()))
			must(
				t, "Reconcile",
				run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
					o, again := newBucket(), newBucket()
					read(ctx, t, c, o)
					o.SetLabels(map[string]string{"not": "sent"})
					must(t, "write", write(ctx, c, o))
					o.SetLabels(map[string]string{"not": "sent"})
					read(ctx, t, c, again)
					want := stored(t, a)
					wants(t, reason, "labels, annotations, version", []any{
						want.GetLabels(), want.GetAnnotations(), want.GetResourceVersion(),
					}, []any{again.GetLabels(), again.GetAnnotations(), again.GetResourceVersion()})
					return nil
				})),
			)
		})
	}
}

func TestReadYourWrites_Status(t *testing.T) {
	cases := map[string]struct {
		reason string
		newAPI func(objs ...client.Object) *testkit.API
		want   string // The status after an update with another one in memory.
	}{
		"NoSubresource": {
			reason: "We should read the status that an update stored, and not set it back with the next update.",
			newAPI: testkit.NewAPIWithoutStatus,
			want:   "new",
		},
		"Subresource": {
			reason: "We should not read a status that is in memory only.",
			newAPI: testkit.NewAPI,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := tc.newAPI(newBucket())
			must(t, "Freeze", a.Freeze(context.Background(), newBucket()))
			must(
				t, "Reconcile",
				run(t, over(decoding{a.Client()}, a, Options{}, func(ctx context.Context, c client.Client) error {
					o, again := newBucket(), newBucket()
					read(ctx, t, c, o)
					o.Status.AtProvider.ID = "new"
					must(t, "Update", c.Update(ctx, o))
					read(ctx, t, c, again)
					wants(
						t, tc.reason, "status, version", []string{tc.want, stored(t, a).ResourceVersion},
						[]string{again.Status.AtProvider.ID, again.ResourceVersion},
					)
					again.Labels = map[string]string{"l": "v"}
					return c.Update(ctx, again)
				})),
			)
			wants(t, tc.reason, "stored status", tc.want, stored(t, a).Status.AtProvider.ID)
		})
	}
}

// A status write is dropped if it is known to change nothing, and only then.
func TestUnchangedStatus(t *testing.T) {
	// A scene is a reconcile that has read b.
	type scene struct {
		ctx context.Context
		a   *testkit.API
		c   client.Client
		b   *v1alpha1.Bucket
	}
	sets := func(id string) func(t *testing.T, s scene) {
		return func(_ *testing.T, s scene) { s.b.Status.AtProvider.ID = id }
	}
	writes := func(t *testing.T, s scene) { t.Helper(); must(t, "Status().Update", s.c.Status().Update(s.ctx, s.b)) }
	labels := func(_ *testing.T, s scene) { s.b.SetLabels(map[string]string{"a": "b"}) }
	updates := func(t *testing.T, s scene) { t.Helper(); must(t, "Update", s.c.Update(s.ctx, s.b)) }
	cases := map[string]struct {
		reason string

		// do something before the status is written.
		do       []func(t *testing.T, s scene)
		opts     []client.SubResourceUpdateOption
		noStatus bool // The kind has no status subresource.
		writes   int
		err      metav1.StatusReason
	}{
		"ChangedAndBack": {
			reason: "The second write should undo the first one, the third should be skipped.",
			do:     []func(*testing.T, scene){sets("x"), writes, sets(""), writes},
			writes: 2,
		},
		"ChangedInPlace": {
			reason: "The object in memory should not share memory with the session.",
			do: []func(*testing.T, scene){
				func(_ *testing.T, s scene) { s.b.Status.Conditions[0].Message = "changed in place" },
			},
			writes: 1,
		},
		"KeptThroughUpdate": {
			reason: "The status in memory should survive an update, and be written.",
			do:     []func(*testing.T, scene){sets("x"), labels, updates},
			writes: 2,
		},
		"KeptThroughUpdateOfNothing": {
			reason: "The status in memory should survive an update that changes nothing.",
			do:     []func(*testing.T, scene){sets("x"), updates},
			writes: 2,
		},
		"AnotherWriter": {
			reason: "A read that returns another writer's change doesn't confirm the object in memory.",
			do: []func(*testing.T, scene){func(t *testing.T, s scene) {
				theirs(t, s.a, func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "theirs" })
				read(s.ctx, t, s.c, newBucket())
			}},
			writes: 1,
			err:    metav1.StatusReasonConflict,
		},
		"WrittenInAnotherForm": {
			reason: "A write of the object in another form should not count as a write of this one.",
			do: []func(*testing.T, scene){func(t *testing.T, s scene) {
				u := asUnstructured()
				read(s.ctx, t, s.c, u)
				must(t, "SetNestedField", unstructured.SetNestedField(u.Object, "x", "status", "atProvider", "id"))
				must(t, "Update", s.c.Status().Update(s.ctx, u))
			}},
			writes: 2,
			err:    metav1.StatusReasonConflict,
		},
		"AnotherVersion": {
			reason: "The object in memory has another resource version than the one that was confirmed.",
			do:     []func(*testing.T, scene){func(_ *testing.T, s scene) { s.b.SetResourceVersion("999") }},
			writes: 1,
			err:    metav1.StatusReasonConflict,
		},
		"WrittenInDoubt": {
			reason: "A write that failed may have been done.",
			do: []func(*testing.T, scene){func(_ *testing.T, s scene) {
				s.a.After = func(context.Context, testkit.Request) error {
					return kerrors.NewInternalError(errors.New("no leader"))
				}
				written, _ := s.b.DeepCopyObject().(*v1alpha1.Bucket)
				written.Status.AtProvider.ID = "x"
				_ = s.c.Status().Update(s.ctx, written)
				s.a.After = nil
			}},
			writes: 2,
			err:    metav1.StatusReasonConflict,
		},
		"ReadLive": {
			reason: "A newer object that was read past the seam should have its status written.",
			do: []func(*testing.T, scene){func(t *testing.T, s scene) {
				theirs(t, s.a, func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "theirs" })
				must(t, "live Get", s.a.Live().Get(s.ctx, key(), s.b))
			}, labels, updates, sets("")},
			writes: 2,
		},
		"NoStatusSubresource": {
			reason:   "An update writes the status then, which must not hide that a status write fails.",
			do:       []func(*testing.T, scene){sets("x"), labels, updates},
			noStatus: true, writes: 2, err: metav1.StatusReasonNotFound,
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
			newAPI := testkit.NewAPI
			if tc.noStatus {
				newAPI = testkit.NewAPIWithoutStatus
			}
			a := newAPI(b)
			var got error
			must(
				t, "Reconcile",
				run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
					b := newBucket()
					read(ctx, t, c, b)
					for _, do := range tc.do {
						do(t, scene{ctx: ctx, a: a, c: c, b: b})
					}
					got = c.Status().Update(ctx, b, tc.opts...)
					wants(
						t, "A write that met a conflict is made again soon.", "backoff",
						tc.err == metav1.StatusReasonConflict, From(ctx).requeue.backoff,
					)
					return nil
				})),
			)
			wants(t, tc.reason, "writes, error", []any{tc.writes, tc.err}, []any{
				a.Writes(), kerrors.ReasonForError(got),
			})
		})
	}
}

// TestStaleReadOfNextReconcile shows that the next reconcile may read an older object, after
// writes of any form and with any options.
func TestStaleReadOfNextReconcile(t *testing.T) {
	applied := func() runtime.ApplyConfiguration { return client.ApplyConfigurationFromUnstructured(asUnstructured()) }
	for name, write := range map[string]func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error{
		"StatusUpdateWithOptions": func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.ID = "x"
			return c.Status().Update(ctx, b, client.FieldOwner("me"))
		},
		"UnstructuredStatusPatch": func(ctx context.Context, c client.Client, _ *v1alpha1.Bucket) error {
			return c.Status().Patch(ctx, asUnstructured(), statusPatch())
		},
		"Apply": func(ctx context.Context, c client.Client, _ *v1alpha1.Bucket) error {
			return c.Apply(ctx, applied())
		},
		"StatusApply": func(ctx context.Context, c client.Client, _ *v1alpha1.Bucket) error {
			return c.Status().Apply(ctx, applied())
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, n := testkit.NewAPI(newBucket()), 0
			must(t, "Freeze", a.Freeze(context.Background(), newBucket()))
			r := over(applying{a.Client()}, a, Options{}, func(ctx context.Context, c client.Client) error {
				b := newBucket()
				read(ctx, t, c, b)
				if n++; n == 1 {
					return write(ctx, c, b)
				}
				return c.Status().Update(ctx, b)
			})
			must(t, "first", run(t, r))
			wants(t, "The write is tried, and meets a conflict.", "conflict", true, kerrors.IsConflict(run(t, r)))
		})
	}
}

// TestEverythingElsePasses shows that requests for other objects pass unchanged.
func TestEverythingElsePasses(t *testing.T) {
	other := newBucket()
	other.SetName("other")
	other.SetUID("uid-of-other")
	a := testkit.NewAPI(newBucket(), other)
	must(t, "Reconcile", run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
		b, o := newBucket(), newBucket()
		must(t, "Get", c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "other"}, o))
		must(t, "Update before b is read", c.Update(ctx, o))
		read(ctx, t, c, b)

		// Unchanged, but not ours to judge.
		must(t, "Status().Update", c.Status().Update(ctx, o))
		o.Status.AtProvider.ID = "lost"
		o.SetLabels(map[string]string{"a": "b"})
		must(t, "Update", c.Update(ctx, o))
		wants(t, "It has the API server's answer.", "ID", "", o.Status.AtProvider.ID)
		wants(t, "They say nothing of b.", "exact", true, From(ctx).known)
		return nil
	})))

	// Neither is anything without a session.
	c := NewClient(a.Client())
	b := newBucket()
	read(context.Background(), t, c, b)
	must(t, "Status().Update", c.Status().Update(context.Background(), b))
	wants(t, "", "status updates, updates", []int{2, 2}, []int{a.Count(testkit.StatusUpdate), a.Count(testkit.Update)})
}

// encoding is a client that encodes an object before it updates it, as a real client does.
type encoding struct{ client.Client }

func (c encoding) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		data, err := u.MarshalJSON()
		if err != nil || u.UnmarshalJSON(data) != nil {
			return err
		}
	}
	return c.Client.Update(ctx, o, opts...)
}

// decoding is a client that decodes the answer to an update into the object, as a real client
// does: what the answer lacks stays in memory.
type decoding struct{ client.Client }

func (c decoding) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	memory := clone(o)
	if err := c.Client.Update(ctx, o, opts...); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	move(o, memory)
	return json.Unmarshal(data, o)
}

// applying is a client that can apply, and always makes the same change.
type applying struct{ client.Client }

type applyingStatus struct {
	client.SubResourceWriter

	c applying
}

func (c applying) Apply(ctx context.Context, ac runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	b := newBucket()
	if err := c.Client.Status().Patch(ctx, b, statusPatch()); err != nil {
		return err
	}
	u, _ := ac.(client.Object)
	u.SetUID(b.GetUID())
	u.SetResourceVersion(b.GetResourceVersion())
	return nil
}

func (c applying) Status() client.SubResourceWriter {
	return applyingStatus{SubResourceWriter: c.Client.Status(), c: c}
}

func (w applyingStatus) Apply(
	ctx context.Context, ac runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
) error {
	return w.c.Apply(ctx, ac)
}

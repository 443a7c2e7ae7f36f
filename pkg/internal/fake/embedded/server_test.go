package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	finalizer = "example.org/finalizer"

	// anotherVersion is a resourceVersion that no object of these tests has.
	anotherVersion = "99999999"
)

func serve(t *testing.T) *embedded.Server {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatalf("AddToScheme(): %v", err)
	}

	s, err := embedded.New(embedded.Options{
		Scheme: scheme,
		CRDs:   v1alpha1.CRDs(),
		Now:    func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 999, time.UTC) },

		CollectorFinalizers: true,
	})
	if err != nil {
		t.Fatalf("New(): %v", err)
	}

	return s
}

func must(t *testing.T, what string, err error) {
	t.Helper()

	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func mergePatch(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

func TestCreate(t *testing.T) {
	s := serve(t)
	ctx := t.Context()

	bucket := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "chosen", Generation: 7}}
	bucket.Spec.ForProvider.Size = 1
	bucket.Status.AtProvider.ID = "from the user"
	must(t, "Create()", s.Client().Create(ctx, bucket))

	want := v1alpha1.NewBucket("default", "one")
	want.UID = "00000000-0000-4000-8000-000000000001"
	want.Generation = 1
	want.ResourceVersion = "1"
	want.CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	if diff := cmp.Diff(want, bucket); diff != "" {
		t.Errorf("Create(): the server sets metadata and defaults and drops status: -want, +got:\n%s", diff)
	}

	again := v1alpha1.NewBucket("default", "one")
	if err := s.Client().Create(ctx, again); !kerrors.IsAlreadyExists(err) || again.UID != "" {
		t.Errorf("Create() of what exists: want AlreadyExists and an untouched object, got %v and UID %q", err, again.UID)
	}

	if err := s.Client().Create(ctx, v1alpha1.NewBucket("", "one")); !kerrors.IsBadRequest(err) {
		t.Errorf("Create() without a namespace: want BadRequest, got %v", err)
	}

	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"forProvider": map[string]any{"size": int64(2)}}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.DatabaseKind))
	u.SetName("two")
	must(t, "Create() unstructured", s.Client().Create(ctx, u))

	policy, _, _ := unstructured.NestedString(u.Object, "spec", "deletionPolicy")
	if u.GetUID() == "" || u.GetUID() == bucket.UID || u.GetGeneration() != 1 || policy != string(xpv2.DeletionDelete) {
		t.Errorf("Create() unstructured: want an own UID, generation 1 and defaults, got %v", u.Object)
	}
}

// TestRecreated shows that a new object of the same name can't be mistaken for the
// old one.
func TestRecreated(t *testing.T) {
	s := serve(t)
	ctx := t.Context()
	c := s.Client()

	old := v1alpha1.NewDatabase("one")
	must(t, "Create()", c.Create(ctx, old))
	must(t, "Delete()", c.Delete(ctx, old))

	current := v1alpha1.NewDatabase("one")
	must(t, "Create()", c.Create(ctx, current))

	if current.UID == old.UID || current.ResourceVersion == old.ResourceVersion {
		t.Errorf("a new object has a UID and a resourceVersion of its own, got %s and %s twice", old.UID, old.ResourceVersion)
	}

	if err := c.Update(ctx, old.DeepCopy()); !kerrors.IsConflict(err) {
		t.Errorf("Update() of the old object: want Conflict, got %v", err)
	}

	if err := c.Status().Update(ctx, old.DeepCopy()); !kerrors.IsConflict(err) {
		t.Errorf("Status().Update() of the old object: want Conflict, got %v", err)
	}

	if err := c.Delete(ctx, old.DeepCopy(), client.Preconditions{UID: &old.UID}); !kerrors.IsConflict(err) {
		t.Errorf("Delete() of the old UID: want Conflict, got %v", err)
	}

	must(t, "Delete() of the new UID", c.Delete(ctx, old.DeepCopy(), client.Preconditions{UID: &current.UID}))
}

// A state is what a write leaves of a Database of size 1 that has a finalizer.
type state struct {
	Version    bool // the resourceVersion changed
	Generation int64
	Size       int64
	ID         string
	Finalizers []string
}

// A writeCase is a write that a kube-apiserver answers as the case says.
type writeCase struct {
	reason   string
	deleting bool
	write    func(ctx context.Context, c client.Client, d *v1alpha1.Database) error
	refused  func(error) bool
	want     state
}

func TestWrites(t *testing.T) {
	for name, tc := range writeCases() {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			tc.run(t, s.Admin(), s.Client())
		})
	}
}

func (tc writeCase) run(t *testing.T, admin, c client.Client) {
	t.Helper()

	ctx := t.Context()

	d := v1alpha1.NewDatabase("one")
	d.SetFinalizers([]string{finalizer})
	must(t, "Create()", admin.Create(ctx, d))
	must(t, "Status().Update()", admin.Status().Update(ctx, d))

	if tc.deleting {
		must(t, "Delete()", admin.Delete(ctx, d))
		must(t, "Get()", admin.Get(ctx, client.ObjectKeyFromObject(d), d))
	}

	version := d.ResourceVersion

	err := tc.write(ctx, c, d)
	if tc.refused == nil {
		must(t, tc.reason, err)
	} else if !tc.refused(err) {
		t.Errorf("\n%s\nwant it refused, got error %v", tc.reason, err)
	}

	stored := &v1alpha1.Database{}
	must(t, "Get()", admin.Get(ctx, types.NamespacedName{Name: "one"}, stored))

	got := state{
		Version:    stored.ResourceVersion != version,
		Generation: stored.Generation,
		Size:       stored.Spec.ForProvider.Size,
		ID:         stored.Status.AtProvider.ID,
		Finalizers: stored.Finalizers,
	}
	if diff := cmp.Diff(tc.want, got); diff != "" {
		t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
	}
}

func writeCases() map[string]writeCase {
	finalizers := []string{finalizer}
	unchanged := state{Generation: 1, Size: 1, Finalizers: finalizers}
	resized := state{Version: true, Generation: 2, Size: 2, Finalizers: finalizers}
	observed := state{Version: true, Generation: 1, Size: 1, ID: "x", Finalizers: finalizers}
	deleting := state{Generation: 2, Size: 1, Finalizers: finalizers}

	// updates changes the object, and updates it.
	updates := func(change func(d *v1alpha1.Database)) func(context.Context, client.Client, *v1alpha1.Database) error {
		return func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
			change(d)
			return c.Update(ctx, d)
		}
	}
	patches := func(p client.Patch) func(context.Context, client.Client, *v1alpha1.Database) error {
		return func(ctx context.Context, c client.Client, d *v1alpha1.Database) error { return c.Patch(ctx, d, p) }
	}
	patchesStatus := func(p client.Patch) func(context.Context, client.Client, *v1alpha1.Database) error {
		return func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
			return c.Status().Patch(ctx, d, p)
		}
	}
	applies := func(content map[string]any) func(context.Context, client.Client, *v1alpha1.Database) error {
		return func(ctx context.Context, c client.Client, _ *v1alpha1.Database) error {
			return c.Apply(ctx, config(content), client.FieldOwner("test"), client.ForceOwnership)
		}
	}

	return map[string]writeCase{
		"SpecUpdate": {reason: "A new spec is a new generation.", write: updates(func(d *v1alpha1.Database) { d.Spec.ForProvider.Size = 2 }), want: resized},
		"UpdateIgnoresStatus": {
			reason: "An update of the object doesn't change its status.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				d.Status.AtProvider.ID = "x"
				if err := c.Update(ctx, d); err != nil || d.Status.AtProvider.ID != "" {
					return fmt.Errorf("want the stored status in the answer, got %q and error %w", d.Status.AtProvider.ID, err)
				}

				return nil
			},
			want: unchanged,
		},
		"StatusUpdate": {
			reason: "An update of status changes nothing else.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				d.Spec.ForProvider.Size, d.Status.AtProvider.ID = 2, "x"
				return c.Status().Update(ctx, d)
			},
			want: observed,
		},
		"EmptyUpdate": {reason: "An update that changes nothing is no new version.", write: updates(func(*v1alpha1.Database) {}), want: unchanged},
		"EmptyStatusUpdate": {
			reason: "An update of status that changes nothing is no new version.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				return c.Status().Update(ctx, d)
			},
			want: unchanged,
		},
		"StaleUpdate": {
			reason:  "An update of an old version is refused.",
			write:   updates(func(d *v1alpha1.Database) { d.ResourceVersion = anotherVersion }),
			refused: kerrors.IsConflict,
			want:    unchanged,
		},
		"BlindUpdate": {
			reason:  "A custom resource can't be updated without saying which version was read.",
			write:   updates(func(d *v1alpha1.Database) { d.ResourceVersion = "" }),
			refused: kerrors.IsInvalid,
			want:    unchanged,
		},
		"PatchOfAnotherUID": {
			reason:  "A patch that names another UID would change it, which is invalid.",
			write:   patches(mergePatch(`{"metadata":{"uid":"other"},"spec":{"forProvider":{"size":2}}}`)),
			refused: kerrors.IsInvalid,
			want:    unchanged,
		},
		"PatchOfAnotherVersion": {
			reason:  "A patch that names another version is refused.",
			write:   patches(mergePatch(`{"metadata":{"resourceVersion":%q},"spec":{"forProvider":{"size":2}}}`, anotherVersion)),
			refused: kerrors.IsConflict,
			want:    unchanged,
		},
		"StatusPatchOfAnotherUID": {
			reason: "A server drops all but status from a patch of status, and with it the UID.",
			write:  patchesStatus(mergePatch(`{"metadata":{"uid":"other"},"status":{"atProvider":{"id":"x"}}}`)),
			want:   observed,
		},
		"StatusPatchOfAnotherVersion": {
			reason:  "The version counts for a patch of status too.",
			write:   patchesStatus(mergePatch(`{"metadata":{"resourceVersion":%q},"status":{"atProvider":{"id":"x"}}}`, anotherVersion)),
			refused: kerrors.IsConflict,
			want:    unchanged,
		},
		"UnstructuredStatusPatchOfAnotherVersion": {
			reason: "And for one of an object whose kind the client doesn't know.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.DatabaseKind))
				u.SetName(d.Name)

				return c.Status().Patch(ctx, u, mergePatch(`{"metadata":{"resourceVersion":%q},"status":{"atProvider":{"id":"x"}}}`, anotherVersion))
			},
			refused: kerrors.IsConflict,
			want:    state{Generation: 1, Size: 1, Finalizers: []string{finalizer}},
		},
		"DeleteOfAnotherVersion": {
			reason: "A delete that names another version is refused.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				return c.Delete(ctx, d, client.Preconditions{ResourceVersion: ptr.To(anotherVersion)})
			},
			refused: kerrors.IsConflict,
			want:    state{Generation: 1, Size: 1, Finalizers: []string{finalizer}},
		},
		"DeleteForeground": {
			reason: "A delete that waits for dependents leaves the collector's finalizer.",
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				return c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground))
			},
			want: state{Version: true, Generation: 2, Size: 1, Finalizers: []string{finalizer, metav1.FinalizerDeleteDependents}},
		},
		"DeletingOrphan": {
			reason:   "A second delete's policy is in force, and its finalizer takes the place of the first's.",
			deleting: true,
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				return errors.Join(
					c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground)),
					c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationOrphan)),
				)
			},
			want: state{Version: true, Generation: 2, Size: 1, Finalizers: []string{finalizer, metav1.FinalizerOrphanDependents}},
		},
		"DeletingBackground": {
			reason:   "A delete that waits for nothing removes the collector's finalizer.",
			deleting: true,
			write: func(ctx context.Context, c client.Client, d *v1alpha1.Database) error {
				return errors.Join(
					c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationOrphan)),
					c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground)),
				)
			},
			want: state{Version: true, Generation: 2, Size: 1, Finalizers: []string{finalizer}},
		},
		"JSONPatchTest": {
			reason:  "A JSON patch whose test fails is refused with a status.",
			write:   patches(client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/finalizers/0","value":"other"},{"op":"remove","path":"/metadata/finalizers/0"}]`))),
			refused: kerrors.IsInvalid,
			want:    unchanged,
		},
		"DeletingAddFinalizer": {
			reason:   "An update can't add a finalizer to an object that is being deleted.",
			deleting: true,
			write:    updates(func(d *v1alpha1.Database) { d.SetFinalizers(append(d.GetFinalizers(), "example.org/more")) }),
			refused:  kerrors.IsInvalid,
			want:     deleting,
		},
		"DeletingApplyFinalizer": {
			reason:   "An apply can't add a finalizer to an object that is being deleted.",
			deleting: true,
			write:    applies(map[string]any{"metadata": map[string]any{"name": "one", "finalizers": []any{finalizer, "example.org/more"}}}),
			refused:  kerrors.IsInvalid,
			want:     deleting,
		},
		"Apply": {
			reason: "Applying a spec is a new generation.",
			write: applies(map[string]any{
				"metadata": map[string]any{"name": "one"},
				"spec":     map[string]any{"forProvider": map[string]any{"size": int64(2)}},
			}),
			want: resized,
		},
	}
}

func config(content map[string]any) runtime.ApplyConfiguration {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.DatabaseKind))

	return client.ApplyConfigurationFromUnstructured(u)
}

func TestApplyCreatesAndRests(t *testing.T) {
	s := serve(t)
	ctx := t.Context()

	versions := make([]string, 0, 2)

	for range 2 {
		must(t, "Apply()", s.Client().Apply(ctx, config(map[string]any{
			"metadata": map[string]any{"name": "new"},
			"spec":     map[string]any{"forProvider": map[string]any{"size": int64(2)}},
		}), client.FieldOwner("test")))

		stored := &v1alpha1.Database{}
		must(t, "Get()", s.Admin().Get(ctx, types.NamespacedName{Name: "new"}, stored))

		if stored.UID == "" || stored.Generation != 1 || stored.CreationTimestamp.IsZero() || stored.Spec.DeletionPolicy != xpv2.DeletionDelete {
			t.Errorf("Apply(): want UID, generation 1, creationTimestamp and defaults, got %+v", stored)
		}

		versions = append(versions, stored.ResourceVersion)
	}

	if versions[0] != versions[1] {
		t.Errorf("Apply() of the same again: want version %s still, got %s", versions[0], versions[1])
	}
}

func TestAnswersAreWhatIsStored(t *testing.T) {
	s := serve(t)
	ctx := t.Context()

	d := v1alpha1.NewDatabase("one")
	must(t, "Create()", s.Client().Create(ctx, d))

	d.SetConditions(xpv2.Available())
	must(t, "Status().Update()", s.Client().Status().Update(ctx, d))

	stored := &v1alpha1.Database{}
	must(t, "Get()", s.Client().Get(ctx, client.ObjectKeyFromObject(d), stored))

	if diff := cmp.Diff(stored, d); diff != "" {
		t.Errorf("-stored, +answer to the write:\n%s", diff)
	}

	if got := d.GetCondition(xpv2.TypeReady).LastTransitionTime.Nanosecond(); got != 0 {
		t.Errorf("want times of whole seconds, got %d ns more", got)
	}
}

func TestDeletion(t *testing.T) {
	s := serve(t)
	ctx := t.Context()

	d := v1alpha1.NewDatabase("one")
	d.SetFinalizers([]string{finalizer})
	must(t, "Create()", s.Client().Create(ctx, d))
	must(t, "Delete()", s.Client().Delete(ctx, d))
	must(t, "Get()", s.Client().Get(ctx, client.ObjectKeyFromObject(d), d))

	if d.DeletionTimestamp == nil || ptr.Deref(d.DeletionGracePeriodSeconds, -1) != 0 {
		t.Errorf("Delete(): want deletionTimestamp and no grace, got %v and %v", d.DeletionTimestamp, d.DeletionGracePeriodSeconds)
	}

	d.SetFinalizers(nil)
	must(t, "Update()", s.Client().Update(ctx, d))

	if err := s.Client().Get(ctx, client.ObjectKeyFromObject(d), d); !kerrors.IsNotFound(err) {
		t.Errorf("Get() after the last finalizer went: want NotFound, got %v", err)
	}
}

func TestCounts(t *testing.T) {
	s := serve(t)
	ctx := t.Context()
	c := s.Client()

	d := v1alpha1.NewDatabase("one")
	must(t, "Create()", c.Create(ctx, d))
	must(t, "Status().Update()", c.Status().Update(ctx, d))
	must(t, "Status().Patch()", c.Status().Patch(ctx, d, mergePatch(`{}`)))
	must(t, "Patch()", c.Patch(ctx, d, mergePatch(`{}`)))
	must(t, "Get()", c.Get(ctx, client.ObjectKeyFromObject(d), d))
	must(t, "List()", c.List(ctx, &v1alpha1.DatabaseList{}))
	must(t, "Get() by the admin", s.Admin().Get(ctx, client.ObjectKeyFromObject(d), d))

	want := embedded.Counts{
		{Verb: embedded.VerbCreate, Kind: "Database"}:                        1,
		{Verb: embedded.VerbUpdate, Subresource: "status", Kind: "Database"}: 1,
		{Verb: embedded.VerbPatch, Subresource: "status", Kind: "Database"}:  1,
		{Verb: embedded.VerbPatch, Kind: "Database"}:                         1,
		{Verb: embedded.VerbGet, Kind: "Database"}:                           1,
		{Verb: embedded.VerbList, Kind: "Database"}:                          1,
	}
	got := s.Counts()

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Counts(): -want, +got:\n%s", diff)
	}

	if got.Writes() != 4 || got.StatusWrites() != 2 || got.Of(embedded.VerbPatch, "") != 1 {
		t.Errorf("want 4 writes, 2 of status, 1 patch, got %d, %d, %d", got.Writes(), got.StatusWrites(), got.Of(embedded.VerbPatch, ""))
	}

	s.ResetCounts()

	if got := s.Counts(); len(got) != 0 {
		t.Errorf("Counts() after ResetCounts(): want none, got %v", got)
	}
}

func TestSettle(t *testing.T) {
	cases := map[string]struct {
		reason    string
		reconcile func(ctx context.Context, c client.Client, n int) (reconcile.Result, error)
		steps     int
		want      error
	}{
		"AtRest": {
			reason: "A reconcile that changes nothing and waits for a poll is the last.",
			reconcile: func(context.Context, client.Client, int) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: time.Minute}, nil
			},
			steps: 1,
		},
		"Changed": {
			reason: "A reconcile that changes the object brings the next one.",
			reconcile: func(ctx context.Context, c client.Client, n int) (reconcile.Result, error) {
				if n > 2 {
					return reconcile.Result{}, nil
				}

				return reconcile.Result{}, c.Patch(ctx, v1alpha1.NewDatabase("one"), mergePatch(`{"spec":{"forProvider":{"size":%d}}}`, n+10))
			},
			steps: 3,
		},
		"Gone": {
			reason: "There is nothing to reconcile once the object is gone.",
			reconcile: func(ctx context.Context, c client.Client, _ int) (reconcile.Result, error) {
				return reconcile.Result{}, c.Delete(ctx, v1alpha1.NewDatabase("one"))
			},
			steps: 1,
		},
		"Never": {
			reason: "A reconcile that asks for another at once never rests.",
			reconcile: func(context.Context, client.Client, int) (reconcile.Result, error) {
				return reconcile.Result{Requeue: true}, nil
			},
			steps: 5,
			want:  embedded.ErrUnsettled,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			must(t, "Create()", s.Admin().Create(t.Context(), v1alpha1.NewDatabase("one")))

			n := 0
			r := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				n++
				return tc.reconcile(ctx, s.Client(), n)
			})

			trace, err := s.Settle(t.Context(), r, v1alpha1.NewDatabase("one"), 5)
			if !errors.Is(err, tc.want) || len(trace) != tc.steps {
				t.Errorf("\n%s\nSettle(): want %d steps and error %v, got %d and %v", tc.reason, tc.steps, tc.want, len(trace), err)
			}
		})
	}
}

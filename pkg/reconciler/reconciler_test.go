package reconciler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

var (
	kind    = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "App"}
	request = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "a"}}
)

// An api is an API server that has one object of kind, and counts writes of
// status.
type api struct {
	client.WithWatch

	server client.WithWatch
	writes int
	before func() error
}

func newAPI(o *unstructured.Unstructured) *api {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(kind.GroupVersion().WithKind("AppList"), &unstructured.UnstructuredList{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())

	sub := &unstructured.Unstructured{}
	sub.SetGroupVersionKind(kind)

	a := &api{server: fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(sub).WithObjects(o).Build()}
	a.WithWatch = interceptor.NewClient(a.server, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := a.write(); err != nil {
				return err
			}

			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := a.write(); err != nil {
				return err
			}

			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})

	return a
}

func (a *api) write() error {
	a.writes++

	if a.before != nil {
		return a.before()
	}

	return nil
}

// get the conditions that the server has, without times.
func (a *api) get(t *testing.T) []condition {
	t.Helper()

	o := claim.New(claim.WithGroupVersionKind(kind))
	if err := a.server.Get(context.Background(), request.NamespacedName, o); err != nil {
		t.Fatal(err)
	}

	out := xpv2.ConditionedStatus{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"conditions": conditionsOf(o)}, &out); err != nil {
		t.Fatal(err)
	}

	return plain(out.Conditions...)
}

// A condition that is compared field by field: an xpv2.Condition has an Equal of
// its own, which ignores generations if one is zero.
type condition xpv2.Condition

// plain returns conditions without times.
func plain(cs ...xpv2.Condition) []condition {
	out := make([]condition, 0, len(cs))

	for _, c := range cs {
		c.LastTransitionTime = metav1.Time{}
		out = append(out, condition(c))
	}

	return out
}

func conditionsOf(u *claim.Unstructured) any {
	cs, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return cs
}

// object returns a claim of generation 3 with a status of its own.
func object(mod ...func(u *claim.Unstructured)) *unstructured.Unstructured {
	u := claim.New(claim.WithGroupVersionKind(kind))
	u.SetNamespace("default")
	u.SetName("a")
	u.SetUID("uid")
	u.SetGeneration(3)
	u.SetFinalizers([]string{"example.org/f"})
	u.Object["status"] = map[string]any{"phase": "fine", "replicas": int64(3)}
	u.SetConditions(xpv2.Available().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3))

	for _, m := range mod {
		m(u)
	}

	return &u.Unstructured
}

func deleted(u *claim.Unstructured) {
	u.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
}

// A conditioned object is one that a reconciler reads into.
type conditioned interface {
	client.Object
	resource.Conditioned
}

// forms are the Go types that reconcilers read unstructured objects into.
func forms() map[string]func() client.Object {
	return map[string]func() client.Object{
		"Plain": func() client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(kind)

			return u
		},
		"Claim":     func() client.Object { return claim.New(claim.WithGroupVersionKind(kind)) },
		"Composite": func() client.Object { return composite.New(composite.WithGroupVersionKind(kind)) },
		"LegacyComposite": func() client.Object {
			return composite.New(composite.WithGroupVersionKind(kind), composite.WithSchema(composite.SchemaLegacy))
		},
	}
}

// conditionedForm returns o as what keeps conditions.
func conditionedForm(o client.Object) conditioned {
	if c, ok := o.(conditioned); ok {
		return c
	}

	u, _ := o.(*unstructured.Unstructured)

	return &claim.Unstructured{Unstructured: *u}
}

// A claimReconciler is shaped like Crossplane's reconciler of claims: when the
// object is deleted it says so in memory, and the first time returns before it
// writes that.
type claimReconciler struct {
	client client.Client
	empty  func() client.Object
	see    func()
	passes int
}

func (r *claimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.empty()
	if err := r.client.Get(ctx, req.NamespacedName, o); err != nil {
		return reconcile.Result{}, errors.Wrap(resource.IgnoreNotFound(err), "cannot get claim")
	}

	r.see()

	r.passes++
	cm := conditionedForm(o)
	status := conditions.ObservedGenerationPropagationManager{}.For(cm)

	if meta.WasDeleted(cm) {
		status.MarkConditions(xpv2.Deleting())

		if r.passes == 1 {
			return reconcile.Result{Requeue: true}, nil
		}

		return reconcile.Result{Requeue: true}, errors.Wrap(r.client.Status().Update(ctx, o), "cannot update status")
	}

	status.MarkConditions(xpv2.Available(), xpv2.ReconcileSuccess())

	return reconcile.Result{}, errors.Wrap(r.client.Status().Update(ctx, o), "cannot update status")
}

func TestReconcile(t *testing.T) {
	const message = "Deletion was requested."

	available := plain(xpv2.Available().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3))
	reported := plain(
		xpv2.Deleting().WithMessage(message).WithObservedGeneration(3),
		xpv2.ReconcileSuccess().WithObservedGeneration(3),
		xpv2.Condition{Type: "Deleting", Status: "True", Reason: "DeletionRequested", Message: message, ObservedGeneration: 3},
	)
	silent := plain(xpv2.Deleting().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3))

	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		opts   []reconciler.Option

		// seen is what the server has when the inner reconciler has read the
		// object for the first time.
		seen []condition

		// settled is what it has in the end.
		settled []condition

		// writes are those of 2 reconciles, more those of another 10.
		writes, more int
	}{
		"Steady": {
			reason:  "Status that doesn't change should not be written.",
			object:  object(),
			seen:    available,
			settled: available,
		},
		"SteadyWithWrites": {
			reason:  "Unless that is wanted.",
			object:  object(),
			opts:    []reconciler.Option{reconciler.WithUnchangedStatusWrites()},
			seen:    available,
			settled: available,
			writes:  2,
			more:    10,
		},
		"Deleted": {
			reason: "A deletion should be on the server before the inner reconciler runs.",
			object: object(deleted),
			seen:   reported,
			// The inner reconciler writes no message. It gets ours.
			settled: reported,
			writes:  1,
		},
		"DeletedAndReported": {
			reason: "A deletion that is reported should not be reported again.",
			object: object(deleted, func(u *claim.Unstructured) {
				for _, c := range reconciler.Deleting(time.Now(), reconciler.ReasonDeletionRequested, message) {
					u.SetConditions(c.WithObservedGeneration(3))
				}
			}),
			seen:    reported,
			settled: reported,
		},
		"DeletedWithoutReport": {
			reason:  "A deletion that the inner reconciler said itself should get a reason when that is done.",
			object:  object(deleted, func(u *claim.Unstructured) { u.SetConditions(xpv2.Deleting().WithObservedGeneration(3)) }),
			seen:    silent,
			settled: reported,
			writes:  1,
		},
	}

	for name, tc := range cases {
		for fname, empty := range forms() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				a := newAPI(tc.object.DeepCopy())

				var seen [][]condition

				r := reconciler.New(a, kind, func(c client.Client) reconcile.Reconciler {
					return &claimReconciler{client: c, empty: empty, see: func() { seen = append(seen, a.get(t)) }}
				}, tc.opts...)

				reconcileTimes(t, r, 2)

				if diff := cmp.Diff(tc.seen, seen[0]); diff != "" {
					t.Errorf("\n%s\nwhen read: -want, +got:\n%s", tc.reason, diff)
				}

				if a.writes != tc.writes {
					t.Errorf("\n%s\nwrites in 2 reconciles: want %d, got %d", tc.reason, tc.writes, a.writes)
				}

				a.writes = 0

				reconcileTimes(t, r, 10)

				if a.writes != tc.more {
					t.Errorf("\n%s\nwrites in 10 more reconciles: want %d, got %d", tc.reason, tc.more, a.writes)
				}

				if diff := cmp.Diff(tc.settled, a.get(t)); diff != "" {
					t.Errorf("\n%s\nin the end: -want, +got:\n%s", tc.reason, diff)
				}

				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(kind)

				if err := a.server.Get(context.Background(), request.NamespacedName, u); err != nil {
					t.Fatal(err)
				}

				st, _, _ := unstructured.NestedMap(u.Object, "status")
				delete(st, "conditions")

				if diff := cmp.Diff(map[string]any{"phase": "fine", "replicas": int64(3)}, st); diff != "" {
					t.Errorf("\n%s\nthe rest of status: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

func reconcileTimes(t *testing.T, r reconcile.Reconciler, n int) {
	t.Helper()

	for i := range n {
		if _, err := r.Reconcile(context.Background(), request); err != nil {
			t.Fatalf("Reconcile %d: %v", i+1, err)
		}
	}
}

// A writer is an inner reconciler that changes metadata while it has news about
// status in memory.
type writer struct {
	client client.Client
	empty  func() client.Object
}

func (r *writer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.empty()
	if err := r.client.Get(ctx, req.NamespacedName, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	conditionedForm(o).SetConditions(xpv2.Unavailable())
	meta.AddFinalizer(o, "example.org/mine")

	if err := r.client.Update(ctx, o); err != nil {
		return reconcile.Result{}, err
	}

	return reconcile.Result{}, r.client.Status().Update(ctx, o)
}

// Status that is in memory survives an update of metadata, whatever form the
// object is in.
func TestStatusKept(t *testing.T) {
	for name, empty := range forms() {
		t.Run(name, func(t *testing.T) {
			a := newAPI(object())
			r := reconciler.New(a, kind, func(c client.Client) reconcile.Reconciler { return &writer{client: c, empty: empty} })
			reconcileTimes(t, r, 1)

			if diff := cmp.Diff(plain(xpv2.Unavailable())[0], a.get(t)[0]); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// An object that keeps no conditions is left alone.
func TestNoConditions(t *testing.T) {
	for name, status := range map[string]any{"NoStatus": nil, "NoConditions": map[string]any{"phase": "fine"}, "OtherConditions": map[string]any{"conditions": "none"}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(object(deleted, func(u *claim.Unstructured) {
				delete(u.Object, "status")

				if status != nil {
					u.Object["status"] = status
				}
			}))

			passes := 0
			r := reconciler.New(a, kind, func(c client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					passes++
					u := forms()["Plain"]()

					return reconcile.Result{}, c.Get(ctx, req.NamespacedName, u)
				})
			})

			reconcileTimes(t, r, 2)

			if a.writes != 0 || passes != 2 {
				t.Errorf("want no write and 2 passes, got %d and %d", a.writes, passes)
			}
		})
	}
}

// What goes wrong while a deletion is reported holds up the inner reconciler for
// a while, if that may help, and never for ever.
func TestReportFaults(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(a *api) error

		// failed is how many of 8 reconciles fail, and passes, how many come as
		// far as the inner reconciler.
		failed, passes int
		events         int
		reported       bool
	}{
		"Conflict": {
			reason: "A conflict is resolved at once, and another controller's condition survives.",
			before: func(a *api) error {
				if a.writes > 1 {
					return nil
				}

				u := claim.New(claim.WithGroupVersionKind(kind))
				if err := a.server.Get(context.Background(), request.NamespacedName, u); err != nil {
					return err
				}

				u.SetConditions(xpv2.Condition{Type: "Foreign", Status: "True"})

				return a.server.Status().Update(context.Background(), u)
			},
			passes:   8,
			reported: true,
		},
		"ServerErrorsForAWhile": {
			reason: "A server that comes back gets the report first.",
			before: func(a *api) error {
				if a.writes <= 3 {
					return kerrors.NewInternalError(errors.New("boom"))
				}

				return nil
			},
			failed:   3,
			passes:   5,
			reported: true,
		},
		"ServerErrorsForLong": {
			reason: "A server that doesn't come back holds up nothing any more.",
			before: func(*api) error { return kerrors.NewInternalError(errors.New("boom")) },
			failed: 5,
			passes: 3,
			events: 3,
		},
		"Forbidden": {
			reason: "What is not allowed holds up nothing.",
			before: func(*api) error { return kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no")) },
			passes: 8,
			events: 8,
		},
		"NoStatusSubresource": {
			reason: "A kind without the status subresource is left alone.",
			before: func(*api) error { return kerrors.NewNotFound(schema.GroupResource{}, "a") },
			passes: 8,
			events: 8,
		},
		"Gone": {
			reason: "An object that is gone needs no report, which is no error.",
			before: func(a *api) error {
				u := forms()["Plain"]()
				if err := a.server.Get(context.Background(), request.NamespacedName, u); err != nil {
					return err
				}

				u.SetFinalizers(nil)

				return a.server.Update(context.Background(), u)
			},
		},
	}

	for name, tc := range cases {
		for fname, empty := range forms() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				a := newAPI(object(deleted))
				a.before = func() error { return tc.before(a) }

				rec := &recorder{}
				passes, failed := 0, 0

				r := reconciler.New(a, kind, func(c client.Client) reconcile.Reconciler {
					return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
						if err := c.Get(ctx, req.NamespacedName, empty()); err != nil {
							return reconcile.Result{}, client.IgnoreNotFound(err)
						}

						passes++

						return reconcile.Result{}, nil
					})
				}, reconciler.WithRecorder(rec), reconciler.WithLogger(logging.NewNopLogger()), reconciler.WithLiveReader(a.server))

				for range 8 {
					if _, err := r.Reconcile(context.Background(), request); err != nil {
						failed++
					}
				}

				got := []int{failed, passes, len(rec.events)}
				if diff := cmp.Diff([]int{tc.failed, tc.passes, tc.events}, got); diff != "" {
					t.Errorf("\n%s\nfailures, passes, events: -want, +got:\n%s", tc.reason, diff)
				}

				if tc.reported {
					has := map[xpv2.ConditionType]xpv2.ConditionReason{}
					for _, c := range a.get(t) {
						has[c.Type] = c.Reason
					}

					want := map[xpv2.ConditionType]xpv2.ConditionReason{"Ready": "Deleting", "Synced": "ReconcileSuccess", "Deleting": "DeletionRequested"}
					if name == "Conflict" {
						want["Foreign"] = ""
					}

					if diff := cmp.Diff(want, has); diff != "" {
						t.Errorf("\n%s\nconditions: -want, +got:\n%s", tc.reason, diff)
					}
				}
			})
		}
	}
}

type recorder struct{ events []event.Event }

func (r *recorder) Event(_ runtime.Object, e event.Event)      { r.events = append(r.events, e) }
func (r *recorder) WithAnnotations(_ ...string) event.Recorder { return r }

// Objects of a Go type are treated as unstructured ones are.
func TestTyped(t *testing.T) {
	b := &testkit.Bucket{}
	b.SetName("a")
	b.SetNamespace("default")
	b.SetGeneration(3)
	b.SetFinalizers([]string{"example.org/f"})
	b.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	b.SetConditions(xpv2.Available())

	a := testkit.NewAPI(b)

	r := reconciler.New(a.Client(), testkit.BucketKind(), func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			read := &testkit.Bucket{}
			if err := c.Get(ctx, req.NamespacedName, read); err != nil {
				return reconcile.Result{}, err
			}

			server := &testkit.Bucket{}
			if err := a.Server().Get(ctx, req.NamespacedName, server); err != nil {
				return reconcile.Result{}, err
			}

			for which, o := range map[string]*testkit.Bucket{"read": read, "on the server": server} {
				want := xpv2.Deleting().WithMessage("Deletion was requested.").WithObservedGeneration(3)
				if got := o.GetCondition(xpv2.TypeReady); !got.Equal(want) {
					t.Errorf("Ready as %s: want %+v, got %+v", which, want, got)
				}

				if got := o.GetCondition(reconciler.TypeDeleting); got.Status != corev1.ConditionTrue || got.Reason != reconciler.ReasonDeletionRequested {
					t.Errorf("Deleting as %s: got %+v", which, got)
				}
			}

			return reconcile.Result{}, c.Status().Update(ctx, read)
		})
	})

	reconcileTimes(t, r, 3)

	if n := a.Writes(); n != 1 {
		t.Errorf("writes: want 1, got %d", n)
	}
}

func TestNewRefuses(t *testing.T) {
	var (
		nilClient *api
		nilInner  *claimReconciler
		nilLogger *nilLog
		nilRec    *recorder
	)

	a := newAPI(object())
	build := func(client.Client) reconcile.Reconciler { return &claimReconciler{} }

	cases := map[string]struct {
		reason string
		part   string
		fn     func()
	}{
		"NoClient":     {"There is nothing to read with.", "without a client", func() { reconciler.New(nil, kind, build) }},
		"NilClient":    {"There is nothing to read with.", "without a client", func() { reconciler.New(nilClient, kind, build) }},
		"NoScheme":     {"No kind can be known.", "has no scheme", func() { reconciler.New(schemeless{a}, kind, build) }},
		"NoKind":       {"There is nothing to reconcile.", "without a kind", func() { reconciler.New(a, schema.GroupVersionKind{}, build) }},
		"GroupOnly":    {"A group is not a kind.", "without a kind", func() { reconciler.New(a, schema.GroupVersionKind{Group: "example.org", Version: "v1"}, build) }},
		"NoBuild":      {"There is nothing to run.", "without an inner reconciler", func() { reconciler.New(a, kind, nil) }},
		"BuildsNil":    {"There is nothing to run.", "returned nil", func() { reconciler.New(a, kind, func(client.Client) reconcile.Reconciler { return nil }) }},
		"BuildsNilPtr": {"There is nothing to run.", "returned nil", func() { reconciler.New(a, kind, func(client.Client) reconcile.Reconciler { return nilInner }) }},
		"NilOption":    {"It can't be applied.", "leave it out", func() { reconciler.New(a, kind, build, nil) }},
		"NoLogger":     {"It would fail in the queue.", "WithLogger was given nil", func() { reconciler.New(a, kind, build, reconciler.WithLogger(nil)) }},
		"NilLogger":    {"It would fail in the queue.", "WithLogger was given nil", func() { reconciler.New(a, kind, build, reconciler.WithLogger(nilLogger)) }},
		"NoRecorder":   {"It would fail in the queue.", "WithRecorder was given nil", func() { reconciler.New(a, kind, build, reconciler.WithRecorder(nil)) }},
		"NilRecorder":  {"It would fail in the queue.", "WithRecorder was given nil", func() { reconciler.New(a, kind, build, reconciler.WithRecorder(nilRec)) }},
		"NoLive":       {"It would fail in the queue.", "WithLiveReader was given nil", func() { reconciler.New(a, kind, build, reconciler.WithLiveReader(nil)) }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				r := recover()
				if err, ok := r.(error); !ok || !strings.Contains(err.Error(), tc.part) {
					t.Errorf("\n%s\nwant a panic with an error that says %q, got %v", tc.reason, tc.part, r)
				}
			}()

			tc.fn()
		})
	}
}

type nilLog struct{ logging.Logger }

type schemeless struct{ client.Client }

func (schemeless) Scheme() *runtime.Scheme { return nil }

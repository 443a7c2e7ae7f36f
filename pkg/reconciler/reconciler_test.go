package reconciler_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/conditions"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// newApp returns a claim of generation 3 with a status of its own.
func newApp(mod ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return newObject(claims, "default", "a", append([]func(*unstructured.Unstructured){
		func(u *unstructured.Unstructured) { u.SetGeneration(3) },
		withFinalizers("example.org/f"),
		withField(fieldPath("status"), map[string]any{"phase": "fine", "replicas": int64(3)}),
		withConditions(xpv2.Available().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3)),
	}, mod...)...)
}

type conditioned interface {
	client.Object
	resource.Conditioned
}

func forms() map[string]func() conditioned {
	return map[string]func() conditioned{
		"Claim":     func() conditioned { return claim.New(claim.WithGroupVersionKind(claims)) },
		"Composite": func() conditioned { return composite.New(composite.WithGroupVersionKind(claims)) },
	}
}

func TestReconcile(t *testing.T) {
	const message = "Deletion was requested."
	available := withoutTimes(
		xpv2.Available().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3),
	)
	reported := withoutTimes(
		xpv2.Deleting().WithMessage(message).WithObservedGeneration(3),
		xpv2.ReconcileSuccess().WithObservedGeneration(3),
		xpv2.Condition{
			Type:               "Deleting",
			Status:             "True",
			Reason:             "DeletionRequested",
			Message:            message,
			ObservedGeneration: 3,
		},
	)
	withdrawn := xpv2.Condition{
		Type:               "Deleting",
		Status:             "False",
		Reason:             "NotDeleting",
		Message:            "It is not being deleted.",
		ObservedGeneration: 3,
	}
	restored := reconciler.Deleting(deletionTime(), "WaitingForDependents", "0 of 1 deleted.")[1]
	silent := withoutTimes(xpv2.Deleting().WithObservedGeneration(3), xpv2.ReconcileSuccess().WithObservedGeneration(3))
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		opts   []reconciler.Option

		// seen has the conditions on the server when the inner reconciler has read the
		// object for the first time, and settled those at the end.
		seen, settled []condition

		// writes counts the writes of 2 reconciles, and more the writes of another 10.
		writes, more int
	}{
		"Steady": {
			reason:  "Status that doesn't change should not be written.",
			object:  newApp(),
			seen:    available,
			settled: available,
		},
		"SteadyWithWrites": {
			reason: "Unless that is wanted.",
			object: newApp(),
			opts:   []reconciler.Option{reconciler.WithUnchangedStatusWrites()},
			seen:   available, settled: available, writes: 2, more: 10,
		},
		"Restored": {
			reason:  "That an object is being deleted which isn't, as another writer says, should be withdrawn before the inner reconciler runs.",
			object:  newApp(withConditions(restored)),
			seen:    append(slices.Clone(available), withoutTimes(withdrawn)...),
			settled: append(slices.Clone(available), withoutTimes(withdrawn)...), writes: 1,
		},
		"Deleted": {
			reason: "A deletion should be on the server before the inner reconciler runs, whose own status gets the message.",
			object: newApp(withDeletionTimestamp), seen: reported, settled: reported, writes: 1,
		},
		"DeletedWithoutReport": {
			reason: "A deletion that the inner reconciler said itself should get a reason when that is done.",
			object: newApp(withDeletionTimestamp, withConditions(xpv2.Deleting().WithObservedGeneration(3))),
			seen:   silent, settled: reported, writes: 1,
		},
	}
	for name, tc := range cases {
		for fname, empty := range forms() {
			t.Run(name+"/"+fname, func(t *testing.T) {
				c := newCluster(tc.object)
				var seen [][]condition

				// As Crossplane's reconciler of claims does, it says in memory that
				// the object is being deleted, and the first time returns before it
				// writes that.
				r := reconciler.New(
					c, claims,
					newReadingReconciler(
						empty,
						func(ctx context.Context, cl client.Client, o conditioned) error {
							seen = append(seen, c.conditions(t, tc.object))
							status := conditions.ObservedGenerationPropagationManager{}.For(o)
							switch {
							case !meta.WasDeleted(o):
								status.MarkConditions(xpv2.Available(), xpv2.ReconcileSuccess())
							case len(seen) == 1:
								status.MarkConditions(xpv2.Deleting())
								return nil
							default:
								status.MarkConditions(xpv2.Deleting())
							}
							return cl.Status().Update(ctx, o)
						},
					),
					tc.opts...,
				)
				mustReconcileTimes(t, 2, r, tc.object)
				expectEqual(t, tc.reason, "when read", tc.seen, seen[0])
				writes := c.count("status")
				mustReconcileTimes(t, 10, r, tc.object)
				expectEqual(t, tc.reason, "writes in 2 reconciles and 10 more", []int{tc.writes, tc.more}, []int{
					writes, c.count("status") - writes,
				})
				expectEqual(t, tc.reason, "in the end", tc.settled, c.conditions(t, tc.object))
				st, _, _ := unstructured.NestedMap(c.read(t, tc.object).Object, "status")
				delete(st, "conditions")
				expectEqual(t, tc.reason, "the rest of status", map[string]any{
					"phase":    "fine",
					"replicas": int64(3),
				}, st)
			})
		}
	}
}

// A Deleting condition that the inner reconciler itself sets on a live object stays.
func TestTerminalErrorReportFails(t *testing.T) {
	o := newComposite()
	r := newTestReconciler(t, newCluster(o), o, reconciler.WithOwnFinalizers("another"))
	r.inner = func(context.Context, client.Client, *composite.Unstructured) error {
		r.c.fail = refuseVerb("status", kerrors.NewServiceUnavailable("etcd leader changed"))
		return reconcile.TerminalError(errors.New("bad spec"))
	}
	result, err := r.Reconcile(context.Background(), requestFor(o))
	const reason = "controller-runtime does not retry a terminal error, so a report that was not written needs another result."
	expectEqual(t, reason, "error", nil, err)
	expectEqual(t, reason, "reconciled again", true, !result.IsZero())
}

func TestOwnDeletingCondition(t *testing.T) {
	o := newApp()
	c := newCluster(o)
	soon := func(ctx context.Context, c client.Client, o conditioned) error {
		o.SetConditions(xpv2.Condition{Type: reconciler.TypeDeleting, Status: "True", Reason: "Soon"})
		return c.Status().Update(ctx, o)
	}
	r := reconciler.New(c, claims, newReadingReconciler(forms()["Claim"], soon))
	mustReconcileTimes(t, 5, r, o)
	expectEqual(t, "", "status after 5 reconciles, writes", []any{"True", 1}, []any{
		c.condition(t, o, reconciler.TypeDeleting).Status, c.api.Writes(),
	})
}

// What goes wrong delays the inner reconciler for a while, if that may help.
func TestReportFaults(t *testing.T) {
	boom := kerrors.NewInternalError(errors.New("boom"))
	cases := map[string]struct {
		reason string

		// err fails each write of status, except the n-th if ok(n) is true.
		err error
		ok  func(n int) bool

		// failed is how many of 8 reconciles fail, and passes how many come as
		// far as the inner reconciler.
		failed, passes, events int
		opts                   []reconciler.Option

		// gone is whether the object no longer exists.
		gone bool
	}{
		"ServerErrorsForAWhile": {
			reason: "A server that comes back gets the report first.",
			err:    boom,
			ok:     func(n int) bool { return n > 3 },
			failed: 3,
			passes: 5,
		},
		"ServerErrorsForLong": {
			reason: "A server that doesn't come back delays nothing any more.",
			err:    boom,
			failed: 5,
			passes: 3,
			events: 3,
		},
		"NoStatusSubresource": {
			reason: "A kind without the status subresource is left alone.",
			err:    kerrors.NewNotFound(schema.GroupResource{}, "a"),
			passes: 8,
			events: 8,
		},
		"ForbiddenLater": {
			reason: "A report that may not be written once the inner reconciler ran delays nothing either.",
			err:    kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")),
			ok:     func(n int) bool { return n == 1 },
			passes: 8, events: 8, opts: []reconciler.Option{reconciler.WithOwnFinalizers("another")},
		},
		"Gone": {reason: "An object that no longer exists needs no report, which is no error.", gone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, failed := newComposite(), 0
			r := newTestReconciler(t, newCluster(o), o, tc.opts...)
			r.c.fail = func(verb string, _ client.Object, after bool) error {
				if verb != "status" || after || tc.ok != nil && tc.ok(r.c.count("status")) {
					return nil
				}
				if tc.gone {
					r.c.release(t, o, "example.org/f")
				}
				return tc.err
			}
			for range 8 {
				if _, err := r.Reconcile(context.Background(), requestFor(o)); err != nil {
					failed++
				}
			}
			got := []int{
				failed, r.passes, len(r.events.Events()), len(r.events.Lines()),
				blockedMetric(t, r.metrics)["DeletionRequested"] + blockedMetric(t, r.metrics)["WaitingForFinalizers"],
			}
			expectEqual(t, tc.reason, "failures, passes, events, lines of log, blocked", []int{
				tc.failed, tc.passes, tc.events, tc.events, min(1, tc.passes),
			}, got)
		})
	}
}

// mustPanic fails the test unless fn panics with an error that has the text.
func mustPanic(t *testing.T, reason, text string, fn func()) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if err, ok := r.(error); !ok || !strings.Contains(err.Error(), text) {
			t.Errorf("\n%s\nwant a panic with an error that says %q, got %v", reason, text, r)
		}
	}()
	fn()
}

func TestNewRefuses(t *testing.T) {
	var (
		nilClient *cluster
		nilInner  *reconciler.Reconciler
	)
	c, build := newCluster(), newIdleReconciler()
	newFor := func(o client.Object) func() {
		return func() { reconciler.New(newOrdinaryCluster(o), ordinaries, newUnstructuredReconciler(ordinaries)) }
	}
	cases := map[string]struct {
		reason string
		part   string
		fn     func()
	}{
		"NilClient": {
			reason: "The reconciler needs a client.", part: "without a client",
			fn: func() { reconciler.New(nilClient, claims, build) },
		},
		"NoScheme": {
			reason: "The scheme is needed to determine kinds.", part: "has no scheme",
			fn: func() { reconciler.New(schemeless{c}, claims, build) },
		},
		"GroupOnly": {
			reason: "A group is not a kind.", part: "without a kind",
			fn: func() { reconciler.New(c, schema.GroupVersionKind{Group: "example.org", Version: "v1"}, build) },
		},
		"NoBuild": {
			reason: "The reconciler needs an inner reconciler.", part: "without an inner reconciler",
			fn: func() { reconciler.New(c, claims, nil) },
		},
		"BuildsNilPtr": {
			reason: "The reconciler needs an inner reconciler.", part: "returned nil",
			fn: func() { reconciler.New(c, claims, func(client.Client) reconcile.Reconciler { return nilInner }) },
		},
		"Map": {
			reason: "A map isn't a list of conditions.", part: "can't hold a condition",
			fn: newFor(newOrdinary(in[map[string]metav1.Condition]{})),
		},
		"Part": {
			reason: "A condition needs a message.", part: "can't hold a condition",
			fn: newFor(newOrdinary(in[[]part]{})),
		},
		"NilOption": {
			reason: "A nil option can't be applied.", part: "leave it out",
			fn: func() { reconciler.New(c, claims, build, nil) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { mustPanic(t, tc.reason, tc.part, tc.fn) })
	}
}

// A value that can't work is refused where it is given.
func TestOptionsRefuse(t *testing.T) {
	var nilSaid *testkit.Said
	var empty schema.GroupVersionKind
	const (
		crash = "A nil value would panic in the first reconcile."
		gc    = "Without the garbage collector's finalizer the objects that the object owns would be deleted."
	)
	cases := []struct {
		reason string
		part   string
		fn     func()
	}{
		{crash, "WithLogger was given nil", func() { reconciler.WithLogger(nilSaid) }},
		{crash, "WithRecorder was given nil", func() { reconciler.WithRecorder(nilSaid) }},
		{crash, "WithLiveReader was given nil", func() { reconciler.WithLiveReader(nil) }},
		{crash, "WithDependents was given nil", func() { reconciler.WithDependents(nil) }},
		{crash, "WithWatchedKinds was given nil", func() { reconciler.WithWatchedKinds(nil) }},
		{crash, "WithMetrics was given nil", func() { reconciler.WithMetrics(nil) }},
		{crash, "create them with NewMetrics", func() { reconciler.WithMetrics(&reconciler.Metrics{}) }},
		{crash, "GuardFinalizer was given nil", func() { reconciler.GuardFinalizer(nil) }},
		{crash, "GuardFinalizer was given nil", func() { reconciler.GuardFinalizer((*resource.APIFinalizer)(nil)) }},
		{
			"A shorter interval would be a hot loop.", "pass a second or more",
			func() { reconciler.WithReportInterval(time.Second - 1) },
		},
		{
			"A deadline of zero would always have passed.", "a deadline must be longer",
			func() { reconciler.WithDeletionDeadline(0, nil) },
		},
		{"It would orphan nothing.", "no finalizers", func() { reconciler.WithForceOrphan() }},
		{"It would orphan nothing.", "an empty one", func() { reconciler.WithForceOrphan(mine, "") }},
		{gc, "garbage collector's finalizer", func() { reconciler.WithForceOrphan(mine, gcForeground) }},
		{"It would name nothing.", "no finalizers", func() { reconciler.WithOwnFinalizers() }},
		{"It would name nothing.", "an empty one", func() { reconciler.WithOwnFinalizers("") }},
		{gc, "garbage collector's finalizer", func() { reconciler.WithOwnFinalizers(gcOrphan) }},
		{"No composite would be read.", "given no kind", func() { reconciler.CompositeOfClaim() }},
		{"No composite has that kind.", "given no kind", func() { reconciler.CompositeOfClaim(composites, empty) }},
		{"It would list nothing.", "given no kind", func() { reconciler.OwnedObjects() }},
		{"It would list nothing.", "given no kind", func() { reconciler.OwnedObjects(empty) }},
	}
	for _, tc := range cases {
		mustPanic(t, tc.reason, tc.part, tc.fn)
	}
}

type schemeless struct{ client.Client }

func (schemeless) Scheme() *runtime.Scheme { return nil }

func TestGuardFinalizer(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	paused := func(v string) *v1alpha1.Bucket {
		return &v1alpha1.Bucket{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{meta.AnnotationKeyReconciliationPaused: v}},
		}
	}
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		want   bool
	}{
		"Alive": {
			reason: "A finalizer should be added to an object that is neither paused nor being deleted.",
			object: &v1alpha1.Bucket{},
			want:   true,
		},
		"Deleting": {
			reason: "A finalizer should not be added to an object that is being deleted.",
			object: &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}},
		},
		"Paused":    {reason: "A finalizer should not be added to a paused object.", object: paused("true")},
		"NotPaused": {reason: "Only the value true pauses.", object: paused("false"), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			added, removed := false, false
			f := reconciler.GuardFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { added = true; return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { removed = true; return nil },
			})
			if err := f.AddFinalizer(context.Background(), tc.object); added != tc.want ||
				kerrors.IsConflict(err) == tc.want || err != nil && tc.want {
				t.Errorf("\n%s\nAddFinalizer(...): added %t, %v", tc.reason, added, err)
			}
			must(t, f.RemoveFinalizer(context.Background(), tc.object))
			expectEqual(t, tc.reason, "removed", true, removed)
		})
	}
}

// However the inner reconciler writes that its object is being deleted, the report is
// there, is not replaced in each reconcile, and replaces no conditions of others.
func TestOtherStatusWrites(t *testing.T) {
	type write func(ctx context.Context, c client.Client, o, before *composite.Unstructured) error
	patch := func(opts ...client.SubResourcePatchOption) write {
		return func(ctx context.Context, c client.Client, o, before *composite.Unstructured) error {
			return c.Status().Patch(ctx, o, client.MergeFrom(before), opts...)
		}
	}
	update := func(opts ...client.SubResourceUpdateOption) write {
		return func(ctx context.Context, c client.Client, o, _ *composite.Unstructured) error {
			return c.Status().Update(ctx, o, opts...)
		}
	}
	cases := map[string]struct {
		reason string
		write  write

		// foreign is whether another controller adds a condition meanwhile, and changes
		// whether each reconcile changes the object. refused is whether the API server
		// refuses the write.
		foreign, changes, refused bool
	}{
		"Patch":  {reason: "A patch of conditions has the report.", write: patch()},
		"Update": {reason: "So has an update with options.", write: update(client.FieldOwner("inner"))},
		"DryRunOfPatch": {
			reason: "A dry run of a patch should not replace the report.",
			write:  patch(client.DryRunAll),
		},
		"DryRunOfUpdate": {
			reason: "A dry run of an update should not replace the report.",
			write:  update(client.DryRunAll),
		},
		"RefusedPatch": {
			reason:  "The report should be written although the API server refuses the patch.",
			refused: true,
			write:   patch(),
		},
		"RefusedUpdate": {
			reason:  "The report should be written although the API server refuses the update.",
			refused: true,
			write:   update(),
		},
		"OtherField": {
			reason:  "A patch of something else replaces no conditions.",
			foreign: true,
			write: func(ctx context.Context, c client.Client, o, before *composite.Unstructured) error {
				o.SetConditions(before.GetCondition(xpv2.TypeReady))
				withField(fieldPath("status", "phase"), "leaving")(&o.Unstructured)
				return patch()(ctx, c, o, before)
			},
		},
		"Constant": {
			reason:  "A constant patch should stay as it is, and replace the report.",
			changes: true,
			write: func(ctx context.Context, c client.Client, o, _ *composite.Unstructured) error {
				return c.Status().Patch(
					ctx, o,
					client.RawPatch(
						types.MergePatchType,
						[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Deleting"}]}}`),
					),
				)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, foreign := newComposite(), tc.foreign
			r := newTestReconciler(t, newCluster(o), o, reconciler.WithOwnFinalizers("another"))
			r.inner = func(ctx context.Context, cl client.Client, o *composite.Unstructured) error {
				before := o.DeepCopy()
				o.SetConditions(xpv2.Deleting())
				if foreign {
					foreign = false
					r.c.replace(t, &o.Unstructured, xpv2.Condition{Type: "Foreign", Status: "True"})
				}
				if tc.refused {
					withField(fieldPath("status", "phase"), "refused")(&o.Unstructured)
					r.c.fail = refuseVerb("status", kerrors.NewInvalid(composites.GroupKind(), o.GetName(), nil))
					err := tc.write(ctx, cl, o, before)
					if r.c.fail = nil; !kerrors.IsInvalid(err) {
						t.Errorf("write: want it refused, got %v", err)
					}
					return nil
				}
				return tc.write(ctx, cl, o, before)
			}
			mustReconcile(t, r, o)
			version := r.c.read(t, o).GetResourceVersion()
			mustReconcile(t, r, o)
			const message = "Waiting for other controllers to remove their finalizers: example.org/f."
			want := []any{message, message, tc.foreign, tc.changes}
			got := []any{
				r.c.condition(t, o, xpv2.TypeReady).Message, r.c.condition(t, o, reconciler.TypeDeleting).Message,
				r.c.condition(t, o, "Foreign").Status == "True", r.c.read(t, o).GetResourceVersion() != version,
			}
			expectEqual(t, tc.reason, "messages, the other's condition, changes", want, got)
		})
	}
}

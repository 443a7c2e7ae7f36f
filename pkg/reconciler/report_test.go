package reconciler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A reportCase is an object, its dependents, and the report.
type reportCase struct {
	reason string
	object *unstructured.Unstructured
	exists []*unstructured.Unstructured
	fail   func(verb string, o client.Object, after bool) error
	opts   []reconciler.Option
	want   conditionText
}

// newControlledThing returns a dependent of the composite resource.
func newControlledThing(name string, mod ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return newObject(
		things, "", name, append([]func(*unstructured.Unstructured){withController(newComposite())}, mod...)...,
	)
}

// newHeldThing returns one that is being deleted, and has a finalizer.
func newHeldThing(name string) *unstructured.Unstructured {
	return newControlledThing(name, withDeletionTimestamp, withFinalizers("f"))
}

// A report counts dependents, and says why they are still there.
func TestReport(t *testing.T) {
	because := func(r xpv2.ConditionReason, m string) func(*unstructured.Unstructured) {
		return withConditions(reconciler.Deleting(time.Now(), r, m)...)
	}
	gone := newControlledThing("gone")
	runReportCases(t, map[string]reportCase{
		"Protected": {
			reason: "Protection should be named first, and be the reason, because a person has to remove it.",
			object: newComposite(newControlledThing("a"), newControlledThing("z")),
			exists: []*unstructured.Unstructured{
				newHeldThing("a"),
				newControlledThing("z", withInUseLabel),
			},
			want: conditionText{
				"True", "BlockedByProtection",
				"0 of 2 dependents deleted, 0%. Thing/z: protected by a Usage. Thing/a since T: held by f.",
			},
		},
		"Deleting": {
			reason: "A dependent that says why it is still there is quoted, but not on how to orphan it.",
			object: newComposite(newControlledThing("a")),
			exists: []*unstructured.Unstructured{
				newControlledThing(
					"a", withDeletionTimestamp, withFinalizers("f"),
					because(
						"WaitingForExternalResource",
						"It still exists. To orphan it, set the annotation x=y: that removes f, and deletes nothing.",
					),
				),
			},
			want: waitsFor("0 of 1 dependents deleted, 0%. Thing/a since T: WaitingForExternalResource: It still exists."),
		},
		"AllGoneButError": {
			reason: "But for the error that the reconciler reports.",
			object: modify(newComposite(gone), withConditions(xpv2.ReconcileError(errors.New("boom")))),
			want: conditionText{
				"True", "ReconcileFailed",
				"1 of 1 dependents deleted, 100%. It could not be reconciled: see the Synced condition.",
			},
		},
		"PausedItself": {
			reason: "A paused object should report its pause only.",
			object: modify(
				newComposite(newControlledThing("a")), withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
			),
			exists: []*unstructured.Unstructured{newControlledThing("a")},
			want: conditionText{
				"True", "BlockedByPause",
				"Reconciliation is paused, and deletion with it. To continue, remove the annotation crossplane.io/paused.",
			},
		},
		"PausedAndLetGo": {
			reason: "The end of a pause should not be asked for if only finalizers of others are left.",
			object: modify(
				newComposite(newControlledThing("a")), withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
				withConditions(xpv2.ReconcilePaused()),
			),
			exists: []*unstructured.Unstructured{newControlledThing("a")},
			opts:   []reconciler.Option{reconciler.WithOwnFinalizers("own")},
			want: conditionText{
				"True", "WaitingForFinalizers", "Waiting for other controllers to remove their finalizers: example.org/f.",
			},
		},
		"Twice": {
			reason: "An object that is referred to twice counts once.",
			object: newComposite(newControlledThing("a"), newControlledThing("a")),
			exists: []*unstructured.Unstructured{newControlledThing("a")},
			want:   waitsFor("0 of 1 dependents deleted, 0%. Thing/a: its deletion was not requested yet."),
		},
	})
}

// A report says which dependents are unknown, and quotes nothing of an error.
func TestReport_Unread(t *testing.T) {
	failing := func(err error) func(string, client.Object, bool) error {
		return func(verb string, o client.Object, _ bool) error {
			if verb == "get" && o.GetName() == "a" {
				return err
			}
			return nil
		}
	}
	gone := newControlledThing("gone")
	runReportCases(t, map[string]reportCase{
		"Forbidden": {
			reason: "A dependent that may not be read should be named as such, and the others should be read.",
			object: newComposite(newControlledThing("a"), newControlledThing("b"), gone),
			exists: []*unstructured.Unstructured{
				newControlledThing("a"), newHeldThing("b"),
			},
			fail: failing(kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("secret detail"))),
			want: waitsFor("1 of 3 dependents deleted, 33%. Thing/a: unknown: forbidden. Thing/b since T: held by f."),
		},
		"VersionNotServed": {
			reason: "A version that is not served says nothing of the dependent.",
			object: newComposite(newControlledThing("a")), fail: failing(errUnserved),
			want: waitsFor("0 of 1 dependents deleted, 0%. Thing/a: unknown: cannot be read."),
		},
		"OddKind": {
			reason: "A kind from a user's reference should be quoted without control characters.",
			object: newComposite(newObject(schema.GroupVersionKind{
				Group:   "example.org",
				Version: "v1",
				Kind:    "Odd\n\x1b[2JKind",
			}, "", "a")),
			fail: failing(errUnserved),
			want: waitsFor("0 of 1 dependents deleted, 0%. Odd [2JKind/a: unknown: cannot be read."),
		},
		"ListFailed": {
			reason: "Without knowing all nothing is counted.",
			object: newObject(composites, "", "x", withField(fieldPath("spec", "crossplane", "resourceRefs"), []any{
				referenceTo(newControlledThing("a")), referenceTo(gone),
			}), withField(fieldPath("spec", "resourceRefs"), "odd"), withFinalizers("f"), withDeletionTimestamp,
				withConditions()),
			exists: []*unstructured.Unstructured{newControlledThing("a")},
			want:   waitsFor("Some dependents may be unknown: cannot be read. Thing/a: its deletion was not requested yet."),
		},
	})
}

func runReportCases(t *testing.T, cases map[string]reportCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(append(tc.exists, tc.object.DeepCopy())...)
			c.fail = tc.fail
			r := reconciler.New(c, composites, newIdleReconciler(), append(tc.opts, withComposed)...)
			mustReconcile(t, r, tc.object)
			got := c.condition(t, tc.object, reconciler.TypeDeleting)
			expectEqual(t, tc.reason, "Deleting", tc.want, got)
			expectEqual(t, "", "Ready should say the same", conditionText{
				"False", "Deleting", got.Message,
			}, c.condition(t, tc.object, xpv2.TypeReady))
			expectEqual(
				t, "", "reads dependents while paused", false, meta.IsPaused(tc.object) && c.count("get Thing") > 0,
			)
			c.api.Forget()
			mustReconcileTimes(t, 2, r, tc.object)
			expectEqual(t, tc.reason, "writes in 2 more reconciles of the same situation", 0, c.api.Writes())

			// A controller that ignores deletions overwrites Ready.
			c.replace(t, tc.object, xpv2.Available())
			mustReconcile(t, r, tc.object)
			if diff := cmp.Diff(
				conditionText{"False", "Deleting", got.Message}, c.condition(t, tc.object, xpv2.TypeReady),
			); diff != "" || c.api.Writes() != 1 {
				t.Errorf("\nReady is corrected by one write, got %d: -want, +got:\n%s", c.api.Writes(), diff)
			}
		})
	}
}

// An error of a lister is in the report. Dependents that it doesn't list any more are gone.
func TestForgetfulLister(t *testing.T) {
	var (
		list []reconciler.Dependent
		err  error
	)
	o := newComposite()
	a := reconciler.Dependent{GroupVersionKind: things, NamespacedName: types.NamespacedName{Name: "a"}}
	b := reconciler.Dependent{GroupVersionKind: things, NamespacedName: types.NamespacedName{Name: "b"}}
	c := newCluster(o, newHeldThing("a"), newHeldThing("b"))
	lister := func(context.Context, client.Reader, client.Object) ([]reconciler.Dependent, error) { return list, err }
	r := reconciler.New(
		c, composites, newIdleReconciler(), reconciler.WithDependents(reconciler.DependentListerFn(lister)),
	)
	steps := []struct {
		reason string
		list   []reconciler.Dependent
		err    error
		want   conditionText
	}{
		{
			reason: "Both are there.",
			list:   []reconciler.Dependent{a, b},
			want:   waitsFor("0 of 2 dependents deleted, 0%. Thing/a since T: held by f. Thing/b since T: held by f."),
		},
		{
			reason: "One is not listed any more.",
			list:   []reconciler.Dependent{b},
			want:   waitsFor("1 of 2 dependents deleted, 50%. Thing/b since T: held by f."),
		},
		{
			reason: "The list is unknown.",
			err:    errors.New("boom"),
			want:   waitsFor("Some dependents may be unknown: cannot be read."),
		},
		{
			reason: "None is listed any more.",
			want: conditionText{
				"True", "DeletionRequested", "2 of 2 dependents deleted, 100%. Deletion was requested.",
			},
		},
	}
	for _, s := range steps {
		list, err = s.list, s.err
		mustReconcile(t, r, o)
		expectEqual(t, s.reason, "", s.want, c.condition(t, o, reconciler.TypeDeleting))
	}
}

// Dependents are read once a reconcile, whichever reconciler writes status, and however often.
func TestReportCosts(t *testing.T) {
	for name, inner := range map[string]func(c client.Client) reconcile.Reconciler{
		"Silent": newIdleReconciler(),
		"Writing": func(c client.Client) reconcile.Reconciler {
			return crossplane.NewCompositeReconciler(c, composites, composite.SchemaLegacy)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHeldThing("a"), newHeldThing("b")
			o := newComposite(a, b)
			c := newCluster(a, b, o)
			minute := reconciler.WithReportInterval(time.Minute)
			r := reconciler.New(c, composites, inner, withComposed, minute, reconciler.WithoutWait())

			// Another client writes in between.
			conflicts := 2
			c.fail = func(verb string, _ client.Object, after bool) error {
				if verb == "status" && !after && name == "Silent" && conflicts > 0 {
					conflicts--
					c.update(t, o, withAnnotation("n", fmt.Sprint(conflicts)))
				}
				return nil
			}
			for i := range 2 {
				c.api.Forget()
				if result, n := mustReconcile(t, r, o), c.count("get Thing"); n != 2 ||
					result.RequeueAfter != time.Minute {
					t.Errorf("reconcile %d: want 2 reads and the next in a minute, got %d and %+v", i, n, result)
				}
			}
		})
	}
}

// The result of the inner reconciler stays, unless a report needs an earlier reconcile.
func TestResult(t *testing.T) {
	five, hour := 5, time.Hour
	boom := errors.New("boom")
	deadline := func(d time.Duration) reconciler.Option { return reconciler.WithDeletionDeadline(d, nil) }
	rest := hour - time.Minute
	cases := map[string]struct {
		reason   string
		inner    reconcile.Result
		err      error
		conflict bool
		opts     []reconciler.Option
		want     reconcile.Result

		// logged is true if the error is logged, and not returned.
		logged bool

		// ahead is how far the clock of the API server is ahead.
		ahead time.Duration
	}{
		"ServerAhead": {
			reason: "Neither is it if there is no deadline, and the deletion seems to be to come.",
			ahead:  hour,
		},
		"Deadline": {
			reason: "A deadline is not missed.",
			inner:  reconcile.Result{Priority: &five},
			opts:   []reconciler.Option{deadline(hour)},
			want:   reconcile.Result{RequeueAfter: rest, Priority: &five},
		},
		"DeadlinePassed": {
			reason: "A deadline that has passed asks for nothing.",
			opts:   []reconciler.Option{deadline(time.Second)},
		},
		"Dependents": {
			reason: "Dependents are looked at again.",
			opts:   []reconciler.Option{withComposed},
			want:   reconcile.Result{RequeueAfter: 10 * time.Second},
		},
		"TerminalError": {
			reason: "controller-runtime ignores a result that comes with an error, and doesn't retry this one.",
			err:    reconcile.TerminalError(boom),
			opts:   []reconciler.Option{deadline(hour)}, want: reconcile.Result{RequeueAfter: rest}, logged: true,
		},
		"Conflict": {
			reason:   "Nothing was asked for.",
			conflict: true,
			opts:     []reconciler.Option{withComposed},
			want:     reconcile.Result{Requeue: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := newHeldThing("a")
			o := newComposite(dep)
			c := newCluster(o, dep)
			r := newTestReconciler(t, c, o, tc.opts...)
			r.now = o.GetDeletionTimestamp().Add(time.Minute - tc.ahead)
			r.result = tc.inner
			r.inner = func(context.Context, client.Client, *composite.Unstructured) error {
				if tc.conflict {
					// From here on another client always writes first.
					c.fail = refuseVerb(
						"status",
						kerrors.NewConflict(schema.GroupResource{}, "x", errors.New("the object has been modified")),
					)
				}
				return tc.err
			}
			logged := 0
			ctx := log.IntoContext(context.Background(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
			got, err := r.Reconcile(ctx, requestFor(o))
			if tc.logged && (err != nil || logged != 1) || !tc.logged && (!errors.Is(err, tc.err) || logged > 0) {
				t.Errorf("\n%s\nerror: want %v, got %v, and %d lines of log", tc.reason, tc.err, err, logged)
			}
			expectEqual(t, tc.reason, "", tc.want, got)
		})
	}
}

// An object without conditions, or with conditions of another shape, is left alone.
func TestOddConditions(t *testing.T) {
	odd := func(status map[string]any) *unstructured.Unstructured {
		o := newObject(
			ordinaries, "", "o", withFinalizers("f"), withDeletionTimestamp, func(*unstructured.Unstructured) {},
		)
		if status != nil {
			withField(fieldPath("status"), status)(o)
		}
		return o
	}
	for name, o := range map[string]client.Object{
		"None":  odd(nil),
		"Odd":   odd(map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, nil}}),
		"Typed": newOrdinary(withoutConditions{}),
	} {
		t.Run(name, func(t *testing.T) {
			c, n := newOrdinaryCluster(o), 0
			before := c.read(t, newOrdinaryUnstructured()).Object
			pass := func(context.Context, client.Client, *unstructured.Unstructured) error { n++; return nil }
			r := reconciler.New(
				c, ordinaries, newReadingReconciler(newOrdinaryUnstructured, pass),
				reconciler.WithDependents(reconciler.CompositeOfClaim(composites)),
				reconciler.WithDeletionDeadline(time.Second, nil),
			)
			mustReconcileTimes(t, 2, r, o)
			if diff := cmp.Diff(before, c.read(t, newOrdinaryUnstructured()).Object); diff != "" || n != 2 {
				t.Errorf("want 2 passes and no write, got %d: -want, +got:\n%s", n, diff)
			}
		})
	}
}

func BenchmarkReport(b *testing.B) {
	for _, n := range []int{1, 50, 500} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			read := &cached{objects: map[types.NamespacedName]*unstructured.Unstructured{}}
			refs := []any{}
			for i := range n {
				o := newObject(
					things, "", fmt.Sprintf("t%d", i), withController(newComposite()), withDeletionTimestamp,
					withFinalizers("f"),
					withConditions(reconciler.Deleting(
						time.Now(), reconciler.ReasonExternalDeleteRequested,
						"The external resource is being deleted.",
					)...),
				)
				read.objects[client.ObjectKeyFromObject(o)] = o
				refs = append(refs, referenceTo(o))
			}
			o := newObject(
				composites, "", "x", withField(fieldPath("spec", "crossplane", "resourceRefs"), refs),
				withFinalizers("f"), withDeletionTimestamp, withConditions(xpv2.Available()),
			)
			c := newCluster(o)
			read.Client = c
			r := reconciler.New(read, composites, newIdleReconciler(), withComposed)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Reconcile(context.Background(), requestFor(o)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// cached is a client that has objects in memory, and returns copies, as a
// cache does.
type cached struct {
	client.Client

	objects map[types.NamespacedName]*unstructured.Unstructured
}

func (c *cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	have, ok := c.objects[key]
	u, isU := o.(*unstructured.Unstructured)
	if !ok || !isU {
		return c.Client.Get(ctx, key, o, opts...)
	}
	have.DeepCopyInto(u)
	return nil
}

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

func TestReport(t *testing.T) {
	thing := func(name string, mod ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		return of(things, "", name, append([]func(*unstructured.Unstructured){ownedBy(xr())}, mod...)...)
	}
	because := func(r xpv2.ConditionReason, m string) func(*unstructured.Unstructured) {
		return being(reconciler.Deleting(time.Now(), r, m)...)
	}
	gone := thing("gone")
	failing := func(err error) func(string, client.Object, bool) error {
		return func(verb string, o client.Object, _ bool) error {
			if verb == "get" && o.GetName() == "a" {
				return err
			}
			return nil
		}
	}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		exists []*unstructured.Unstructured
		fail   func(verb string, o client.Object, after bool) error
		opts   []reconciler.Option
		want   said
	}{
		"Protected": {
			reason: "Protection should be named first, and be the reason, because a person has to remove it.",
			object: xr(thing("a"), thing("z")), exists: []*unstructured.Unstructured{thing("a", dying, held("f")), thing("z", protected)},
			want: said{"True", "BlockedByProtection", "0 of 2 dependents deleted, 0%. Thing/z: protected by a Usage. Thing/a since T: held by f."},
		},
		"Deleting": {
			reason: "A dependent that says why it is still there is quoted, but not on how to orphan it.",
			object: xr(thing("a")),
			exists: []*unstructured.Unstructured{thing("a", dying, held("f"), because("WaitingForExternalResource", "It still exists. To orphan it, set the annotation x=y: that removes f, and deletes nothing."))},
			want:   said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. Thing/a since T: WaitingForExternalResource: It still exists."},
		},
		"Forbidden": {
			reason: "A dependent that may not be read should be named as such, and the others should be read.",
			object: xr(thing("a"), thing("b"), gone), exists: []*unstructured.Unstructured{thing("a"), thing("b", dying, held("f"))},
			fail: failing(kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("secret detail"))),
			want: said{"True", "WaitingForDependents", "1 of 3 dependents deleted, 33%. Thing/a: unknown: forbidden. Thing/b since T: held by f."},
		},
		"VersionNotServed": {
			reason: "A version that is not served says nothing of the dependent.",
			object: xr(thing("a")), fail: failing(errUnserved),
			want: said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. Thing/a: unknown: cannot be read."},
		},
		"OddKind": {
			reason: "A kind from a user's reference should be quoted without control characters.",
			object: xr(of(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Odd\n\x1b[2JKind"}, "", "a")), fail: failing(errUnserved),
			want: said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. Odd [2JKind/a: unknown: cannot be read."},
		},
		"AllGoneButError": {
			reason: "But for the error that the reconciler reports.",
			object: also(xr(gone), being(xpv2.ReconcileError(errors.New("boom")))),
			want:   said{"True", "ReconcileFailed", "1 of 1 dependents deleted, 100%. It could not be reconciled: see the Synced condition."},
		},
		"PausedItself": {
			reason: "A paused object should report its pause only.",
			object: also(xr(thing("a")), annotated(meta.AnnotationKeyReconciliationPaused, "true")), exists: []*unstructured.Unstructured{thing("a")},
			want: said{"True", "BlockedByPause", "Reconciliation is paused, and deletion with it. Remove the annotation crossplane.io/paused to go on."},
		},
		"Twice": {
			reason: "An object that is referred to twice counts once.",
			object: xr(thing("a"), thing("a")), exists: []*unstructured.Unstructured{thing("a")},
			want: said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. Thing/a: its deletion was not requested yet."},
		},
		"ListFailed": {
			reason: "Without knowing all nothing is counted.",
			object: of(composites, "", "x", with(at("spec", "crossplane", "resourceRefs"), []any{ref(thing("a")), ref(gone)}), with(at("spec", "resourceRefs"), "odd"), held("f"), dying, being()),
			exists: []*unstructured.Unstructured{thing("a")},
			want:   said{"True", "WaitingForDependents", "Some dependents may be unknown: cannot be read. Thing/a: its deletion was not requested yet."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(append(tc.exists, tc.object.DeepCopy())...)
			c.fail = tc.fail
			r := reconciler.New(c, composites, reader(), append([]reconciler.Option{reconciler.WithDependents(reconciler.ComposedResources())}, tc.opts...)...)
			pass(t, r, tc.object)
			got := c.says(t, tc.object, reconciler.TypeDeleting)
			wants(t, tc.reason, "Deleting", tc.want, got)
			wants(t, "", "Ready should say the same", said{"False", "Deleting", got.Message}, c.says(t, tc.object, xpv2.TypeReady))
			wants(t, "", "reads dependents while paused", false, meta.IsPaused(tc.object) && c.count("get Thing") > 0)
			c.api.Forget()
			passes(t, 2, r, tc.object)
			wants(t, tc.reason, "writes in 2 more reconciles of the same situation", 0, c.api.Writes())

			// A controller that ignores deletions overwrites Ready.
			c.replace(t, tc.object, xpv2.Available())
			pass(t, r, tc.object)
			if diff := cmp.Diff(said{"False", "Deleting", got.Message}, c.says(t, tc.object, xpv2.TypeReady)); diff != "" || c.api.Writes() != 1 {
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
	o := xr()
	a := reconciler.Dependent{GroupVersionKind: things, NamespacedName: types.NamespacedName{Name: "a"}}
	b := reconciler.Dependent{GroupVersionKind: things, NamespacedName: types.NamespacedName{Name: "b"}}
	c := newCluster(o, of(things, "", "a", ownedBy(xr()), dying, held("f")), of(things, "", "b", ownedBy(xr()), dying, held("f")))
	r := reconciler.New(c, composites, reader(), reconciler.WithDependents(reconciler.DependentListerFn(func(context.Context, client.Reader, client.Object) ([]reconciler.Dependent, error) {
		return list, err
	})))
	steps := []struct {
		reason string
		list   []reconciler.Dependent
		err    error
		want   said
	}{
		{"Both are there.", []reconciler.Dependent{a, b}, nil, said{"True", "WaitingForDependents", "0 of 2 dependents deleted, 0%. Thing/a since T: held by f. Thing/b since T: held by f."}},
		{"One is not listed any more.", []reconciler.Dependent{b}, nil, said{"True", "WaitingForDependents", "1 of 2 dependents deleted, 50%. Thing/b since T: held by f."}},
		{"The list is unknown.", nil, errors.New("boom"), said{"True", "WaitingForDependents", "Some dependents may be unknown: cannot be read."}},
		{"None is listed any more.", nil, nil, said{"True", "DeletionRequested", "2 of 2 dependents deleted, 100%. Deletion was requested."}},
	}
	for _, s := range steps {
		list, err = s.list, s.err
		pass(t, r, o)
		wants(t, s.reason, "", s.want, c.says(t, o, reconciler.TypeDeleting))
	}
}

// Dependents are read once a reconcile, whichever reconciler writes status, and however often.
func TestReportCosts(t *testing.T) {
	for name, inner := range map[string]func(c client.Client) reconcile.Reconciler{
		"Silent": reader(),
		"Writing": func(c client.Client) reconcile.Reconciler {
			return crossplane.NewCompositeReconciler(c, composites, composite.SchemaLegacy)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := of(things, "", "a", ownedBy(xr()), dying, held("f")), of(things, "", "b", ownedBy(xr()), dying, held("f"))
			o := xr(a, b)
			c := newCluster(a, b, o)
			r := reconciler.New(c, composites, inner, reconciler.WithDependents(reconciler.ComposedResources()), reconciler.WithReportInterval(time.Minute), reconciler.WithoutWait())

			// Another client writes in between.
			conflicts := 2
			c.fail = func(verb string, _ client.Object, after bool) error {
				if verb == "status" && !after && name == "Silent" && conflicts > 0 {
					conflicts--
					c.change(t, o, annotated("n", fmt.Sprint(conflicts)))
				}
				return nil
			}
			for i := range 2 {
				c.api.Forget()
				if result, n := pass(t, r, o), c.count("get Thing"); n != 2 || result.RequeueAfter != time.Minute {
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
	dependents := reconciler.WithDependents(reconciler.ComposedResources())
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
		"ServerAhead":    {reason: "Neither is it if there is no deadline, and the deletion seems to be to come.", ahead: hour},
		"Deadline":       {reason: "A deadline is not missed.", inner: reconcile.Result{Priority: &five}, opts: []reconciler.Option{deadline(hour)}, want: reconcile.Result{RequeueAfter: rest, Priority: &five}},
		"DeadlinePassed": {reason: "A deadline that has passed asks for nothing.", opts: []reconciler.Option{deadline(time.Second)}},
		"Dependents":     {reason: "Dependents are looked at again.", opts: []reconciler.Option{dependents}, want: reconcile.Result{RequeueAfter: 10 * time.Second}},
		"Both":           {reason: "What comes first counts.", opts: []reconciler.Option{dependents, deadline(time.Minute + time.Second)}, want: reconcile.Result{RequeueAfter: time.Second}},
		"Error":          {reason: "An error is kept.", err: boom, opts: []reconciler.Option{deadline(hour)}},
		"TerminalError": {
			reason: "controller-runtime ignores a result that comes with an error, and doesn't retry this one.",
			err:    reconcile.TerminalError(boom), opts: []reconciler.Option{deadline(hour)}, want: reconcile.Result{RequeueAfter: rest}, logged: true,
		},
		"TerminalErrorAlone": {reason: "Where no report needs another reconcile it is returned.", inner: reconcile.Result{Priority: &five}, err: reconcile.TerminalError(boom), want: reconcile.Result{Priority: &five}},
		"Conflict":           {reason: "Nothing was asked for.", conflict: true, opts: []reconciler.Option{dependents}, want: reconcile.Result{Requeue: true}},
		"ConflictAndError":   {reason: "An error counts more than a conflict of ours, and leaves the result as it is.", inner: reconcile.Result{Priority: &five}, err: boom, conflict: true, opts: []reconciler.Option{dependents}, want: reconcile.Result{Priority: &five}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := of(things, "", "a", ownedBy(xr()), dying, held("f"))
			o := xr(dep)
			c := newCluster(o, dep)
			r := newRig(t, c, o, tc.opts...)
			r.now = o.GetDeletionTimestamp().Add(time.Minute - tc.ahead)
			r.inner = func(context.Context, client.Client, *composite.Unstructured) (reconcile.Result, error) {
				if tc.conflict {
					// From here on another client always writes first.
					c.fail = refuses("status", kerrors.NewConflict(schema.GroupResource{}, "x", errors.New("the object has been modified")))
				}
				return tc.inner, tc.err
			}
			logged := 0
			ctx := log.IntoContext(context.Background(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
			got, err := r.Reconcile(ctx, requestFor(o))
			if tc.logged && (err != nil || logged != 1) || !tc.logged && (!errors.Is(err, tc.err) || logged > 0) {
				t.Errorf("\n%s\nerror: want %v, got %v, and %d lines of log", tc.reason, tc.err, err, logged)
			}
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

// An object without conditions, or with conditions of another shape, is left alone.
func TestOddConditions(t *testing.T) {
	odd := func(status map[string]any) *unstructured.Unstructured {
		o := of(ordinaries, "", "o", held("f"), dying, func(*unstructured.Unstructured) {})
		if status != nil {
			with(at("status"), status)(o)
		}
		return o
	}
	for name, o := range map[string]client.Object{
		"None": odd(nil), "Odd": odd(map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, nil}}), "Typed": anOrdinary(withoutConditions{}),
	} {
		t.Run(name, func(t *testing.T) {
			c, n := serveOrdinary(o), 0
			before := c.read(t, is()).Object
			r := reconciler.New(c, ordinaries, reads(is, func(context.Context, client.Client, *unstructured.Unstructured) (reconcile.Result, error) {
				n++
				return reconcile.Result{}, nil
			}), reconciler.WithDependents(reconciler.CompositeOfClaim(composites)), reconciler.WithDeletionDeadline(time.Second, nil))
			passes(t, 2, r, o)
			if diff := cmp.Diff(before, c.read(t, is()).Object); diff != "" || n != 2 {
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
				o := of(things, "", fmt.Sprintf("t%d", i), ownedBy(xr()), dying, held("f"), being(reconciler.Deleting(time.Now(), reconciler.ReasonExternalDeleteRequested, "The external resource is being deleted.")...))
				read.objects[client.ObjectKeyFromObject(o)] = o
				refs = append(refs, ref(o))
			}
			o := of(composites, "", "x", with(at("spec", "crossplane", "resourceRefs"), refs), held("f"), dying, being(xpv2.Available()))
			c := newCluster(o)
			read.Client = c
			r := reconciler.New(read, composites, reader(), reconciler.WithDependents(reconciler.ComposedResources()))
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

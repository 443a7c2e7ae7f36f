package managed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// observedTwice returns an outside in which something happens at the second Observe.
func observedTwice(then func(x *outside, mg resource.Managed) error) *outside {
	x := &outside{outdated: true}
	x.before = func(what string, mg resource.Managed) error {
		var err error
		if what == "observe" && x.observes == 2 {
			err = then(x, mg)
		}
		if x.there {
			bucketOf(mg).Spec.ForProvider.Region = "eu"
		}
		return err
	}
	return x
}

func appears(x *outside, _ resource.Managed) error {
	x.there = true
	return nil
}

func TestPreCreateObserve(t *testing.T) {
	type want struct {
		Observes, Creates, Updates int
		Name, Refused, Region      string
		Succeeded, Failed          bool
		Synced                     string
		Adopted                    int
	}
	cases := map[string]struct {
		reason string
		there  bool
		then   func(x *outside, mg resource.Managed) error // What the second Observe meets: that it appears, unless it is set.
		adopts bool
		async  bool
		also   []ReconcilerOption
		object *v1alpha1.Bucket
		want   want
	}{
		"Absent":        {reason: "What is still absent is created.", then: func(*outside, resource.Managed) error { return nil }, want: want{Observes: 2, Creates: 1, Name: "mine", Succeeded: true}},
		"Refuse":        {reason: "What came up is not touched, and the condition says what to do.", want: want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "remove the annotation " + AnnotationKeyCreateRefused}},
		"RefuseUnnamed": {reason: "Nor is it if it has no name by which to tell it from others.", object: bucket(), want: want{Observes: 2, Refused: "uid-1", Failed: true, Synced: "was not created"}},
		"RefuseWithoutPersistence": {
			reason: "It is remembered if annotations are stored by upstream.",
			also:   []ReconcilerOption{WithoutExternalNamePersistence()},
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"RefuseAsync": {
			reason: "An asynchronous create that was refused has not succeeded, although what it was to make exists.",
			then:   func(x *outside, mg resource.Managed) error { x.outdated = false; return appears(x, mg) },
			async:  true,
			want:   want{Observes: 2, Name: "mine", Refused: "mine", Failed: true, Synced: "was not created"},
		},
		"Adopt": {reason: "What came up is taken for what would have been created.", adopts: true, want: want{Observes: 2, Name: "mine", Succeeded: true, Adopted: 1}},
		"AdoptWithName": {
			reason: "Its name is stored if only now it is known.",
			then: func(x *outside, mg resource.Managed) error {
				meta.SetExternalName(mg, "id-1")
				return appears(x, mg)
			},
			adopts: true,
			object: bucket(),
			want:   want{Observes: 2, Name: "id-1", Succeeded: true, Adopted: 1},
		},
		"ObserveFails": {
			reason: "Without knowing, nothing is created, and that is known.",
			then:   func(*outside, resource.Managed) error { return errors.New("boom") },
			want:   want{Observes: 2, Name: "mine", Failed: true, Synced: "once more before it is created: boom"},
		},
		"Exists": {
			reason: "An existing external resource is not observed twice. As with upstream, the finalizer's write stores what Observe changed.",
			there:  true,
			want:   want{Observes: 1, Updates: 1, Name: "mine", Region: "eu"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.object == nil {
					tc.object = bucket(named("mine"))
				}
				if tc.then == nil {
					tc.then = appears
				}
				a, rec, x := testkit.NewAPI(tc.object), &testkit.Said{}, observedTwice(tc.then)
				x.there = tc.there
				var opts []PreCreateObserveOption
				if tc.adopts {
					opts = append(opts, WithAdoption())
				}
				if tc.async {
					tc.also = append(tc.also, WithAsync(newTracker(a)))
				}
				run(t, newBucketReconciler(a, append(tc.also, WithRecorder(rec), WithPreCreateObserve(opts...), connects(x.client()))...), "b")
				synctest.Wait()
				b := get(t, a)
				got := want{
					Observes: x.observes, Creates: x.did("create"), Updates: x.did("update"),
					Name: meta.GetExternalName(b), Refused: b.GetAnnotations()[AnnotationKeyCreateRefused], Region: b.Spec.ForProvider.Region,
					Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(), Failed: !meta.GetExternalCreateFailed(b).IsZero(),
					Adopted: len(rec.Events(reasonAdopted)), Synced: b.GetCondition(xpv2.TypeSynced).Message,
				}
				if tc.want.Synced != "" && strings.Contains(got.Synced, tc.want.Synced) {
					got.Synced = tc.want.Synced
				}
				wants(t, tc.reason, "", tc.want, got)
			})
		})
	}
}

// Only the create itself can leave an unknown outcome, or a name that is kept for it.
func TestPreCreateObserveEndsEarly(t *testing.T) {
	cases := map[string]struct {
		then    func(*outside, resource.Managed) error
		finding asyncstate.Finding
		holder  string
	}{
		"TimesOut": {then: func(*outside, resource.Managed) error { return context.DeadlineExceeded }},
		"Panics":   {then: func(*outside, resource.Managed) error { panic("oh") }, finding: asyncstate.Absent(), holder: "b"},
	}
	for reason, tc := range cases {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, x := testkit.NewAPI(of("b")), observedTwice(tc.then)
				r := reserving(a, x, WithPreCreateObserve(), WithCreateResolver(&seeker{finding: tc.finding}))
				try(r, 1)
				b := get(t, a)
				wants(t, reason, "creates, incomplete", []any{0, false}, []any{x.did("create"), meta.ExternalCreateIncomplete(b)})
				holds(t, reason, a, tc.holder)
				time.Sleep(time.Second)
				run(t, r, "b")
				wants(t, reason, "creates", 1, x.did("create"))
			})
		})
	}
}

// What was refused stays another's, with the option that refused it, and without any.
func TestRefusedStaysRefused(t *testing.T) {
	refused := annotated(AnnotationKeyCreateRefused, "id-1")
	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		opts   []ReconcilerOption
		absent bool  // The external resource is, in the first reconcile only, unless it is created.
		fails  error // What a create ends in, or Observe of what exists.
		acts   []string
		gone   bool
		synced corev1.ConditionStatus
		said   string // What is said to be refused, in the end.
	}{
		"Interrupted": {
			reason: "It was created once, and when it was to be created again the process ended between the refusal and the result of the create.",
			mods: []func(b *v1alpha1.Bucket){
				refused, annotated(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z"), annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-03T03:04:05Z"),
			},
			opts:   []ReconcilerOption{WithDeterministicExternalName(true)},
			synced: corev1.ConditionFalse,
			said:   "id-1",
		},
		"Deleting":          {reason: "It is removed without the external resource.", mods: []func(b *v1alpha1.Bucket){refused, deleting}, gone: true, synced: corev1.ConditionUnknown},
		"Managed":           {reason: "It is not updated.", mods: []func(b *v1alpha1.Bucket){refused}, synced: corev1.ConditionFalse, said: "id-1"},
		"Adopted":           {reason: "To remove the annotation is to adopt the external resource.", acts: []string{"update b"}, synced: corev1.ConditionTrue},
		"AdoptedAndDeleted": {reason: "Then it is deleted, too.", mods: []func(b *v1alpha1.Bucket){deleting}, acts: []string{"delete b"}, synced: corev1.ConditionTrue},
		"OfAnotherName":     {reason: "The refusal is of one external resource.", mods: []func(b *v1alpha1.Bucket){annotated(AnnotationKeyCreateRefused, "id-2")}, acts: []string{"update b"}, synced: corev1.ConditionTrue, said: "id-2"},
		"WentAway":          {reason: "When what stood in the way is gone, ours is created, and is ours.", mods: []func(b *v1alpha1.Bucket){refused}, absent: true, acts: []string{"create b", "update b"}, synced: corev1.ConditionTrue},
		"ObserveFails":      {reason: "What an Observe returns besides an error says nothing.", mods: []func(b *v1alpha1.Bucket){refused, deleting}, fails: errors.New("boom"), synced: corev1.ConditionFalse, said: "id-1"},
		"Flaky":             {reason: "One wrong not-found does not make it ours.", mods: []func(b *v1alpha1.Bucket){refused}, absent: true, fails: errors.New("already exists"), acts: []string{"create b"}, synced: corev1.ConditionFalse, said: "id-1"},
	}
	for name, tc := range cases {
		for with, opts := range map[string][]ReconcilerOption{
			"Nothing": nil, "PreCreateObserve": {WithPreCreateObserve()}, "Confirmation": {WithPreCreateObserve(), WithDeletionConfirmation(3, interval)},
		} {
			t.Run(name+"/"+with, func(t *testing.T) {
				a, x := testkit.NewAPI(bucket(append(tc.mods, named("id-1"), finalizers(FinalizerName))...)), &outside{there: !tc.absent, outdated: true}
				x.on(map[bool]string{true: "create", false: "observe"}[tc.absent], func(*v1alpha1.Bucket) error { return tc.fails })
				r := newBucketReconciler(a, append(append(tc.opts, connects(x.client())), opts...)...)
				run(t, r, "b")
				if tc.absent {
					x.there = true
					run(t, r, "b")
				}
				b := get(t, a)
				wants(t, tc.reason, "calls, gone, Synced, refused", []any{tc.acts, tc.gone, tc.synced, tc.said}, []any{x.acts, b.GetName() == "", b.GetCondition(xpv2.TypeSynced).Status, b.GetAnnotations()[AnnotationKeyCreateRefused]})
			})
		}
	}
}

// What was refused stays another's although a webhook refuses the annotation that says so.
func TestRefused_AnnotationIsRefused(t *testing.T) {
	// The annotation is empty once what was refused before has gone.
	a, x := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), annotated(AnnotationKeyCreateRefused, ""))), &outside{outdated: true}
	x.on("observe", func(*v1alpha1.Bucket) error {
		x.there = x.observes > 1
		return nil
	})
	a.Before = failing(func(r testkit.Request) bool {
		return strings.Contains(r.Body, AnnotationKeyCreateRefused+`":"id`) || isWrite(r) && r.Object.GetAnnotations()[AnnotationKeyCreateRefused] != ""
	}, kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("no such annotation")))
	r := newBucketReconciler(a, connects(x.client()), WithPreCreateObserve(), WithDeterministicExternalName(true))
	try(r, 3)
	wants(t, "", "calls", 0, len(x.acts))
	edit(t, a, "b", named("id-2"))
	try(r, 1)
	wants(t, "The refusal is of one external resource.", "calls", []string{"update b"}, x.acts)
	edit(t, a, "b", named("id-1"))
	remove(t, a, "b")
	try(r, 1)
	wants(t, "It is removed without the external resource.", "calls, name", []any{1, ""}, []any{len(x.acts), get(t, a).GetName()})
}

// A provider that writes its managed resource itself in Observe, or reads it again.
func TestPreCreateObserveFollows(t *testing.T) {
	theirs := []func(b *v1alpha1.Bucket){annotated(addedKey, "v"), finalizers(FinalizerName, "other/f")}
	cases := map[string]struct {
		reason string
		then   func(a *testkit.API, x *outside, b *v1alpha1.Bucket) error
		want   []string
		kept   bool // What another writer has added.
	}{
		"WritesStatus": {
			reason: "Status that changes each time (a Date header) keeps nothing from being created.",
			then: func(a *testkit.API, x *outside, b *v1alpha1.Bucket) error {
				b.Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(x.observes)}
				return a.Server().Status().Update(t.Context(), b)
			},
			want: []string{"", FinalizerName},
		},
		"WritesAnnotation": {
			reason: "An annotation that the provider itself changes in each Observe (a last-checked time) should keep nothing from being created.",
			then: func(a *testkit.API, x *outside, b *v1alpha1.Bucket) error {
				annotated(addedKey, fmt.Sprint(x.observes))(b)
				return a.Server().Update(t.Context(), b)
			},
			want: []string{"5", FinalizerName},
		},
		"WritesAnnotationInPatch": {
			reason: "A patch of it should not either, and nothing that another writer has added meanwhile is lost.",
			then: func(a *testkit.API, x *outside, b *v1alpha1.Bucket) error {
				if x.observes == 2 {
					edit(t, a, "b", func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"team": "blue"}) }, annotated("theirs", "v"))
				}
				return a.Server().Patch(t.Context(), b, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, addedKey, x.observes)))
			},
			want: []string{"5", FinalizerName}, kept: true,
		},
		"ReadsAgain": {
			reason: "What another writer has added meanwhile is not taken away.",
			then: func(a *testkit.API, x *outside, b *v1alpha1.Bucket) error {
				if x.observes == 2 {
					edit(t, a, "b", theirs...)
				}
				return a.Server().Get(t.Context(), request().NamespacedName, b)
			},
			want: []string{"v", FinalizerName, "other/f"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, x := testkit.NewAPI(bucket(named("id-1"))), &outside{}
				x.on("observe", func(b *v1alpha1.Bucket) error { return tc.then(a, x, b) })
				r := newBucketReconciler(a, WithPreCreateObserve(), connects(x.client()))
				try(r, 2)
				if x.did("create") == 0 {
					time.Sleep(time.Second) // Another create begins in another second.
				}
				try(r, 2)
				b := get(t, a)
				wants(t, tc.reason, "another writer's label and annotation", []bool{tc.kept, tc.kept}, []bool{b.GetLabels()["team"] != "", b.GetAnnotations()["theirs"] != ""})
				wants(t, tc.reason, "creates, annotation and finalizers", []any{1, tc.want}, []any{x.did("create"), append([]string{b.GetAnnotations()[addedKey]}, b.GetFinalizers()...)})
			})
		})
	}
}

// A refusal is of another's external resource, not of what a create of its own makes.
func TestRefused_AsyncCreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, x := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), annotated(AnnotationKeyCreateRefused, "id-1"))), &outside{}
		x.on("create", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
		r := newBucketReconciler(a, WithAsync(newTracker(a)), connects(x.client()))
		run(t, r, "b")
		wants(t, "The create may still fail.", "refused", "id-1", get(t, a).GetAnnotations()[AnnotationKeyCreateRefused])
		remove(t, a, "b")
		for range 5 {
			run(t, r, "b")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		wants(t, "", "object, acts, there", []any{"", []string{"create b", "delete b"}, false}, []any{get(t, a).GetName(), x.acts, x.there})
	})
}

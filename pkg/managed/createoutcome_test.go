package managed

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// However annotations are stored, and however creates end: what is in memory when a create
// returns is stored in the same reconcile, and creates that follow each other within a second
// are told apart.
func TestCriticalAnnotations(t *testing.T) {
	merged, boom := 0, errors.New("boom")
	updaters := map[string]func(a *testkit.API) ReconcilerOption{
		"Default":            func(*testkit.API) ReconcilerOption { return WithInitializers() },
		"WithoutPersistence": func(*testkit.API) ReconcilerOption { return WithoutExternalNamePersistence() },
		"Upstream": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
		},
		"Custom": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.CriticalAnnotationUpdateFn(func(ctx context.Context, o client.Object) error {
				merged++
				data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": o.GetAnnotations()}})
				must(t, err)
				return a.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, data))
			}))
		},
	}
	type want struct {
		Creates                       int
		Incomplete, Succeeded, Failed bool
	}
	cases := map[string]struct {
		reason string
		ends   func(n int) error // What the n-th create ends in.
		tries  int
		want   want
	}{
		"Succeeds":       {reason: "A create that succeeds has.", ends: func(int) error { return nil }, tries: 1, want: want{Creates: 1, Succeeded: true}},
		"Fails":          {reason: "One that fails has not.", ends: func(int) error { return boom }, tries: 1, want: want{Creates: 1, Failed: true}},
		"OutcomeUnknown": {reason: "A create without a result may have set the external name.", ends: func(int) error { return errors.Wrap(asyncstate.ErrOutcomeUnknown, "no answer") }, tries: 1, want: want{Creates: 1, Incomplete: true}},
		"FailsTwice": {
			reason: "A create that ends in the second in which it was announced has ended.", tries: 4, want: want{Creates: 3, Succeeded: true, Failed: true},
			ends: func(n int) error {
				if n == 3 {
					return nil
				}
				return boom
			},
		},
		"ThirdIsCutOff": {
			reason: "The third create has no result, whatever the first two ended in.", tries: 5, want: want{Creates: 3, Incomplete: true, Failed: true},
			ends: func(n int) error {
				if n == 3 {
					panic("the process died")
				}
				return boom
			},
		},
	}
	for updaterName, updater := range updaters {
		for name, tc := range cases {
			t.Run(updaterName+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, x := testkit.NewAPI(bucket(annotated(keptKey, "kept"))), &outside{}
					x.on("create", func(b *v1alpha1.Bucket) error {
						err := tc.ends(x.did("create"))
						named("id-1")(b)
						b.Status.AtProvider.ID = "id-1"
						return err
					})
					r := newBucketReconciler(a, updater(a), connects(x.client()))
					for range tc.tries {
						try(r, 1)
						time.Sleep(time.Millisecond)
					}
					b := get(t, a)
					got := want{
						Creates: x.did("create"), Incomplete: meta.ExternalCreateIncomplete(b),
						Succeeded: !meta.GetExternalCreateSucceeded(b).IsZero(), Failed: !meta.GetExternalCreateFailed(b).IsZero(),
					}
					wants(t, tc.reason, "", tc.want, got)
					wants(t, tc.reason, "name, status, others' annotation", []string{"id-1", "id-1", "kept"}, []string{meta.GetExternalName(b), b.Status.AtProvider.ID, b.GetAnnotations()[keptKey]})
				})
			})
		}
	}
	if merged == 0 {
		t.Error("The provider's own updater was not called.")
	}
}

// A reconcile that announces no create leaves alone what is said of the last one.
func TestNoAnnouncementWithoutCreate(t *testing.T) {
	for reason, actions := range map[string][]xpv2.ManagementAction{
		"The policies allow an update, and no create.": {xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize},
		"The policies allow neither.":                  {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	} {
		t.Run(reason, func(t *testing.T) {
			created := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			a := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), policies(actions...),
				annotated(meta.AnnotationKeyExternalCreatePending, created), annotated(meta.AnnotationKeyExternalCreateSucceeded, created)))
			x := (&outside{late: true}).on("observe", func(b *v1alpha1.Bucket) error { b.Spec.ForProvider.Region = "eu"; return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, reason, "external-create-succeeded, incomplete", []any{created, false},
				[]any{b.GetAnnotations()[meta.AnnotationKeyExternalCreateSucceeded], meta.ExternalCreateIncomplete(b)})
		})
	}
}

// The default stores nothing but annotations, in patches; unless Create changed
// more than that.
func TestDefaultCriticalAnnotations(t *testing.T) {
	cases := map[string]struct {
		reason  string
		create  func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket)
		patches int
		updates int
		region  string
	}{
		"Nothing": {reason: "A result is stored by a patch.", create: func(*testing.T, *testkit.API, *v1alpha1.Bucket) {}, patches: 1, updates: 2},
		"Name":    {reason: "So is a name.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { named("id-1")(b) }, patches: 2, updates: 2},
		"SpecToo": {reason: "As with upstream, other changes are stored too.", create: func(_ *testing.T, _ *testkit.API, b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }, patches: 1, updates: 3, region: "eu"},
		"LostARace": {
			reason: "As with upstream, a conflict drops other changes.",
			create: func(t *testing.T, a *testkit.API, b *v1alpha1.Bucket) {
				b.Spec.ForProvider.Region = "eu"
				edit(t, a, "b", annotated("a", "b"))
			},
			patches: 2,
			updates: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket())
			x := (&outside{}).on("create", func(b *v1alpha1.Bucket) error { tc.create(t, a, b); return nil })
			run(t, newBucketReconciler(a, connects(x.client())), "b")
			b := get(t, a)
			wants(t, tc.reason, "patches, updates, region, incomplete", []any{tc.patches, tc.updates, tc.region, false}, []any{a.Count(testkit.Patch), a.Count(testkit.Update), b.Spec.ForProvider.Region, meta.ExternalCreateIncomplete(b)})
		})
	}
}

// An object that no reconcile is about goes to the updater that writes all of it.
func TestCriticalAnnotationsOfUntracked(t *testing.T) {
	boom := errors.New("boom")
	u := &criticalAnnotations{whole: upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error { return boom })}
	if err := u.UpdateCriticalAnnotations(t.Context(), bucket()); !errors.Is(err, boom) {
		t.Errorf("UpdateCriticalAnnotations(...): want %v, got %v", boom, err)
	}
}

// A create that failed says nothing of the one that another process has announced since.
func TestFailedCreateSaysNothingOfAnother(t *testing.T) {
	a, there := testkit.NewAPI(bucket()), time.Now().Add(-time.Second).Format(time.RFC3339)
	x := (&outside{}).on("create", func(*v1alpha1.Bucket) error {
		edit(t, a, "b", annotated(meta.AnnotationKeyExternalCreatePending, there))
		return errors.New("boom")
	})
	run(t, newBucketReconciler(a, connects(x.client())), "b")
	b := get(t, a)
	wants(t, "", "incomplete, announced", []any{true, there}, []any{meta.ExternalCreateIncomplete(b), b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]})
}

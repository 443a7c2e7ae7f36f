package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Nothing is created, updated or deleted for a managed resource that is known to have
// changed.
func TestFreshness(t *testing.T) {
	cases := map[string]struct {
		reason string
		then   func(t *testing.T, a *testkit.API, c *call)
		want   bool
	}{
		"Unchanged": {
			reason: "Nothing is known against it.",
			want:   true,
		},
		"ChangedUnnoticed": {
			reason: "The reconciler can't know of a change that it has not read.",
			then: func(t *testing.T, a *testkit.API, _ *call) {
				edit(t, a, "b", annotated("k", "v"))
			},
			want: true,
		},
		"Noticed": {
			reason: "A conflict in an earlier write has shown another state.",
			then: func(t *testing.T, a *testkit.API, c *call) {
				edit(t, a, "b", annotated(meta.AnnotationKeyReconciliationPaused, "true"))

				must(t, c.WriteConditions(context.Background(), c.mg, func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} }))
			},
		},
		"Gone": {
			reason: "What does not exist may have been handed to another control plane.",
			then: func(t *testing.T, a *testkit.API, c *call) {
				must(t, a.Server().Delete(context.Background(), get(t, a)))

				must(t, c.WriteConditions(context.Background(), c.mg, func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} }))
			},
		},
		"WrittenByTheProvider": {
			reason: "A provider that writes the managed resource itself has the newest one in memory.",
			then: func(t *testing.T, a *testkit.API, c *call) {
				meta.AddAnnotations(c.mg, map[string]string{"k": "v"})

				must(t, a.Server().Update(context.Background(), c.mg))
			},
			want: true,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, called := testkit.NewAPI(bucket()), []string{}

			alone(t, a, newFreshness, &recorder{}, calls{
				observe: func(c *call) (observation, error) {
					if tc.then != nil {
						tc.then(t, a, c)
					}

					return observation{}, nil
				},
				create: func(*call) (creation, error) { called = append(called, "create"); return creation{}, nil },
				update: func(*call) (ExternalUpdate, error) { called = append(called, "update"); return ExternalUpdate{}, nil },
				delete: func(*call) (deletion, error) { called = append(called, "delete"); return deletion{}, nil },
			}, func(ctx context.Context, e external, c *call) {
				if _, err := e.Observe(ctx, c); err != nil {
					t.Fatal(err)
				}

				_, cerr := e.Create(ctx, c)
				_, uerr := e.Update(ctx, c)
				_, derr := e.Delete(ctx, c)

				for _, err := range []error{cerr, uerr, derr} {
					if (err == nil) != tc.want || err != nil && !kerrors.IsConflict(err) {
						t.Errorf("\n%s\nwant a conflict unless it is called (%t), got %v", tc.reason, tc.want, err)
					}
				}
			})

			want := []string{}
			if tc.want {
				want = []string{"create", "update", "delete"}
			}

			if diff := cmp.Diff(want, called); diff != "" {
				t.Errorf("\n%s\ncalls: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// What a conflict has shown right before an external call stops that call: the managed
// resource was paused, or its policies changed.
func TestStaleManagedResourceIsLeftAlone(t *testing.T) {
	changes := map[string]func(b *v1alpha1.Bucket){
		"Paused":   annotated(meta.AnnotationKeyReconciliationPaused, "true"),
		"Policies": policies(xpv2.ManagementActionObserve),
		"Renamed":  named("another"),
	}

	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		fns    func(then func()) upstream.ExternalClientFns
	}{
		"Delete": {
			reason: "The report that precedes Delete meets the conflict.",
			object: bucket(named("id-1"), deleting, finalizers(FinalizerName)),
			fns: func(then func()) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					then()
					return exists(ctx, mg)
				}}
			},
		},
		"Update": {
			reason: "Storing what Observe learned meets the conflict.",
			object: bucket(named("id-1"), finalizers(FinalizerName)),
			fns: func(then func()) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					meta.AddAnnotations(mg, map[string]string{"learned": "now"})
					then()

					return ExternalObservation{ResourceExists: true}, nil
				}}
			},
		},
	}

	for name, tc := range cases {
		for cname, modify := range changes {
			t.Run(name+"/"+cname, func(t *testing.T) {
				b, _ := tc.object.DeepCopyObject().(*v1alpha1.Bucket)
				a, acted, once := testkit.NewAPI(b), 0, false

				fns := tc.fns(func() {
					if !once {
						once = true
						edit(t, a, "b", modify)
					}
				})
				fns.UpdateFn = counts[ExternalUpdate](&acted)
				fns.DeleteFn = counts[ExternalDelete](&acted)

				result, err := newBucketReconciler(a, connects(fns)).Reconcile(context.Background(), request())
				//nolint:staticcheck // Upstream asks for a requeue this way.
				if err != nil || !result.Requeue {
					t.Errorf("\n%s\nReconcile: want a requeue, got %+v, %v", tc.reason, result, err)
				}

				if acted > 0 {
					t.Errorf("\n%s\nthe external resource was changed", tc.reason)
				}
			})
		}
	}
}

// A provider that writes the managed resource in Connect.
func TestWrittenInConnect(t *testing.T) {
	for name, mods := range map[string][]func(*v1alpha1.Bucket){
		"Update": {named("id-1"), finalizers(FinalizerName)},
		"Delete": {named("id-1"), finalizers(FinalizerName), deleting},
	} {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(mods...))
			n, acts := 0, 0

			fns := clientOf(upstream.ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
				UpdateFn:  counts[ExternalUpdate](&acts),
				DeleteFn:  counts[ExternalDelete](&acts),
			})

			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				n++
				bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

				return &fns, a.Server().Status().Update(ctx, mg)
			})))

			for range 10 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			if acts == 0 {
				t.Errorf("%ss in 10 reconciles: none; Synced: %s", name, get(t, a).GetCondition(xpv2.TypeSynced).Message)
			}
		})
	}
}

// The session knows that what it read is older than its own last write, which met
// the pause.
func TestKnownStaleRead(t *testing.T) {
	for name, o := range map[string]*v1alpha1.Bucket{
		"Update": bucket(named("id-1"), finalizers(FinalizerName)),
		"Delete": bucket(named("id-1"), finalizers(FinalizerName), deleting),
	} {
		t.Run(name, func(t *testing.T) {
			a, acted, n := testkit.NewAPI(o), 0, 0

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					n++

					switch n {
					case 1:
						// Reported from here on.
						return ExternalObservation{ResourceExists: true}, nil
					case 2:
						meta.AddAnnotations(mg, map[string]string{"learned": "now"})
						edit(t, a, "b", annotated(meta.AnnotationKeyReconciliationPaused, "true"))
					}

					return ExternalObservation{ResourceExists: true}, nil
				},
				UpdateFn: counts[ExternalUpdate](&acted),
				DeleteFn: counts[ExternalDelete](&acted),
			}))

			run(t, r, "b")
			acted = 0

			must(t, a.Freeze(context.Background(), get(t, a)))

			run(t, r, "b") // Meets the pause, and writes.
			run(t, r, "b") // The cache still has the state before.

			if acted > 0 {
				t.Errorf("%s was called %d times for what is paused, and known to be read from before our own last write", name, acted)
			}
		})
	}
}

// What a conflict of ours looks like to a user.
func TestConflictIsNoFailure(t *testing.T) {
	a, rec, once := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName), deleting)), &recorder{}, false

	r := newBucketReconciler(a, WithRecorder(rec), connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		if !once {
			once = true
			edit(t, a, "b", annotated("k", "v"))
		}

		return exists(ctx, mg)
	}}))

	run(t, r, "b")

	if es := rec.of("CannotDeleteExternalResource"); len(es) > 0 {
		t.Errorf("a warning that the external resource could not be deleted, although no delete was tried: %s", es[0].Message)
	}
}

func patchLabel(ctx context.Context, a *testkit.API, o client.Object) error {
	return a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)))
}

// The answer to a write of the provider's shows that the managed resource is
// paused, or may not be changed any more.
func TestAnswerToProvidersWrite(t *testing.T) {
	objects := map[string]*v1alpha1.Bucket{
		"Create": bucket(named("id-1"), finalizers(FinalizerName)),
		"Update": bucket(named("id-1"), finalizers(FinalizerName)),
		"Delete": bucket(named("id-1"), finalizers(FinalizerName), deleting),
	}

	changes := map[string]func(b *v1alpha1.Bucket){
		"Paused":     annotated(meta.AnnotationKeyReconciliationPaused, "true"),
		"Policies":   policies(xpv2.ManagementActionObserve),
		"NoPolicies": policies(),
		"Renamed":    named("another"),
	}

	for name, o := range objects {
		for cname, change := range changes {
			t.Run(name+"/"+cname, func(t *testing.T) {
				b, _ := o.DeepCopyObject().(*v1alpha1.Bucket)
				a, acted, once := testkit.NewAPI(b), 0, false

				r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
					ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						if !once {
							once = true
							edit(t, a, "b", change)
						}

						return ExternalObservation{ResourceExists: name != "Create"}, patchLabel(ctx, a, mg)
					},
					CreateFn: counts[ExternalCreation](&acted),
					UpdateFn: counts[ExternalUpdate](&acted),
					DeleteFn: counts[ExternalDelete](&acted),
				}))

				_, _ = r.Reconcile(context.Background(), request())

				if acted > 0 {
					t.Errorf("%s was called, although the managed resource in memory says otherwise", name)
				}
			})
		}
	}
}

// A legacy managed resource says in two fields whether it deletes.
func TestAnswerShowsDeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	meta.SetExternalName(d, "id-1")
	d.SetFinalizers([]string{FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})

	a, deleted := testkit.NewAPI(d), 0

	r := NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()), WithManagementPolicies(), WithInitializers(), connects(upstream.ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: true}, a.Server().Patch(ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)))
		},
		DeleteFn: counts[ExternalDelete](&deleted),
	}))

	_, _ = r.Reconcile(context.Background(), requestIn("", "d"))

	if deleted > 0 {
		t.Error("Delete was called, although the managed resource in memory orphans its external resource")
	}
}

// The finalizer stays as it is, too, until the next reconcile.
func TestAnswerKeepsFinalizer(t *testing.T) {
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		change func(b *v1alpha1.Bucket)
		want   []string
	}{
		"Add":    {reason: "None is added to what its policies pause.", object: bucket(named("id-1")), change: policies()},
		"Remove": {reason: "Another external resource was not found.", object: bucket(named("id-1"), finalizers(FinalizerName), deleting), change: named("another"), want: []string{FinalizerName}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					edit(t, a, "b", tc.change)
					return ExternalObservation{ResourceExists: !meta.WasDeleted(mg), ResourceUpToDate: true}, patchLabel(ctx, a, mg)
				},
			}))

			run(t, r, "b")

			if diff := cmp.Diff(tc.want, get(t, a).GetFinalizers()); diff != "" {
				t.Errorf("\n%s\nfinalizers: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An initializer's write shows other policies than those that upstream works with.
func TestAnswerToInitializersWrite(t *testing.T) {
	a, updated := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0

	r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
		ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
		UpdateFn:  counts[ExternalUpdate](&updated),
	}), WithInitializers(upstream.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
		edit(t, a, "b", policies())
		return patchLabel(ctx, a, mg)
	})))

	_, _ = r.Reconcile(context.Background(), request())

	if updated > 0 {
		t.Error("Update was called, although the managed resource in memory is paused by its policies")
	}
}

type patchingFinalizer struct{ a *testkit.API }

func (f patchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	return f.a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+FinalizerName+`"]}}`)))
}

func (f patchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// The answer to the patch of a finalizer of the provider's own shows the pause.
func TestAnswerToFinalizersWrite(t *testing.T) {
	a, created, once := testkit.NewAPI(bucket(named("id-1"))), 0, false

	r := newBucketReconciler(a, WithFinalizer(patchingFinalizer{a: a}), connects(upstream.ExternalClientFns{
		ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
			if !once {
				once = true
				edit(t, a, "b", annotated(meta.AnnotationKeyReconciliationPaused, "true"))
			}

			return ExternalObservation{}, nil
		},
		CreateFn: counts[ExternalCreation](&created),
	}))

	_, _ = r.Reconcile(context.Background(), request())

	if created > 0 {
		t.Error("Create was called, although the answer to adding the finalizer said that the managed resource is paused")
	}
}

// answer patches a managed resource, and decodes the answer as a client of an API server
// does: into the memory of the object that it was given.
func answer(ctx context.Context, t *testing.T, a *testkit.API, mg resource.Managed) {
	t.Helper()

	o, _ := mg.DeepCopyObject().(client.Object)
	must(t, patchLabel(ctx, a, o))

	data, err := json.Marshal(o)
	must(t, err)
	must(t, json.Unmarshal(data, mg))
}

// The answer is decoded over the policies that were read.
func TestAnswerIsDecodedInPlace(t *testing.T) {
	a, updated := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0

	r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			edit(t, a, "b", policies(xpv2.ManagementActionObserve))
			answer(ctx, t, a, mg)

			return ExternalObservation{ResourceExists: true}, nil
		},
		UpdateFn: counts[ExternalUpdate](&updated),
	}))

	run(t, r, "b")

	if updated > 0 {
		t.Error("Update was called, although the managed resource in memory may only be observed")
	}
}

// What resolves references writes them without a resource version. The answer may show
// what upstream has not decided from.
func TestAnswerToResolversWrite(t *testing.T) {
	pending := annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")

	cases := map[string]struct {
		reason string
		exists bool
		change func(t *testing.T, a *testkit.API)
	}{
		"Create": {reason: "It may only be observed.", change: func(t *testing.T, a *testkit.API) {
			edit(t, a, "b", policies(xpv2.ManagementActionObserve))
		}},
		"Update": {reason: "It may be created and deleted only.", exists: true, change: func(t *testing.T, a *testkit.API) {
			edit(t, a, "b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionDelete))
		}},
		"Delete": {reason: "It is deleted without its external resource.", exists: true, change: func(t *testing.T, a *testkit.API) {
			edit(t, a, "b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate))
			remove(t, a, "b")
		}},
		"Announced": {reason: "Another process creates its external resource.", change: func(t *testing.T, a *testkit.API) {
			edit(t, a, "b", pending)
		}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, acted := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0

			r := newBucketReconciler(a, WithReferenceResolver(upstream.ReferenceResolverFn(func(ctx context.Context, mg resource.Managed) error {
				tc.change(t, a)
				answer(ctx, t, a, mg)

				return nil
			})), connects(upstream.ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: tc.exists}, nil),
				CreateFn:  counts[ExternalCreation](&acted),
				UpdateFn:  counts[ExternalUpdate](&acted),
				DeleteFn:  counts[ExternalDelete](&acted),
			}))

			run(t, r, "b")

			if acted > 0 {
				t.Errorf("\n%s\nthe external resource was changed", tc.reason)
			}
		})
	}
}

// Observe's own write shows that the finalizer has to stay, or that another process
// creates the external resource.
func TestAnswerToObservesWrite(t *testing.T) {
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		change func(b *v1alpha1.Bucket)
	}{
		"Paused":    {reason: "What is paused keeps its finalizer.", object: bucket(named("id-1"), finalizers(FinalizerName), deleting), change: annotated(meta.AnnotationKeyReconciliationPaused, "true")},
		"Announced": {reason: "Nothing is created twice.", object: bucket(finalizers(FinalizerName)), change: annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, created := testkit.NewAPI(tc.object), 0

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					edit(t, a, "b", tc.change)
					answer(ctx, t, a, mg)

					return ExternalObservation{}, nil
				},
				CreateFn: counts[ExternalCreation](&created),
			}))

			run(t, r, "b")

			if diff := cmp.Diff([]string{FinalizerName}, bucketNamed(t, a, "b").GetFinalizers()); diff != "" || created > 0 {
				t.Errorf("\n%s\ncreates: %d; finalizers: -want, +got:\n%s", tc.reason, created, diff)
			}
		})
	}
}

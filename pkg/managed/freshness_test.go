package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
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
	says := func(c *call) error {
		return c.WriteConditions(context.Background(), c.mg, func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} })
	}

	cases := map[string]struct {
		reason string
		then   func(t *testing.T, a *testkit.API, c *call)
		want   bool
		says   string
	}{
		"Unchanged":        {reason: "Nothing is known against it.", want: true},
		"ChangedUnnoticed": {reason: "The reconciler can't know of a change that it has not read.", then: func(t *testing.T, a *testkit.API, _ *call) { edit(t, a, "b", annotated("k", "v")) }, want: true},
		"Noticed": {
			reason: "A conflict in an earlier write has shown another state.",
			then: func(t *testing.T, a *testkit.API, c *call) {
				edit(t, a, "b", paused)
				must(t, says(c))
			},
		},
		"Gone": {
			reason: "What does not exist may have been handed to another control plane.",
			then: func(t *testing.T, a *testkit.API, c *call) {
				remove(t, a, "b")
				must(t, says(c))
			},
		},
		"InMemory": {
			reason: "What the provider changes in memory alone is no matter.",
			then:   func(_ *testing.T, _ *testkit.API, c *call) { policies(xpv2.ManagementActionObserve)(bucketOf(c.mg)) },
			want:   true,
		},
		"Paused": {
			reason: "A pause is one wherever it is.",
			then:   func(_ *testing.T, _ *testkit.API, c *call) { paused(bucketOf(c.mg)) },
			says:   "it is paused; " + messageLeftAlone,
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
				_, err := e.Observe(ctx, c)
				must(t, err)

				_, cerr := e.Create(ctx, c)
				_, uerr := e.Update(ctx, c)
				_, derr := e.Delete(ctx, c)

				for _, err := range []error{cerr, uerr, derr} {
					wants(t, tc.reason, "called, or a conflict", []bool{tc.want, !tc.want}, []bool{err == nil, kerrors.IsConflict(err)})
					wants(t, tc.reason, "says", true, tc.want || strings.Contains(err.Error(), tc.says))
				}
			})

			want := []string{}
			if tc.want {
				want = []string{"create", "update", "delete"}
			}

			wants(t, tc.reason, "calls", want, called)
		})
	}
}

func patchLabel(ctx context.Context, a *testkit.API, o client.Object) error {
	return a.Server().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)))
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

// What a conflict, or the answer to a write of the provider's, has shown right before an
// external call stops that call: the managed resource was paused or renamed, or its
// policies changed.
func TestStaleManagedResourceIsLeftAlone(t *testing.T) {
	changes := map[string]func(b *v1alpha1.Bucket){
		"Paused":     paused,
		"Policies":   policies(xpv2.ManagementActionObserve),
		"NoPolicies": policies(),
		"Renamed":    named("another"),
	}

	patches := func(ctx context.Context, a *testkit.API, mg resource.Managed) error { return patchLabel(ctx, a, mg) }

	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		absent bool

		// writes is what Observe does once the managed resource has changed.
		writes func(ctx context.Context, a *testkit.API, mg resource.Managed) error
	}{
		"Delete": {
			reason: "The report that precedes Delete meets the conflict.",
			mods:   []func(b *v1alpha1.Bucket){deleting},
			writes: func(context.Context, *testkit.API, resource.Managed) error { return nil },
		},
		"Update": {
			reason: "Storing what Observe learned meets the conflict.",
			writes: func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
				meta.AddAnnotations(mg, map[string]string{"learned": "now"})
				return nil
			},
		},
		"CreateAfterWrite": {reason: "The answer to the provider's write shows it.", absent: true, writes: patches},
		"UpdateAfterWrite": {reason: "The answer to the provider's write shows it.", writes: patches},
		"UpdateDecodedInPlace": {
			reason: "The answer is decoded over what was read.",
			writes: func(ctx context.Context, a *testkit.API, mg resource.Managed) error {
				answer(ctx, t, a, mg)
				return nil
			},
		},
		"DeleteAfterWrite": {reason: "The answer to the provider's write shows it.", mods: []func(b *v1alpha1.Bucket){deleting}, writes: patches},
	}

	for name, tc := range cases {
		for cname, change := range changes {
			if name == "UpdateDecodedInPlace" && cname == "NoPolicies" {
				continue // Unlike an API server, Go's JSON leaves out what is empty.
			}

			t.Run(name+"/"+cname, func(t *testing.T) {
				a, h, acted := testkit.NewAPI(bucket(append(tc.mods, named("id-1"), finalizers(FinalizerName))...)), &recorder{}, 0

				run(t, newBucketReconciler(a, WithRecorder(h), connects(ExternalClientFns{
					ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						edit(t, a, "b", change)
						return ExternalObservation{ResourceExists: !tc.absent}, tc.writes(ctx, a, mg)
					},
					CreateFn: counts[ExternalCreation](&acted),
					UpdateFn: counts[ExternalUpdate](&acted),
					DeleteFn: counts[ExternalDelete](&acted),
				})), "b")

				// It is no failure either.
				wants(t, tc.reason, "calls, warnings", []int{0, 0}, []int{acted, len(h.of("CannotDeleteExternalResource"))})
			})
		}
	}
}

// The session knows that what it read is older than its own last write, which met
// the pause. A provider that writes the managed resource itself is not stopped by that.
func TestKnownStaleRead(t *testing.T) {
	for name, mods := range map[string][]func(*v1alpha1.Bucket){"Update": nil, "Delete": {deleting}} {
		t.Run(name, func(t *testing.T) {
			a, acted, n := testkit.NewAPI(bucket(append(mods, named("id-1"), finalizers(FinalizerName))...)), 0, 0

			fns := clientOf(ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					if n == 10 {
						meta.AddAnnotations(mg, map[string]string{"learned": "now"})
						edit(t, a, "b", paused)
					}

					return ExternalObservation{ResourceExists: true}, nil
				},
				UpdateFn: counts[ExternalUpdate](&acted),
				DeleteFn: counts[ExternalDelete](&acted),
			})

			r := newBucketReconciler(a, WithExternalConnector(ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
				if n++; n > 9 {
					return &fns, nil
				}

				bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

				return &fns, a.Server().Status().Update(ctx, mg)
			})))

			try(r, 9)

			if acted == 0 {
				t.Errorf("%ss in 9 reconciles: none; Synced: %s", name, get(t, a).GetCondition(xpv2.TypeSynced).Message)
			}

			must(t, a.Freeze(context.Background(), get(t, a)))

			acted = 0

			// The first meets the pause, and writes. Then the cache still has the state before.
			repeat(t, r, 2)
			wants(t, "", "calls for what is paused", 0, acted)
		})
	}
}

// A legacy managed resource says in two fields whether it deletes.
func TestAnswerShowsDeletionPolicy(t *testing.T) {
	d := v1alpha1.NewDatabase("d")
	d.SetFinalizers([]string{FinalizerName})
	d.SetDeletionTimestamp(&metav1.Time{Time: newClock().now})

	a, deleted := testkit.NewAPI(d), 0

	run(t, NewReconciler(a.Manager(), resource.ManagedKind(testkit.DatabaseKind()), WithManagementPolicies(), WithInitializers(), connects(ExternalClientFns{
		ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
			return ExternalObservation{ResourceExists: true}, a.Server().Patch(ctx, mg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Orphan"}}`)))
		},
		DeleteFn: counts[ExternalDelete](&deleted),
	})), "/d")
	wants(t, "It orphans its external resource by now.", "deletes", 0, deleted)
}

// The finalizer stays as it is, too, until the next reconcile, and nothing is created
// twice.
func TestAnswerKeepsFinalizer(t *testing.T) {
	cases := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		exists bool
		change func(b *v1alpha1.Bucket)
		decode bool // The answer is decoded over what was read.
		want   []string
	}{
		"Add":       {reason: "None is added to what its policies pause.", object: bucket(named("id-1")), exists: true, change: policies()},
		"Remove":    {reason: "Another external resource was not found.", object: bucket(named("id-1"), finalizers(FinalizerName), deleting), change: named("another"), want: []string{FinalizerName}},
		"Paused":    {reason: "What is paused keeps its finalizer.", object: bucket(named("id-1"), finalizers(FinalizerName), deleting), change: paused, decode: true, want: []string{FinalizerName}},
		"Announced": {reason: "Another process creates the external resource.", object: bucket(finalizers(FinalizerName)), change: annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z"), decode: true, want: []string{FinalizerName}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, created := testkit.NewAPI(tc.object), 0

			run(t, newBucketReconciler(a, connects(ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					edit(t, a, "b", tc.change)

					if tc.decode {
						answer(ctx, t, a, mg)
					} else {
						must(t, patchLabel(ctx, a, mg))
					}

					return ExternalObservation{ResourceExists: tc.exists, ResourceUpToDate: true}, nil
				},
				CreateFn: counts[ExternalCreation](&created),
			})), "b")

			wants(t, tc.reason, "finalizers, creates", []any{tc.want, 0}, []any{get(t, a).GetFinalizers(), created})
		})
	}
}

// The write of an initializer, or of a finalizer of the provider's own, shows that the
// managed resource is paused.
func TestAnswerToWrite(t *testing.T) {
	cases := map[string]struct {
		reason string
		opt    func(t *testing.T, a *testkit.API) ReconcilerOption
		exists bool
	}{
		"Initializer": {
			reason: "Its write shows other policies than those that upstream works with.",
			opt: func(t *testing.T, a *testkit.API) ReconcilerOption {
				t.Helper()

				return WithInitializers(InitializerFn(func(ctx context.Context, mg resource.Managed) error {
					edit(t, a, "b", policies())
					return patchLabel(ctx, a, mg)
				}))
			},
			exists: true,
		},
		"Finalizer": {
			reason: "The answer to adding the finalizer says that it is paused.",
			opt: func(t *testing.T, a *testkit.API) ReconcilerOption {
				t.Helper()

				f := patchingFinalizer{c: a.Server()}

				return WithFinalizer(resource.FinalizerFns{
					AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
						edit(t, a, "b", paused)
						return f.AddFinalizer(ctx, o)
					},
					RemoveFinalizerFn: f.RemoveFinalizer,
				})
			},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, acted := testkit.NewAPI(bucket(named("id-1"))), 0

			run(t, newBucketReconciler(a, tc.opt(t, a), connects(ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: tc.exists}, nil),
				CreateFn:  counts[ExternalCreation](&acted),
				UpdateFn:  counts[ExternalUpdate](&acted),
			})), "b")

			wants(t, tc.reason, "calls", 0, acted)
		})
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

			r := newBucketReconciler(a, WithReferenceResolver(ReferenceResolverFn(func(ctx context.Context, mg resource.Managed) error {
				tc.change(t, a)
				answer(ctx, t, a, mg)

				return nil
			})), connects(ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: tc.exists}, nil),
				CreateFn:  counts[ExternalCreation](&acted),
				UpdateFn:  counts[ExternalUpdate](&acted),
				DeleteFn:  counts[ExternalDelete](&acted),
			}))

			run(t, r, "b")

			wants(t, tc.reason, "changes of the external resource", 0, acted)
		})
	}
}

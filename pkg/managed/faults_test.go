package managed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// drive reconciles until nothing is left to do: no request to run again and no
// write, twice in a row. It fails the test if that takes too many reconciles.
func drive(t *testing.T, r reconcile.Reconciler, a *testkit.API) {
	t.Helper()
	const enough = 40
	quiet := 0
	var last error
	for range enough {
		before := a.Writes()
		result, err := r.Reconcile(context.Background(), request())
		last = err

		//nolint:staticcheck // Upstream asks for a requeue this way.
		if err == nil && !result.Requeue && a.Writes() == before {
			quiet++
		} else {
			quiet = 0
		}
		if quiet == 2 {
			return
		}
	}
	t.Fatalf("no rest after %d reconciles: last error %v, status %+v", enough, last, get(t, a).Status)
}

// on returns a hook that calls fn for the k-th request that matches, counted
// from 1.
func on(k int, match func(testkit.Request) bool, fn func(r testkit.Request) error) func(context.Context, testkit.Request) error {
	var mu sync.Mutex
	return func(_ context.Context, r testkit.Request) error {
		if !match(r) {
			return nil
		}
		mu.Lock()
		k--
		is := k == 0
		mu.Unlock()
		if !is {
			return nil
		}
		return fn(r)
	}
}

func lostRace(testkit.Request) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("another writer was first"))
}

// serverError is the error of an API server that is not available.
func serverError() error { return kerrors.NewInternalError(errors.New("etcd has no leader")) }

func broken(testkit.Request) error { return serverError() }

// A patchingFinalizer writes past the seam, whatever the resource version.
type patchingFinalizer struct{ c client.Client }

func (f patchingFinalizer) set(ctx context.Context, o client.Object, finalizers string) error {
	return client.IgnoreNotFound(f.c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))))
}

func (f patchingFinalizer) AddFinalizer(ctx context.Context, o resource.Object) error {
	if meta.FinalizerExists(o, FinalizerName) {
		return nil
	}
	return f.set(ctx, o, `["`+FinalizerName+`"]`)
}

func (f patchingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	return f.set(ctx, o, "null")
}

// settledAs fails the test unless the managed resource is at rest with its one
// external resource.
func settledAs(t *testing.T, reason string, a *testkit.API, w *cloud.Cloud) {
	t.Helper()
	b := get(t, a)
	got := map[string]any{
		"external resources": slices.Collect(maps.Keys(resources(w))),
		"creates":            w.Counts()[cloud.OpCreate],
		"name":               meta.GetExternalName(b),
		"id":                 b.Status.AtProvider.ID,
		"ready":              b.GetCondition(xpv2.TypeReady).Status,
		"synced":             b.GetCondition(xpv2.TypeSynced).Status,
		"finalizers":         b.GetFinalizers(),
		"incomplete":         meta.ExternalCreateIncomplete(b),
	}
	wants(t, reason, "at rest", map[string]any{
		"external resources": []string{"id-0001"},
		"creates":            1,
		"name":               "id-0001",
		"id":                 "id-0001",
		"ready":              corev1.ConditionTrue,
		"synced":             corev1.ConditionTrue,
		"finalizers":         []string{FinalizerName},
		"incomplete":         false,
	}, got)
}

// faults disturb the k-th request, or the k-th write, from now on: before it takes
// effect, or after.
func faults() map[string]func(t *testing.T, a *testkit.API, k int) {
	foreign := func(t *testing.T, a *testkit.API) func(testkit.Request) error {
		t.Helper()
		return func(testkit.Request) error {
			b := get(t, a)
			if b.GetName() == "" {
				return nil
			}
			b.SetConditions(foreignCondition())
			return a.Server().Status().Update(context.Background(), b)
		}
	}
	all := func(testkit.Request) bool { return true }

	// outage fails n requests that match, from the k-th write on.
	outage := func(k, n int, match func(testkit.Request) bool) func(context.Context, testkit.Request) error {
		return func(_ context.Context, r testkit.Request) error {
			if isWrite(r) {
				k--
			}
			if k > 0 || n == 0 || !match(r) {
				return nil
			}
			n--
			return serverError()
		}
	}
	return map[string]func(t *testing.T, a *testkit.API, k int){
		"Conflict":   func(_ *testing.T, a *testkit.API, k int) { a.Before = on(k, isWrite, lostRace) },
		"Error":      func(_ *testing.T, a *testkit.API, k int) { a.Before = on(k, isWrite, broken) },
		"LostAnswer": func(_ *testing.T, a *testkit.API, k int) { a.After = on(k, isWrite, broken) },
		"AnotherWriterBefore": func(t *testing.T, a *testkit.API, k int) {
			a.Before = on(k, all, foreign(t, a))
		},
		"AnotherWriterAfter": func(t *testing.T, a *testkit.API, k int) {
			a.After = on(k, all, foreign(t, a))
		},
		// Both last for longer than a writer is patient.
		"Outage":         func(_ *testing.T, a *testkit.API, k int) { a.Before = outage(k, 25, all) },
		"OutageOfWrites": func(_ *testing.T, a *testkit.API, k int) { a.Before = outage(k, 13, isWrite) },
		"StaleCache": func(_ *testing.T, a *testkit.API, k int) {
			// The cache shows what was there before this write, for four reads.
			reads := 0
			freeze := on(k, isWrite, func(testkit.Request) error {
				reads = 4
				return client.IgnoreNotFound(a.Freeze(context.Background(), bucket()))
			})
			a.Before = func(ctx context.Context, r testkit.Request) error {
				if r.Verb == testkit.Get && reads > 0 {
					if reads--; reads == 0 {
						a.Thaw()
					}
				}
				return freeze(ctx, r)
			}
		},
	}
}

func foreignCondition() xpv2.Condition {
	return xpv2.Condition{Type: "Foreign", Status: corev1.ConditionTrue, Reason: "Because", Message: "of another writer"}
}

// Each single request of a managed resource is disturbed, in several ways. The managed
// resource still has one external resource, and ends as it should, and a condition of
// another writer is kept.
func TestFaultOrOutageAtAnyRequest(t *testing.T) {
	const most = 12
	ways := map[string]func(a *testkit.API) ReconcilerOption{
		"Default": func(*testkit.API) ReconcilerOption { return WithInitializers() },
		// Both finalizers write past the seam, one of them whatever the resource version.
		"CustomFinalizer": func(a *testkit.API) ReconcilerOption {
			return WithFinalizer(resource.NewAPIFinalizer(a.Client(), FinalizerName))
		},
		"UnguardedFinalizer": func(a *testkit.API) ReconcilerOption { return WithFinalizer(patchingFinalizer{c: a.Client()}) },
		"UpstreamCriticalAnnotations": func(a *testkit.API) ReconcilerOption {
			return WithCriticalAnnotationUpdater(upstream.NewRetryingCriticalAnnotationUpdater(a.Client()))
		},
	}
	for wayName, way := range ways {
		for faultName, inject := range faults() {
			for k := 1; k <= most; k++ {
				t.Run(fmt.Sprintf("%s/%s/%d", wayName, faultName, k), func(t *testing.T) {
					a := testkit.NewAPI(bucket())
					world, connects := newWorld()
					r := newBucketReconciler(a, way(a), connects)
					disturbed := func() {
						a.Before, a.After = nil, nil
						inject(t, a, k)
						drive(t, r, a)
					}
					keepsForeign := func() {
						if c := get(t, a).GetCondition("Foreign"); c.Reason != "" {
							wants(t, "", "condition of another writer", foreignCondition(), c)
						}
					}
					disturbed()
					if (world.Counts()[cloud.OpCreate] == 0 || wayName == "UpstreamCriticalAnnotations") && meta.ExternalCreateIncomplete(get(t, a)) {
						// The answer to the update that announces the create was
						// lost, or upstream's way did not store the result. It
						// reports that the outcome is unknown, and an operator
						// settles it.
						edit(t, a, "b", unannotated(meta.AnnotationKeyExternalCreatePending))
						drive(t, r, a)
					}
					settledAs(t, "A managed resource should come to have one external resource.", a, world)
					keepsForeign()
					wants(t, "", "objects in memory", 1, r.seam.Memory().Len())
					edit(t, a, "b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" })
					disturbed()
					settledAs(t, "An update should be made.", a, world)
					wants(t, "", "regions after an update", map[string]string{"id-0001": "eu"}, resources(world))
					keepsForeign()
					remove(t, a, "b")
					disturbed()
					wants(t, "", "name, external resources, objects in memory after a deletion",
						[]any{"", map[string]string{}, 0}, []any{get(t, a).GetName(), resources(world), r.seam.Memory().Len()})
				})
			}
		}
	}
}

// Nothing is stored for an object that is deleted, or replaced, while its external
// client is called. The object that has its name now is not changed.
func TestGoneMeanwhile(t *testing.T) {
	const reason = "What is gone needs nothing stored, which is no failure. What has its name now is left alone."
	for objectName, object := range map[string]*v1alpha1.Bucket{"Fresh": bucket(), "Finalized": bucket(finalizers(FinalizerName))} {
		for _, replaced := range []bool{false, true} {
			for _, during := range []string{"observe", "create", "update"} {
				t.Run(fmt.Sprintf("%s/replaced=%t/%s", objectName, replaced, during), func(t *testing.T) {
					a, h := testkit.NewAPI(object.DeepCopy()), &testkit.Said{}
					version, updates := "", 0
					x := &outside{there: during != "create", outdated: during == "update"}
					x.on(during, func(b *v1alpha1.Bucket) error {
						b.SetAnnotations(map[string]string{meta.AnnotationKeyExternalName: "id-1", "x": "y"})
						b.Spec.ForProvider.Region = "eu"
						kill(t, a, "b")
						if replaced {
							must(t, a.Server().Create(t.Context(), bucket(annotated("is", "new"))))
						}
						version, updates = get(t, a).GetResourceVersion(), a.Count(testkit.Update)
						return nil
					})
					r := newBucketReconciler(a, WithRecorder(h), connects(x.client()))
					if _, err := r.Reconcile(t.Context(), request()); err != nil && !kerrors.IsNotFound(errors.Cause(err)) {
						t.Errorf("Reconcile of what is gone: %v", err)
					}
					b := get(t, a)
					got := []any{b.GetResourceVersion(), meta.GetExternalName(b), len(h.Events(reasonCannotStoreAnnotations)), r.seam.Memory().Len(), a.Count(testkit.Patch) > 1}
					wants(t, reason, "version, name, events, objects in memory, patched again", []any{version, "", 0, 0, false}, got)
					wants(t, reason, "calls but for that one", 0, len(x.acts)-x.did(during))
					if during == "create" {
						wants(t, reason, "updates after Create", updates, a.Count(testkit.Update))
					}
				})
			}
		}
	}
}

package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

const (
	keptKey    = "example.org/kept"
	removedKey = "example.org/removed"
	changedKey = "example.org/changed"
	addedKey   = "example.org/added"
)

// A subjectKind is a kind of managed resource, and a way to connect to its
// external system.
type subjectKind struct {
	new       func() resource.Managed
	namespace string
	connects  func(fns upstream.ExternalClientFns) ReconcilerOption
}

func typedClientOf[M resource.Managed](fns upstream.ExternalClientFns) TypedExternalConnectorFn[M] {
	return func(context.Context, M) (TypedExternalClient[M], error) {
		c := clientOf(fns)

		return &TypedExternalClientFns[M]{
			ObserveFn:    func(ctx context.Context, mg M) (ExternalObservation, error) { return c.Observe(ctx, mg) },
			CreateFn:     func(ctx context.Context, mg M) (ExternalCreation, error) { return c.Create(ctx, mg) },
			UpdateFn:     func(ctx context.Context, mg M) (ExternalUpdate, error) { return c.Update(ctx, mg) },
			DeleteFn:     func(ctx context.Context, mg M) (ExternalDelete, error) { return c.Delete(ctx, mg) },
			DisconnectFn: c.Disconnect,
		}, nil
	}
}

func subjectKinds() map[string]subjectKind {
	newBucket := func() resource.Managed { return &v1alpha1.Bucket{} }
	newDatabase := func() resource.Managed { return &v1alpha1.Database{} }

	return map[string]subjectKind{
		"Bucket": {new: newBucket, namespace: "default", connects: connects},
		"TypedDatabase": {new: newDatabase, connects: func(fns upstream.ExternalClientFns) ReconcilerOption {
			return WithTypedExternalConnector(typedClientOf[*v1alpha1.Database](fns))
		}},
	}
}

func (k subjectKind) key() types.NamespacedName {
	return types.NamespacedName{Namespace: k.namespace, Name: "b"}
}

func (k subjectKind) reconciler(a *testkit.API, o ...ReconcilerOption) *Reconciler {
	gvk := testkit.BucketKind()
	if k.namespace == "" {
		gvk = testkit.DatabaseKind()
	}

	return NewReconciler(a.Manager(), resource.ManagedKind(gvk), append([]ReconcilerOption{
		WithManagementPolicies(), WithCreationGracePeriod(0), WithInitializers(), waits(noWait),
	}, o...)...)
}

// Whatever call learns an annotation, however the call ends, and whatever the
// management policies allow: exactly what was set is stored.
func TestAnnotationsStoredAfterEachCall(t *testing.T) {
	learn := func(mg resource.Managed) {
		as := maps.Clone(mg.GetAnnotations())
		as[meta.AnnotationKeyExternalName] = "id-1"
		as[changedKey] = "after"
		as[addedKey] = "new"
		delete(as, removedKey)
		mg.SetAnnotations(as)
	}

	calls := map[string]struct {
		deleted bool
		client  func(end func(mg resource.Managed) error) upstream.ExternalClientFns
	}{
		"Observe": {client: func(end func(mg resource.Managed) error) upstream.ExternalClientFns {
			return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				o, _ := exists(ctx, mg)
				return o, end(mg)
			}}
		}},
		"ObserveLateInitialized": {client: func(end func(mg resource.Managed) error) upstream.ExternalClientFns {
			return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				o, _ := exists(ctx, mg)
				o.ResourceLateInitialized = true

				return o, end(mg)
			}}
		}},
		"Create": {client: func(end func(mg resource.Managed) error) upstream.ExternalClientFns {
			return upstream.ExternalClientFns{ObserveFn: absent, CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
				return ExternalCreation{}, end(mg)
			}}
		}},
		"Update": {client: func(end func(mg resource.Managed) error) upstream.ExternalClientFns {
			return upstream.ExternalClientFns{
				ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
				UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
					return ExternalUpdate{}, end(mg)
				},
			}
		}},
		"Delete": {deleted: true, client: func(end func(mg resource.Managed) error) upstream.ExternalClientFns {
			return upstream.ExternalClientFns{DeleteFn: func(_ context.Context, mg resource.Managed) (ExternalDelete, error) {
				return ExternalDelete{}, end(mg)
			}}
		}},
	}

	ends := map[string]func(resource.Managed) error{
		"Succeeds": func(mg resource.Managed) error { learn(mg); return nil }, //nolint:unparam // The others fail.
		"Fails":    func(mg resource.Managed) error { learn(mg); return errors.New("boom") },
		"Panics":   func(mg resource.Managed) error { learn(mg); panic("boom") },
	}

	allowed := map[string]xpv2.ManagementPolicies{
		"All":               {xpv2.ManagementActionAll},
		"NoLateInitialize":  {xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve},
		"ObserveOnly":       {xpv2.ManagementActionObserve},
		"ObserveAndInitial": {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	}

	for kindName, kind := range subjectKinds() {
		for callName, call := range calls {
			for endName, end := range ends {
				for policyName, policy := range allowed {
					if policyName[0] == 'O' && !strings.HasPrefix(callName, "Observe") {
						continue // There is no such call under these policies.
					}

					t.Run(strings.Join([]string{kindName, callName, endName, policyName}, "/"), func(t *testing.T) {
						const reason = "Exactly the annotations that were set should be stored."

						mg := kind.new()
						mg.SetName("b")
						mg.SetNamespace(kind.namespace)
						mg.SetManagementPolicies(policy)
						mg.SetFinalizers([]string{FinalizerName})
						mg.SetAnnotations(map[string]string{keptKey: "kept", removedKey: "removed", changedKey: "before"})

						if l, ok := mg.(resource.LegacyManaged); ok { //nolint:staticcheck // Deprecated, and what most providers have.
							l.SetDeletionPolicy(xpv2.DeletionDelete)
						}

						if call.deleted {
							now := metav1.Now()
							mg.SetDeletionTimestamp(&now)
						}

						a := testkit.NewAPI(mg)

						var version string

						called := 0
						client := call.client(func(mg resource.Managed) error {
							called++
							version = mg.GetResourceVersion()

							return end(mg)
						})

						reconcileRecovering(kind.reconciler(a, kind.connects(client)), reconcile.Request{NamespacedName: kind.key()})

						if called != 1 {
							t.Fatalf("\n%s\ncalls: want 1, got %d", reason, called)
						}

						want := map[string]any{"metadata": map[string]any{
							"annotations":     map[string]any{meta.AnnotationKeyExternalName: "id-1", changedKey: "after", addedKey: "new"},
							"uid":             string(mg.GetUID()),
							"resourceVersion": version,
						}}
						if diff := cmp.Diff(want, firstPatch(t, a)); diff != "" {
							t.Errorf("\n%s\npatch: -want, +got:\n%s", reason, diff)
						}

						for _, r := range a.Requests() {
							if r.Verb == testkit.Patch && (strings.Contains(r.Body, "null") || strings.Contains(r.Body, removedKey) || strings.Contains(r.Body, keptKey)) {
								t.Errorf("\n%s\na patch says what it shouldn't: %s", reason, r.Body)
							}
						}

						got := kind.new()
						must(t, a.Server().Get(context.Background(), kind.key(), got))

						for k, v := range map[string]string{meta.AnnotationKeyExternalName: "id-1", changedKey: "after", addedKey: "new", keptKey: "kept"} {
							if got.GetAnnotations()[k] != v {
								t.Errorf("\n%s\nannotation %s: want %q, got %q", reason, k, v, got.GetAnnotations()[k])
							}
						}
					})
				}
			}
		}
	}
}

// reconcileRecovering reconciles as a controller does, which survives panics.
func reconcileRecovering(r reconcile.Reconciler, req reconcile.Request) {
	defer func() { _ = recover() }()

	_, _ = r.Reconcile(context.Background(), req)
}

func firstPatch(t *testing.T, a *testkit.API) map[string]any {
	t.Helper()

	for _, r := range a.Requests() {
		if r.Verb != testkit.Patch {
			continue
		}

		body := map[string]any{}
		must(t, json.Unmarshal([]byte(r.Body), &body))

		return body
	}

	return nil
}

func TestNothingToStore(t *testing.T) {
	cases := map[string]struct {
		reason  string
		observe func(mg resource.Managed)
	}{
		"Nothing":     {reason: "What did not change should not be stored.", observe: func(resource.Managed) {}},
		"SameName":    {reason: "A name that is stored should not be stored again.", observe: func(mg resource.Managed) { meta.SetExternalName(mg, "id-1") }},
		"EmptiedName": {reason: "A name that was emptied should stay stored.", observe: func(mg resource.Managed) { meta.SetExternalName(mg, "") }},
		"RemovedName": {reason: "A name that was removed should stay stored.", observe: func(mg resource.Managed) {
			meta.RemoveAnnotations(mg, meta.AnnotationKeyExternalName)
		}},
		"RemovedAll": {reason: "Annotations that were removed should stay stored.", observe: func(mg resource.Managed) { mg.SetAnnotations(nil) }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(named("id-1"), annotated(keptKey, "kept"), finalizers(FinalizerName))
			a := testkit.NewAPI(b)
			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				tc.observe(mg)
				return exists(ctx, mg)
			}}))

			for range 2 {
				run(t, r, "b")
			}

			if diff := cmp.Diff([]int{0, 0, 1}, []int{a.Count(testkit.Patch), a.Count(testkit.Update), a.Count(testkit.StatusUpdate)}); diff != "" {
				t.Errorf("\n%s\npatches, updates, status updates: -want, +got:\n%s", tc.reason, diff)
			}

			if diff := cmp.Diff(map[string]string{meta.AnnotationKeyExternalName: "id-1", keptKey: "kept"}, get(t, a).GetAnnotations()); diff != "" {
				t.Errorf("\n%s\nannotations: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// What an initializer wrote, by whatever client, or left in memory, is not what
// the external client set.
func TestInitializersAnnotationsAreNotTheClients(t *testing.T) {
	cases := map[string]struct {
		reason string
		init   func(ctx context.Context, a *testkit.API, mg resource.Managed) error
	}{
		"Written": {reason: "It was written past the seam.", init: func(ctx context.Context, a *testkit.API, mg resource.Managed) error {
			meta.AddAnnotations(mg, map[string]string{addedKey: "initial"})
			return a.Client().Update(ctx, mg)
		}},
		"InMemory": {reason: "It is in memory only.", init: func(_ context.Context, _ *testkit.API, mg resource.Managed) error {
			meta.AddAnnotations(mg, map[string]string{addedKey: "initial"})
			return nil
		}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(finalizers(FinalizerName)))
			r := newBucketReconciler(a, WithInitializers(InitializerFn(func(ctx context.Context, mg resource.Managed) error {
				return tc.init(ctx, a, mg)
			})), connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				meta.SetExternalName(mg, "id-1")
				return exists(ctx, mg)
			}}))

			run(t, r, "b")

			md, _ := firstPatch(t, a)["metadata"].(map[string]any)
			if diff := cmp.Diff(map[string]any{meta.AnnotationKeyExternalName: "id-1"}, md["annotations"]); diff != "" {
				t.Errorf("\n%s\npatched annotations: -want, +got:\n%s", tc.reason, diff)
			}

			if b := get(t, a); b.Status.AtProvider.ID != "id-1" {
				t.Errorf("\n%s\nstatus: want id-1, got %+v", tc.reason, b.Status)
			}
		})
	}
}

func TestWithoutExternalNamePersistence(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      []ReconcilerOption
		want   string
	}{
		"On":  {reason: "By default a name that Observe found is stored.", want: "id-1"},
		"Off": {reason: "It is not if that is turned off.", o: []ReconcilerOption{WithoutExternalNamePersistence()}, want: ""},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(finalizers(FinalizerName), policies(xpv2.ManagementActionObserve)))
			r := newBucketReconciler(a, append(tc.o, connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				meta.SetExternalName(mg, "id-1")

				o, err := exists(ctx, mg)
				o.ResourceLateInitialized = true

				return o, err
			}}))...)

			run(t, r, "b")

			if got := meta.GetExternalName(get(t, a)); got != tc.want {
				t.Errorf("\n%s\nexternal name: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// That a client says ResourceLateInitialized must lead to an update of the whole
// object if, and only if, there is more to it than annotations.
func TestLateInitialized(t *testing.T) {
	region := func(mg resource.Managed) { bucketOf(mg).Spec.ForProvider.Region = "eu" }
	name := func(mg resource.Managed) { meta.SetExternalName(mg, "id-1") }
	label := func(mg resource.Managed) { mg.SetLabels(map[string]string{"a": "b"}) }
	status := func(mg resource.Managed) { bucketOf(mg).Status.AtProvider.Facts = map[string]string{"a": "b"} }
	notAllowed := []xpv2.ManagementAction{xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve}

	cases := map[string]struct {
		reason  string
		observe []func(resource.Managed)
		without bool
		updates int
		region  string
	}{
		"Nothing":                 {reason: "Nothing changed, so nothing should be updated.", observe: nil},
		"Status":                  {reason: "Status is not late-initialized.", observe: []func(resource.Managed){status}},
		"Name":                    {reason: "A name is stored by itself.", observe: []func(resource.Managed){name}},
		"NameAndStatus":           {reason: "A name is stored by itself, and status too.", observe: []func(resource.Managed){name, status}},
		"Spec":                    {reason: "Spec should be late-initialized.", observe: []func(resource.Managed){region}, updates: 1, region: "eu"},
		"NameAndSpec":             {reason: "Both should be stored.", observe: []func(resource.Managed){name, region, status}, updates: 1, region: "eu"},
		"Label":                   {reason: "Labels are not annotations.", observe: []func(resource.Managed){label}, updates: 1},
		"RemovedAnnotation":       {reason: "As with upstream, a whole update can remove an annotation.", observe: []func(resource.Managed){func(mg resource.Managed) { mg.SetAnnotations(nil) }}, updates: 1},
		"SpecWithoutPolicy":       {reason: "Spec should be left alone without a policy.", observe: []func(resource.Managed){region}, without: true},
		"NameAndSpecWithoutPolic": {reason: "The name should be stored, and spec left alone.", observe: []func(resource.Managed){name, region}, without: true},
	}

	for n, tc := range cases {
		t.Run(n, func(t *testing.T) {
			b := bucket(finalizers(FinalizerName), annotated(keptKey, "kept"))
			if tc.without {
				b.Spec.ManagementPolicies = notAllowed
			}

			a := testkit.NewAPI(b)
			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				o, err := exists(ctx, mg)
				o.ResourceLateInitialized = true

				for _, fn := range tc.observe {
					fn(mg)
				}

				return o, err
			}}))

			run(t, r, "b")

			got := get(t, a)

			if diff := cmp.Diff([]any{tc.updates, tc.region, "id-1"}, []any{a.Count(testkit.Update), got.Spec.ForProvider.Region, got.Status.AtProvider.ID}); diff != "" {
				t.Errorf("\n%s\nupdates, region, status: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Another writer sets the same annotation while the reconcile runs. Its value is
// kept if our value can be determined again, and overwritten if it can't.
func TestConcurrentExternalNameWrite(t *testing.T) {
	theirs := func(t *testing.T, a *testkit.API) {
		t.Helper()

		edit(t, a, "b", named("theirs"))
		edit(t, a, "b", annotated("example.org/secret", "hunter2"))
	}

	// unnamed takes away the name that was there.
	unnamed := func(t *testing.T, a *testkit.API) {
		t.Helper()

		edit(t, a, "b", unannotated(meta.AnnotationKeyExternalName))
	}

	// noPatches are allowed, so the whole object is written.
	const noPatches = -1

	cases := map[string]struct {
		reason string
		client func(t *testing.T, a *testkit.API) upstream.ExternalClientFns
		want   string
		events []string
	}{
		"Observe": {
			reason: "After Observe the user's name stays, and the reconcile quietly runs again.",
			client: func(t *testing.T, a *testkit.API) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					meta.SetExternalName(mg, "ours")
					theirs(t, a)

					return exists(ctx, mg)
				}}
			},
			want: "theirs",
		},
		"Update": {
			reason: "After Update the user's name stays, and the reconcile runs again.",
			client: func(t *testing.T, a *testkit.API) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{
					ObserveFn: returns(ExternalObservation{ResourceExists: true}, nil),
					UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
						meta.SetExternalName(mg, "ours")
						theirs(t, a)

						return ExternalUpdate{}, nil
					},
				}
			},
			want: "theirs",
		},
		"Create": {
			reason: "After Create our name wins, and the user is told once.",
			client: func(t *testing.T, a *testkit.API) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: absent, CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					meta.AddAnnotations(mg, map[string]string{meta.AnnotationKeyExternalName: "ours", "example.org/secret": "sesame"})
					theirs(t, a)

					return ExternalCreation{}, nil
				}}
			},
			want: "ours",
			events: []string{
				"the result of creating the external resource replaced another value of the annotation crossplane.io/external-name: \"ours\", not \"theirs\", is its external name",
				"the result of creating the external resource replaced another value of the annotation example.org/secret",
			},
		},
		"ObserveUnnamed": {
			reason: "To take a name away is to say nothing about the one that was found.",
			client: func(t *testing.T, a *testkit.API) upstream.ExternalClientFns {
				return upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					meta.SetExternalName(mg, "ours")
					unnamed(t, a)

					return exists(ctx, mg)
				}}
			},
			want: "ours",
		},
	}

	for name, tc := range cases {
		for _, lost := range []int{0, 1, 2, noPatches} {
			sub := fmt.Sprintf("%s/%dLost", name, lost)
			if lost == noPatches {
				sub = name + "/NoPatches"
			}

			t.Run(sub, func(t *testing.T) {
				a, h := testkit.NewAPI(bucket(named("first"), finalizers(FinalizerName))), &recorder{}
				a.Before = func(_ context.Context, r testkit.Request) error {
					if r.Verb == testkit.Patch && lost == noPatches {
						return kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("no patches for you"))
					}

					// Another writer changes the annotation right before our patches.
					if r.Verb != testkit.Patch || lost == 0 || meta.GetExternalName(get(t, a)) == "first" {
						return nil
					}

					lost--
					b := get(t, a)
					meta.AddAnnotations(b, map[string]string{"example.org/busy": fmt.Sprint(lost)})

					return a.Server().Update(context.Background(), b)
				}

				r := newBucketReconciler(a, connects(tc.client(t, a)), WithRecorder(h))

				result, err := r.Reconcile(context.Background(), request())
				//nolint:staticcheck // Upstream asks for a requeue this way.
				if err != nil || !result.Requeue {
					t.Errorf("\n%s\nReconcile: want a requeue, got %+v, %v", tc.reason, result, err)
				}

				if diff := cmp.Diff([]any{tc.want, tc.events}, []any{meta.GetExternalName(get(t, a)), h.messages(reasonOverwroteAnnotation)}); diff != "" {
					t.Errorf("\n%s\nexternal name, events: -want, +got:\n%s", tc.reason, diff)
				}

				if ms := h.messages(reasonCannotStoreAnnotations); len(ms) > 0 {
					t.Errorf("\n%s\nevents: want none of a failure, got %v", tc.reason, ms)
				}
			})
		}
	}
}

// Annotations may hold secrets. Their values are sent to the API server only, and
// appear in no event, condition or log. The external name is the exception.
func TestAnnotationValuesAreNotDisclosed(t *testing.T) {
	const secret = "hunter2"

	fails := map[string]func(r testkit.Request) error{
		"Nothing":  func(testkit.Request) error { return nil },
		"Broken":   broken,
		"Conflict": lostRace,
		"Forbidden": func(testkit.Request) error {
			return kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("no"))
		},
		"Invalid": func(testkit.Request) error { return kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil) },
	}

	for failName, fail := range fails {
		for _, callFails := range []bool{false, true} {
			for _, theyWrite := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%t/%t", failName, callFails, theyWrite), func(t *testing.T) {
					a, h := testkit.NewAPI(bucket(annotated("example.org/old", secret+"-old"))), &recorder{}
					a.Before = func(_ context.Context, r testkit.Request) error {
						if r.Verb == testkit.Patch {
							return fail(r)
						}

						return nil
					}

					var log strings.Builder

					learn := func(mg resource.Managed) error {
						meta.AddAnnotations(mg, map[string]string{"example.org/token": secret, "example.org/old": secret + "-new"})

						if theyWrite {
							edit(t, a, "b", annotated("example.org/token", secret+"-theirs"))
						}

						if callFails {
							return errors.New("boom")
						}

						return nil
					}

					r := newBucketReconciler(a, WithRecorder(h), WithLogger(logging.NewLogrLogger(funcr.New(func(_, args string) {
						log.WriteString(args + "\n")
					}, funcr.Options{Verbosity: 10}))), connects(upstream.ExternalClientFns{
						ObserveFn: func(context.Context, resource.Managed) (ExternalObservation, error) {
							return ExternalObservation{ConnectionDetails: ConnectionDetails{"password": []byte(secret)}}, nil
						},
						CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
							return ExternalCreation{ConnectionDetails: ConnectionDetails{"password": []byte(secret)}}, learn(mg)
						},
					}))

					var said []string

					for range 3 {
						if _, err := r.Reconcile(context.Background(), request()); err != nil {
							said = append(said, err.Error())
						}
					}

					for _, e := range h.events {
						said = append(said, e.Message)
					}

					for _, c := range get(t, a).Status.Conditions {
						said = append(said, c.Message)
					}

					if all := strings.Join(said, "\n") + log.String(); strings.Contains(all, secret) {
						t.Errorf("\nThe values of annotations must not be disclosed.\ngot: %s", all)
					}
				})
			}
		}
	}
}

// An annotation that could not be stored is stored before the next reconcile does
// anything else, and that reconcile sees it. A value that another writer set in
// the meantime is kept.
func TestUnstoredAnnotationIsRetried(t *testing.T) {
	cases := map[string]struct {
		reason string
		fail   func(testkit.Request) error
		theirs string
		want   string
	}{
		"Seen":      {reason: "The external client must see the name, or it would create another one.", fail: broken, want: "id-1"},
		"Contended": {reason: "A conflict about the version of the object is no decision.", fail: lostRace, want: "id-1"},
		"Overruled": {reason: "Another writer has set the name.", fail: broken, theirs: "theirs", want: "theirs"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(finalizers(FinalizerName)))
			down, found, creates := true, true, 0

			var seen []string

			a.Before = func(_ context.Context, r testkit.Request) error {
				if down && r.Verb == testkit.Patch {
					return tc.fail(r)
				}

				return nil
			}

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					if found {
						// As a provider does that learns it once, from an
						// operation that ended.
						found = false
						meta.SetExternalName(mg, "id-1")

						return exists(ctx, mg)
					}

					seen = append(seen, meta.GetExternalName(mg))
					if meta.GetExternalName(mg) == "" {
						return absent(ctx, mg)
					}

					return exists(ctx, mg)
				},
				CreateFn: counts[ExternalCreation](&creates),
			}))

			_, _ = r.Reconcile(context.Background(), request())
			down = false

			if tc.theirs != "" {
				edit(t, a, "b", named(tc.theirs))
			}

			drive(t, r, a)

			for _, s := range seen {
				if s != tc.want {
					t.Errorf("\n%s\nnames that the client saw: %q", tc.reason, seen)
					break
				}
			}

			if diff := cmp.Diff([]any{tc.want, 0, true}, []any{meta.GetExternalName(get(t, a)), creates, len(seen) > 0}); diff != "" {
				t.Errorf("\n%s\nname, creates, seen: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// The name that Create returned replaces a name that another writer set while the
// first could not be stored. This holds whenever it is stored.
func TestCreatedNameWinsLater(t *testing.T) {
	cases := map[string]struct {
		reason string

		// fails reports whether a patch fails.
		fails func(body string, reconciles int) bool
	}{
		"WithTheResult": {reason: "It is stored with the result of the create.", fails: func(body string, _ int) bool {
			return !strings.Contains(body, meta.AnnotationKeyExternalCreateSucceeded)
		}},
		"InTheNextReconcile": {reason: "It is stored before the next reconcile.", fails: func(_ string, reconciles int) bool { return reconciles == 1 }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x, h := testkit.NewAPI(bucket()), newOutside(), &recorder{}
			reconciles, theirs := 1, false
			a.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb != testkit.Patch || !tc.fails(r.Body, reconciles) {
					return nil
				}

				if !theirs {
					theirs = true
					edit(t, a, "b", named("theirs"))
				}

				return kerrors.NewBadRequest("no")
			}

			r := newBucketReconciler(a, connects(x.client()), WithRecorder(h))
			_, _ = r.Reconcile(context.Background(), request())
			reconciles++

			drive(t, r, a)
			settledAs(t, tc.reason, a, x)

			if ms := h.messages(reasonOverwroteAnnotation); len(ms) != 1 || !strings.Contains(ms[0], `not "theirs"`) {
				t.Errorf("\n%s\nwant the user told once, got %q", tc.reason, ms)
			}
		})
	}
}

// An annotation that Observe changes each time is stored at a bounded rate, and
// the external name each time.
func TestUnstableAnnotation(t *testing.T) {
	a, c, rec, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), &recorder{}, 0

	r := newBucketReconciler(a, c.option(), WithRecorder(rec), connects(upstream.ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		n++
		meta.AddAnnotations(mg, map[string]string{"example.org/etag": fmt.Sprint(n)})

		if n > 300 && n <= 305 {
			meta.SetExternalName(mg, fmt.Sprintf("id-%d", n))
		}

		// Upstream updates it each time.
		return ExternalObservation{ResourceExists: true}, nil
	}}))

	reconciles := func(times int, every time.Duration) int {
		a.Forget()

		for range times {
			run(t, r, "b")

			c.now = c.now.Add(every)
		}

		return a.Count(testkit.Patch)
	}

	got := []any{reconciles(100, time.Second), len(rec.of(reasonUnstableAnnotation)), reconciles(200, 6*time.Second)}
	if diff := cmp.Diff([]any{7, 1, 20}, got); diff != "" {
		t.Errorf("patches in 100 s, warnings, patches in 20 minutes: -want, +got:\n%s", diff)
	}

	if got := reconciles(5, time.Millisecond); got != 5 || meta.GetExternalName(get(t, a)) != fmt.Sprintf("id-%d", n) {
		t.Errorf("patches of external names: want 5, got %d; last %q", got, meta.GetExternalName(get(t, a)))
	}

	// It has come to rest, and may change again.
	c.now = c.now.Add(time.Hour)

	if got := reconciles(3, 0); got != 3 || len(rec.of(reasonUnstableAnnotation)) != 1 {
		t.Errorf("patches after an hour: want 3, got %d", got)
	}
}

// An annotation that is held back and that Observe sets once.
func TestHeldBackAnnotationIsLost(t *testing.T) {
	a, c, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), 0

	r := newBucketReconciler(a, c.option(), connects(upstream.ExternalClientFns{ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
		n++
		o := ExternalObservation{ResourceExists: true, ResourceUpToDate: true}

		// What is learned is learned once, and said so.
		if n <= 7 {
			meta.AddAnnotations(mg, map[string]string{"example.org/state": fmt.Sprint(n)})
			o.ResourceLateInitialized = true
		}

		return o, nil
	}}))

	for range 100 {
		run(t, r, "b")
		c.now = c.now.Add(10 * time.Second)
	}

	if got := get(t, a).GetAnnotations()["example.org/state"]; got != "7" {
		t.Errorf("annotation: want 7, got %s", got)
	}
}

// Another writer's value replaces one that is held back.
func TestHeldBackAnnotation_Overwritten(t *testing.T) {
	a, c, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), 0

	r := newBucketReconciler(a, c.option(), connects(upstream.ExternalClientFns{ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
		if n++; n <= 7 {
			meta.AddAnnotations(mg, map[string]string{"example.org/state": fmt.Sprint(n)})
		}

		return exists(ctx, mg)
	}}))

	for range 7 {
		run(t, r, "b")
	}

	b := get(t, a)
	meta.AddAnnotations(b, map[string]string{"example.org/state": "theirs"})
	must(t, a.Server().Update(context.Background(), b))

	c.now = c.now.Add(time.Hour)
	run(t, r, "b")

	if got := get(t, a).GetAnnotations()["example.org/state"]; got != "theirs" {
		t.Errorf("annotation: want theirs, got %s", got)
	}
}

// A managed resource that goes while Create runs, of a name that Create does not
// change; and one whose create is an operation.
func TestGoneWhileCreating(t *testing.T) {
	gone := func(ctx context.Context, a *testkit.API) error {
		b := &v1alpha1.Bucket{}
		if err := a.Server().Get(ctx, request().NamespacedName, b); err != nil {
			return err
		}

		b.SetFinalizers(nil)

		if err := a.Server().Update(ctx, b); err != nil {
			return err
		}

		return a.Server().Delete(ctx, b)
	}

	cases := map[string]struct {
		object *v1alpha1.Bucket
		async  bool

		// later is whether Observe comes up with the name, and not Create.
		later bool
	}{
		"AssignedName":           {object: bucket()},
		"AssignedLater":          {object: bucket(), later: true},
		"DeterministicName":      {object: bucket(named("id-1"))},
		"Async":                  {object: bucket(), async: true},
		"AsyncDeterministicName": {object: bucket(named("id-1")), async: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, rec := testkit.NewAPI(tc.object), &recorder{}

				o := []ReconcilerOption{WithRecorder(rec), connects(upstream.ExternalClientFns{
					ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
						if !tc.later || meta.GetExternalCreateSucceeded(mg).IsZero() {
							return ExternalObservation{}, nil
						}

						meta.SetExternalName(mg, "id-1")

						return ExternalObservation{ResourceExists: true, ResourceLateInitialized: true}, gone(context.Background(), a)
					},
					CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
						if tc.later {
							return ExternalCreation{}, nil
						}

						meta.SetExternalName(mg, "id-1")

						return ExternalCreation{}, gone(context.Background(), a)
					},
				})}

				if tc.async {
					o = append(o, WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()), asyncstate.WithRecorder(rec))))
				}

				r := newBucketReconciler(a, o...)

				for range 3 {
					_, _ = r.Reconcile(context.Background(), request())
					synctest.Wait()
					time.Sleep(time.Minute)
				}

				rec.mu.Lock()
				defer rec.mu.Unlock()

				for _, e := range rec.events {
					if strings.Contains(e.Message, "id-1") {
						return
					}
				}

				t.Errorf("no event has the name of the external resource that is left: %+v", rec.events)
			})
		})
	}
}

// Writes of metadata are refused for a while (an admission webhook) after a create
// that came up with the name, and the provider writes its status itself in Observe. A
// client of client-go's decodes the answer into the map of annotations that is there.
func TestNameLostToProvidersWrite(t *testing.T) {
	for name, writes := range map[string]bool{"Quiet": false, "WritesStatus": true} {
		t.Run(name, func(t *testing.T) {
			a, created, denied, n := testkit.NewAPI(bucket()), 0, false, 0

			a.Before = func(_ context.Context, r testkit.Request) error {
				if _, ok := r.Object.(*v1alpha1.Bucket); ok && denied && (r.Verb == testkit.Patch || r.Verb == testkit.Update) {
					return kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("admission webhook denied the request"))
				}

				return nil
			}

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
					o := ExternalObservation{ResourceExists: meta.GetExternalName(mg) != "", ResourceUpToDate: true}
					if !writes {
						return o, nil
					}

					had := mg.GetAnnotations()
					n++
					bucketOf(mg).Status.AtProvider.ID = fmt.Sprint(n)

					err := a.Server().Status().Update(ctx, mg)
					meta.AddAnnotations(mg, had)

					return o, err
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (ExternalCreation, error) {
					created++
					denied = true

					meta.SetExternalName(mg, fmt.Sprintf("id-%d", created))

					return ExternalCreation{}, nil
				},
			}))

			for range 3 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			denied = false

			for range 3 {
				_, _ = r.Reconcile(context.Background(), request())
			}

			if got := meta.GetExternalName(get(t, a)); got != "id-1" || created != 1 {
				t.Errorf("external name: want id-1, got %q; %d creates; annotations %v", got, created, get(t, a).GetAnnotations())
			}
		})
	}
}

// Another writer sets one of the annotations that an update sets, and not the external
// name, which is known only once if the update has renamed the external resource.
func TestNameSurvivesAnotherAnnotation(t *testing.T) {
	cases := map[string]struct {
		reason string
		away   bool
	}{
		"Conflict": {reason: "The other writer was first."},
		"Pending":  {reason: "The other writer was first while the API server could not be reached.", away: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, away := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), false
			a.Before = func(_ context.Context, r testkit.Request) error {
				if away && r.Verb != testkit.Get {
					return errors.New("the API server is away")
				}

				return nil
			}

			r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
					return ExternalObservation{ResourceExists: true, ResourceUpToDate: meta.GetExternalName(mg) == "renamed"}, nil
				},
				UpdateFn: func(_ context.Context, mg resource.Managed) (ExternalUpdate, error) {
					meta.SetExternalName(mg, "renamed")
					meta.AddAnnotations(mg, map[string]string{"k": "ours"})
					edit(t, a, "b", annotated("k", "theirs"))

					away = tc.away

					return ExternalUpdate{}, nil
				},
			}))

			_, _ = r.Reconcile(context.Background(), request())
			away = false
			_, _ = r.Reconcile(context.Background(), request())

			if b := get(t, a); meta.GetExternalName(b) != "renamed" || b.GetAnnotations()["k"] != "theirs" {
				t.Errorf("\n%s\nannotations: %v", tc.reason, b.GetAnnotations())
			}
		})
	}
}

// The result of a create that Observe records is not stored at a bounded rate.
func TestCreateRecordedByObserveIsStoredAtOnce(t *testing.T) {
	a, n := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0

	r := newBucketReconciler(a, connects(upstream.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (ExternalObservation, error) {
			n++
			meta.AddAnnotations(mg, map[string]string{meta.AnnotationKeyExternalCreateFailed: time.Unix(int64(n), 0).UTC().Format(time.RFC3339)})

			return ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
		},
	}))

	for range 2 * unstableAfter {
		run(t, r, "b")
	}

	if got := meta.GetExternalCreateFailed(get(t, a)); !got.Equal(time.Unix(int64(n), 0)) {
		t.Errorf("stored is %s of %d changes", got, n)
	}
}

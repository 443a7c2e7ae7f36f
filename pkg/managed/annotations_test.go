package managed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
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
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	keptKey    = "example.org/kept"
	removedKey = "example.org/removed"
	changedKey = "example.org/changed"
	addedKey   = "example.org/added"
)

// TestAnnotations_StoredAfterEachCall lets each call of the external client set annotations, with
// each way in which the call can end and with different policies.
func TestAnnotations_StoredAfterEachCall(t *testing.T) {
	const reason = "Exactly the annotations that the call has set should be stored."
	ends := map[string]struct {
		err             error
		cancels, panics bool
	}{
		"Succeeds":       {},
		"Fails":          {err: errors.New("boom")},
		"Panics":         {panics: true},
		"Cancelled":      {cancels: true},
		"CancelledFails": {cancels: true, err: context.Canceled},
	}
	allows := map[string]xpv2.ManagementPolicies{
		"All": {xpv2.ManagementActionAll},
		"NoLateInitialize": {
			xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
			xpv2.ManagementActionObserve,
		},
		"ObserveOnly":       {xpv2.ManagementActionObserve},
		"ObserveAndInitial": {xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize},
	}
	const emptyKey = "example.org/empty"
	set := map[string]string{meta.AnnotationKeyExternalName: "id-1", changedKey: "after", addedKey: "new", emptyKey: ""}
	for _, how := range []string{"observe", "observe late", "create", "update", "delete"} {
		for endName, end := range ends {
			for policyName, allowed := range allows {
				call, _, late := strings.Cut(how, " ")
				if policyName[0] == 'O' && call != "observe" {
					continue // the policies forbid this call
				}
				t.Run(strings.Join([]string{how, endName, policyName}, "/"), func(t *testing.T) {
					b := kit.NewBucket(
						kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(keptKey, "kept"),
						kit.WithAnnotation(removedKey, "removed"), kit.WithAnnotation(changedKey, "before"),
						kit.WithPolicies(allowed...),
					)
					if call == "delete" {
						kit.WithDeletionTimestamp(b)
					}
					api := testkit.NewAPI(b)
					called := 0
					version := ""
					ctx, cancel := context.WithCancel(t.Context())
					ext := &kit.ExternalResource{
						Exists:          call != "create",
						Outdated:        call == "update",
						LateInitialized: late,
					}
					ext.OnCall(call, func(b *v1alpha1.Bucket) error {
						called++
						version = b.GetResourceVersion()
						as := maps.Clone(b.GetAnnotations())
						maps.Copy(as, set)
						delete(as, removedKey)
						b.SetAnnotations(as)
						if end.cancels {
							cancel()
						}
						if end.panics {
							panic("boom")
						}
						return end.err
					})
					func() {
						defer func() { _ = recover() }()
						_, _ = kit.NewBucketReconciler(api, kit.WithClient(ext.Client())).Reconcile(ctx, kit.Request())
					}()
					kit.ExpectEqual(t, reason, "calls", 1, called)
					// Of an Observe only what identifies the external resource is stored, unless it late-initialized.
					all := call != "observe" || late && end.err == nil && !end.panics
					stored := map[string]any{meta.AnnotationKeyExternalName: "id-1"}
					for k, v := range set {
						if all {
							stored[k] = v
						}
					}
					kit.ExpectEqual(t, reason, "patch", map[string]any{"metadata": map[string]any{
						"annotations":     stored,
						"uid":             "uid-1",
						"resourceVersion": version,
					}}, firstPatch(t, api))
					for _, r := range api.Requests() {
						if r.Verb == testkit.Patch && (strings.Contains(r.Body, "null") ||
							strings.Contains(r.Body, removedKey) || strings.Contains(r.Body, keptKey)) {
							t.Errorf("\nA patch should have no annotation that the call did not set.\ngot %s", r.Body)
						}
					}
					got := kit.GetBucket(t, api).GetAnnotations()
					for k, v := range stored {
						kit.ExpectEqual(t, reason, k, v, any(got[k]))
					}
					kit.ExpectEqual(t, "Other annotations should be kept.", keptKey, "kept", got[keptKey])
					kit.ExpectEqual(
						t, "Only a create that panics should stay pending.", "incomplete",
						call == "create" && end.panics, meta.ExternalCreateIncomplete(kit.GetBucket(t, api)),
					)
				})
			}
		}
	}
}

// firstPatch returns the body of the first patch.
func firstPatch(t *testing.T, api *testkit.API) map[string]any {
	t.Helper()
	for _, r := range api.Requests() {
		if r.Verb != testkit.Patch {
			continue
		}
		body := map[string]any{}
		kit.Must(t, json.Unmarshal([]byte(r.Body), &body))
		return body
	}
	return nil
}

func TestAnnotations_OfInitializers(t *testing.T) {
	for reason, written := range map[string]bool{
		"An annotation that an initializer has written should not be stored again.":                  true,
		"An annotation that an initializer has only set should not be stored with those of Observe.": false,
	} {
		api := testkit.NewAPI(kit.NewBucket(kit.WithFinalizers(managed.FinalizerName)))
		ext := (&kit.ExternalResource{Exists: true}).OnCall(
			"observe", func(b *v1alpha1.Bucket) error { kit.WithExternalName("id-1")(b); return nil },
		)
		kit.MustReconcile(
			t,
			kit.NewBucketReconciler(
				api, kit.WithClient(ext.Client()),
				managed.WithInitializers(managed.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
					if kit.WithAnnotation(addedKey, "initial")(kit.AsBucket(mg)); written {
						return api.Client().Update(ctx, mg)
					}
					return nil
				})),
			),
			"b",
		)
		md, _ := firstPatch(t, api)["metadata"].(map[string]any)
		kit.ExpectEqual(t, reason, "patched annotations", map[string]any{
			meta.AnnotationKeyExternalName: "id-1",
		}, md["annotations"])
		kit.ExpectEqual(t, reason, "ID in status", "id-1", kit.GetBucket(t, api).Status.AtProvider.ID)
	}
}

func TestLateInitialized(t *testing.T) {
	setRegion := func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }
	setLabel := func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) }
	setStatus := func(b *v1alpha1.Bucket) { b.Status.AtProvider.Facts = map[string]string{"a": "b"} }
	removeAnnotations := func(b *v1alpha1.Bucket) { b.SetAnnotations(nil) }
	notAllowed := kit.WithPolicies(
		xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
		xpv2.ManagementActionObserve,
	)
	cases := map[string]struct {
		reason             string
		notLateInitialized bool // Observe does not return ResourceLateInitialized
		policyForbids      bool // the policies forbid late initialization
		onObserve          []kit.BucketModifier
		wantPatches        int
		wantUpdates        int
		wantRegion         string
		wantName           string
		wantNoAnnotations  bool
		withoutFinalizer   bool // before the reconcile
		finalizer          func(api *testkit.API) resource.Finalizer
	}{
		"FinalizerAdded": {
			reason:             "The status should be kept when the default finalizer is added.",
			notLateInitialized: true,
			wantUpdates:        1,
			withoutFinalizer:   true,
		},
		"NameAndFinalizer": {
			reason:           "The status should be kept when an external name is stored and the finalizer is added.",
			policyForbids:    true,
			onObserve:        []kit.BucketModifier{kit.WithExternalName("id-1")},
			wantPatches:      1,
			wantUpdates:      1,
			wantName:         "id-1",
			withoutFinalizer: true,
		},
		"SpecAndFinalizer": {
			reason:           "The status should be kept when the spec is late-initialized and the finalizer is added.",
			onObserve:        []kit.BucketModifier{setRegion},
			wantUpdates:      2,
			wantRegion:       "eu",
			withoutFinalizer: true,
		},
		"CustomFinalizer": {
			reason:             "The status should be kept when a custom finalizer is added.",
			notLateInitialized: true, wantUpdates: 1, withoutFinalizer: true,
			finalizer: func(api *testkit.API) resource.Finalizer {
				return resource.NewAPIFinalizer(api.Client(), managed.FinalizerName)
			},
		},
		"Nothing": {reason: "Nothing should be updated when nothing has changed."},
		"Status": {
			reason:    "The status should be updated once, and nothing else.",
			onObserve: []kit.BucketModifier{setStatus},
		},
		"Name": {
			reason:      "The external name should be stored in a patch.",
			onObserve:   []kit.BucketModifier{kit.WithExternalName("id-1")},
			wantPatches: 1,
			wantName:    "id-1",
		},
		"NameAndStatus": {
			reason:      "The external name should be stored in a patch, and the status in an update.",
			onObserve:   []kit.BucketModifier{kit.WithExternalName("id-1"), setStatus},
			wantPatches: 1,
			wantName:    "id-1",
		},
		"Spec": {
			reason:      "The spec should be late-initialized.",
			onObserve:   []kit.BucketModifier{setRegion},
			wantUpdates: 1,
			wantRegion:  "eu",
		},
		"NameAndSpec": {
			reason:      "The external name and the spec should be stored.",
			onObserve:   []kit.BucketModifier{kit.WithExternalName("id-1"), setRegion, setStatus},
			wantPatches: 1,
			wantUpdates: 1,
			wantRegion:  "eu",
			wantName:    "id-1",
		},
		"Label": {
			reason:      "Labels should be stored by an update.",
			onObserve:   []kit.BucketModifier{setLabel},
			wantUpdates: 1,
		},
		"RemovedAnnotation": {
			reason:            "As with upstream, an update should remove annotations.",
			onObserve:         []kit.BucketModifier{removeAnnotations},
			wantUpdates:       1,
			wantNoAnnotations: true,
		},
		"SpecWithoutPolicy": {
			reason:        "The spec should not be updated if the policies forbid late initialization.",
			onObserve:     []kit.BucketModifier{setRegion},
			policyForbids: true,
		},
		"NameAndSpecWithoutPolicy": {
			reason:        "The external name should be stored although the policies forbid late initialization.",
			onObserve:     []kit.BucketModifier{kit.WithExternalName("id-1"), setRegion},
			policyForbids: true,
			wantPatches:   1,
			wantName:      "id-1",
		},
		"SameName": {
			reason:             "An external name that is stored should not be stored again.",
			notLateInitialized: true,
			onObserve:          []kit.BucketModifier{kit.WithExternalName("id-0")},
		},
		"EmptiedName": {
			reason:             "The external name should be kept when Observe sets it to the empty string.",
			notLateInitialized: true,
			onObserve:          []kit.BucketModifier{kit.WithExternalName("")},
		},
		"RemovedName": {
			reason:             "The external name should be kept when Observe removes it.",
			notLateInitialized: true,
			onObserve:          []kit.BucketModifier{kit.WithoutAnnotation(meta.AnnotationKeyExternalName)},
		},
		"RemovedAll": {
			reason:             "Annotations should be kept when Observe removes all of them.",
			notLateInitialized: true,
			onObserve:          []kit.BucketModifier{removeAnnotations},
		},
	}
	for n, tc := range cases {
		t.Run(n, func(t *testing.T) {
			b := kit.NewBucket(
				kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(keptKey, "kept"),
				kit.WithExternalName("id-0"),
			)
			if tc.policyForbids {
				notAllowed(b)
			}
			if tc.withoutFinalizer {
				b.SetFinalizers(nil)
			}
			api := testkit.NewAPI(b)
			ext := (&kit.ExternalResource{
				Exists:          true,
				LateInitialized: !tc.notLateInitialized,
			}).OnCall("observe", func(b *v1alpha1.Bucket) error {
				for _, fn := range tc.onObserve {
					fn(b)
				}
				return nil
			})
			opts := []managed.ReconcilerOption{kit.WithClient(ext.Client())}
			if tc.finalizer != nil {
				opts = append(opts, managed.WithFinalizer(tc.finalizer(api)))
			}
			r := kit.NewBucketReconciler(api, opts...)
			kit.MustReconcile(t, r, "b")
			want := map[string]string{keptKey: "kept", meta.AnnotationKeyExternalName: cmp.Or(tc.wantName, "id-0")}
			if tc.wantNoAnnotations {
				want = nil
			}
			got := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "annotations", want, got.GetAnnotations())
			kit.ExpectEqual(t, tc.reason, "patches", tc.wantPatches, api.Count(testkit.Patch))
			kit.ExpectEqual(t, tc.reason, "updates", tc.wantUpdates, api.Count(testkit.Update))
			kit.ExpectEqual(t, tc.reason, "status updates", 1, api.Count(testkit.StatusUpdate))
			kit.ExpectEqual(t, tc.reason, "finalizers", []string{managed.FinalizerName}, got.GetFinalizers())
			kit.ExpectEqual(t, tc.reason, "region", tc.wantRegion, got.Spec.ForProvider.Region)
			kit.ExpectEqual(t, tc.reason, "status", "id-1", got.Status.AtProvider.ID)
			kit.ExpectEqual(t, tc.reason, "Ready", corev1.ConditionTrue, got.GetCondition(xpv2.TypeReady).Status)
			kit.ExpectEqual(t, tc.reason, "Synced", corev1.ConditionTrue, got.GetCondition(xpv2.TypeSynced).Status)
			if len(tc.onObserve) == 0 {
				api.Forget()
				kit.MustReconcileTimes(t, r, 10)
				kit.ExpectEqual(t, tc.reason, "writes in 10 more reconciles", 0, api.Writes())
			}
		})
	}
}

// TestLateInitialized_ProviderWrites has a provider that writes its managed resource with a client
// of its own, and then changes the managed resource in memory.
func TestLateInitialized_ProviderWrites(t *testing.T) {
	writes := map[string]func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error{
		"StatusUpdate": func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Facts = map[string]string{"polled": "now"}
			return c.Status().Update(ctx, b)
		},
		"StatusPatch": func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
			from := client.MergeFrom(b.DeepCopy())
			b.Status.AtProvider.Facts = map[string]string{"polled": "now"}
			return c.Status().Patch(ctx, b, from)
		},
		"Update": func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
			meta.AddLabels(b, map[string]string{"polled": "now"})
			return c.Update(ctx, b)
		},
		"Patch": func(ctx context.Context, c client.Client, b *v1alpha1.Bucket) error {
			from := client.MergeFrom(b.DeepCopy())
			meta.AddLabels(b, map[string]string{"polled": "now"})
			return c.Patch(ctx, b, from)
		},
	}
	cases := map[string]struct {
		reason          string
		lateInitialized bool // Observe returns ResourceLateInitialized
		outdated        bool // the external resource needs an update
		call            string
		change          kit.BucketModifier
	}{
		"SpecInObserve": {
			reason:          "A field of spec that was not sent should be stored.",
			lateInitialized: true,
			call:            "observe",
			change:          func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" },
		},
		"SpecInConnect": {
			reason:          "A field of spec that was not sent should be stored.",
			lateInitialized: true,
			call:            "connect",
			change:          func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" },
		},
		"LabelInObserve": {
			reason:          "A label that was not sent should be stored.",
			lateInitialized: true,
			call:            "observe",
			change:          func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"a": "b"}) },
		},
		"LabelInConnect": {
			reason:          "A label that was not sent should be stored.",
			lateInitialized: true,
			call:            "connect",
			change:          func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"a": "b"}) },
		},
		"RemovedLabel": {
			reason:          "A label that was removed in memory should be removed.",
			lateInitialized: true,
			call:            "observe",
			change:          func(b *v1alpha1.Bucket) { meta.RemoveLabels(b, "old") },
		},
		"NameInObserve": {
			reason: "An external name that was not sent should be stored.",
			call:   "observe",
			change: kit.WithExternalName("id-1"),
		},
		"NameInConnect": {
			reason: "An external name that was not sent should be stored.",
			call:   "connect",
			change: kit.WithExternalName("id-1"),
		},
		"AnnotationInUpdate": {
			reason:   "An annotation that was not sent should be stored.",
			outdated: true,
			call:     "update",
			change:   kit.WithAnnotation(addedKey, "new"),
		},
		"NameInUpdate": {
			reason:   "An external name that was not sent should be stored.",
			outdated: true,
			call:     "update",
			change:   kit.WithExternalName("id-1"),
		},
		"NameAndSpec": {
			reason:          "The external name and the spec should be stored.",
			lateInitialized: true,
			call:            "observe",
			change: func(b *v1alpha1.Bucket) {
				kit.WithExternalName("id-1")(b)
				b.Spec.ForProvider.Region = "eu"
			},
		},
		"Status": {
			reason: "Status that was not sent should be stored.",
			call:   "observe",
			change: func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "id-2" },
		},
	}
	for name, tc := range cases {
		for how, write := range writes {
			t.Run(name+"/"+how, func(t *testing.T) {
				b := kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), kit.WithAnnotation(keptKey, "kept"))
				b.SetLabels(map[string]string{"old": "label", "kept": "label"})
				api := testkit.NewAPI(b)
				want := v1alpha1.Bucket{}
				call := func(ctx context.Context, b *v1alpha1.Bucket) error {
					if err := write(ctx, api.Client(), b); err != nil {
						return err
					}
					tc.change(b)
					want = *b.DeepCopy()
					return nil
				}
				x := (&kit.ExternalResource{
					Exists:          true,
					LateInitialized: tc.lateInitialized,
					Outdated:        tc.outdated,
				}).Client()
				connector := managed.ExternalConnectorFn(
					func(ctx context.Context, mg resource.Managed) (managed.ExternalClient, error) {
						if tc.call == "connect" {
							kit.Must(t, call(ctx, kit.AsBucket(mg)))
						}
						fns := kit.NewExternalClient(x)
						observe, update := fns.ObserveFn, fns.UpdateFn
						fns.ObserveFn = func(
							ctx context.Context, mg resource.Managed,
						) (managed.ExternalObservation, error) {
							o, err := observe(ctx, mg)
							if tc.call == "observe" {
								kit.Must(t, call(ctx, kit.AsBucket(mg)))
							}
							return o, err
						}
						fns.UpdateFn = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
							o, err := update(ctx, mg)
							kit.Must(t, call(ctx, kit.AsBucket(mg)))
							return o, err
						}
						return &fns, nil
					},
				)
				kit.MustReconcile(t, kit.NewBucketReconciler(api, managed.WithExternalConnector(connector)), "b")
				got := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "spec", want.Spec, got.Spec)
				kit.ExpectEqual(t, tc.reason, "labels", want.GetLabels(), got.GetLabels())
				kit.ExpectEqual(t, tc.reason, "annotations", want.GetAnnotations(), got.GetAnnotations())
				if tc.call != "connect" {
					kit.ExpectEqual(t, tc.reason, "ID in status", want.Status.AtProvider.ID, got.Status.AtProvider.ID)
				}
			})
		}
	}
}

// TestAnnotations_OtherWriterDuringCall has another writer that sets annotations during a call that
// sets them, too. The other writer's value should be kept if the next call can set ours again.
func TestAnnotations_OtherWriterDuringCall(t *testing.T) {
	const secret, replaced = "example.org/secret", "the result of creating the external resource replaced another value of the annotation "
	setSecret := kit.WithAnnotation(secret, "hunter2")
	setNameAndSecret := func(b *v1alpha1.Bucket) { kit.WithExternalName("theirs")(b); setSecret(b) }
	cases := map[string]struct {
		reason          string
		call            string
		callSetsNothing bool
		async           bool
		outageAfterCall bool // of the API server
		otherWriter     kit.BucketModifier
		wantName        string
		wantSecret      string
		wantEvents      []string
	}{
		"Observe": {
			reason:      "The external name that a user sets during Observe should be kept, and the reconcile should run again.",
			call:        "observe",
			otherWriter: setNameAndSecret,
			wantName:    "theirs",
			wantSecret:  "hunter2",
		},
		"Update": {
			reason:      "The external name that a user sets during Update should be kept, and the reconcile should run again.",
			call:        "update",
			otherWriter: setNameAndSecret,
			wantName:    "theirs",
			wantSecret:  "hunter2",
		},
		"Create": {
			reason: "The external name that Create has set should replace the name that a user sets, with an event.",
			call:   "create", otherWriter: setNameAndSecret, wantName: "ours", wantSecret: "sesame",
			wantEvents: []string{
				replaced + `crossplane.io/external-name: "ours", not "theirs", is its external name`,
				replaced + secret,
			},
		},
		"CreateOutage": {
			reason:          "The external name that Create has set should replace the name that a user sets, although it can be stored only later.",
			call:            "create",
			outageAfterCall: true, otherWriter: setNameAndSecret, wantName: "ours", wantSecret: "sesame",
			wantEvents: []string{
				replaced + `crossplane.io/external-name: "ours", not "theirs", is its external name`,
				replaced + secret,
			},
		},
		"ObserveUnnamed": {
			reason:      "The external name that Observe has set should be stored when a user removes the name.",
			call:        "observe",
			otherWriter: kit.WithoutAnnotation(meta.AnnotationKeyExternalName),
			wantName:    "ours",
		},
		"UpdateRenames": {
			reason:      "The external name that Update has set should be stored when a user sets another annotation.",
			call:        "update",
			otherWriter: setSecret,
			wantName:    "ours",
			wantSecret:  "hunter2",
		},
		"UpdateOutage": {
			reason:          "The external name that Update has set should be stored, although it can be stored only later.",
			call:            "update",
			outageAfterCall: true,
			otherWriter:     setSecret,
			wantName:        "ours",
			wantSecret:      "hunter2",
		},
		"CreateSilent": {
			reason: "The external name of the create should be kept when Create does not set one.",
			call:   "create", callSetsNothing: true, otherWriter: kit.WithExternalName("theirs"), wantName: "first",
			wantEvents: []string{replaced + `crossplane.io/external-name: "first", not "theirs", is its external name`},
		},
		"CreateAsync": {
			reason:          "The external name of an asynchronous create should be kept when it does not set one.",
			call:            "create",
			callSetsNothing: true, async: true, otherWriter: kit.WithExternalName("theirs"), wantName: "first",
			wantEvents: []string{
				`another external name, "theirs", was replaced by that of the external resource that was created: "first"`,
			},
		},
	}
	for name, tc := range cases {
		for _, conflicts := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s/%dLost", name, conflicts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := testkit.NewAPI(
						kit.NewBucket(kit.WithExternalName("first"), kit.WithFinalizers(managed.FinalizerName)),
					)
					recorder := &testkit.Said{}
					away := false
					api.Before = func(_ context.Context, r testkit.Request) error {
						// Another writer changes the object right before our patches.
						if r.Verb == testkit.Patch && conflicts > 0 &&
							meta.GetExternalName(kit.GetBucket(t, api)) != "first" {
							conflicts--
							kit.UpdateBucket(t, api, "b", kit.WithAnnotation("example.org/busy", fmt.Sprint(conflicts)))
						}
						if away && r.Verb != testkit.Get {
							return errors.New("the API server is away")
						}
						return nil
					}
					ext := &kit.ExternalResource{Exists: tc.call != "create", Outdated: tc.call == "update"}
					ext.OnCall(tc.call, func(b *v1alpha1.Bucket) error {
						if !tc.callSetsNothing {
							meta.AddAnnotations(b, map[string]string{
								meta.AnnotationKeyExternalName: "ours",
								secret:                         "sesame",
							})
						}
						kit.UpdateBucket(t, api, "b", tc.otherWriter)
						away, ext.Outdated = tc.outageAfterCall, false
						return nil
					})
					opts := []managed.ReconcilerOption{managed.WithRecorder(recorder), kit.WithClient(ext.Client())}
					if tc.async {
						opts = append(opts, asyncstate.With(asyncstate.NewTracker()))
					}
					r := kit.NewBucketReconciler(api, opts...)
					result, err := r.Reconcile(t.Context(), kit.Request())
					//nolint:staticcheck // Upstream asks for a requeue this way.
					if !tc.outageAfterCall && (err != nil || !result.Requeue && !tc.async) {
						t.Errorf("\n%s\nReconcile: want a requeue, got %+v, %v", tc.reason, result, err)
					}
					time.Sleep(time.Minute) // let the asynchronous create end
					synctest.Wait()
					if away = false; tc.outageAfterCall {
						kit.MustReconcile(t, r, "b")
					}
					b := kit.GetBucket(t, api)
					kit.ExpectEqual(t, tc.reason, "external name", tc.wantName, meta.GetExternalName(b))
					kit.ExpectEqual(t, tc.reason, "secret", tc.wantSecret, b.GetAnnotations()[secret])
					kit.ExpectEqual(t, tc.reason, "incomplete", false, meta.ExternalCreateIncomplete(b))
					kit.ExpectEqual(t, tc.reason, "events", tc.wantEvents, recorder.Events("OverwroteAnnotation"))
					kit.ExpectEqual(
						t, "An event should say that annotations can't be stored.", "has the event",
						tc.outageAfterCall, len(recorder.Events("CannotStoreAnnotations")) > 0,
					)
				})
			})
		}
	}
}

// TestAnnotations_ValuesAreNotDisclosed shows that values of annotations, which may be secret, are in
// no error, event, condition or log.
func TestAnnotations_ValuesAreNotDisclosed(t *testing.T) {
	const secret = "hunter2"
	patchErrs := map[string]error{
		"Nothing":   nil,
		"Broken":    kit.FailWithServerError(testkit.Request{}),
		"Conflict":  kit.FailWithConflict(testkit.Request{}),
		"Forbidden": kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("no")),
		"Invalid":   kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
	}
	for patchErrName, patchErr := range patchErrs {
		for _, callErr := range []error{nil, errors.New("boom")} {
			for _, otherWriter := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%t/%t", patchErrName, callErr != nil, otherWriter), func(t *testing.T) {
					api := testkit.NewAPI(kit.NewBucket(kit.WithAnnotation("example.org/old", secret+"-old")))
					recorder := &testkit.Said{}
					api.Before = kit.FailRequests(kit.IsVerb(testkit.Patch), patchErr)
					setAnnotations := func(mg resource.Managed) error {
						meta.AddAnnotations(mg, map[string]string{
							"example.org/token": secret,
							"example.org/old":   secret + "-new",
						})
						if otherWriter {
							kit.UpdateBucket(t, api, "b", kit.WithAnnotation("example.org/token", secret+"-theirs"))
						}
						return callErr
					}
					r := kit.NewBucketReconciler(
						api, managed.WithRecorder(recorder), managed.WithLogger(recorder),
						kit.WithClient(managed.ExternalClientFns{
							ObserveFn: kit.Returns(managed.ExternalObservation{
								ConnectionDetails: managed.ConnectionDetails{"password": []byte(secret)},
							}, nil),
							CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
								return managed.ExternalCreation{
									ConnectionDetails: managed.ConnectionDetails{"password": []byte(secret)},
								}, setAnnotations(mg)
							},
						}),
					)
					var said []string
					for range 3 {
						if _, err := r.Reconcile(context.Background(), kit.Request()); err != nil {
							said = append(said, err.Error())
						}
					}
					said = append(said, fmt.Sprint(kit.GetBucket(t, api).Status.Conditions))
					kit.ExpectEqual(
						t, "The log should say that annotations can't be stored.", "logged",
						patchErrName == "Broken" || patchErrName == "Invalid",
						strings.Contains(fmt.Sprint(recorder.Lines()), "Cannot store annotations"),
					)
					if all := strings.Join(said, "\n") + recorder.All(); strings.Contains(all, secret) {
						t.Errorf("\nThe values of annotations must not be disclosed.\ngot: %s", all)
					}
				})
			}
		}
	}
}

func TestAnnotations_ChangedByEachObserve(t *testing.T) {
	api := testkit.NewAPI(kit.NewBucket(
		kit.WithExternalName("id-0"), kit.WithFinalizers(managed.FinalizerName),
	))
	n, names := 0, 5
	ext := (&kit.ExternalResource{Exists: true}).OnCall("observe", func(b *v1alpha1.Bucket) error {
		n++
		kit.WithAnnotation("example.org/etag", fmt.Sprint(n))(b)
		kit.WithExternalName(fmt.Sprintf("id-%d", min(n, names)))(b)
		return nil
	})
	r := kit.NewBucketReconciler(api, kit.WithClient(ext.Client()))
	kit.MustReconcileTimes(t, r, 20)
	kit.ExpectEqual(
		t, "Each external name should be stored at once, and an annotation that Observe changes each time never.",
		"patches", names, api.Count(testkit.Patch),
	)
	kit.ExpectEqual(
		t, "The last external name should be stored.", "external name", "id-5",
		meta.GetExternalName(kit.GetBucket(t, api)),
	)
}

func TestAnnotations_ManagedResourceDeletedDuringCreate(t *testing.T) {
	cases := map[string]struct {
		bucket         *v1alpha1.Bucket
		async          bool
		namedByObserve bool // Observe sets the external name, not Create
	}{
		"AssignedName":           {bucket: kit.NewBucket()},
		"AssignedLater":          {bucket: kit.NewBucket(), namedByObserve: true},
		"DeterministicName":      {bucket: kit.NewBucket(kit.WithExternalName("id-1"))},
		"Async":                  {bucket: kit.NewBucket(), async: true},
		"AsyncDeterministicName": {bucket: kit.NewBucket(kit.WithExternalName("id-1")), async: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(tc.bucket)
				recorder := &testkit.Said{}
				ext := &kit.ExternalResource{LateInitialized: true}
				ext.BeforeCall = func(what string, mg resource.Managed) error {
					if tc.namedByObserve && ext.Exists || !tc.namedByObserve && what == "create" {
						meta.SetExternalName(mg, "id-1")
						kit.RemoveBucket(t, api, "b")
					}
					return nil
				}
				o := []managed.ReconcilerOption{managed.WithRecorder(recorder), kit.WithClient(ext.Client())}
				if tc.async {
					o = append(o, asyncstate.With(asyncstate.NewTracker()))
				}
				r := kit.NewBucketReconciler(api, o...)
				for range 3 {
					kit.TryReconcile(r, 1)
					synctest.Wait()
					time.Sleep(time.Minute)
				}
				said := fmt.Sprint(recorder.Events())
				if !strings.Contains(said, "id-1") {
					t.Errorf(
						"\nAn event should name the external resource of a managed resource that no longer exists.\ngot %s",
						said,
					)
				}
			})
		})
	}
}

// TestAnnotations_NameIsStoredAfterRefusedWrites has an API server that refuses writes after the
// create that has set the external name.
func TestAnnotations_NameIsStoredAfterRefusedWrites(t *testing.T) {
	buckets := schema.GroupResource{Resource: "buckets"}
	forbidden := kerrors.NewForbidden(buckets, "b", errors.New("no"))
	invalid := kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
	versionNotServed := kerrors.NewGenericServerResponse(
		http.StatusNotFound, "patch", buckets, "b", "404 page not found", 0, true,
	)
	hasAnnotation := func(r testkit.Request, key string) bool {
		return strings.Contains(r.Body, key) || r.Verb == testkit.Update && r.Object.GetAnnotations()[key] != ""
	}
	isPatch := func(r testkit.Request) bool { return r.Verb == testkit.Patch || r.Verb == testkit.StatusPatch }
	isPatchOrUpdate := func(r testkit.Request) bool { return r.Verb == testkit.Patch || r.Verb == testkit.Update }
	hasExternalName := func(r testkit.Request) bool { return hasAnnotation(r, meta.AnnotationKeyExternalName) }
	hasOtherAnnotation := func(r testkit.Request) bool { return hasAnnotation(r, removedKey) }
	cases := map[string]struct {
		reason              string
		refused             func(r testkit.Request) bool
		forGood             bool
		refusedWith         error
		observeWritesStatus bool
		observeReadsAgain   bool   // Observe reads the managed resource until it is being deleted
		observeSets         string // an annotation
		wantName            string // empty if the external name can't be stored
	}{
		"Unserved": {
			reason:      "The external name should be stored when the API server serves the version again.",
			refused:     func(r testkit.Request) bool { return r.Verb != testkit.Get },
			refusedWith: versionNotServed,
			wantName:    "id-1",
		},
		"Quiet": {
			reason:      "The external name should be stored when writes are allowed again.",
			refused:     isPatchOrUpdate,
			refusedWith: forbidden,
			wantName:    "id-1",
		},
		"WritesStatus": {
			reason:              "The external name should be stored although the provider updates the status in Observe.",
			refused:             isPatchOrUpdate,
			refusedWith:         forbidden,
			observeWritesStatus: true,
			wantName:            "id-1",
		},
		"SetsAnnotation": {
			reason:      "The external name should be stored although Observe sets another annotation.",
			refused:     hasExternalName,
			refusedWith: forbidden,
			observeSets: "etag",
			wantName:    "id-1",
		},
		"Patches": {
			reason:      "The external name should be stored in an update without permission to patch.",
			refused:     isPatch,
			refusedWith: forbidden,
			forGood:     true,
			wantName:    "id-1",
		},
		"Invalid": {
			reason:      "The external name should be stored although the API server refuses another annotation.",
			refused:     hasOtherAnnotation,
			refusedWith: invalid,
			forGood:     true,
			wantName:    "id-1",
		},
		"Forbidden": {
			reason:      "The external name should be stored although an admission webhook refuses another annotation.",
			refused:     hasOtherAnnotation,
			refusedWith: forbidden,
			forGood:     true,
			wantName:    "id-1",
		},
		"TheName": {
			reason:      "The create should not be repeated, and the deletion should succeed, if the external name can't be stored.",
			refused:     hasExternalName,
			refusedWith: invalid,
			forGood:     true,
		},
		"ReadAgain": {
			reason:            "The create should not be repeated if the external name can't be stored and the provider reads the managed resource again.",
			refused:           hasExternalName,
			refusedWith:       invalid,
			forGood:           true,
			observeReadsAgain: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			recorder := &testkit.Said{}
			denied := tc.forGood
			api.Before = kit.FailRequests(
				func(r testkit.Request) bool { return denied && tc.refused(r) && !meta.WasDeleted(r.Object) },
				tc.refusedWith,
			)
			ext := &kit.ExternalResource{}
			ext.BeforeCall = func(what string, mg resource.Managed) error {
				if what == "create" {
					denied = true
					meta.AddAnnotations(mg, map[string]string{
						meta.AnnotationKeyExternalName: fmt.Sprintf("id-%d", ext.Count("create")),
						removedKey:                     "v",
					})
					return nil
				}
				if tc.observeReadsAgain && !meta.WasDeleted(mg) {
					kit.Must(t, api.Server().Get(t.Context(), kit.Request().NamespacedName, mg))
				}
				ext.Exists = ext.Owner != "" && meta.GetExternalName(mg) != ""
				if tc.observeSets != "" && ext.Exists {
					meta.AddAnnotations(mg, map[string]string{tc.observeSets: "1"})
				}
				if !tc.observeWritesStatus {
					return nil
				}
				had := mg.GetAnnotations()
				kit.AsBucket(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(ext.Observes)}
				err := api.Server().Status().Update(t.Context(), mg)
				meta.AddAnnotations(mg, had)
				return err
			}
			r := kit.NewBucketReconciler(api, kit.WithClient(ext.Client()), managed.WithRecorder(recorder))
			kit.TryReconcile(r, 3)
			denied = tc.forGood
			kit.TryReconcile(r, 3)
			if tc.wantName != "" {
				// Another process has nothing in memory.
				kit.MustReconcile(t, kit.NewBucketReconciler(api, kit.WithClient(ext.Client())), "b")
			} else if len(recorder.Events("CannotStoreAnnotations")) == 0 {
				t.Errorf("\nAn event should say that the external name can't be stored.")
			}
			kit.ExpectEqual(t, tc.reason, "external name", tc.wantName, meta.GetExternalName(kit.GetBucket(t, api)))
			kit.ExpectEqual(
				t, tc.reason, "incomplete", tc.wantName == "", meta.ExternalCreateIncomplete(kit.GetBucket(t, api)),
			)
			kit.DeleteBucket(t, api, "b")
			kit.TryReconcile(r, 5)
			kit.ExpectEqual(t, tc.reason, "name", "", kit.GetBucket(t, api).GetName())
			kit.ExpectEqual(t, tc.reason, "calls", []string{"create b", "delete b"}, ext.Calls)
		})
	}
}

func TestAnnotations_SetByEachObserve(t *testing.T) {
	for reason, tc := range map[string]struct {
		set     func(b *v1alpha1.Bucket, n int)
		patches int
		want    string // the external name, and the time of external-create-failed
	}{
		"The result of a create should be stored at once.": {set: func(b *v1alpha1.Bucket, n int) {
			meta.SetExternalCreateFailed(b, time.Unix(int64(n), 0))
		}, patches: 10, want: "id-1 10"},
		"A value that is not UTF-8 should be stored once, although the API server changes it.": {
			set: func(b *v1alpha1.Bucket, _ int) {
				kit.WithExternalName("\xff\xfe")(b)
				kit.WithAnnotation(addedKey, "\xff")(b)
			},
			patches: 1,
			want:    "\ufffd\ufffd -62135596800",
		},
	} {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"), kit.WithFinalizers(managed.FinalizerName)))
		n := 0
		ext := (&kit.ExternalResource{Exists: true}).OnCall(
			"observe", func(b *v1alpha1.Bucket) error { n++; tc.set(b, n); return nil },
		)
		kit.MustReconcileTimes(t, kit.NewBucketReconciler(api, kit.WithClient(ext.Client())), 10)
		b := kit.GetBucket(t, api)
		kit.ExpectEqual(t, reason, "patches", tc.patches, api.Count(testkit.Patch))
		kit.ExpectEqual(
			t, reason, "stored", tc.want,
			fmt.Sprint(meta.GetExternalName(b), " ", meta.GetExternalCreateFailed(b).Unix()),
		)
	}
}

// TestAnnotations_ProviderReadsStaleObject has a provider that reads its managed resource from a
// stale cache during a call.
func TestAnnotations_ProviderReadsStaleObject(t *testing.T) {
	const before = "2026-01-02T03:04:05Z"
	tagged := managed.InitializerFn(func(_ context.Context, mg resource.Managed) error {
		kit.WithAnnotation("k", "new")(kit.AsBucket(mg))
		return nil
	})
	for name, tc := range map[string]struct {
		reason         string
		external       *kit.ExternalResource
		call           string // the call that reads the managed resource
		withoutRead    bool   // the call does not read it
		change         kit.BucketModifier
		err            error
		bucket         []kit.BucketModifier
		wantAnnotation string // by default "new", the value of the initializer
		wantIncomplete bool
	}{
		"Update": {
			reason:   "The external name that Observe has set should be kept when Update reads a stale managed resource.",
			external: &kit.ExternalResource{Exists: true, Outdated: true}, call: "update",
		},
		"Delete": {
			reason:   "The external name that Observe has set should be kept when Delete reads a stale managed resource.",
			external: &kit.ExternalResource{Exists: true, DeletesIgnored: 1},
			call:     "delete", bucket: []kit.BucketModifier{kit.WithDeletionTimestamp},
		},
		"Observe": {
			reason:   "The annotation of an initializer should be kept when Observe reads a stale managed resource.",
			external: &kit.ExternalResource{Exists: true}, call: "observe",
		},
		"SetSince": {
			reason:   "The annotation that Update sets after it has read a stale managed resource should be stored.",
			external: &kit.ExternalResource{Exists: true, Outdated: true},
			call:     "update", change: kit.WithAnnotation("k", "newer"),
			wantAnnotation: "newer",
		},
		"SetBack": {
			reason: "The annotation that Update resets itself should be stored.", withoutRead: true,
			external: &kit.ExternalResource{Exists: true, Outdated: true},
			call:     "update", change: kit.WithAnnotation("k", "old"),
			wantAnnotation: "old",
		},
		"Create": {
			reason:   "A create should stay pending when Create reads a stale managed resource and the process dies.",
			external: &kit.ExternalResource{}, call: "create", change: func(*v1alpha1.Bucket) {
				panic("the process dies")
			},
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, before),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, before),
			},
			wantIncomplete: true,
		},
		"CreateWithoutAnswer": {
			reason:   "A create should stay pending when Create reads a stale managed resource and its outcome is unknown.",
			external: &kit.ExternalResource{}, call: "create", err: asyncstate.ErrOutcomeUnknown,
			bucket: []kit.BucketModifier{
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, before),
				kit.WithAnnotation(meta.AnnotationKeyExternalCreateFailed, before),
			},
			wantIncomplete: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(append(
				tc.bucket, kit.WithExternalName("b"), kit.WithAnnotation("k", "old"), kit.WithFinalizers(
					managed.FinalizerName,
				),
			)...))
			kit.Must(t, api.Freeze(t.Context(), kit.NewBucket()))
			tc.external.BeforeCall = func(what string, mg resource.Managed) error {
				if what == tc.call && !tc.withoutRead {
					kit.Must(t, api.Client().Get(t.Context(), kit.Request().NamespacedName, mg))
				}
				if what == "observe" {
					kit.WithExternalName("id-1")(kit.AsBucket(mg))
				}
				if what != tc.call {
					return nil
				}
				if tc.change != nil {
					tc.change(kit.AsBucket(mg))
				}
				return tc.err
			}
			written := managed.InitializerFn(
				func(ctx context.Context, mg resource.Managed) error { return api.Client().Update(ctx, mg) },
			)
			kit.TryReconcile(
				kit.NewBucketReconciler(
					api, kit.WithClient(tc.external.Client()), managed.WithInitializers(tagged, written),
				), 1,
			)
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "name", "id-1", meta.GetExternalName(b))
			kit.ExpectEqual(t, tc.reason, "annotation", cmp.Or(tc.wantAnnotation, "new"), b.GetAnnotations()["k"])
			kit.ExpectEqual(
				t, tc.reason, "create without a result", tc.wantIncomplete, meta.ExternalCreateIncomplete(b),
			)
		})
	}
}

func TestAnnotations_Refused(t *testing.T) {
	for reason, refusal := range map[string]error{
		"The name should be stored although the API server refuses another annotation.": kerrors.NewInvalid(
			testkit.BucketKind().GroupKind(), "b", nil,
		),
		"The name should be stored although a webhook refuses another annotation.": kerrors.NewForbidden(
			schema.GroupResource{}, "b", nil,
		),
	} {
		api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1")))
		api.Before = kit.FailRequests(func(r testkit.Request) bool {
			_, has := r.Object.GetAnnotations()[addedKey]
			return r.Verb == testkit.Update && has || strings.Contains(r.Body, addedKey)
		}, refusal)
		ext := &kit.ExternalResource{Exists: true, Outdated: true}
		set := func(b *v1alpha1.Bucket) error {
			kit.WithAnnotation(addedKey, "v")(b)
			kit.WithExternalName("id-2")(b)
			return nil
		}
		ext.OnCall("update", set)
		var kept *store.Store
		r := kit.NewBucketReconciler(api, kit.WithStore(&kept), kit.WithClient(ext.Client()))
		kit.MustReconcileTimes(t, r, 2)
		b := kit.GetBucket(t, api)
		kit.ExpectEqual(t, reason, "name", "id-2", meta.GetExternalName(b))
		kit.ExpectEqual(
			t, reason, "Synced", xpv2.ReasonReconcileSuccess, b.GetCondition(xpv2.TypeSynced).Reason,
		)
		kit.DeleteBucket(t, api, "b")
		ext.OnCall("delete", set)
		kit.MustReconcileTimes(t, r, 3)
		const reason = "An annotation that the API server refuses should not block a deletion."
		kit.ExpectEqual(t, reason, "UID", types.UID(""), kit.GetBucket(t, api).GetUID())
		kit.ExpectEqual(t, reason, "external resource exists", false, ext.Exists)
		kit.ExpectEqual(t, reason, "objects in memory", 0, kept.Len())
	}
}

// TestExternalName_Emptied has a provider that sets an empty name, because an answer was incomplete or
// because it replaces the external resource.
func TestExternalName_Emptied(t *testing.T) {
	exists := managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}
	late := exists
	late.ResourceLateInitialized = true
	rename := func(t *testing.T, api *testkit.API, _ resource.Managed) {
		kit.UpdateBucket(t, api, "b", kit.WithExternalName("theirs"))
	}
	annotate := func(t *testing.T, api *testkit.API, _ resource.Managed) {
		kit.UpdateBucket(t, api, "b", kit.WithAnnotation(addedKey, "theirs"))
	}
	readStale := func(_ *testing.T, _ *testkit.API, mg resource.Managed) { mg.SetResourceVersion("1") }
	errExists := errors.New("the bucket already exists")
	cases := map[string]struct {
		reason      string
		observed    managed.ExternalObservation
		create      bool // Create sets it, not Observe
		createErr   error
		onCreate    func(t *testing.T, api *testkit.API, mg resource.Managed)
		opts        func(api *testkit.API) []managed.ReconcilerOption
		wantSeen    string // the name that Create is called with
		wantName    string
		wantFailed  bool // the create is stored as failed
		dropsRegion bool
	}{
		"LateInitialized": {
			reason:   "A late initialization should not empty a stored name.",
			observed: late,
			wantSeen: "not called", wantName: "id-1",
		},
		"FinalizerAdded": {
			reason:   "The write of the finalizer should not empty a stored name.",
			observed: exists,
			wantSeen: "not called", wantName: "id-1",
		},
		"Announced": {
			reason:    "Create should get the name that Observe has emptied. A create that fails should not empty a stored name.",
			createErr: kit.ErrProvider,
			wantName:  "id-1", wantFailed: true,
		},
		"AnnouncedAndUnknown": {
			reason:    "A create with an unknown outcome should not empty a stored name.",
			createErr: asyncstate.ErrOutcomeUnknown,
			wantName:  "id-1",
		},
		"AnnouncedAndCreated": {
			reason: "A create that succeeds should empty the stored name that Observe has emptied.",
		},
		"AnnouncedAndRefused": {
			reason:    "A create that gets \"already exists\" without a name should fail, although a create with another name has succeeded.",
			createErr: errExists,
			wantName:  "id-1", wantFailed: true,
		},
		"AnnouncedAsync": {
			reason: "An asynchronous create should get the stored name.",
			opts: func(api *testkit.API) []managed.ReconcilerOption {
				return []managed.ReconcilerOption{asyncstate.With(asyncstate.NewTracker())}
			},
			wantSeen: "id-1", wantName: "id-1",
		},
		"Created": {
			reason: "A create that succeeds should be able to empty the stored name.",
			create: true, wantSeen: "id-1",
		},
		"CreateFailed": {
			reason: "A create that fails should not empty a stored name.",
			create: true, createErr: kit.ErrProvider, wantSeen: "id-1", wantName: "id-1", wantFailed: true,
		},
		"CreateFoundItsOwn": {
			reason: "A create that gets \"already exists\" should not empty the name of an earlier create.",
			create: true, createErr: errExists, wantSeen: "id-1", wantName: "id-1",
		},
		"CreateReadStale": {
			reason: "A create that reads a stale managed resource without a name should not empty the stored name.",
			create: true, onCreate: readStale, wantSeen: "id-1", wantName: "id-1", dropsRegion: true,
		},
		"CreatedConflict": {
			reason: "A create that succeeds should empty the stored name although another writer sets another annotation.",
			create: true, onCreate: annotate, wantSeen: "id-1", dropsRegion: true,
		},
		"Renamed": {
			reason: "A create that empties the stored name should not empty the name that another writer has set.",
			create: true, onCreate: rename, wantSeen: "id-1", wantName: "theirs", dropsRegion: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				created := kit.WithAnnotation(
					meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339),
				)
				api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("id-1"), created))
				change := func(mg resource.Managed) {
					kit.AsBucket(mg).Spec.ForProvider.Region = "eu"
					meta.SetExternalName(mg, "")
				}
				seen := "not called"
				opts := []managed.ReconcilerOption{kit.WithClient(managed.ExternalClientFns{
					ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
						if !tc.create {
							change(mg)
						}
						return tc.observed, nil
					},
					CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
						seen = meta.GetExternalName(mg)
						change(mg)
						if tc.onCreate != nil {
							tc.onCreate(t, api, mg)
						}
						return managed.ExternalCreation{}, tc.createErr
					},
				})}
				if tc.opts != nil {
					opts = append(opts, tc.opts(api)...)
				}
				kit.MustReconcile(t, kit.NewBucketReconciler(api, opts...), "b")
				synctest.Wait()
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "seen by Create", tc.wantSeen, seen)
				kit.ExpectEqual(t, tc.reason, "name", tc.wantName, meta.GetExternalName(b))
				kit.ExpectEqual(t, tc.reason, "failed", tc.wantFailed, !meta.GetExternalCreateFailed(b).IsZero())
				kit.ExpectEqual(t, tc.reason, "has the region", !tc.dropsRegion, b.Spec.ForProvider.Region == "eu")
			})
		})
	}
}

// TestExternalName_SetInMemory has another external name in memory than on the API server, which the
// answer to a write of the provider's own replaces.
func TestExternalName_SetInMemory(t *testing.T) {
	setName := func(_ context.Context, mg resource.Managed) error { meta.SetExternalName(mg, "set"); return nil }
	cases := map[string]struct {
		reason       string
		byConnect    bool // Connect sets the name, not an initializer
		deleted      bool
		rename       bool // another writer sets a third name during the first Observe
		wantSynced   xpv2.ConditionReason
		wantDeletes  int
		wantObserves int
	}{
		"Initializer": {
			reason:       "A name that an initializer has set in memory should not be a change by another writer.",
			wantSynced:   xpv2.ReasonReconcileSuccess,
			wantObserves: 1,
		},
		"Connect": {
			reason:       "A name that Connect has set in memory should not be a change by another writer.",
			byConnect:    true,
			wantSynced:   xpv2.ReasonReconcileSuccess,
			wantObserves: 1,
		},
		"Renamed": {
			reason:       "The name that another writer sets meanwhile should still be a change.",
			rename:       true,
			wantObserves: 1,
		},
		"InitializerDeleted": {
			reason:       "A name that an initializer has set in memory should not block a deletion.",
			deleted:      true,
			wantDeletes:  1,
			wantObserves: 2,
		},
		"ConnectDeleted": {
			reason:       "A name that Connect has set in memory should not block a deletion.",
			byConnect:    true,
			deleted:      true,
			wantDeletes:  1,
			wantObserves: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(
				kit.NewBucket(kit.WithExternalName("stored"), kit.WithFinalizers(managed.FinalizerName)),
			)
			if tc.deleted {
				kit.DeleteBucket(t, api, "b")
			}
			observes, deletes := 0, 0
			fns := kit.NewExternalClient(managed.ExternalClientFns{
				ObserveFn: func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
					observes++
					b := kit.AsBucket(mg)
					if tc.rename {
						b.SetResourceVersion(
							kit.UpdateBucket(t, api, "b", kit.WithExternalName("third")).GetResourceVersion(),
						)
					}
					b.Status.AtProvider.ID = fmt.Sprint(observes)
					return managed.ExternalObservation{ResourceExists: deletes == 0, ResourceUpToDate: true},
						api.Client().Status().Update(ctx, b)
				},
				DeleteFn: kit.CountCalls[managed.ExternalDelete](&deletes),
			})
			initialize, connect := setName, func(context.Context, resource.Managed) error { return nil }
			if tc.byConnect {
				initialize, connect = connect, initialize
			}
			connector := func(ctx context.Context, mg resource.Managed) (managed.ExternalClient, error) {
				return &fns, connect(ctx, mg)
			}
			r := kit.NewBucketReconciler(
				api, managed.WithInitializers(managed.InitializerFn(initialize)), managed.WithExternalConnector(
					managed.ExternalConnectorFn(connector),
				),
			)
			kit.MustReconcileTimes(t, r, tc.wantObserves)
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "Synced", tc.wantSynced, b.GetCondition(xpv2.TypeSynced).Reason)
			kit.ExpectEqual(t, tc.reason, "deletes", tc.wantDeletes, deletes)
			kit.ExpectEqual(t, tc.reason, "name", tc.deleted, b.GetName() == "")
		})
	}
}

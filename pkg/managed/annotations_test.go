package managed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
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

const (
	keptKey    = "example.org/kept"
	removedKey = "example.org/removed"
	changedKey = "example.org/changed"
	addedKey   = "example.org/added"
)

// Exactly the annotations that a call set are stored, however it ends and whatever the policies allow.
func TestAnnotationsStoredAfterEachCall(t *testing.T) {
	const reason = "Exactly the annotations that were set should be stored."
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
		"All":               {xpv2.ManagementActionAll},
		"NoLateInitialize":  {xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve},
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
					continue // There is no such call under these policies.
				}
				t.Run(strings.Join([]string{how, endName, policyName}, "/"), func(t *testing.T) {
					b := bucket(finalizers(FinalizerName), annotated(keptKey, "kept"), annotated(removedKey, "removed"), annotated(changedKey, "before"), policies(allowed...))
					if call == "delete" {
						deleting(b)
					}
					a, called, version := testkit.NewAPI(b), 0, ""
					ctx, cancel := context.WithCancel(t.Context())
					x := &outside{there: call != "create", outdated: call == "update", late: late}
					x.on(call, func(b *v1alpha1.Bucket) error {
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
						_, _ = newBucketReconciler(a, connects(x.client())).Reconcile(ctx, request())
					}()
					wants(t, reason, "calls", 1, called)
					wants(t, reason, "patch", map[string]any{"metadata": map[string]any{
						"annotations":     map[string]any{meta.AnnotationKeyExternalName: "id-1", changedKey: "after", addedKey: "new", emptyKey: ""},
						"uid":             "uid-1",
						"resourceVersion": version,
					}}, firstPatch(t, a))
					for _, r := range a.Requests() {
						if r.Verb == testkit.Patch && (strings.Contains(r.Body, "null") || strings.Contains(r.Body, removedKey) || strings.Contains(r.Body, keptKey)) {
							t.Errorf("\n%s\na patch says what it shouldn't: %s", reason, r.Body)
						}
					}
					got := get(t, a).GetAnnotations()
					for k, v := range set {
						wants(t, reason, k, v, got[k])
					}
					wants(t, reason, "others', incomplete", []any{"kept", call == "create" && end.panics}, []any{got[keptKey], meta.ExternalCreateIncomplete(get(t, a))})
				})
			}
		}
	}
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

// What an initializer wrote, or left in memory, is not what the external client set.
func TestInitializersAnnotationsAreNotTheClients(t *testing.T) {
	for reason, written := range map[string]bool{"It was written past the seam.": true, "It is in memory only.": false} {
		a := testkit.NewAPI(bucket(finalizers(FinalizerName)))
		x := (&outside{there: true}).on("observe", func(b *v1alpha1.Bucket) error { named("id-1")(b); return nil })
		run(t, newBucketReconciler(a, connects(x.client()), WithInitializers(InitializerFn(func(ctx context.Context, mg resource.Managed) error {
			if annotated(addedKey, "initial")(bucketOf(mg)); written {
				return a.Client().Update(ctx, mg)
			}
			return nil
		}))), "b")
		md, _ := firstPatch(t, a)["metadata"].(map[string]any)
		wants(t, reason, "patched annotations", map[string]any{meta.AnnotationKeyExternalName: "id-1"}, md["annotations"])
		wants(t, reason, "ID in status", "id-1", get(t, a).Status.AtProvider.ID)
	}
}

// Annotations are stored by themselves, the rest if it is late-initialized, and status always.
func TestLateInitialized(t *testing.T) {
	type fns = []func(b *v1alpha1.Bucket)
	region := func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }
	label := func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"a": "b"}) }
	status := func(b *v1alpha1.Bucket) { b.Status.AtProvider.Facts = map[string]string{"a": "b"} }
	bare := func(b *v1alpha1.Bucket) { b.SetAnnotations(nil) }
	notAllowed := policies(xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionObserve)
	cases := map[string]struct {
		reason    string
		quiet     bool // It does not say that it has late-initialized.
		without   bool // The policies don't allow it.
		observe   fns
		patches   int
		updates   int
		region    string
		name      string
		removed   bool // All annotations are.
		fresh     bool // It has no finalizer yet.
		finalizer func(a *testkit.API) resource.Finalizer
	}{
		"FinalizerAdded":   {reason: "Adding the default finalizer should not lose status.", quiet: true, updates: 1, fresh: true},
		"NameAndFinalizer": {reason: "Nor should storing a name as well.", without: true, observe: fns{named("id-1")}, patches: 1, updates: 1, name: "id-1", fresh: true},
		"SpecAndFinalizer": {reason: "Nor should late-initializing spec.", observe: fns{region}, updates: 2, region: "eu", fresh: true},
		"CustomFinalizer": {
			reason: "Nor should a finalizer with a client of its own.", quiet: true, updates: 1, fresh: true,
			finalizer: func(a *testkit.API) resource.Finalizer { return resource.NewAPIFinalizer(a.Client(), FinalizerName) },
		},
		"Nothing":                 {reason: "Nothing changed, so nothing should be updated."},
		"Status":                  {reason: "Status is not late-initialized.", observe: fns{status}},
		"Name":                    {reason: "A name is stored by itself.", observe: fns{named("id-1")}, patches: 1, name: "id-1"},
		"NameAndStatus":           {reason: "A name is stored by itself, and status too.", observe: fns{named("id-1"), status}, patches: 1, name: "id-1"},
		"Spec":                    {reason: "Spec should be late-initialized.", observe: fns{region}, updates: 1, region: "eu"},
		"NameAndSpec":             {reason: "Both should be stored.", observe: fns{named("id-1"), region, status}, patches: 1, updates: 1, region: "eu", name: "id-1"},
		"Label":                   {reason: "Labels are not annotations.", observe: fns{label}, updates: 1},
		"RemovedAnnotation":       {reason: "As with upstream, a whole update can remove an annotation.", observe: fns{bare}, updates: 1, removed: true},
		"SpecWithoutPolicy":       {reason: "Spec should be left alone without a policy.", observe: fns{region}, without: true},
		"NameAndSpecWithoutPolic": {reason: "The name should be stored, and spec left alone.", observe: fns{named("id-1"), region}, without: true, patches: 1, name: "id-1"},
		"SameName":                {reason: "A name that is stored should not be stored again.", quiet: true, observe: fns{named("id-0")}},
		"EmptiedName":             {reason: "A name that was emptied should stay stored.", quiet: true, observe: fns{named("")}},
		"RemovedName":             {reason: "A name that was removed should stay stored.", quiet: true, observe: fns{unannotated(meta.AnnotationKeyExternalName)}},
		"RemovedAll":              {reason: "Annotations that were removed should stay stored.", quiet: true, observe: fns{bare}},
	}
	for n, tc := range cases {
		t.Run(n, func(t *testing.T) {
			b := bucket(finalizers(FinalizerName), annotated(keptKey, "kept"), named("id-0"))
			if tc.without {
				notAllowed(b)
			}
			if tc.fresh {
				b.SetFinalizers(nil)
			}
			a := testkit.NewAPI(b)
			x := (&outside{there: true, late: !tc.quiet}).on("observe", func(b *v1alpha1.Bucket) error {
				for _, fn := range tc.observe {
					fn(b)
				}
				return nil
			})
			opts := []ReconcilerOption{connects(x.client())}
			if tc.finalizer != nil {
				opts = append(opts, WithFinalizer(tc.finalizer(a)))
			}
			r := newBucketReconciler(a, opts...)
			run(t, r, "b")
			want := map[string]string{keptKey: "kept", meta.AnnotationKeyExternalName: cmp.Or(tc.name, "id-0")}
			if tc.removed {
				want = nil
			}
			got := get(t, a)
			wants(t, tc.reason, "annotations", want, got.GetAnnotations())
			wants(t, tc.reason, "patches, updates, status updates, finalizers, region, status, Ready, Synced",
				[]any{tc.patches, tc.updates, 1, []string{FinalizerName}, tc.region, "id-1", corev1.ConditionTrue, corev1.ConditionTrue},
				[]any{
					a.Count(testkit.Patch), a.Count(testkit.Update), a.Count(testkit.StatusUpdate), got.GetFinalizers(), got.Spec.ForProvider.Region,
					got.Status.AtProvider.ID, got.GetCondition(xpv2.TypeReady).Status, got.GetCondition(xpv2.TypeSynced).Status,
				})
			if len(tc.observe) == 0 {
				a.Forget()
				repeat(t, r, 10)
				wants(t, tc.reason, "writes in 10 more reconciles", 0, a.Writes())
			}
		})
	}
}

// TestLateInitializedAfterOwnWrite has a provider write the managed resource with a client of its
// own, and then change the managed resource in memory.
func TestLateInitializedAfterOwnWrite(t *testing.T) {
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
		reason   string
		late     bool // Observe returns ResourceLateInitialized.
		outdated bool // The external resource needs an update.
		in       string
		set      func(b *v1alpha1.Bucket)
	}{
		"SpecInObserve":       {reason: "A field of spec that was not sent should be stored.", late: true, in: "observe", set: func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }},
		"SpecInConnect":       {reason: "A field of spec that was not sent should be stored.", late: true, in: "connect", set: func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "eu" }},
		"LabelInObserve":      {reason: "A label that was not sent should be stored.", late: true, in: "observe", set: func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"a": "b"}) }},
		"LabelInConnect":      {reason: "A label that was not sent should be stored.", late: true, in: "connect", set: func(b *v1alpha1.Bucket) { meta.AddLabels(b, map[string]string{"a": "b"}) }},
		"RemovedLabel":        {reason: "A label that was removed in memory only should be removed.", late: true, in: "observe", set: func(b *v1alpha1.Bucket) { meta.RemoveLabels(b, "old") }},
		"AnnotationInObserve": {reason: "An annotation that was not sent should be stored.", in: "observe", set: annotated(addedKey, "new")},
		"AnnotationInConnect": {reason: "An annotation that was not sent should be stored.", in: "connect", set: annotated(addedKey, "new")},
		"AnnotationInUpdate":  {reason: "An annotation that was not sent should be stored.", outdated: true, in: "update", set: annotated(addedKey, "new")},
		"NameInUpdate":        {reason: "An external name that was not sent should be stored.", outdated: true, in: "update", set: named("id-1")},
		"NameAndSpec":         {reason: "Both were not sent, so both should be stored.", late: true, in: "observe", set: func(b *v1alpha1.Bucket) { named("id-1")(b); b.Spec.ForProvider.Region = "eu" }},
		"Status":              {reason: "Status that was not sent should be stored.", in: "observe", set: func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "id-2" }},
	}
	for name, tc := range cases {
		for how, write := range writes {
			t.Run(name+"/"+how, func(t *testing.T) {
				b := bucket(finalizers(FinalizerName), annotated(keptKey, "kept"))
				b.SetLabels(map[string]string{"old": "label", "kept": "label"})
				a := testkit.NewAPI(b)
				want := v1alpha1.Bucket{}
				call := func(ctx context.Context, b *v1alpha1.Bucket) error {
					if err := write(ctx, a.Client(), b); err != nil {
						return err
					}
					tc.set(b)
					want = *b.DeepCopy()
					return nil
				}
				x := (&outside{there: true, late: tc.late, outdated: tc.outdated}).client()
				connector := ExternalConnectorFn(func(ctx context.Context, mg resource.Managed) (ExternalClient, error) {
					if tc.in == "connect" {
						must(t, call(ctx, bucketOf(mg)))
					}
					fns := clientOf(x)
					observe, update := fns.ObserveFn, fns.UpdateFn
					fns.ObserveFn = func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
						o, err := observe(ctx, mg)
						if tc.in == "observe" {
							must(t, call(ctx, bucketOf(mg)))
						}
						return o, err
					}
					fns.UpdateFn = func(ctx context.Context, mg resource.Managed) (ExternalUpdate, error) {
						o, err := update(ctx, mg)
						must(t, call(ctx, bucketOf(mg)))
						return o, err
					}
					return &fns, nil
				})
				run(t, newBucketReconciler(a, WithExternalConnector(connector)), "b")
				got := get(t, a)
				wants(t, tc.reason, "spec", want.Spec, got.Spec)
				wants(t, tc.reason, "labels", want.GetLabels(), got.GetLabels())
				wants(t, tc.reason, "annotations", want.GetAnnotations(), got.GetAnnotations())
				if tc.in != "connect" {
					wants(t, tc.reason, "ID in status", want.Status.AtProvider.ID, got.Status.AtProvider.ID)
				}
			})
		}
	}
}

// Another writer's value is kept if ours can be determined again.
func TestConcurrentExternalNameWrite(t *testing.T) {
	const secret, replaced = "example.org/secret", "the result of creating the external resource replaced another value of the annotation "
	theirSecret := annotated(secret, "hunter2")
	theirs := func(b *v1alpha1.Bucket) { named("theirs")(b); theirSecret(b) }
	cases := map[string]struct {
		reason string
		during string
		silent bool // The call sets nothing.
		async  bool
		outage bool // The API server can't be reached right after the call.
		then   func(b *v1alpha1.Bucket)
		name   string
		secret string
		events []string
	}{
		"Observe": {reason: "After Observe the user's name stays, and the reconcile quietly runs again.", during: "observe", then: theirs, name: "theirs", secret: "hunter2"},
		"Update":  {reason: "After Update the user's name stays, and the reconcile runs again.", during: "update", then: theirs, name: "theirs", secret: "hunter2"},
		"Create": {
			reason: "After Create our name wins, and the user is told once.",
			during: "create", then: theirs, name: "ours", secret: "sesame",
			events: []string{replaced + `crossplane.io/external-name: "ours", not "theirs", is its external name`, replaced + secret},
		},
		"CreateOutage": {
			reason: "Also if it can be stored only later.",
			during: "create", outage: true, then: theirs, name: "ours", secret: "sesame",
			events: []string{replaced + `crossplane.io/external-name: "ours", not "theirs", is its external name`, replaced + secret},
		},
		"ObserveUnnamed": {reason: "To take a name away is to say nothing about the one that was found.", during: "observe", then: unannotated(meta.AnnotationKeyExternalName), name: "ours", secret: "sesame"},
		"UpdateRenames":  {reason: "The name, which is known only once if the update has renamed it, is not lost to another annotation.", during: "update", then: theirSecret, name: "ours", secret: "hunter2"},
		"UpdateOutage":   {reason: "Nor if it can't be stored at once.", during: "update", outage: true, then: theirSecret, name: "ours", secret: "hunter2"},
		"CreateSilent": {
			reason: "A create need not return the name that it was given. It was created under that name.",
			during: "create", silent: true, then: named("theirs"), name: "first",
			events: []string{replaced + `crossplane.io/external-name: "first", not "theirs", is its external name`},
		},
		"CreateAsync": {
			reason: "Nor need an asynchronous one.",
			during: "create", silent: true, async: true, then: named("theirs"), name: "first",
			events: []string{`another external name, "theirs", was replaced by that of the external resource that was created: "first"`},
		},
	}
	for name, tc := range cases {
		for _, lost := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s/%dLost", name, lost), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, h, away := testkit.NewAPI(bucket(named("first"), finalizers(FinalizerName))), &testkit.Said{}, false
					a.Before = func(_ context.Context, r testkit.Request) error {
						// Another writer changes the object right before our patches.
						if r.Verb == testkit.Patch && lost > 0 && meta.GetExternalName(get(t, a)) != "first" {
							lost--
							edit(t, a, "b", annotated("example.org/busy", fmt.Sprint(lost)))
						}
						if away && r.Verb != testkit.Get {
							return errors.New("the API server is away")
						}
						return nil
					}
					x := &outside{there: tc.during != "create", outdated: tc.during == "update"}
					x.on(tc.during, func(b *v1alpha1.Bucket) error {
						if !tc.silent {
							meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyExternalName: "ours", secret: "sesame"})
						}
						edit(t, a, "b", tc.then)
						away, x.outdated = tc.outage, false
						return nil
					})
					opts := []ReconcilerOption{WithRecorder(h), connects(x.client())}
					if tc.async {
						opts = append(opts, WithAsync(newTracker(a, asyncstate.WithRecorder(h))))
					}
					r := newBucketReconciler(a, opts...)
					result, err := r.Reconcile(t.Context(), request())
					//nolint:staticcheck // Upstream asks for a requeue this way.
					if !tc.outage && (err != nil || !result.Requeue && !tc.async) {
						t.Errorf("\n%s\nReconcile: want a requeue, got %+v, %v", tc.reason, result, err)
					}
					time.Sleep(time.Minute) // What runs ends.
					if away = false; tc.outage {
						run(t, r, "b")
					}
					b := get(t, a)
					wants(t, tc.reason, "external name, secret, incomplete, events", []any{tc.name, tc.secret, false, tc.events},
						[]any{meta.GetExternalName(b), b.GetAnnotations()[secret], meta.ExternalCreateIncomplete(b), h.Events(reasonOverwroteAnnotation)})
					wants(t, tc.reason, "said not to be stored", tc.outage, len(h.Events(reasonCannotStoreAnnotations)) > 0)
				})
			})
		}
	}
}

// Values of annotations, but for the external name, may be secret.
func TestAnnotationValuesAreNotDisclosed(t *testing.T) {
	const secret = "hunter2"
	fails := map[string]error{
		"Nothing":   nil,
		"Broken":    broken(testkit.Request{}),
		"Conflict":  lostRace(testkit.Request{}),
		"Forbidden": kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "b", errors.New("no")),
		"Invalid":   kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil),
	}
	for failName, fail := range fails {
		for _, callFails := range []error{nil, errors.New("boom")} {
			for _, theyWrite := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%t/%t", failName, callFails != nil, theyWrite), func(t *testing.T) {
					a, h := testkit.NewAPI(bucket(annotated("example.org/old", secret+"-old"))), &testkit.Said{}
					a.Before = failing(verb(testkit.Patch), fail)
					learn := func(mg resource.Managed) error {
						meta.AddAnnotations(mg, map[string]string{"example.org/token": secret, "example.org/old": secret + "-new"})
						if theyWrite {
							edit(t, a, "b", annotated("example.org/token", secret+"-theirs"))
						}
						return callFails
					}
					r := newBucketReconciler(a, WithRecorder(h), WithLogger(h), connects(ExternalClientFns{
						ObserveFn: returns(ExternalObservation{ConnectionDetails: ConnectionDetails{"password": []byte(secret)}}, nil),
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
					said = append(said, fmt.Sprint(get(t, a).Status.Conditions))
					wants(t, "Graft logs, too.", "logged", failName == "Broken" || failName == "Invalid", strings.Contains(fmt.Sprint(h.Lines()), "Cannot store annotations"))
					if all := strings.Join(said, "\n") + h.All(); strings.Contains(all, secret) {
						t.Errorf("\nThe values of annotations must not be disclosed.\ngot: %s", all)
					}
				})
			}
		}
	}
}

// An annotation that Observe changes each time is stored at a bounded rate, the name each time.
func TestUnstableAnnotation(t *testing.T) {
	a, c, rec, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), &testkit.Said{}, 0

	// Upstream updates it each time.
	x := (&outside{there: true, outdated: true}).on("observe", func(b *v1alpha1.Bucket) error {
		n++
		annotated("example.org/etag", fmt.Sprint(n))(b)
		if n > 300 && n <= 305 {
			named(fmt.Sprintf("id-%d", n))(b)
		}
		return nil
	})
	r := newBucketReconciler(a, c.option(), WithRecorder(rec), connects(x.client()))
	reconciles := func(times int, every time.Duration) int {
		a.Forget()
		for range times {
			run(t, r, "b")
			c.now = c.now.Add(every)
		}
		return a.Count(testkit.Patch)
	}
	got := []any{reconciles(100, time.Second), len(rec.Events(reasonUnstableAnnotation)), reconciles(200, 6*time.Second)}
	wants(t, "", "patches in 100 s, warnings, patches in 20 minutes", []any{7, 1, 20}, got)
	wants(t, "", "patches of external names, last one", []any{5, fmt.Sprintf("id-%d", n+5)}, []any{reconciles(5, time.Millisecond), meta.GetExternalName(get(t, a))})

	// It has come to rest, and may change again.
	c.now = c.now.Add(time.Hour)
	wants(t, "", "patches after an hour, warnings", []any{3, 1}, []any{reconciles(3, 0), len(rec.Events(reasonUnstableAnnotation))})
}

// An annotation that is held back is stored later, unless another writer has changed it.
func TestHeldBackAnnotation(t *testing.T) {
	for name, tc := range map[string]struct {
		changes int // How often Observe changes it, the first time it runs.
		again   time.Duration
		theirs  func(b *v1alpha1.Bucket)
		want    []any // The value, and whether there is one.
	}{
		"Stored":         {changes: 7, again: unstableInterval, want: []any{"7", true}},
		"AnotherWriters": {changes: 7, again: unstableInterval, theirs: annotated("example.org/state", "theirs"), want: []any{"theirs", true}},
		"Removed":        {changes: 3, again: time.Hour, theirs: unannotated("example.org/state"), want: []any{"", false}},
	} {
		t.Run(name, func(t *testing.T) {
			a, c, n := testkit.NewAPI(bucket(named("id-0"), finalizers(FinalizerName))), newClock(), 0

			// What is learned is learned once, and said so.
			x := &outside{there: true}
			x.on("observe", func(b *v1alpha1.Bucket) error {
				if n++; n <= tc.changes {
					annotated("example.org/state", fmt.Sprint(n))(b)
				}
				x.late = n <= tc.changes
				return nil
			})
			r := newBucketReconciler(a, c.option(), connects(x.client()), WithPollInterval(time.Hour))
			repeat(t, r, 7)
			result, err := r.Reconcile(t.Context(), request())
			must(t, err)
			wants(t, "", "runs again", tc.again, result.RequeueAfter)
			if tc.theirs != nil {
				edit(t, a, "b", tc.theirs)
			}
			for range 10 {
				c.now = c.now.Add(10 * time.Second)
				run(t, r, "b")
			}
			value, has := get(t, a).GetAnnotations()["example.org/state"]
			wants(t, "", "annotation", tc.want, []any{value, has})
		})
	}
}

// A managed resource that goes while Create runs leaves the name in an event.
func TestGoneWhileCreating(t *testing.T) {
	cases := map[string]struct {
		object *v1alpha1.Bucket
		async  bool
		later  bool // Observe comes up with the name, and not Create.
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
				a, rec := testkit.NewAPI(tc.object), &testkit.Said{}
				x := &outside{late: true}
				x.before = func(what string, mg resource.Managed) error {
					if tc.later && x.there || !tc.later && what == "create" {
						meta.SetExternalName(mg, "id-1")
						kill(t, a, "b")
					}
					return nil
				}
				o := []ReconcilerOption{WithRecorder(rec), connects(x.client())}
				if tc.async {
					o = append(o, WithAsync(newTracker(a, asyncstate.WithRecorder(rec))))
				}
				r := newBucketReconciler(a, o...)
				for range 3 {
					try(r, 1)
					synctest.Wait()
					time.Sleep(time.Minute)
				}
				said := fmt.Sprint(rec.Events())
				wants(t, said, "an event has the name of the external resource that is left", true, strings.Contains(said, "id-1"))
			})
		})
	}
}

// Writes are refused after a create that came up with the name, for a while or for good.
func TestNameSurvivesRefusedWrites(t *testing.T) {
	buckets := schema.GroupResource{Resource: "buckets"}
	forbidden, invalid := kerrors.NewForbidden(buckets, "b", errors.New("no")), kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
	unserved := kerrors.NewGenericServerResponse(http.StatusNotFound, "patch", buckets, "b", "404 page not found", 0, true)
	has := func(r testkit.Request, key string) bool {
		return strings.Contains(r.Body, key) || r.Verb == testkit.Update && r.Object.GetAnnotations()[key] != ""
	}
	patches := func(r testkit.Request) bool { return r.Verb == testkit.Patch || r.Verb == testkit.StatusPatch }
	writes := func(r testkit.Request) bool { return r.Verb == testkit.Patch || r.Verb == testkit.Update }
	theName := func(r testkit.Request) bool { return has(r, meta.AnnotationKeyExternalName) }
	another := func(r testkit.Request) bool { return has(r, removedKey) }
	cases := map[string]struct {
		reason  string
		refuses func(r testkit.Request) bool // Also when the process has ended, and until it is deleted, if that is for good.
		forGood bool
		err     error
		writes  bool   // Observe writes status.
		again   bool   // Observe reads the managed resource again, until it is deleted.
		also    string // What else Observe sets.
		want    string // The name, which is stored nowhere if it is empty.
	}{
		"Unserved":       {reason: "That the version is not found says nothing of the managed resource.", refuses: func(r testkit.Request) bool { return r.Verb != testkit.Get }, err: unserved, want: "id-1"},
		"Quiet":          {reason: "Nothing else happens meanwhile.", refuses: writes, err: forbidden, want: "id-1"},
		"WritesStatus":   {reason: "The provider writes its status itself in Observe.", refuses: writes, err: forbidden, writes: true, want: "id-1"},
		"SetsAnnotation": {reason: "Another annotation, which Observe sets, is not refused.", refuses: theName, err: forbidden, also: "etag", want: "id-1"},
		"Patches":        {reason: "Without permission to patch, the whole object should be updated.", refuses: patches, err: forbidden, forGood: true, want: "id-1"},
		"Invalid":        {reason: "An annotation that the API server refuses keeps no other from being stored.", refuses: another, err: invalid, forGood: true, want: "id-1"},
		"Forbidden":      {reason: "Nor does one that an admission webhook refuses.", refuses: another, err: forbidden, forGood: true, want: "id-1"},
		"TheName":        {reason: "If the name can't be stored at all, nothing should be created again, and deletion should not be held up.", refuses: theName, err: invalid, forGood: true},
		"ReadAgain":      {reason: "Nor if the provider has read the managed resource again, without the name.", refuses: theName, err: invalid, forGood: true, again: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, h, denied := testkit.NewAPI(bucket()), &testkit.Said{}, tc.forGood
			a.Before = failing(func(r testkit.Request) bool { return denied && tc.refuses(r) && !meta.WasDeleted(r.Object) }, tc.err)
			x := &outside{}
			x.before = func(what string, mg resource.Managed) error {
				if what == "create" {
					denied = true
					meta.AddAnnotations(mg, map[string]string{meta.AnnotationKeyExternalName: fmt.Sprintf("id-%d", x.did("create")), removedKey: "v"})
					return nil
				}
				if tc.again && !meta.WasDeleted(mg) {
					must(t, a.Server().Get(t.Context(), request().NamespacedName, mg))
				}
				x.there = x.owner != "" && meta.GetExternalName(mg) != ""
				if tc.also != "" && x.there {
					meta.AddAnnotations(mg, map[string]string{tc.also: "1"})
				}
				if !tc.writes {
					return nil
				}
				had := mg.GetAnnotations()
				bucketOf(mg).Status.AtProvider.Facts = map[string]string{"n": fmt.Sprint(x.observes)}
				err := a.Server().Status().Update(t.Context(), mg)
				meta.AddAnnotations(mg, had)
				return err
			}
			r := newBucketReconciler(a, connects(x.client()), WithRecorder(h))
			try(r, 3)
			denied = tc.forGood
			try(r, 3)
			if tc.want != "" {
				// The process has ended.
				run(t, newBucketReconciler(a, connects(x.client())), "b")
			} else if len(h.Events(reasonCannotStoreAnnotations)) == 0 {
				t.Errorf("\n%s\nno event says that the name is not stored", tc.reason)
			}
			wants(t, tc.reason, "external name, incomplete", []any{tc.want, tc.want == ""}, []any{meta.GetExternalName(get(t, a)), meta.ExternalCreateIncomplete(get(t, a))})
			remove(t, a, "b")
			try(r, 5)
			wants(t, tc.reason, "object, acts", []any{"", []string{"create b", "delete b"}}, []any{get(t, a).GetName(), x.acts})
		})
	}
}

// What stays the same is stored once. The API server replaces bytes that are not UTF-8.
func TestAnnotationsOfEachObserve(t *testing.T) {
	for reason, tc := range map[string]struct {
		set     func(b *v1alpha1.Bucket, n int)
		patches int
		want    string // Of the name, and when a create failed.
	}{
		"A result is stored at once.": {set: func(b *v1alpha1.Bucket, n int) { meta.SetExternalCreateFailed(b, time.Unix(int64(n), 0)) }, patches: 2 * unstableAfter, want: "id-1 10"},
		"The same is stored once.":    {set: func(b *v1alpha1.Bucket, _ int) { named("\xff\xfe")(b); annotated(addedKey, "\xff")(b) }, patches: 1, want: "\ufffd\ufffd -62135596800"},
	} {
		a, n := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), 0
		x := (&outside{there: true}).on("observe", func(b *v1alpha1.Bucket) error { n++; tc.set(b, n); return nil })
		repeat(t, newBucketReconciler(a, connects(x.client())), 2*unstableAfter)
		b := get(t, a)
		wants(t, reason, "patches, stored", []any{tc.patches, tc.want}, []any{a.Count(testkit.Patch), fmt.Sprint(meta.GetExternalName(b), " ", meta.GetExternalCreateFailed(b).Unix())})
	}
}

// What could not be stored, and is refused later, keeps nothing from being deleted.
func TestPendingAnnotationIsRefused(t *testing.T) {
	a, x := testkit.NewAPI(bucket(named("id-1"), finalizers(FinalizerName))), &outside{there: true}
	x.on("observe", func(b *v1alpha1.Bucket) error { annotated(addedKey, "v")(b); return nil })
	a.Before = failing(verb(testkit.Patch), errProvider)
	r := newBucketReconciler(a, connects(x.client()))
	try(r, 1)
	a.Before = failing(func(r testkit.Request) bool {
		_, has := r.Object.GetAnnotations()[addedKey]
		return r.Verb == testkit.Update && has || strings.Contains(r.Body, addedKey)
	}, kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil))
	remove(t, a, "b")
	repeat(t, r, 3)
	wants(t, "", "UID, external resource", []any{types.UID(""), false}, []any{get(t, a).GetUID(), x.there})
}

// A provider that reads again, from a cache that lags, takes back nothing that was stored.
func TestReadAgainFromLaggingCache(t *testing.T) {
	const before = "2026-01-02T03:04:05Z"
	tagged := InitializerFn(func(_ context.Context, mg resource.Managed) error {
		annotated("k", "new")(bucketOf(mg))
		return nil
	})
	for name, tc := range map[string]struct {
		reason string
		x      *outside
		in     string // The call in which it is read again, unless it is not.
		unread bool
		then   func(b *v1alpha1.Bucket)
		err    error
		mods   []func(b *v1alpha1.Bucket)
		want   string // The annotation: the new one, if it is empty.
		open   bool   // Whether the create is left without a result.
	}{
		"Update": {
			reason: "The name that Observe learned stays.",
			x:      &outside{there: true, outdated: true}, in: "update",
		},
		"Delete": {
			reason: "The name that Observe learned stays.",
			x:      &outside{there: true, slow: 1}, in: "delete", mods: []func(b *v1alpha1.Bucket){deleting},
		},
		"Observe": {
			reason: "What an initializer wrote stays.",
			x:      &outside{there: true}, in: "observe",
		},
		"SetSince": {
			reason: "What the call set after it read is stored.",
			x:      &outside{there: true, outdated: true}, in: "update", then: annotated("k", "newer"),
			want: "newer",
		},
		"SetBack": {
			reason: "So is what it sets back itself.", unread: true,
			x: &outside{there: true, outdated: true}, in: "update", then: annotated("k", "old"),
			want: "old",
		},
		"Create": {
			reason: "The announcement of a create that has no result yet is not taken back.",
			x:      &outside{}, in: "create", then: func(*v1alpha1.Bucket) { panic("the process dies") },
			mods: []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyExternalCreatePending, before), annotated(meta.AnnotationKeyExternalCreateFailed, before)},
			open: true,
		},
		"CreateWithoutAnswer": {
			reason: "The announcement of a create whose outcome is unknown is not taken back.",
			x:      &outside{}, in: "create", err: asyncstate.ErrOutcomeUnknown,
			mods: []func(b *v1alpha1.Bucket){annotated(meta.AnnotationKeyExternalCreatePending, before), annotated(meta.AnnotationKeyExternalCreateFailed, before)},
			open: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(bucket(append(tc.mods, named("b"), annotated("k", "old"), finalizers(FinalizerName))...))
			must(t, a.Freeze(t.Context(), bucket()))
			tc.x.before = func(what string, mg resource.Managed) error {
				if what == tc.in && !tc.unread {
					must(t, a.Client().Get(t.Context(), request().NamespacedName, mg))
				}
				if what == "observe" {
					named("id-1")(bucketOf(mg))
				}
				if what != tc.in {
					return nil
				}
				if tc.then != nil {
					tc.then(bucketOf(mg))
				}
				return tc.err
			}
			written := InitializerFn(func(ctx context.Context, mg resource.Managed) error { return a.Client().Update(ctx, mg) })
			try(newBucketReconciler(a, connects(tc.x.client()), WithInitializers(tagged, written)), 1)
			b := get(t, a)
			wants(t, tc.reason, "name, annotation, create without a result", []any{"id-1", cmp.Or(tc.want, "new"), tc.open}, []any{meta.GetExternalName(b), b.GetAnnotations()["k"], meta.ExternalCreateIncomplete(b)})
		})
	}
}

// What the API server refuses fails no Observe and no other write, and is not tried again.
func TestRefusedAnnotation(t *testing.T) {
	invalid := kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
	for name, tc := range map[string]struct {
		reason string
		err    error
		value  func(n int) string
		max    int // How often it is tried.
	}{
		"Same":      {reason: "The same value is refused once.", err: invalid, value: func(int) string { return "v" }, max: 1},
		"Changing":  {reason: "What changes all the time is tried at a bounded rate.", err: invalid, value: strconv.Itoa, max: unstableAfter + 1},
		"Forbidden": {reason: "An admission webhook may refuse it.", err: kerrors.NewForbidden(schema.GroupResource{}, "b", nil), value: func(int) string { return "v" }, max: 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, n := testkit.NewAPI(bucket(named("id-1"))), 0
			a.Before = failing(func(r testkit.Request) bool {
				_, has := r.Object.GetAnnotations()[addedKey]
				return r.Verb == testkit.Update && has || strings.Contains(r.Body, addedKey)
			}, tc.err)
			x := &outside{there: true}
			x.on("observe", func(b *v1alpha1.Bucket) error {
				n++
				annotated(addedKey, tc.value(n))(b)
				return nil
			})
			clock := newClock()
			r := newBucketReconciler(a, clock.option(), connects(x.client()))
			repeat(t, r, 2*unstableAfter)
			wants(t, tc.reason, "Synced", xpv2.ReasonReconcileSuccess, get(t, a).GetCondition(xpv2.TypeSynced).Reason)
			if got := a.Count(testkit.Patch); got > tc.max {
				t.Errorf("\n%s\ntried %d times, want %d at most", tc.reason, got, tc.max)
			}
			refuse := a.Before
			a.Before = nil
			clock.now = clock.now.Add(refusedInterval)
			repeat(t, r, 1)
			_, has := get(t, a).GetAnnotations()[addedKey]
			wants(t, tc.reason, "stored when it is not refused any more", true, has)
			edit(t, a, "b", unannotated(addedKey))
			a.Before = refuse
			repeat(t, r, 2*unstableAfter)
			remove(t, a, "b")
			repeat(t, r, 3)
			wants(t, "It is deleted with its external resource.", "UID, external resource, remembered", []any{types.UID(""), false, 0}, []any{get(t, a).GetUID(), x.there, r.seam.Store().Len()})
		})
	}
}

// What another writer has set is not taken away because a webhook refuses it of the provider.
func TestRefusedAnnotationOfAnotherWriter(t *testing.T) {
	a, x := testkit.NewAPI(bucket(named("id-1"))), &outside{there: true}
	a.Before = failing(func(r testkit.Request) bool { return strings.Contains(r.Body, addedKey) }, kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil))
	x.on("observe", func(b *v1alpha1.Bucket) error {
		if x.observes == 1 {
			edit(t, a, "b", annotated(addedKey, "theirs"))
		}
		return a.Server().Get(t.Context(), request().NamespacedName, b)
	})
	try(newBucketReconciler(a, connects(x.client())), 3)
	wants(t, "", "annotation, finalizers", []any{"theirs", []string{FinalizerName}}, []any{get(t, a).GetAnnotations()[addedKey], get(t, a).GetFinalizers()})
}

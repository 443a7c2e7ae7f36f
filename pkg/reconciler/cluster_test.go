package reconciler_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

var (
	claims     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "App"}
	composites = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "XApp"}
	things     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
	secrets    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
)

var expectEqual = reconciler.Wants

// withComposed looks at composed resources.
var withComposed = reconciler.WithDependents(reconciler.ComposedResources())

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A cluster is an API server, and the client of a controller.
type cluster struct {
	client.Client

	api    *testkit.API
	server client.Client // Of others.

	// fail fails a controller's request, or its answer if it is called after.
	fail func(verb string, o client.Object, after bool) error
}

func newCluster(objs ...*unstructured.Unstructured) *cluster {
	var all []client.Object
	for _, o := range objs {
		all = append(all, o.DeepCopy())
	}
	return serve(runtime.NewScheme(), []schema.GroupVersionKind{claims, composites, things, secrets}, all...)
}

// serve returns a cluster that serves kinds, namespaced ones if an object has a namespace. Those that the scheme
// lacks are unstructured.
func serve(s *runtime.Scheme, kinds []schema.GroupVersionKind, objs ...client.Object) *cluster {
	var crds []*extv1.CustomResourceDefinition
	for _, k := range kinds {
		if metav1.AddToGroupVersion(s, k.GroupVersion()); !s.Recognizes(k) {
			s.AddKnownTypeWithName(k, &unstructured.Unstructured{})
			s.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), &unstructured.UnstructuredList{})
		}
		scope := extv1.ClusterScoped
		if slices.ContainsFunc(objs, func(o client.Object) bool {
			gvk, err := apiutil.GVKForObject(o, s)
			return err == nil && gvk == k && o.GetNamespace() != ""
		}) {
			scope = extv1.NamespaceScoped
		}
		crds = append(crds, &extv1.CustomResourceDefinition{Spec: extv1.CustomResourceDefinitionSpec{
			Group: k.Group, Scope: scope, Names: extv1.CustomResourceDefinitionNames{Kind: k.Kind},
			Versions: []extv1.CustomResourceDefinitionVersion{{
				Name:         k.Version,
				Subresources: &extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}},
			}},
		}})
	}
	c := &cluster{api: testkit.Serve(s, crds, objs...)}
	c.Client, c.server = c.api.Client(), c.api.Server()
	hook := func(after bool) testkit.Hook {
		return func(_ context.Context, r testkit.Request) error {
			if c.fail == nil {
				return nil
			}
			return c.fail(
				verbOf(r), newObject(r.Object.GetObjectKind().GroupVersionKind(), r.Key.Namespace, r.Key.Name), after,
			)
		}
	}
	c.api.Before, c.api.After = hook(false), hook(true)
	return c
}

// verbOf returns the verb of a request: one for all writes of status.
func verbOf(r testkit.Request) string {
	verb, _, _ := strings.Cut(r.Verb, " ")
	return verb
}

// refuseVerb returns a hook that fails the requests of a verb.
func refuseVerb(verb string, err error) func(string, client.Object, bool) error {
	return func(v string, _ client.Object, _ bool) error {
		if v == verb {
			return err
		}
		return nil
	}
}

var errUnserved = kerrors.NewGenericServerResponse(
	http.StatusNotFound, "", schema.GroupResource{}, "", "404 page not found", 0, true,
)

// count returns the number of requests of these verbs, alone or with a kind, since the last forget.
func (c *cluster) count(verbs ...string) int {
	return c.api.CountIf(func(r testkit.Request) bool {
		return slices.Contains(verbs, verbOf(r)) ||
			slices.Contains(verbs, verbOf(r)+" "+r.Object.GetObjectKind().GroupVersionKind().Kind)
	})
}

// freeze makes reads return the object as it is now, until it is thawed.
func (c *cluster) freeze(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	c.api.FreezeAs(c.read(t, o))
}

// collectGarbage acts as the garbage collector on an object and the objects that it owns.
func (c *cluster) collectGarbage(t *testing.T, owner *unstructured.Unstructured, owned ...*unstructured.Unstructured) {
	t.Helper()
	gone := !c.exists(owner)
	if !gone && (!meta.WasDeleted(c.read(t, owner)) || !meta.FinalizerExists(c.read(t, owner), gcOrphan)) {
		return
	}
	for _, o := range owned {
		if !gone {
			c.update(t, o, func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) })
		} else if len(c.read(t, o).GetOwnerReferences()) > 0 {
			_ = c.server.Delete(context.Background(), o)
		}
	}
	if !gone {
		c.release(t, owner, gcOrphan)
	}
}

// release removes finalizers as another controller does.
func (c *cluster) release(t *testing.T, o *unstructured.Unstructured, finalizers ...string) {
	t.Helper()
	c.update(t, o, func(u *unstructured.Unstructured) { u.SetFinalizers(without(u.GetFinalizers(), finalizers...)) })
}

// update changes an object as another client does.
func (c *cluster) update(t *testing.T, o *unstructured.Unstructured, fn func(u *unstructured.Unstructured)) {
	t.Helper()
	u := c.read(t, o)
	fn(u)
	must(t, c.server.Update(context.Background(), u))
}

// replace sets conditions, as another client does.
func (c *cluster) replace(t *testing.T, o *unstructured.Unstructured, cs ...xpv2.Condition) {
	t.Helper()
	u := c.read(t, o)
	withConditions(cs...)(u)
	must(t, c.server.Status().Update(context.Background(), u))
}

// read returns the object that the server has.
func (c *cluster) read(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u := newObject(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	must(t, c.server.Get(context.Background(), client.ObjectKeyFromObject(o), u))
	return u
}

// exists reports whether the server has the object.
func (c *cluster) exists(o *unstructured.Unstructured) bool {
	u := newObject(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	return c.server.Get(context.Background(), client.ObjectKeyFromObject(o), u) == nil
}

// A condition without the Equal of xpv2.Condition, which ignores generations if one is zero.
type condition xpv2.Condition

// conditionsWithTimes returns the conditions that the server has.
func (c *cluster) conditionsWithTimes(t *testing.T, o *unstructured.Unstructured) []xpv2.Condition {
	t.Helper()
	out := xpv2.ConditionedStatus{}
	cs, _, _ := unstructured.NestedSlice(c.read(t, o).Object, "status", "conditions")
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"conditions": cs}, &out))
	return out.Conditions
}

// conditions returns the conditions that the server has, without times.
func (c *cluster) conditions(t *testing.T, o *unstructured.Unstructured) []condition {
	t.Helper()
	return withoutTimes(c.conditionsWithTimes(t, o)...)
}

// withoutTimes returns conditions without their transition times.
func withoutTimes(cs ...xpv2.Condition) []condition {
	out := make([]condition, 0, len(cs))
	for _, c := range cs {
		c.LastTransitionTime = metav1.Time{}
		out = append(out, condition(c))
	}
	return out
}

// A conditionText is the text of a condition. T stands for each time.
type conditionText struct{ Status, Reason, Message string }

// waitsFor returns the text of an object that waits for dependents.
func waitsFor(message string) conditionText {
	return conditionText{"True", "WaitingForDependents", message}
}

var timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// condition returns the text of a condition that the server has.
func (c *cluster) condition(t *testing.T, o *unstructured.Unstructured, ct xpv2.ConditionType) conditionText {
	t.Helper()
	cond := (&composed.Unstructured{Unstructured: *c.read(t, o)}).GetCondition(ct)
	return conditionText{
		Status:  string(cond.Status),
		Reason:  string(cond.Reason),
		Message: timestamps.ReplaceAllString(cond.Message, "T"),
	}
}

// newObject returns an object. It has a UID if there are changes.
func newObject(
	k schema.GroupVersionKind, namespace, name string, mod ...func(u *unstructured.Unstructured),
) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k)
	u.SetNamespace(namespace)
	u.SetName(name)
	if len(mod) > 0 {
		u.SetUID(types.UID("uid-of-" + name))
	}
	return modify(u, mod...)
}

// modify changes an object, and returns it.
func modify(u *unstructured.Unstructured, mod ...func(u *unstructured.Unstructured)) *unstructured.Unstructured {
	for _, m := range mod {
		m(u)
	}
	return u
}

// withField sets a field.
func withField(path []string, v any) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, v, path...); err != nil {
			panic(err)
		}
	}
}

func fieldPath(path ...string) []string { return path }

func withFinalizers(finalizers ...string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetFinalizers(finalizers) }
}

func withConditions(cs ...xpv2.Condition) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { (&composed.Unstructured{Unstructured: *u}).SetConditions(cs...) }
}

func withAnnotation(k, v string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		as := u.GetAnnotations()
		if as == nil {
			as = map[string]string{}
		}
		as[k] = v
		u.SetAnnotations(as)
	}
}

// withInUseLabel marks an object that a Usage protects.
func withInUseLabel(u *unstructured.Unstructured) {
	u.SetLabels(map[string]string{"crossplane.io/in-use": "true"})
}

// withController makes an object the controller.
func withController(o *unstructured.Unstructured) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		yes := true
		gvk := o.GroupVersionKind()
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(),
			Kind:       gvk.Kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
		}})
	}
}

func withDeletionTimestamp(u *unstructured.Unstructured) {
	u.SetDeletionTimestamp(&metav1.Time{Time: deletionTime()})
}

func referenceTo(o *unstructured.Unstructured) map[string]any {
	m := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName()}
	if o.GetNamespace() != "" {
		m["namespace"] = o.GetNamespace()
	}
	return m
}

// A testReconciler is a reconciler of composite resources with everything that tests look at.
type testReconciler struct {
	reconcile.Reconciler

	c       *cluster
	now     time.Time
	events  *testkit.Said
	metrics *reconciler.Metrics
	called  int
	passes  int
	opts    []reconciler.Option

	// cached is whether there is no live reader.
	cached bool

	// inner is what the inner reconciler does, and result its result. It only counts passes if inner is nil.
	inner  func(ctx context.Context, c client.Client, o *composite.Unstructured) error
	result reconcile.Result
}

func newTestReconciler(t *testing.T, c *cluster, o client.Object, opts ...reconciler.Option) *testReconciler {
	t.Helper()
	r := &testReconciler{
		c:       c,
		now:     o.GetDeletionTimestamp().Add(time.Minute),
		events:  &testkit.Said{},
		metrics: reconciler.NewMetrics(),
		opts:    opts,
	}
	r.restart()
	return r
}

// restart replaces the process: its memory is lost.
func (r *testReconciler) restart() {
	pass := newCompositeReconciler(func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
		if r.passes++; r.inner == nil {
			return nil
		}
		return r.inner(ctx, c, o)
	})
	inner := func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			_, err := pass(c).Reconcile(ctx, req)
			return r.result, err
		})
	}
	if !r.cached {
		r.opts = append(r.opts, reconciler.WithLiveReader(r.c.server))
	}
	r.Reconciler = reconciler.New(r.c, composites, inner, append([]reconciler.Option{
		reconciler.WithClock(func() time.Time { return r.now }),
		reconciler.WithoutWait(),
		reconciler.WithRecorder(r.events),
		reconciler.WithLogger(r.events),
		reconciler.WithMetrics(r.metrics),
	}, r.opts...)...)
}

// deadline returns an option for a deadline that counts the calls of its function.
func (r *testReconciler) deadline(d time.Duration) reconciler.Option {
	return reconciler.WithDeletionDeadline(d, func(context.Context, client.Object) { r.called++ })
}

// countEvents returns the number of events with a reason.
func (r *testReconciler) countEvents(reason event.Reason) int {
	return len(r.events.Events(reason))
}

// newReadingReconciler returns an inner reconciler that calls fn with the object, unless fn is nil.
func newReadingReconciler[O client.Object](
	empty func() O, fn func(ctx context.Context, c client.Client, o O) error,
) func(c client.Client) reconcile.Reconciler {
	return func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := empty()
			if err := c.Get(ctx, req.NamespacedName, o); err != nil || fn == nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			return reconcile.Result{}, fn(ctx, c, o)
		})
	}
}

// writeStatus is an inner reconciler that writes a condition of its own.
func writeStatus(ctx context.Context, c client.Client, o *composite.Unstructured) error {
	o.SetConditions(xpv2.ReconcileSuccess())
	return c.Status().Update(ctx, o)
}

// writeLabel is an inner reconciler that patches metadata.
func writeLabel(ctx context.Context, c client.Client, o *composite.Unstructured) error {
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`))
	return c.Patch(ctx, o, label)
}

// removeMine is an inner reconciler that has cleaned up.
func removeMine(ctx context.Context, c client.Client, o *composite.Unstructured) error {
	o.SetFinalizers(without(o.GetFinalizers(), mine))
	return c.Update(ctx, o)
}

// newCompositeReconciler returns an inner reconciler of composite resources.
func newCompositeReconciler(
	fn func(ctx context.Context, c client.Client, o *composite.Unstructured) error,
) func(c client.Client) reconcile.Reconciler {
	return newReadingReconciler(
		func() *composite.Unstructured { return composite.New(composite.WithGroupVersionKind(composites)) }, fn,
	)
}

// newIdleReconciler returns an inner reconciler that does nothing.
func newIdleReconciler() func(c client.Client) reconcile.Reconciler {
	return newCompositeReconciler(nil)
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// mustReconcile reconciles an object without an error.
func mustReconcile(t *testing.T, r reconcile.Reconciler, o client.Object) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), requestFor(o))
	if err != nil {
		t.Fatalf("Reconcile(%s): %v", o.GetName(), err)
	}
	return result
}

func mustReconcileTimes(t *testing.T, n int, r reconcile.Reconciler, o client.Object) {
	t.Helper()
	for range n {
		mustReconcile(t, r, o)
	}
}

// newComposite returns a composite resource that is being deleted, with references.
func newComposite(refs ...*unstructured.Unstructured) *unstructured.Unstructured {
	list := []any{}
	for _, o := range refs {
		list = append(list, referenceTo(o))
	}
	return newDeletedObject(composites, "", "x", fieldPath("spec", "crossplane", "resourceRefs"), list)
}

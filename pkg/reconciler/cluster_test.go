package reconciler_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	claims     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "App"}
	composites = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "XApp"}
	things     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
	secrets    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
)

// A cluster is an API server with a garbage collector that comes when it is
// called. It counts what controllers ask of it.
type cluster struct {
	client.WithWatch

	server client.WithWatch

	// fail fails a controller's request, or its answer if it is called after.
	fail func(verb string, o client.Object, after bool) error

	mu     sync.Mutex
	counts map[string]int

	// stale are objects that are read as they were.
	stale map[client.ObjectKey]*unstructured.Unstructured
}

func newCluster(objs ...*unstructured.Unstructured) *cluster {
	s := runtime.NewScheme()

	var subs, all []client.Object

	for _, k := range []schema.GroupVersionKind{claims, composites, things, secrets} {
		s.AddKnownTypeWithName(k, &unstructured.Unstructured{})
		s.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), &unstructured.UnstructuredList{})
		metav1.AddToGroupVersion(s, k.GroupVersion())

		subs = append(subs, of(k, "", ""))
	}

	for _, o := range objs {
		all = append(all, o)
	}

	c := &cluster{
		server: fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(subs...).WithObjects(all...).Build(),
		counts: map[string]int{},
		stale:  map[client.ObjectKey]*unstructured.Unstructured{},
	}

	c.WithWatch = interceptor.NewClient(c.server, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked := of(o.GetObjectKind().GroupVersionKind(), key.Namespace, key.Name)

			return c.do("get", asked, func() error {
				if s := c.stale[key]; s != nil && s.GroupVersionKind() == asked.GroupVersionKind() {
					return runtime.DefaultUnstructuredConverter.FromUnstructured(s.DeepCopy().Object, o)
				}

				return w.Get(ctx, key, o, opts...)
			})
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return c.do("list", of(l.GetObjectKind().GroupVersionKind(), "", ""), func() error { return w.List(ctx, l, opts...) })
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.do("update", o, func() error { return w.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.do("patch", o, func() error { return w.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.do("delete", o, func() error { return c.remove(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.do("status", o, func() error { return w.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.do("status", o, func() error {
				if err := c.guard(ctx, o, p); err != nil {
					return err
				}

				return w.SubResource(sub).Patch(ctx, o, p, opts...)
			})
		},
	})

	return c
}

// guard refuses a merge patch of status of another version, as an API server does.
func (c *cluster) guard(ctx context.Context, o client.Object, p client.Patch) error {
	data, err := p.Data(o)
	if err != nil || p.Type() != types.MergePatchType {
		return err
	}

	body := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(data, body); err != nil {
		return err
	}

	u := of(o.GetObjectKind().GroupVersionKind(), "", "")
	if err := c.server.Get(ctx, client.ObjectKeyFromObject(o), u); err != nil {
		return err
	}

	if v := body.GetResourceVersion(); v != "" && v != u.GetResourceVersion() {
		return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("the object has been modified"))
	}

	return nil
}

func (c *cluster) do(verb string, o client.Object, serve func() error) error {
	c.mu.Lock()
	c.counts[verb]++
	c.counts[verb+" "+o.GetObjectKind().GroupVersionKind().Kind]++
	c.mu.Unlock()

	if c.fail != nil {
		if err := c.fail(verb, o, false); err != nil {
			return err
		}
	}

	if err := serve(); err != nil || c.fail == nil {
		return err
	}

	return c.fail(verb, o, true)
}

// refuses returns what fails the requests of a verb.
func refuses(verb string, err error) func(string, client.Object, bool) error {
	return func(v string, _ client.Object, _ bool) error {
		if v == verb {
			return err
		}

		return nil
	}
}

// lostAnswers returns what loses the answers to n requests of a verb.
func lostAnswers(verb string, n *int) func(string, client.Object, bool) error {
	return func(v string, _ client.Object, after bool) error {
		if v == verb && after && *n > 0 {
			*n--
			return kerrors.NewTimeoutError("lost", 1)
		}

		return nil
	}
}

// count the requests of these verbs since the last forget.
func (c *cluster) count(verbs ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	n := 0
	for _, v := range verbs {
		n += c.counts[v]
	}

	return n
}

func (c *cluster) writes() int { return c.count("update", "patch", "delete", "status") }

func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()

	clear(c.counts)
}

// remove an object as an API server does: what a Usage protects stays, and with
// foreground propagation the garbage collector gets its finalizer.
func (c *cluster) remove(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	u := of(o.GetObjectKind().GroupVersionKind(), o.GetNamespace(), o.GetName())
	if err := c.server.Get(ctx, client.ObjectKeyFromObject(o), u); err != nil {
		return err
	}

	if u.GetLabels()["crossplane.io/in-use"] == "true" {
		return kerrors.NewForbidden(schema.GroupResource{}, o.GetName(), errors.New("admission webhook denied the request: in use"))
	}

	do := (&client.DeleteOptions{}).ApplyOptions(opts)
	if p := do.Preconditions; p != nil && (p.UID != nil && *p.UID != u.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != u.GetResourceVersion()) {
		return kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("the precondition does not hold"))
	}

	// The API server adds the finalizer of the policy, in place of the other one.
	add, drop := "", ""

	switch {
	case do.PropagationPolicy == nil:
	case *do.PropagationPolicy == metav1.DeletePropagationOrphan:
		add, drop = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	case *do.PropagationPolicy == metav1.DeletePropagationForeground:
		add, drop = metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents
	}

	if add != "" && !slices.Contains(u.GetFinalizers(), add) {
		u.SetFinalizers(append(without(u.GetFinalizers(), drop), add))

		if err := c.server.Update(ctx, u); err != nil {
			return err
		}
	}

	return c.server.Delete(ctx, u)
}

// collect does what the garbage collector does with the given objects: it removes the
// owner references to those that are deleted with the policy Orphan, deletes what
// those own that are deleted in the foreground, and deletes what has lost its owner.
func (c *cluster) collect(t *testing.T, objs ...*unstructured.Unstructured) {
	t.Helper()

	var all []*unstructured.Unstructured

	exists := map[types.UID]bool{}

	for _, o := range objs {
		if c.has(o) {
			u := c.read(t, o)
			all, exists[u.GetUID()] = append(all, u), true
		}
	}

	for _, owner := range all {
		foreground := slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents)
		if owner.GetDeletionTimestamp() == nil || !foreground && !slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents) {
			continue
		}

		left := false

		for _, o := range all {
			owned := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })

			switch {
			case owned && foreground:
				// It may be refused. The collector tries again.
				_ = c.remove(context.Background(), o)
				left = left || c.has(o)
			case owned:
				c.change(t, o, func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) })
			}
		}

		if !left {
			c.release(t, owner, metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents)
			c.collect(t, objs...) // What was read is out of date.

			return
		}
	}

	for _, o := range all {
		if refs := o.GetOwnerReferences(); len(refs) > 0 && !slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return exists[r.UID] }) {
			c.delete(t, o)
		}
	}
}

// release an object from finalizers, as their controllers do.
func (c *cluster) release(t *testing.T, o *unstructured.Unstructured, finalizers ...string) {
	t.Helper()
	c.change(t, o, func(u *unstructured.Unstructured) { u.SetFinalizers(without(u.GetFinalizers(), finalizers...)) })
}

// change an object as another writer does.
func (c *cluster) change(t *testing.T, o *unstructured.Unstructured, fn func(u *unstructured.Unstructured)) {
	t.Helper()

	u := c.read(t, o)
	fn(u)

	if err := c.server.Update(context.Background(), u); err != nil {
		t.Fatal(err)
	}
}

// delete an object as another client does.
func (c *cluster) delete(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()

	if err := c.remove(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) read(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()

	u := of(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	if err := c.server.Get(context.Background(), client.ObjectKeyFromObject(o), u); err != nil {
		t.Fatal(err)
	}

	return u
}

func (c *cluster) has(o *unstructured.Unstructured) bool {
	u := of(o.GroupVersionKind(), o.GetNamespace(), o.GetName())
	return c.server.Get(context.Background(), client.ObjectKeyFromObject(o), u) == nil
}

// A condition that is compared field by field: an xpv2.Condition has an Equal of
// its own, which ignores generations if one is zero.
type condition xpv2.Condition

// conditions returns the conditions that the server has, without times.
func (c *cluster) conditions(t *testing.T, o *unstructured.Unstructured) []condition {
	t.Helper()

	out := xpv2.ConditionedStatus{}
	cs, _, _ := unstructured.NestedSlice(c.read(t, o).Object, "status", "conditions")

	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"conditions": cs}, &out); err != nil {
		t.Fatal(err)
	}

	return plain(out.Conditions...)
}

// plain returns conditions without times.
func plain(cs ...xpv2.Condition) []condition {
	out := make([]condition, 0, len(cs))

	for _, c := range cs {
		c.LastTransitionTime = metav1.Time{}
		out = append(out, condition(c))
	}

	return out
}

// A said is what a condition says, without times.
type said struct {
	Status, Reason, Message string
}

var timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// says returns a condition of an object.
func (c *cluster) says(t *testing.T, o *unstructured.Unstructured, ct xpv2.ConditionType) said {
	t.Helper()

	cond := (&composed.Unstructured{Unstructured: *c.read(t, o)}).GetCondition(ct)

	return said{Status: string(cond.Status), Reason: string(cond.Reason), Message: timestamps.ReplaceAllString(cond.Message, "T")}
}

// of returns an object that has nothing but its name, and a UID made of it.
func of(k schema.GroupVersionKind, namespace, name string, mod ...func(u *unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k)
	u.SetNamespace(namespace)
	u.SetName(name)

	if len(mod) > 0 {
		u.SetUID(types.UID("uid-of-" + name))
	}

	for _, m := range mod {
		m(u)
	}

	return u
}

func with(path []string, v any) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, v, path...); err != nil {
			panic(err)
		}
	}
}

func at(path ...string) []string { return path }

func held(finalizers ...string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetFinalizers(finalizers) }
}

func being(cs ...xpv2.Condition) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { (&composed.Unstructured{Unstructured: *u}).SetConditions(cs...) }
}

func annotated(k, v string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		as := u.GetAnnotations()
		if as == nil {
			as = map[string]string{}
		}

		as[k] = v
		u.SetAnnotations(as)
	}
}

func protected(u *unstructured.Unstructured) {
	u.SetLabels(map[string]string{"crossplane.io/in-use": "true"})
}

func ownedBy(o *unstructured.Unstructured) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		yes := true
		gvk := o.GroupVersionKind()
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
		}})
	}
}

func dying(u *unstructured.Unstructured) {
	now := metav1.Date(2026, 1, 2, 3, 4, 5, 0, metav1.Now().Location())
	u.SetDeletionTimestamp(&now)
}

// ref returns a reference to an object, as references are in unstructured ones.
func ref(o *unstructured.Unstructured) map[string]any {
	m := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName()}
	if o.GetNamespace() != "" {
		m["namespace"] = o.GetNamespace()
	}

	return m
}

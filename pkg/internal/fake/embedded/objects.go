package embedded

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// errUnsupported is what a server answers that is asked for what none of Graft's code
// asks for.
var errUnsupported = errors.New("embedded: this request is not supported")

// errApply is what a server answers that is asked for server-side apply.
var errApply = errors.New("embedded: server-side apply is not supported")

// objects are what a server stores, and the client that reads and writes them.
type objects struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	kinds  map[schema.GroupVersionKind]kind
	now    func() time.Time

	// collect has a Delete add finalizers of the garbage collector.
	collect bool

	// mu makes each request one step.
	mu     sync.Mutex
	latest map[key]revision

	// version is the last resourceVersion given out, created the number of objects so far.
	version, created uint64
}

var _ client.WithWatch = &objects{}

// A key names an object.
type key struct {
	kind schema.GroupVersionKind
	types.NamespacedName
}

// resource returns the resource of the key's kind.
func (k key) resource() schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(k.kind)
	return plural.GroupResource()
}

func (s *objects) nextVersion() string {
	s.version++
	return strconv.FormatUint(s.version, 10)
}

// find returns the revision of an object that is stored. It needs the lock.
func (s *objects) find(o runtime.Object, name types.NamespacedName) (key, revision, error) {
	gvk, err := apiutil.GVKForObject(o, s.scheme)
	if err != nil {
		return key{}, revision{}, err
	}
	if namespaced, err := apiutil.IsGVKNamespaced(gvk, s.mapper); err == nil && !namespaced {
		name.Namespace = "" // Clients leave it out of a request for a cluster-scoped kind.
	}
	k := key{gvk, name}
	r, ok := s.latest[k]
	if !ok {
		return k, r, kerrors.NewNotFound(k.resource(), name.Name)
	}
	return k, r, nil
}

// add an object as it is, with the defaults of its CRD.
func (s *objects) add(o client.Object) error {
	o.SetResourceVersion(s.nextVersion())
	k, _, err := s.find(o, client.ObjectKeyFromObject(o))
	if err != nil && !kerrors.IsNotFound(err) {
		return err
	}
	content, err := contentOf(o)
	if err != nil {
		return err
	}
	(&unstructured.Unstructured{Object: content}).SetNamespace(k.Namespace)
	setDefaults(content, s.kinds[k.kind].schema)
	r, err := s.revisionOf(k.kind, content)
	s.latest[k] = r
	return err
}

// Get an object.
func (s *objects) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, r, err := s.find(o, name)
	if err != nil {
		return err
	}
	return r.read(o, k.kind)
}

// List objects in order of their names. No object of a cluster-scoped kind is in a namespace, as in a cache of
// controller-runtime.
func (s *objects) List(_ context.Context, l client.ObjectList, opts ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, err := apiutil.GVKForObject(l, s.scheme)
	if err != nil {
		return err
	}
	lo := (&client.ListOptions{LabelSelector: labels.Everything()}).ApplyOptions(opts)
	if lo.FieldSelector != nil {
		return errUnsupported
	}
	gvk := of.GroupVersion().WithKind(strings.TrimSuffix(of.Kind, "List"))
	var keys []key

	for k, r := range s.latest {
		if k.kind == gvk && (lo.Namespace == "" || lo.Namespace == k.Namespace) &&
			lo.LabelSelector.Matches(labels.Set(r.object.GetLabels())) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	items := make([]runtime.Object, 0, len(keys))

	for _, k := range keys {
		r := s.latest[k]
		item := r.object.DeepCopyObject()
		switch l.(type) {
		case runtime.Unstructured:
			item = &unstructured.Unstructured{}
		case *metav1.PartialObjectMetadataList:
			item = &metav1.PartialObjectMetadata{}
		}
		if err := r.read(item, gvk); err != nil {
			return err
		}
		items = append(items, item)
	}
	had := l.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(l).Elem().SetZero()
	l.GetObjectKind().SetGroupVersionKind(had)
	return meta.SetList(l, items)
}

// Create an object.
func (s *objects) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if dry := (&client.CreateOptions{}).ApplyOptions(opts).DryRun; ctx.Err() != nil || len(dry) > 0 {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.created+1)) // The same in each life of a crash test.
	}
	k, _, err := s.find(o, client.ObjectKeyFromObject(o))
	custom, isCustom := s.kinds[k.kind]
	switch {
	case err != nil && !kerrors.IsNotFound(err):
		return err
	case isCustom && custom.namespaced && k.Namespace == "":
		return kerrors.NewBadRequest("an empty namespace may not be set during creation")
	case k.Name == "":
		return kerrors.NewInvalid(k.kind.GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata.name"), "name is required"),
		})
	case o.GetResourceVersion() != "":
		return kerrors.NewBadRequest("resourceVersion can not be set for Create requests")
	case err == nil:
		return kerrors.NewAlreadyExists(k.resource(), k.Name)
	}
	content, err := contentOf(o)
	if err != nil {
		return err
	}
	s.created++
	m, generation := &unstructured.Unstructured{Object: content}, o.GetGeneration()
	m.SetNamespace(k.Namespace)
	m.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.created)))
	m.SetCreationTimestamp(metav1.NewTime(s.now()))
	m.SetDeletionTimestamp(nil)
	m.SetManagedFields(nil)

	if isCustom {
		if custom.status {
			delete(content, "status")
		}
		setDefaults(content, custom.schema)
		generation = 1
	}
	r, err := s.revisionOf(k.kind, content)
	if err != nil {
		return err
	}
	r.setVersion(s.nextVersion(), generation)
	s.latest[k] = r
	return r.read(o, k.kind)
}

// Update an object.
func (s *objects) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return s.update(ctx, o, false, (&client.UpdateOptions{}).ApplyOptions(opts).DryRun)
}

func (s *objects) update(ctx context.Context, o client.Object, status bool, dry []string) error {
	if ctx.Err() != nil || len(dry) > 0 {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, old, err := s.find(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return err
	}
	if uid := o.GetUID(); uid != "" && uid != old.object.GetUID() {
		return kerrors.NewConflict(k.resource(), k.Name, anotherUID(uid, old.object.GetUID()))
	}
	if _, custom := s.kinds[k.kind]; custom && o.GetResourceVersion() == "" {
		return kerrors.NewInvalid(k.kind.GroupKind(), k.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"),
		})
	}
	next, err := contentOf(o)
	if err != nil {
		return err
	}
	version := o.GetResourceVersion()
	if version == "" && native(k.kind) && k.kind.Kind != "Lease" {
		version = old.object.GetResourceVersion()
	}
	if version != old.object.GetResourceVersion() {
		return kerrors.NewConflict(k.resource(), k.Name, errors.New("object was modified"))
	}
	r, err := s.replace(k, old, next, status)
	if err != nil {
		return err
	}
	return r.read(o, k.kind)
}

// Patch an object.
func (s *objects) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return s.patch(ctx, o, p, false, (&client.PatchOptions{}).ApplyOptions(opts).DryRun)
}

func (s *objects) patch(ctx context.Context, o client.Object, p client.Patch, status bool, dry []string) error {
	if ctx.Err() != nil || len(dry) > 0 {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	k, old, err := s.find(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return err
	}
	next, err := old.patched(p.Type(), data)
	if err != nil {
		return err
	}
	version := (&unstructured.Unstructured{Object: next}).GetResourceVersion()
	if was := old.object.GetResourceVersion(); version != "" && version != was {
		return kerrors.NewConflict(k.resource(), k.Name, anotherVersion(version, was))
	}
	r, err := s.replace(k, old, next, status)
	if err != nil {
		return err
	}
	return r.read(o, k.kind)
}

// replace the content of an object by the next one, without what the request can't write.
// It needs the lock.
func (s *objects) replace(k key, old revision, next map[string]any, status bool) (revision, error) {
	custom, isCustom := s.kinds[k.kind]
	switch hasStatus := s.hasStatus(k.kind); {
	case status && !hasStatus:
		return revision{}, kerrors.NewNotFound(k.resource(), k.Name)
	case status:
		written := next["status"]
		next = runtime.DeepCopyJSON(old.content)
		next["status"] = written
	case hasStatus:
		next["status"] = runtime.DeepCopyJSONValue(old.content["status"])
	}
	if next["status"] == nil {
		delete(next, "status")
	}
	if isCustom {
		setDefaults(next, custom.schema)
	}

	was, m := old.object, &unstructured.Unstructured{Object: next}
	m.SetNamespace(k.Namespace)
	if m.GetUID() == "" {
		m.SetUID(was.GetUID())
	}
	m.SetResourceVersion(was.GetResourceVersion())
	m.SetGeneration(was.GetGeneration())
	m.SetCreationTimestamp(was.GetCreationTimestamp())
	m.SetDeletionTimestamp(was.GetDeletionTimestamp())
	m.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	m.SetManagedFields(nil)
	r, err := s.revisionOf(k.kind, next)
	if err != nil {
		return revision{}, err
	}
	errs := validation.ValidateObjectMetaAccessorUpdate(r.object, was, field.NewPath("metadata"))

	switch {
	case len(errs) > 0:
		return revision{}, kerrors.NewInvalid(k.kind.GroupKind(), k.Name, errs)
	case r.object.GetDeletionTimestamp() != nil && len(r.object.GetFinalizers()) == 0:
		// The answer is the last that is known of it.
		delete(s.latest, k)
		r.setVersion(s.nextVersion(), was.GetGeneration())
		return r, nil
	case equal(r.content, old.content):
		return old, nil
	}
	generation := was.GetGeneration()
	ignored := []string{"metadata"}
	if custom.status {
		ignored = append(ignored, "status")
	}
	if isCustom && !equal(without(r.content, ignored...), without(old.content, ignored...)) {
		generation++
	}
	r.setVersion(s.nextVersion(), generation)
	s.latest[k] = r
	return r, nil
}

// Delete an object.
func (s *objects) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	do := (&client.DeleteOptions{}).ApplyOptions(opts)
	if len(do.DryRun) > 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, old, err := s.find(o, client.ObjectKeyFromObject(o))
	if err != nil {
		return err
	}
	was := old.object

	if p := do.Preconditions; p != nil {
		switch {
		case p.UID != nil && *p.UID != was.GetUID():
			return kerrors.NewConflict(k.resource(), k.Name, anotherUID(*p.UID, was.GetUID()))
		case p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion():
			return kerrors.NewConflict(
				k.resource(), k.Name, anotherVersion(*p.ResourceVersion, was.GetResourceVersion()),
			)
		}
	}
	finalizers := was.GetFinalizers()
	if s.collect && do.PropagationPolicy != nil {
		finalizers = finalizersFor(*do.PropagationPolicy, finalizers)
	}

	if len(finalizers) == 0 {
		delete(s.latest, k)
		return nil
	}
	first := was.GetDeletionTimestamp() == nil
	if !first && slices.Equal(finalizers, was.GetFinalizers()) {
		return nil
	}
	m, generation := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(old.content)}, was.GetGeneration()
	m.SetFinalizers(finalizers)

	if first {
		m.SetDeletionTimestamp(ptr.To(metav1.NewTime(s.now())))
		m.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
		if _, custom := s.kinds[k.kind]; custom {
			generation++
		}
	}
	r, err := s.revisionOf(k.kind, m.Object)
	if err != nil {
		return err
	}
	r.setVersion(s.nextVersion(), generation)
	s.latest[k] = r
	return nil
}

// finalizersFor returns the finalizers of an object that is deleted with a propagation
// policy.
func finalizersFor(p metav1.DeletionPropagation, had []string) []string {
	fs := slices.DeleteFunc(slices.Clone(had), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})

	switch p {
	case metav1.DeletePropagationOrphan:
		fs = append(fs, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		fs = append(fs, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground:
	}
	return fs
}

func anotherUID(want, got types.UID) error {
	return fmt.Errorf("the request is for UID %s, the object has UID %s", want, got)
}

func anotherVersion(want, got string) error {
	return fmt.Errorf("the request is for version %s, the object has version %s", want, got)
}

// native reports whether a kind is one of Kubernetes' own.
func native(gvk schema.GroupVersionKind) bool {
	return !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io")
}

// hasStatus reports whether a kind has a status subresource. Each of Kubernetes' own kinds
// with a status has one.
func (s *objects) hasStatus(gvk schema.GroupVersionKind) bool {
	if k, custom := s.kinds[gvk]; custom || !native(gvk) {
		return k.status
	}
	o, err := s.scheme.New(gvk)
	return err == nil && reflect.ValueOf(o).Elem().FieldByName("Status").IsValid()
}

// DeleteAllOf is not supported.
func (s *objects) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return errUnsupported
}

// Apply is not supported.
func (s *objects) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errApply
}

// Watch is not supported.
func (s *objects) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errUnsupported
}

// Scheme returns the scheme of the types that the client uses.
func (s *objects) Scheme() *runtime.Scheme { return s.scheme }

// RESTMapper returns a mapper of the scheme's kinds.
func (s *objects) RESTMapper() meta.RESTMapper { return s.mapper }

// GroupVersionKindFor returns the kind of an object.
func (s *objects) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, s.scheme)
}

// IsObjectNamespaced reports whether an object is of a kind with namespaces.
func (s *objects) IsObjectNamespaced(o runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(o, s.scheme, s.mapper)
}

// Status returns a writer of status.
func (s *objects) Status() client.SubResourceWriter { return s.SubResource("status") }

// SubResource returns a client of status, the only subresource.
func (s *objects) SubResource(name string) client.SubResourceClient {
	return subresource{s, name == "status"}
}

// A subresource is a client of status, or of a subresource that isn't supported.
type subresource struct {
	objects  *objects
	isStatus bool
}

func (c subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return errUnsupported
}

func (c subresource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errUnsupported
}

func (c subresource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	so := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	if so.SubResourceBody != nil {
		o = so.SubResourceBody
	}
	if !c.isStatus {
		return errUnsupported
	}
	return c.objects.update(ctx, o, true, so.DryRun)
}

func (c subresource) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	so := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if so.SubResourceBody != nil {
		o = so.SubResourceBody
	}
	if !c.isStatus {
		return errUnsupported
	}
	return c.objects.patch(ctx, o, p, true, so.DryRun)
}

func (c subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errApply
}

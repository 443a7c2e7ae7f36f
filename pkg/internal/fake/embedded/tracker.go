package embedded

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A tracker stores objects for the fake client, which has checked the
// resourceVersion and taken status or all but status from the stored object by
// the time it calls. The fake client makes one write at a time.
type tracker struct {
	testing.ObjectTracker

	scheme *runtime.Scheme
	kinds  map[schema.GroupVersionKind]kind
	now    func() time.Time

	// version is the last resourceVersion given out, created the number of
	// objects so far.
	version atomic.Uint64
	created atomic.Uint64

	// collecting allows new finalizers of an object that is being deleted. The server's
	// lock is held meanwhile.
	collecting bool
}

// Create stores a new object.
func (t *tracker) Create(
	gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.CreateOptions,
) error {
	m, gvk, err := t.describe(obj)
	if err != nil {
		return err
	}
	if _, err := t.Get(gvr, ns, m.GetName()); err == nil {
		// It is refused below, and must not leave marks on the caller's object.
		return t.ObjectTracker.Create(gvr, obj, ns, opts...)
	}
	if k, ok := t.kinds[gvk]; ok {
		if err := edit(obj, func(content map[string]any) {
			if k.status {
				delete(content, "status")
			}
			setDefaults(content, k.schema)
		}); err != nil {
			return err
		}
	}

	t.stampNew(m, gvk)
	return t.ObjectTracker.Create(gvr, obj, ns, opts...)
}

// Update replaces an object.
func (t *tracker) Update(
	gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.UpdateOptions,
) error {
	changed, err := t.prepare(gvr, obj, ns)
	if err != nil || !changed {
		return err
	}
	return t.ObjectTracker.Update(gvr, obj, ns, opts...)
}

// Patch replaces an object with its patched self.
func (t *tracker) Patch(
	gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions,
) error {
	changed, err := t.prepare(gvr, obj, ns)
	if err != nil || !changed {
		return err
	}
	return t.ObjectTracker.Patch(gvr, obj, ns, opts...)
}

// prepare checks the new version of a stored object and gives it the metadata
// that is the server's. It returns false if nothing changed, and then there is
// nothing to store.
func (t *tracker) prepare(gvr schema.GroupVersionResource, obj runtime.Object, ns string) (bool, error) {
	m, gvk, err := t.describe(obj)
	if err != nil {
		return false, err
	}
	old, err := t.Get(gvr, ns, m.GetName())
	if err != nil {
		return false, err
	}
	oldMeta, err := meta.Accessor(old)
	if err != nil {
		return false, fmt.Errorf("cannot read metadata: %w", err)
	}
	if k, ok := t.kinds[gvk]; ok {
		if err := edit(obj, func(content map[string]any) {
			// The fake client gives an object without status one that is null.
			if content["status"] == nil {
				delete(content, "status")
			}
			setDefaults(content, k.schema)
		}); err != nil {
			return false, err
		}
	}

	if m.GetUID() == "" {
		m.SetUID(oldMeta.GetUID())
	}
	m.SetCreationTimestamp(oldMeta.GetCreationTimestamp())

	// The fake client lets a deletionTimestamp be set by its own Delete only.
	deleted := oldMeta.GetDeletionTimestamp() == nil && m.GetDeletionTimestamp() != nil
	if !deleted {
		m.SetDeletionTimestamp(oldMeta.GetDeletionTimestamp())
		m.SetDeletionGracePeriodSeconds(oldMeta.GetDeletionGracePeriodSeconds())
	}

	before, after, err := contents(old, obj)
	if err != nil {
		return false, err
	}
	m.SetGeneration(t.generation(gvk, oldMeta, before, after))

	if deleted {
		t.markDeleted(m, gvk)
		return true, nil
	}

	if errs := validation.ValidateObjectMetaAccessorUpdate(m, oldMeta, field.NewPath("metadata")); len(errs) > 0 &&
		!t.collecting {
		return false, kerrors.NewInvalid(gvk.GroupKind(), m.GetName(), errs)
	}

	// Now that the server's metadata is in place the whole of it counts.
	before, after, err = contents(old, obj)
	if err != nil {
		return false, err
	}
	if equal(before, after) {
		m.SetResourceVersion(oldMeta.GetResourceVersion())
		return false, nil
	}
	m.SetResourceVersion(t.nextVersion())
	return true, nil
}

func (t *tracker) markDeleted(m metav1.Object, gvk schema.GroupVersionKind) {
	now := metav1.NewTime(t.now()).Rfc3339Copy()
	m.SetDeletionTimestamp(&now)
	m.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
	if _, custom := t.kinds[gvk]; custom {
		m.SetGeneration(m.GetGeneration() + 1)
	}
	m.SetResourceVersion(t.nextVersion())
}

// generation of an object whose stored content was before and will be after.
func (t *tracker) generation(gvk schema.GroupVersionKind, old metav1.Object, before, after map[string]any) int64 {
	k, custom := t.kinds[gvk]
	if !custom {
		return old.GetGeneration()
	}
	ignored := []string{"metadata"}
	if k.status {
		ignored = append(ignored, "status")
	}

	if equal(without(before, ignored...), without(after, ignored...)) {
		return old.GetGeneration()
	}
	return old.GetGeneration() + 1
}

func (t *tracker) stampNew(m metav1.Object, gvk schema.GroupVersionKind) {
	m.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", t.created.Add(1))))
	m.SetCreationTimestamp(metav1.NewTime(t.now()).Rfc3339Copy())
	m.SetResourceVersion(t.nextVersion())
	if _, custom := t.kinds[gvk]; custom {
		m.SetGeneration(1)
	}
}

func (t *tracker) nextVersion() string { return strconv.FormatUint(t.version.Add(1), 10) }

func (t *tracker) describe(obj runtime.Object) (metav1.Object, schema.GroupVersionKind, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("cannot read metadata: %w", err)
	}
	gvk, err := apiutil.GVKForObject(obj, t.scheme)
	if err != nil {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("cannot tell the kind: %w", err)
	}
	return m, gvk, nil
}

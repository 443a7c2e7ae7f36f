package reconciler

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// maxGuardedDeletes is how often a deletion may fail because the object was written
// to since it was read.
const maxGuardedDeletes = 5

var (
	errGone   = errors.New("the object no longer exists")
	errUndone = errors.New("another client allowed the external resource to be deleted")
)

// A release makes the requests of one call of Release.
type release struct {
	client      client.Client
	kind        schema.GroupVersionKind
	key         client.ObjectKey
	uid         types.UID
	finalizers  []string
	propagation metav1.DeletionPropagation
	wait        func(ctx context.Context, d time.Duration) error

	// version is the resource version of the last read, and holding its finalizers.
	// refused is the version at which the API server found a write
	// invalid, if it did.
	version string
	holding []string
	refused *string

	// conflicts is how often the object was written to before it could be deleted, and
	// deleted whether it was deleted.
	conflicts int
	deleted   bool
}

// An operation of a JSON patch. Those of the same patch happen all or none.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// read returns the object. A patch that changes nothing never comes from a cache, unlike a read.
func (r *release) read(ctx context.Context) (*unstructured.Unstructured, error) {
	o, err := r.merge(ctx, map[string]any{"uid": r.uid})
	return o, errors.Wrap(err, "cannot read it")
}

// pause pauses the object, so that its controller leaves it alone. It names no resource version, so that frequent
// writes of another client can't keep it from succeeding.
func (r *release) pause(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if meta.IsPaused(o) {
		return o, nil
	}
	o, err := r.merge(ctx, map[string]any{
		"uid": r.uid, "annotations": map[string]any{meta.AnnotationKeyReconciliationPaused: "true"},
	})
	return o, errors.Wrap(err, "cannot pause it")
}

// merge metadata into the object.
func (r *release) merge(ctx context.Context, metadata map[string]any) (*unstructured.Unstructured, error) {
	o, err := r.send(ctx, types.MergePatchType, map[string]any{"metadata": metadata})
	if seam.IsGone(err) || kerrors.IsInvalid(err) && concerns(err, "metadata.uid") {
		return nil, errGone
	}
	return o, err
}

// concerns reports whether the API server found that field invalid.
func concerns(err error, field string) bool {
	s := kerrors.APIStatus(nil)
	if !errors.As(err, &s) || s.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(s.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field })
}

// keepExternal rules out that the deletion of a managed resource deletes its external resource, should a client end the
// pause.
func (r *release) keepExternal(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ops := policyChanges(o)
	if len(ops) == 0 {
		return o, nil
	}
	o, err := r.patch(ctx, ops)
	return o, errors.Wrap(err, "cannot rule out that its external resource is deleted")
}

// policyChanges returns the changes after which the deletion of the object does not
// delete its external resource. They fail if a policy has changed since it was read:
// the new one may allow less than the one that this would set.
func policyChanges(o *unstructured.Unstructured) []operation {
	var ops []operation
	if p, _, err := unstructured.NestedString(o.Object, "spec", "deletionPolicy"); err == nil &&
		p == string(xpv2.DeletionDelete) {
		ops = append(ops, exchange("/spec/deletionPolicy", p, xpv2.DeletionOrphan)...)
	}
	p, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "managementPolicies")
	if left := withoutDelete(p); !slices.Equal(left, p) {
		ops = append(ops, exchange("/spec/managementPolicies", p, left)...)
	}
	return ops
}

// withoutDelete returns the policies that allow everything else that the supplied
// ones do.
func withoutDelete(policies []string) []string {
	if slices.Contains(policies, string(xpv2.ManagementActionAll)) {
		return []string{
			string(xpv2.ManagementActionObserve),
			string(xpv2.ManagementActionCreate),
			string(xpv2.ManagementActionUpdate),
			string(xpv2.ManagementActionLateInitialize),
		}
	}
	return slices.DeleteFunc(
		slices.Clone(policies), func(p string) bool { return p == string(xpv2.ManagementActionDelete) },
	)
}

// requestDeletion deletes the object, if it is not being deleted, and returns it as it then is.
func (r *release) requestDeletion(
	ctx context.Context, o *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	if meta.WasDeleted(o) && !r.collected(o) {
		return o, nil
	}

	// The object may have been changed since it was read.
	if len(policyChanges(o)) > 0 {
		return nil, errUndone
	}
	if err := checkOperation(o); err != nil {
		return nil, errors.Wrap(err, "it was paused, and is not deleted")
	}
	guard := client.Preconditions{UID: &r.uid}

	// At this version it is paused, and its external resource is safe. Another
	// client may have undone that since. But frequent writes must not keep it from
	// being deleted.
	if r.conflicts < maxGuardedDeletes {
		at := o.GetResourceVersion()
		guard.ResourceVersion = &at
	}

	if err := r.client.Delete(ctx, r.target(), guard, client.PropagationPolicy(r.propagation)); err != nil {
		if kerrors.IsConflict(err) {
			r.conflicts++
		}
		return nil, errors.Wrap(err, "cannot delete it")
	}
	r.deleted = true
	return r.read(ctx)
}

// collected reports whether the garbage collector would delete the objects that the object
// owns, although they are to be kept. A second deletion changes the propagation policy of the
// first. That of a deletion in the background shows nowhere.
func (r *release) collected(o *unstructured.Unstructured) bool {
	fs := o.GetFinalizers()
	switch {
	case r.propagation != metav1.DeletePropagationOrphan:
		return false
	case slices.Contains(fs, metav1.FinalizerDeleteDependents):
		return true
	default:
		return !r.deleted && !slices.Contains(fs, metav1.FinalizerOrphanDependents) &&
			slices.ContainsFunc(fs, func(f string) bool { return slices.Contains(r.finalizers, f) })
	}
}

// removeFinalizers removes the supplied finalizers, if the object is still the
// same one, and has the finalizers that it was read to have.
func (r *release) removeFinalizers(
	ctx context.Context, o *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	had := o.GetFinalizers()
	left := slices.DeleteFunc(slices.Clone(had), func(f string) bool { return slices.Contains(r.finalizers, f) })
	if len(left) == len(had) {
		return o, nil
	}
	var err error

	if len(left) > 0 {
		// Other changes to the object don't matter, so that frequent writes
		// can't keep this from succeeding.
		o, err = r.patch(ctx, exchange("/metadata/finalizers", had, left))
	} else {
		// The object is removed with its last finalizer. After a patch the API
		// server deletes the object that then has the name, which may be a new one
		// if another client's patch was faster. After an update it compares the
		// UID.
		o.SetFinalizers(nil)
		err = r.client.Update(ctx, o)
	}
	return o, errors.Wrap(err, "cannot remove finalizers")
}

// exchange a value, if it is the one supplied.
func exchange(path string, from, to any) []operation {
	return []operation{{Op: "test", Path: path, Value: from}, {Op: "replace", Path: path, Value: to}}
}

// patch the object, if it is still the same one.
func (r *release) patch(ctx context.Context, ops []operation) (*unstructured.Unstructured, error) {
	return r.send(ctx, types.JSONPatchType, append([]operation{{
		Op:    "test",
		Path:  "/metadata/uid",
		Value: r.uid,
	}}, ops...))
}

// send a patch, and return the resulting object.
func (r *release) send(ctx context.Context, t types.PatchType, body any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, errors.Wrap(err, "cannot marshal patch")
	}
	o := r.target()
	if err := r.client.Patch(ctx, o, client.RawPatch(t, data)); err != nil {
		return nil, err
	}
	r.version, r.holding = o.GetResourceVersion(), o.GetFinalizers()
	return o, nil
}

func (r *release) target() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.kind)
	o.SetNamespace(r.key.Namespace)
	o.SetName(r.key.Name)
	return o
}

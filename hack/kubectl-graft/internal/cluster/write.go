package cluster

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// fieldManager is the name under which the API server records writes.
const fieldManager = "kubectl-graft"

// Changed reports whether a write failed because another client has changed the object
// since it was read, or because another object has its name.
func Changed(err error) bool {
	// A webhook that protects an object answers with the code of a conflict, but not with
	// its reason. An object with another UID is invalid, not in conflict.
	if kerrors.ReasonForError(err) == metav1.StatusReasonConflict {
		return true
	}
	var s kerrors.APIStatus
	return kerrors.IsInvalid(err) && errors.As(err, &s) && s.Status().Details != nil &&
		slices.ContainsFunc(s.Status().Details.Causes, isUID)
}

func isUID(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }

// Patch merges a patch into an object, if it still has the UID and the resource version at
// which it was read. It returns the new object. With dryRun the API server checks the
// request and stores nothing.
func (c *Cluster) Patch(
	ctx context.Context, k Kind, o *unstructured.Unstructured, patch map[string]any, dryRun bool,
) (*unstructured.Unstructured, error) {
	body := (&unstructured.Unstructured{Object: patch}).DeepCopy().Object
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = string(o.GetUID()), o.GetResourceVersion()
	body["metadata"] = metadata
	text, err := json.Marshal(body)
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode a patch")
	}
	options := metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRunOf(dryRun)}
	return c.client(k, o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, text, options)
}

// PatchMetadata merges into one field of the metadata, as Patch does.
func (c *Cluster) PatchMetadata(
	ctx context.Context, k Kind, o *unstructured.Unstructured, field string, value any, dryRun bool,
) (*unstructured.Unstructured, error) {
	return c.Patch(ctx, k, o, map[string]any{"metadata": map[string]any{field: value}}, dryRun)
}

// Orphan deletes an object, if it still has the UID and the resource version at which it
// was read, and keeps the objects that it owns.
func (c *Cluster) Orphan(ctx context.Context, k Kind, o *unstructured.Unstructured, dryRun bool) error {
	uid, version, orphan := o.GetUID(), o.GetResourceVersion(), metav1.DeletePropagationOrphan
	return c.client(k, o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &orphan,
		DryRun:            dryRunOf(dryRun),
	})
}

func dryRunOf(dryRun bool) []string {
	if dryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

package seam

import (
	"encoding/json"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guarded returns a merge patch of body that the API server refuses unless the
// object is still the one that o is, at o's resource version.
func guarded(o client.Object, body map[string]any) (client.Patch, error) {
	md, _ := body["metadata"].(map[string]any)
	if md == nil {
		md = map[string]any{}
	}

	// Objects without these come from tests' fakes only.
	if uid := o.GetUID(); uid != "" {
		md["uid"] = string(uid)
	}

	if v := o.GetResourceVersion(); v != "" {
		md["resourceVersion"] = v
	}
	body["metadata"] = md
	data, err := json.Marshal(body)
	if err != nil {
		return nil, errors.Wrap(err, "cannot marshal patch")
	}
	return client.RawPatch(types.MergePatchType, data), nil
}

// Conflict returns the error of an API server that has another o than the one in memory.
// Upstream takes it for a reason to reconcile again.
func Conflict(o client.Object, why string) error {
	gk := o.GetObjectKind().GroupVersionKind()
	return kerrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, o.GetName(), errors.New(why))
}

// IsGone reports whether err says that an object does not exist. That its kind, or the
// version of it, is not served is "not found" too, and says nothing of the object.
func IsGone(err error) bool {
	return kerrors.IsNotFound(err) && !kerrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsRefused reports whether the API server refuses what a request would make of an object.
// That a request is forbidden may be the answer of an admission webhook to just that.
func IsRefused(err error) bool {
	return err != nil && (isWebhookConflict(err) || kerrors.IsForbidden(err) || kerrors.IsInvalid(err) || kerrors.IsBadRequest(err) || kerrors.IsRequestEntityTooLargeError(err))
}

// mayRefuse reports whether the API server may have failed a write because of what the
// object would be. An admission webhook answers with any code, and causes an internal error
// if it fails.
func mayRefuse(err error) bool {
	status := kerrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch kerrors.ReasonForError(err) {
	case metav1.StatusReasonConflict, metav1.StatusReasonNotFound, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonServiceUnavailable:
		return false
	default:
		return true
	}
}

// isWebhookConflict reports whether err has the code of a conflict, but not the reason: a
// webhook refuses the request, as Crossplane's does that protects what a Usage names.
func isWebhookConflict(err error) bool {
	return kerrors.IsConflict(err) && kerrors.ReasonForError(err) != metav1.StatusReasonConflict
}

// Permanent reports whether the same request would fail the same way again.
func Permanent(err error) bool {
	return IsRefused(err) || errors.Is(err, ErrNoStatus) || kerrors.IsNotFound(err) ||
		kerrors.IsMethodNotSupported(err) || kerrors.IsUnsupportedMediaType(err) || kerrors.IsNotAcceptable(err)
}

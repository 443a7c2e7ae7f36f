package seam

import (
	"context"
	"encoding/json"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNoStatus means that the API server has the object but no status for it:
// its CRD lacks the status subresource.
var ErrNoStatus = errors.New("the kind has no status subresource: its CRD must declare one")

// guarded returns a merge patch of body that the API server refuses unless the object has
// the UID and the resource version of o.
func guarded(o client.Object, body map[string]any) (client.Patch, error) {
	md, _ := body["metadata"].(map[string]any)
	if md == nil {
		md = map[string]any{}
	}

	// Only objects of test fakes lack these.
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

// writeGuarded patches an object whose last known state is current with body, or returns an error if the object has
// another version. Upstream needs no permission to patch, so the provider may not have it: then apply changes the whole
// object, which is read before, because current may have changes that must not be stored. It returns the new object.
func writeGuarded[P, U any](
	ctx context.Context, patch func(ctx context.Context, o client.Object, p client.Patch, opts ...P) error,
	update func(ctx context.Context, o client.Object, opts ...U) error, live client.Reader, current client.Object,
	body map[string]any, apply func(o client.Object),
) (client.Object, error) {
	p, err := guarded(current, body)
	if err != nil {
		return nil, err
	}
	o := Empty(current)
	if err := patch(ctx, o, p); !kerrors.IsForbidden(err) {
		return o, err
	}

	o, err = liveState(ctx, live, current)
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, kerrors.NewNotFound(schema.GroupResource{}, current.GetName())
	case o.GetResourceVersion() != current.GetResourceVersion():
		return nil, Conflict(current, "the object has changed since it was read")
	}
	apply(o)
	return o, update(ctx, o)
}

// Conflict returns the error of an API server whose object has changed since o was read.
// Upstream then reconciles again.
func Conflict(o client.Object, why string) error {
	gk := o.GetObjectKind().GroupVersionKind()
	return kerrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, o.GetName(), errors.New(why))
}

// IsGone reports whether err says that an object does not exist. If its kind or version is
// not served the error is "not found", too, but the object may exist.
func IsGone(err error) bool {
	return kerrors.IsNotFound(err) && !kerrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsRefused reports whether the API server refuses the object as the request changes it.
// "Forbidden" counts because admission webhooks answer with it.
func IsRefused(err error) bool {
	return err != nil && (isWebhookConflict(err) || kerrors.IsForbidden(err) || kerrors.IsInvalid(err) ||
		kerrors.IsBadRequest(err) || kerrors.IsRequestEntityTooLargeError(err))
}

// mayRefuse reports whether a write may have failed because of its content. An admission
// webhook answers with any code, and its failure is an internal error.
func mayRefuse(err error) bool {
	if err == nil {
		return false
	}
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

// isWebhookConflict reports whether err has the code of a conflict, but not its reason: a
// webhook refuses the request, as Crossplane's webhook for Usages does.
func isWebhookConflict(err error) bool {
	return kerrors.IsConflict(err) && kerrors.ReasonForError(err) != metav1.StatusReasonConflict
}

// Permanent reports whether the same request would fail the same way again.
func Permanent(err error) bool {
	return IsRefused(err) || errors.Is(err, ErrNoStatus) || kerrors.IsNotFound(err) ||
		kerrors.IsMethodNotSupported(err) || kerrors.IsUnsupportedMediaType(err) || kerrors.IsNotAcceptable(err)
}

// IsTerminating reports whether an object could not be created because its namespace
// is being deleted.
func IsTerminating(err error) bool {
	return kerrors.IsForbidden(err) && kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

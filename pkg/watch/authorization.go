package watch

import (
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"
	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsAuthorizedFor reports whether the engine's service account has the verbs that a controller
// needs for a kind, in a namespace, or in all if it is empty. If not, the error is a
// SubjectAccessReviewError that has the missing verbs.
func (e *ControllerEngine) IsAuthorizedFor(
	ctx context.Context, gvk schema.GroupVersionKind, namespace string,
) (bool, error) {
	r, err := newResolver(ctx, e.mgr.GetConfig(), e.mgr.GetHTTPClient())
	if err != nil {
		return false, err
	}
	m, err := r.resolve(ctx, gvk)
	if err != nil {
		return false, errors.Wrapf(classify(gvk, err), "no resource found for %q", gvk)
	}

	var denied []string
	for _, verb := range []string{"*", "get", "list", "watch", "create", "update", "patch", "delete"} {
		review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: gvk.Group, Version: gvk.Version, Resource: m.Resource.Resource,
			},
		}}
		if err := e.uncached.Create(ctx, review); err != nil {
			return false, errors.Wrap(err, "cannot create self access review")
		}
		switch {
		case verb == "*" && review.Status.Allowed:
			return true, nil // Who may do anything needs one answer only.
		case verb != "*" && !review.Status.Allowed:
			denied = append(denied, verb)
		}
	}
	if len(denied) == 0 {
		return true, nil
	}
	return false, SubjectAccessReviewError{
		User:        fmt.Sprintf("system:serviceaccount:%s:%s", e.namespace, e.serviceAccount),
		Resource:    m.Resource,
		Namespace:   namespace,
		DeniedVerbs: denied,
	}
}

// A SubjectAccessReviewError has the verbs that a user is denied.
type SubjectAccessReviewError struct {
	User        string // A service account is "system:serviceaccount:{namespace}:{name}".
	Resource    schema.GroupVersionResource
	Namespace   string // Empty if the resource is cluster scoped.
	DeniedVerbs []string
	Err         error // Is wrapped, if set.
}

// Error says which user is not allowed to do what.
func (e SubjectAccessReviewError) Error() string {
	resource := e.Resource.GroupResource().String() + "/" + e.Resource.Version
	text := fmt.Sprintf("%s is not allowed to [%s] resource %s", e.User, strings.Join(e.DeniedVerbs, ", "), resource)
	if e.Namespace != "" {
		text += " in namespace " + e.Namespace
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the wrapped error, if there is one.
func (e SubjectAccessReviewError) Unwrap() error {
	return e.Err
}

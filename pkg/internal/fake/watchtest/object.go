package watchtest

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// object reads or writes one object. What it returns is a copy.
func (a *API) object(r *http.Request, req Request) (int, any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.storageFor(req)
	if s == nil {
		return refused(http.StatusNotFound, "the server could not find the requested resource", req)
	}
	in := &unstructured.Unstructured{}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&in.Object); err != nil {
			return refused(http.StatusBadRequest, err.Error(), req)
		}
		req.Name = in.GetName()
	}
	key := types.NamespacedName{Namespace: req.Namespace, Name: req.Name}
	old := s.objects[key]
	switch {
	case r.Method == http.MethodPost && old == nil:
		if s.kind == CRD() {
			a.serve(kindOf(in))
		}
		return http.StatusCreated, a.put(s, in).DeepCopy().Object
	case r.Method == http.MethodPost:
		exists := statusFor(http.StatusConflict, "it exists already", req)
		exists.Reason = metav1.StatusReasonAlreadyExists
		return http.StatusConflict, exists
	case old == nil:
		return refused(http.StatusNotFound, "there is none of that name", req)
	case r.Method == http.MethodPut && in.GetResourceVersion() != old.GetResourceVersion():
		return refused(http.StatusConflict, "it was modified", req)
	case r.Method == http.MethodPut:
		return http.StatusOK, a.put(s, in).DeepCopy().Object
	case r.Method == http.MethodDelete:
		if s.kind == CRD() {
			a.unserve(kindOf(old))
		}
		a.remove(s, key)
		return http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}
	case r.Method == http.MethodGet:
		return http.StatusOK, old.DeepCopy().Object
	default:
		return refused(http.StatusMethodNotAllowed, "it can't be patched", req)
	}
}

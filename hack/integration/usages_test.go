//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	inUseLabel = "crossplane.io/in-use"

	// deletionAttempt is where Crossplane's webhook notes how an object that is
	// in use was to be deleted.
	deletionAttempt = "usage.crossplane.io/deletion-attempt-with-policy"
)

// usages protect objects from deletion as Crossplane's do: by a label, and a
// webhook that the API server asks about objects with that label.
type usages struct {
	server server

	mu   sync.Mutex
	used map[types.UID]bool
}

// newUsages registers the webhook with the API server. It is taken back at the
// test's end.
func newUsages(t *testing.T, s server) *usages {
	t.Helper()

	u := &usages{server: s, used: map[types.UID]bool{}}

	srv := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(u.handle)})
	t.Cleanup(srv.Close)

	hook := &admissionregv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "no-usages"},
		Webhooks: []admissionregv1.ValidatingWebhook{{
			Name: "nousages.protection.crossplane.io",
			ClientConfig: admissionregv1.WebhookClientConfig{
				URL:      ptr.To(srv.URL + "/validate-no-usages"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
			},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{inUseLabel: "true"}},
			Rules: []admissionregv1.RuleWithOperations{{
				Operations: []admissionregv1.OperationType{admissionregv1.Delete},
				Rule:       admissionregv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
			FailurePolicy:           ptr.To(admissionregv1.Fail),
			SideEffects:             ptr.To(admissionregv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}

	s.createFor(t, hook)

	return u
}

// handle refuses to delete an object that is in use, and notes the attempt on it.
func (u *usages) handle(ctx context.Context, r admission.Request) admission.Response {
	o, do := &unstructured.Unstructured{}, &metav1.DeleteOptions{}
	if err := o.UnmarshalJSON(r.OldObject.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}

	if err := json.Unmarshal(r.Options.Raw, do); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}

	u.mu.Lock()
	used := u.used[o.GetUID()]
	u.mu.Unlock()

	if !used {
		return admission.Allowed("")
	}

	if policy := string(ptr.Deref(do.PropagationPolicy, metav1.DeletePropagationBackground)); o.GetAnnotations()[deletionAttempt] != policy {
		before := o.DeepCopy()
		meta.AddAnnotations(o, map[string]string{deletionAttempt: policy})

		if err := u.server.Patch(ctx, o, client.MergeFrom(before)); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}

	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Code:   http.StatusConflict,
		Reason: metav1.StatusReason(fmt.Sprintf("This resource is in-use by 1 usage(s), including the *v1beta1.Usage %q with reason: %q.", "keep-"+o.GetName(), "it holds the orders")),
	}}}
}

// set whether an object is protected by a Usage.
func (u *usages) set(t *testing.T, o client.Object, used bool) {
	t.Helper()

	u.mu.Lock()
	u.used[o.GetUID()] = used
	u.mu.Unlock()

	label := "null"
	if used {
		label = `"true"`
	}

	must(t, "Patch()", u.server.Patch(t.Context(), o, mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, inUseLabel, label))))
}

// untilTried waits until a delete of an object that is in use was attempted, which
// changes the object.
func (u *usages) untilTried(t *testing.T, o client.Object) {
	t.Helper()

	eventually(t, "the webhook has refused a deletion", func() (bool, string) {
		is, _ := o.DeepCopyObject().(client.Object)
		must(t, "Get()", u.server.Get(t.Context(), client.ObjectKeyFromObject(o), is))

		return is.GetAnnotations()[deletionAttempt] != "", fmt.Sprint(is.GetAnnotations())
	})
}

// unprotect an object: its Usage is deleted, and what was tried meanwhile is done.
func (u *usages) unprotect(t *testing.T, o client.Object) {
	t.Helper()
	u.set(t, o, false)

	if policy := o.GetAnnotations()[deletionAttempt]; policy != "" {
		must(t, "Delete()", client.IgnoreNotFound(u.server.Delete(t.Context(), o, client.PropagationPolicy(policy))))
	}
}

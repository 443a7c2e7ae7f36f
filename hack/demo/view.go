package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A view is an object as a user sees it, with its external resources.
type view struct {
	*claim.Unstructured // Of any kind: it has conditions.

	// found is false if there is no such object any more.
	found bool

	// external are the existing resources that were created for it.
	external []cloud.Resource
}

// see reads an object of any kind.
func see(ctx context.Context, c client.Reader, k schema.GroupVersionKind, key client.ObjectKey) (view, error) {
	v := view{Unstructured: claim.New(claim.WithGroupVersionKind(k))}
	err := c.Get(ctx, key, v.GetUnstructured())
	v.found = err == nil
	return v, client.IgnoreNotFound(err)
}

// A shown object is what kubectl get shows of an object, and the message that tools show
// beside it.
type shown struct {
	Name         string `json:"name"`
	Ready        string `json:"ready,omitempty"`
	Synced       string `json:"synced,omitempty"`
	ExternalName string `json:"externalName,omitempty"`
	Message      string `json:"message,omitempty"`
}

func (v view) shown(name string) shown {
	if !v.found {
		return shown{Name: name, Message: "NotFound"}
	}
	ready, synced := v.GetCondition(xpv2.TypeReady), v.GetCondition(xpv2.TypeSynced)
	status := func(c xpv2.Condition) string {
		if c.Reason == "" {
			return ""
		}
		return string(c.Status)
	}
	return shown{
		Name: name, Ready: status(ready), Synced: status(synced),
		ExternalName: meta.GetExternalName(v), Message: cmp.Or(ready.Message, synced.Message),
	}
}

// condition as kubectl shows it: status and, in brackets, reason.
func (v view) condition(t xpv2.ConditionType) string {
	switch c := v.GetCondition(t); {
	case !v.found:
		return "the object is gone"
	case c.Reason == "":
		return "not set"
	default:
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
}

func (v view) has(t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) bool {
	c := v.GetCondition(t)
	return v.found && c.Status == s && c.Reason == r
}

// why says why the object still exists although it is being deleted, as far as
// conditions tell.
func (v view) why() string {
	d, ready := v.GetCondition(reconciler.TypeDeleting), v.GetCondition(xpv2.TypeReady)
	switch {
	case !v.found:
		return "the object is gone"
	case d.Status == corev1.ConditionTrue:
		return fmt.Sprintf("%s\n%s", d.Reason, d.Message)
	case ready.Reason == xpv2.ReasonDeleting && ready.Message != "":
		return ready.Message
	default:
		return "no condition says why"
	}
}

// says reports whether the object has the reason of its deletion's state in both
// conditions: in Deleting, and in Ready, which most tools show.
func (v view) says(r xpv2.ConditionReason, words string) bool {
	d, ready := v.GetCondition(reconciler.TypeDeleting), v.GetCondition(xpv2.TypeReady)
	return v.has(reconciler.TypeDeleting, corev1.ConditionTrue, r) &&
		strings.Contains(d.Message, words) && ready.Message == d.Message
}

// storedName describes the external-name annotation: empty, stored, or wrong.
func (v view) storedName() string {
	switch name := meta.GetExternalName(v); {
	case name == "":
		return "empty"
	case slices.ContainsFunc(v.external, func(r cloud.Resource) bool { return r.ID == name }):
		return "stored"
	default:
		return "not the name of its external resource"
	}
}

package seam

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/types"
)

// Terms are the settings of a managed resource that allow or forbid actions, at a resource
// version.
type Terms struct {
	Version string

	uid      types.UID
	paused   bool
	policies xpv2.ManagementPolicies
	deletion xpv2.DeletionPolicy
}

// TermsOf returns the terms of a managed resource.
func TermsOf(mg resource.Managed) Terms {
	// Clone the list, because a client decodes answers into the same memory.
	policies := slices.Clone(mg.GetManagementPolicies())
	t := Terms{Version: mg.GetResourceVersion(), uid: mg.GetUID(), paused: meta.IsPaused(mg), policies: policies}
	if legacy, ok := mg.(interface{ GetDeletionPolicy() xpv2.DeletionPolicy }); ok {
		t.deletion = legacy.GetDeletionPolicy()
	}
	return t
}

// Changed reports whether a managed resource that was read or written again has other terms.
// It ignores changes that a provider makes in memory only.
func (t Terms) Changed(mg resource.Managed) bool {
	if mg.GetResourceVersion() == t.Version {
		return false
	}
	now := TermsOf(mg)
	return now.uid != t.uid || now.paused != t.paused || now.deletion != t.deletion ||
		!slices.Equal(now.policies, t.policies)
}

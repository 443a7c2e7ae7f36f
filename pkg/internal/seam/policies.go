package seam

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// Allows reports whether the management policies allow one of the actions. Where
// upstream's feature is off it refuses to reconcile a managed resource with any but the
// default policies, so the policies of the managed resource are the ones in force.
func Allows(mg resource.Managed, actions ...xpv2.ManagementAction) bool {
	policies := mg.GetManagementPolicies()
	return len(policies) == 0 || slices.ContainsFunc(policies, func(p xpv2.ManagementAction) bool {
		return p == xpv2.ManagementActionAll || slices.Contains(actions, p)
	})
}

package sample

import xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

// CreatingPolicies returns all sets of management policies that upstream supports
// and that allow to create.
func CreatingPolicies() []xpv2.ManagementPolicies {
	const (
		observe, create, update = xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate
		remove, late            = xpv2.ManagementActionDelete, xpv2.ManagementActionLateInitialize
	)

	return []xpv2.ManagementPolicies{
		{xpv2.ManagementActionAll},
		{observe, create, update, late, remove},
		{observe, create, update, remove},
		{observe, create, update, late},
		{observe, create, update},
		{observe, create, remove, late},
		{observe, create, late},
		{observe, create, remove},
		{observe, create},
	}
}

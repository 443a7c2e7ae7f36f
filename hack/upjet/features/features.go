// Package features has the feature flags that generated controllers ask for.
package features

import "github.com/crossplane/crossplane-runtime/v2/pkg/feature"

// EnableBetaManagementPolicies enables management policies.
const EnableBetaManagementPolicies = feature.EnableBetaManagementPolicies

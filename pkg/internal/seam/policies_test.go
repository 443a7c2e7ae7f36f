package seam

import (
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

func TestAllows(t *testing.T) {
	cases := map[string]struct {
		reason   string
		policies []xpv2.ManagementAction
		want     bool
	}{
		"Default":  {reason: "Without policies all is allowed.", want: true},
		"All":      {reason: "All actions are allowed.", policies: []xpv2.ManagementAction{xpv2.ManagementActionAll}, want: true},
		"OneOfTwo": {reason: "One of the actions is enough.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete}, want: true},
		"Others":   {reason: "Other actions are not enough.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket()
			b.SetManagementPolicies(tc.policies)

			wants(t, tc.reason, "Allows(...)", tc.want, Allows(b, xpv2.ManagementActionCreate, xpv2.ManagementActionDelete))
		})
	}
}

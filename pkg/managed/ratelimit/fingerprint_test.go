package ratelimit

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestNewProviderConfigs(t *testing.T) {
	cases := map[string]struct {
		reason string
		groups []string // of the provider configs in the scheme
		want   string   // the group of the provider config that is used
	}{
		"SameGroup": {
			reason: "The provider config of the same group should be used.",
			groups: []string{"ec2.aws.example.org"},
			want:   "ec2.aws.example.org",
		},
		"ParentGroup": {
			reason: "The provider config of a parent group should be used.",
			groups: []string{"aws.example.org"},
			want:   "aws.example.org",
		},
		"NearestParent": {
			reason: "The provider config of the nearest group should be used.",
			groups: []string{"example.org", "aws.example.org", "org"},
			want:   "aws.example.org",
		},
		"OtherGroup": {
			reason: "The provider config of another group should not be used.",
			groups: []string{"gcp.example.org"},
		},
		"SameEnding": {
			reason: "The provider config of a group whose name is only a part of a label should not be used.",
			groups: []string{"ws.example.org"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			for _, g := range tc.groups {
				s.AddKnownTypeWithName(schema.GroupVersionKind{
					Group:   g,
					Version: "v1",
					Kind:    "ProviderConfig",
				}, &v1alpha1.ProviderConfig{})
				s.AddKnownTypeWithName(schema.GroupVersionKind{
					Group:   g,
					Version: "v1",
					Kind:    "Bucket",
				}, &v1alpha1.Bucket{})
			}
			got := map[string]string{}
			for kind, gvk := range newProviderConfigs(nil, s, "ec2.aws.example.org").kinds {
				got[kind] = gvk.Group
			}
			want := map[string]string{}
			if tc.want != "" {
				want["ProviderConfig"] = tc.want
			}
			kit.ExpectEqual(t, tc.reason, "kinds", want, got)
		})
	}
}

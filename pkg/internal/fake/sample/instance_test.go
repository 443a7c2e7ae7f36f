package sample_test

import (
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestDeepCopy(t *testing.T) {
	d := v1alpha1.NewDatabase("one")
	d.Spec.ForProvider.Region = "north"
	d.Spec.WriteConnectionSecretToReference = &xpv2.SecretReference{Name: "a", Namespace: "b"}
	d.SetConditions(xpv2.Available())
	b := v1alpha1.NewBucket("default", "one")
	b.Spec.ForProvider.Region = "north"
	b.SetConditions(xpv2.Available())
	lists := []resource.ManagedList{&v1alpha1.DatabaseList{Items: []v1alpha1.Database{*d}}, &v1alpha1.BucketList{Items: []v1alpha1.Bucket{*b}}}
	for _, l := range lists {
		c, ok := l.DeepCopyObject().(resource.ManagedList)
		if diff := cmp.Diff(l, c); !ok || diff != "" {
			t.Errorf("%T: -want, +got:\n%s", l, diff)
		}
		i, ok := c.GetItems()[0].(sample.Instance)
		if !ok {
			t.Fatalf("%T: its items are of another type", l)
		}
		i.GetForProvider().Region = "south"
		i.GetManagementPolicies()[0] = xpv2.ManagementActionObserve
		i.SetConditions(xpv2.Deleting())
	}
	if d.Spec.ForProvider.Region != "north" || b.Spec.ForProvider.Region != "north" || d.Spec.ManagementPolicies[0] != "*" ||
		b.Spec.ManagementPolicies[0] != "*" || d.GetCondition(xpv2.TypeReady).Reason != xpv2.ReasonAvailable || b.GetCondition(xpv2.TypeReady).Reason != xpv2.ReasonAvailable {
		t.Errorf("what is done to a copy must not show in the original")
	}
}

package upjet

import (
	"context"
	"testing"

	"github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type frameworkResource struct{ resource.Resource }

func (frameworkResource) Schema(_ context.Context, _ resource.SchemaRequest, r *resource.SchemaResponse) {
	r.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id":   schema.StringAttribute{Computed: true},
		"size": schema.Int64Attribute{Optional: true},
		"zone": schema.ListAttribute{Computed: true, ElementType: types.StringType},
	}}
}

func TestNameInState_Framework(t *testing.T) {
	typ := tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"id": tftypes.String, "size": tftypes.Number, "zone": tftypes.List{ElementType: tftypes.String},
	}}
	state := func(id any) tftypes.Value {
		return tftypes.NewValue(typ, map[string]tftypes.Value{
			"id":   tftypes.NewValue(tftypes.String, id),
			"size": tftypes.NewValue(tftypes.Number, 1),
			"zone": tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, tftypes.UnknownValue),
		})
	}
	cases := map[string]struct {
		reason string
		state  *tftypes.Value
		name   config.ExternalName // IdentifierFromProvider if it is not set.
		want   string

		// id says that the state has an ID but no name. A state with a name has one.
		id bool
	}{
		"None":      {reason: "nothing was made"},
		"Null":      {reason: "nothing was made", state: ptr(tftypes.NewValue(typ, nil))},
		"UnknownID": {reason: "the plan's ID is no ID", state: ptr(state(tftypes.UnknownValue))},
		"NullID":    {reason: "the ID did not come", state: ptr(state(nil))},
		"ID": {
			reason: "the ID should count although other attributes are unknown",
			state:  ptr(state("vpc-1")),
			want:   "vpc-1",
		},
		"UnknownComputedIdentifier": {
			reason: "the text of nil should not be a name",
			state:  ptr(state(tftypes.UnknownValue)),
			name:   config.FrameworkResourceWithComputedIdentifier("id", "x"),
		},
		"NullComputedIdentifier": {
			reason: "the text of nil should not be a name",
			state:  ptr(state(nil)),
			name:   config.FrameworkResourceWithComputedIdentifier("id", "x"),
		},
		"Placeholder": {
			reason: "the placeholder of a resource without a name should not be its name",
			state:  ptr(state("x")),
			name:   config.FrameworkResourceWithComputedIdentifier("id", "x"),
		},
		"ComputedIdentifier": {
			reason: "the identifier should be the name",
			state:  ptr(state("vpc-1")),
			name:   config.FrameworkResourceWithComputedIdentifier("id", "x"),
			want:   "vpc-1",
		},
		"IDWithoutName": {
			reason: "the ID should be reported although the name is not known",
			state:  ptr(state("vpc-1")),
			name:   config.FrameworkResourceWithComputedIdentifier("arn", "x"),
			id:     true,
		},
		"EmptyID": {
			reason: "an empty ID is no ID",
			state:  ptr(state("")),
		},
		"NullTemplatedID": {
			reason: "an ID that did not come should not panic",
			state:  ptr(state(nil)),
			name:   config.TemplatedStringAsIdentifier("", "vpcs/{{ .external_name }}"),
		},
		"TemplatedID": {
			reason: "the name should be taken from the ID",
			state:  ptr(state("vpcs/vpc-1")),
			name:   config.TemplatedStringAsIdentifier("", "vpcs/{{ .external_name }}"),
			want:   "vpc-1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := tjcontroller.NewAsyncTracker()
			if tc.state != nil {
				v, err := tfprotov6.NewDynamicValue(typ, *tc.state)
				must(t, err)
				s.SetFrameworkTFState(&v)
			}
			if tc.name.GetExternalNameFn == nil {
				tc.name = config.IdentifierFromProvider
			}
			tf := Terraform{
				Resource: &config.Resource{
					ExternalName:                     tc.name,
					TerraformPluginFrameworkResource: frameworkResource{},
				},
			}
			got, hasID := tf.nameInState(t.Context(), s)
			wants(t, tc.reason, "nameInState()", tc.want, got)
			wants(t, tc.reason, "the state has an ID", tc.id || tc.want != "", hasID)

			// A name that was found elsewhere is looked for by itself.
			tf.forgetNameless(t.Context(), s)
			wants(t, tc.reason, "forgetNameless() keeps the state", tc.want != "", s.HasFrameworkTFState())
		})
	}
}

func ptr[T any](v T) *T { return &v }

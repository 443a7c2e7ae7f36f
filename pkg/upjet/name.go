package upjet

import (
	"context"
	"maps"
	"math/big"
	"slices"

	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/pkg/errors"
)

// nameInState returns the external name that the Terraform state tells, or nothing. It reports whether the state has
// an ID, which it may have without a name.
func (t Terraform) nameInState(ctx context.Context, s *tjcontroller.AsyncTracker) (name string, hasID bool) {
	attributes := t.sdkAttributes(s)
	if t.Resource.TerraformPluginFrameworkResource != nil {
		attributes = t.frameworkAttributes(ctx, s)
	}

	if len(attributes) == 0 {
		return "", false
	}

	// The function is not meant for states that came with an error. It checks whether an attribute is there, but not
	// whether it is nil: it panics, or the name is "<nil>".
	maps.DeleteFunc(attributes, func(k string, v any) bool { return v == nil || t.isPlaceholder(k, v) })
	id, ok := attributes["id"]
	hasID = ok && id != ""
	name, err := t.Resource.ExternalName.GetExternalNameFn(attributes)
	if err != nil {
		return "", hasID
	}
	return name, hasID
}

// isPlaceholder reports whether v is the value of an identifier by which upjet looks for an external resource that has
// no name yet. A state that came with an error may still have it.
func (t Terraform) isPlaceholder(attribute string, v any) bool {
	n := t.Resource.ExternalName
	if !slices.Contains(n.TFPluginFrameworkOptions.ComputedIdentifierAttributes, attribute) {
		return false
	}
	nameless := map[string]any{}
	n.SetIdentifierArgumentFn(nameless, "")
	placeholder, ok := nameless[attribute].(string)
	return ok && v == placeholder
}

// sdkAttributes returns the attributes in a state of the Terraform plugin SDK. A state without
// an ID has none.
func (t Terraform) sdkAttributes(s *tjcontroller.AsyncTracker) map[string]any {
	state := s.GetTfState()
	if state == nil || state.ID == "" || t.Resource.TerraformResource == nil {
		return nil
	}
	typ := t.Resource.TerraformResource.CoreConfigSchema().ImpliedType()
	v, err := state.AttrsAsObjectValue(typ)
	if err == nil {
		var attributes map[string]any
		if attributes, err = schema.StateValueToJSONMap(v, typ); err == nil {
			return attributes
		}
	}
	return map[string]any{"id": state.ID}
}

// frameworkAttributes returns the known attributes in a state of the Terraform plugin
// framework.
func (t Terraform) frameworkAttributes(ctx context.Context, s *tjcontroller.AsyncTracker) map[string]any {
	state := s.GetFrameworkTFState()
	if state == nil {
		return nil
	}
	r := fwresource.SchemaResponse{}
	t.Resource.TerraformPluginFrameworkResource.Schema(ctx, fwresource.SchemaRequest{}, &r)
	v, err := state.Unmarshal(r.Schema.Type().TerraformType(ctx))
	if err != nil {
		return nil
	}
	attributes, err := known(v)
	if err != nil {
		return nil
	}
	m, _ := attributes.(map[string]any)
	return m
}

// forgetNameless forgets a state of the Terraform plugin framework that tells no
// external name, for a managed resource that has one: upjet would look for nothing
// instead of for that name. It does so itself for states of the plugin SDK.
func (t Terraform) forgetNameless(ctx context.Context, s *tjcontroller.AsyncTracker) {
	if t.Resource.TerraformPluginFrameworkResource == nil || !s.HasFrameworkTFState() {
		return
	}
	if name, _ := t.nameInState(ctx, s); name != "" {
		return
	}
	s.SetFrameworkTFState(nil)
	s.SetFrameworkIdentity(nil)
}

// known returns a value as JSON would have it. Unknown values, which a state that came
// with an error may have, are nil.
func known(v tftypes.Value) (any, error) {
	if !v.IsKnown() || v.IsNull() {
		return nil, nil //nolint:nilnil // As documented.
	}
	switch typ := v.Type(); {
	case typ.Is(tftypes.String):
		var s string
		err := v.As(&s)
		return s, err
	case typ.Is(tftypes.Bool):
		var b bool
		err := v.As(&b)
		return b, err
	case typ.Is(tftypes.Number):
		n := &big.Float{}
		if err := v.As(&n); err != nil {
			return nil, err
		}
		if i, accuracy := n.Int64(); accuracy == big.Exact {
			return i, nil
		}
		f, _ := n.Float64()
		return f, nil
	case typ.Is(tftypes.Object{}), typ.Is(tftypes.Map{}):
		return knownMap(v)
	case typ.Is(tftypes.List{}), typ.Is(tftypes.Set{}), typ.Is(tftypes.Tuple{}):
		return knownList(v)
	default:
		return nil, errors.Errorf("cannot convert a value of type %s", typ)
	}
}

func knownMap(v tftypes.Value) (any, error) {
	var values map[string]tftypes.Value
	if err := v.As(&values); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(values))

	for k, v := range values {
		var err error
		if out[k], err = known(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func knownList(v tftypes.Value) (any, error) {
	var values []tftypes.Value
	if err := v.As(&values); err != nil {
		return nil, err
	}
	out := make([]any, len(values))

	for i, v := range values {
		var err error
		if out[i], err = known(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

package terraform

import (
	"context"
	"errors"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// FrameworkProvider returns the provider's resources of the plugin framework. They
// call the cloud with s.
func FrameworkProvider(s Session) provider.Provider { return &frameworkProvider{session: s} }

type frameworkProvider struct{ session Session }

// Metadata of the provider.
func (p *frameworkProvider) Metadata(_ context.Context, _ provider.MetadataRequest, r *provider.MetadataResponse) {
	r.TypeName = "cloud"
}

// Schema of the provider's configuration: there is none.
func (p *frameworkProvider) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {
}

// Configure the provider.
func (p *frameworkProvider) Configure(_ context.Context, _ provider.ConfigureRequest, r *provider.ConfigureResponse) {
	r.ResourceData = p.session
}

// DataSources of the provider: there are none.
func (p *frameworkProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

// Resources of the provider.
func (p *frameworkProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		func() resource.Resource { return &frameworkResource{name: FrameworkServer, kind: "Server"} },
		func() resource.Resource {
			return &frameworkResource{name: FrameworkBucket, kind: "Bucket", named: true}
		},
	}
}

// frameworkResource has an id that the cloud assigns, or the name that it is asked for.
type frameworkResource struct {
	name, kind string
	named      bool
	session    Session
}

// Metadata of the resource.
func (f *frameworkResource) Metadata(_ context.Context, _ resource.MetadataRequest, r *resource.MetadataResponse) {
	r.TypeName = f.name
}

// Schema of the resource.
func (f *frameworkResource) Schema(_ context.Context, _ resource.SchemaRequest, r *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	r.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id":       schema.StringAttribute{Computed: true, PlanModifiers: keep},
		"size":     schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(1)},
		"zone":     schema.StringAttribute{Optional: true, PlanModifiers: replace},
		"tags":     schema.MapAttribute{Optional: true, ElementType: types.StringType},
		"endpoint": schema.StringAttribute{Computed: true, PlanModifiers: keep},
	}}
	if f.named {
		r.Schema.Attributes["name"] = schema.StringAttribute{Required: true, PlanModifiers: replace}
	}
}

// Configure the resource.
func (f *frameworkResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	f.session, _ = req.ProviderData.(Session)
}

// attributes is a plan or a state.
type attributes interface {
	GetAttribute(ctx context.Context, p path.Path, target any) diag.Diagnostics
}

// get the arguments for the cloud.
func get(ctx context.Context, a attributes, ds *diag.Diagnostics) arguments {
	var size types.Int64
	var zone types.String
	var m types.Map
	ds.Append(a.GetAttribute(ctx, path.Root("size"), &size)...)
	ds.Append(a.GetAttribute(ctx, path.Root("zone"), &zone)...)
	ds.Append(a.GetAttribute(ctx, path.Root("tags"), &m)...)
	out := arguments{size: strconv.FormatInt(size.ValueInt64(), 10), zone: zone.ValueString()}
	if !m.IsNull() && !m.IsUnknown() {
		ds.Append(m.ElementsAs(ctx, &out.tags, false)...)
	}
	return out
}

// settable is a state.
type settable interface {
	SetAttribute(ctx context.Context, p path.Path, val any) diag.Diagnostics
}

func set(ctx context.Context, s settable, r cloud.Resource, named bool) diag.Diagnostics {
	var ds diag.Diagnostics
	size, err := strconv.ParseInt(r.Properties[propertySize], 10, 64)
	if err != nil {
		ds.AddError("size is no number", err.Error())
	}
	tags := types.MapNull(types.StringType)
	if t := Tags(r.Properties); len(t) > 0 {
		var more diag.Diagnostics
		tags, more = types.MapValueFrom(ctx, types.StringType, t)
		ds.Append(more...)
	}

	ds.Append(s.SetAttribute(ctx, path.Root("id"), r.ID)...)
	ds.Append(s.SetAttribute(ctx, path.Root("size"), size)...)
	if zone := r.Properties[propertyZone]; zone != "" {
		ds.Append(s.SetAttribute(ctx, path.Root("zone"), zone)...)
	}
	ds.Append(s.SetAttribute(ctx, path.Root("tags"), tags)...)
	ds.Append(s.SetAttribute(ctx, path.Root("endpoint"), r.Endpoint)...)
	if named {
		ds.Append(s.SetAttribute(ctx, path.Root("name"), r.ID)...)
	}
	return ds
}

// Create a resource.
func (f *frameworkResource) Create(ctx context.Context, req resource.CreateRequest, r *resource.CreateResponse) {
	var name string
	if f.named {
		r.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("name"), &name)...)
	}
	a := get(ctx, req.Plan, &r.Diagnostics)
	if r.Diagnostics.HasError() {
		return
	}
	got, err := create(ctx, f.session, f.kind, name, a)
	if err != nil {
		r.Diagnostics.AddError("cannot create the "+f.kind, err.Error())
	}

	if got.ID != "" {
		r.Diagnostics.Append(set(ctx, &r.State, got, f.named)...)
	}
}

// Read a resource.
func (f *frameworkResource) Read(ctx context.Context, req resource.ReadRequest, r *resource.ReadResponse) {
	var id types.String
	r.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)

	if id.ValueString() == "" {
		r.State.RemoveResource(ctx)
		return
	}
	got, err := f.session.Get(ctx, id.ValueString())

	switch {
	case errors.Is(err, cloud.ErrNotFound):
		r.State.RemoveResource(ctx)
	case err != nil:
		r.Diagnostics.AddError("cannot read the "+f.kind, err.Error())
	default:
		r.Diagnostics.Append(set(ctx, &r.State, got, f.named)...)
	}
}

// Update a resource.
func (f *frameworkResource) Update(ctx context.Context, req resource.UpdateRequest, r *resource.UpdateResponse) {
	var id string
	r.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	a := get(ctx, req.Plan, &r.Diagnostics)
	if r.Diagnostics.HasError() {
		return
	}
	got, err := f.session.Update(ctx, id, a.properties())
	if err != nil {
		r.Diagnostics.AddError("cannot update the "+f.kind, err.Error())
		return
	}
	r.Diagnostics.Append(set(ctx, &r.State, got, f.named)...)
}

// Delete a resource.
func (f *frameworkResource) Delete(ctx context.Context, req resource.DeleteRequest, r *resource.DeleteResponse) {
	var id string
	r.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if err := remove(ctx, f.session, id); err != nil {
		r.Diagnostics.AddError("cannot delete the "+f.kind, err.Error())
	}
}

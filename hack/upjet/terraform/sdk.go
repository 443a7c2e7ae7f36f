package terraform

import (
	"context"
	"errors"
	"strconv"

	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// SDKProvider returns the provider's resources of the plugin SDK. Their meta is a
// Session.
func SDKProvider() *schema.Provider {
	return &schema.Provider{ResourcesMap: map[string]*schema.Resource{
		SDKServer: sdkResource("Server", false),
		SDKBucket: sdkResource("Bucket", true),
	}}
}

func sdkResource(kind string, named bool) *schema.Resource {
	s := map[string]*schema.Schema{
		"size":     {Type: schema.TypeInt, Optional: true, Default: 1},
		"zone":     {Type: schema.TypeString, Optional: true, ForceNew: true},
		"tags":     {Type: schema.TypeMap, Optional: true, Elem: &schema.Schema{Type: schema.TypeString}},
		"endpoint": {Type: schema.TypeString, Computed: true},
	}
	if named {
		s["name"] = &schema.Schema{Type: schema.TypeString, Required: true, ForceNew: true}
	}
	return &schema.Resource{
		Schema: s,
		CreateContext: func(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
			name := ""
			if named {
				name, _ = d.Get("name").(string)
			}
			r, err := create(ctx, session(meta), kind, name, sdkArguments(d))
			d.SetId(r.ID)
			if err != nil {
				return diag.FromErr(err)
			}
			return sdkSet(d, r)
		},
		ReadContext: func(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
			r, err := session(meta).Get(ctx, d.Id())
			if errors.Is(err, cloud.ErrNotFound) {
				d.SetId("")
				return nil
			}
			if err != nil {
				return diag.FromErr(err)
			}
			if named {
				if err := d.Set("name", r.ID); err != nil {
					return diag.FromErr(err)
				}
			}
			return sdkSet(d, r)
		},
		UpdateContext: func(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
			r, err := session(meta).Update(ctx, d.Id(), sdkArguments(d).properties())
			if err != nil {
				return diag.FromErr(err)
			}
			return sdkSet(d, r)
		},
		DeleteContext: func(ctx context.Context, d *schema.ResourceData, meta any) diag.Diagnostics {
			return diag.FromErr(remove(ctx, session(meta), d.Id()))
		},
	}
}

func session(meta any) Session {
	s, _ := meta.(Session)
	return s
}

func sdkArguments(d *schema.ResourceData) arguments {
	size, _ := d.Get("size").(int)
	zone, _ := d.Get("zone").(string)
	tags, _ := d.Get("tags").(map[string]any)
	a := arguments{size: strconv.Itoa(size), zone: zone, tags: map[string]string{}}
	for k, v := range tags {
		a.tags[k], _ = v.(string)
	}
	return a
}

func sdkSet(d *schema.ResourceData, r cloud.Resource) diag.Diagnostics {
	size, err := strconv.Atoi(r.Properties[propertySize])
	return diag.FromErr(errors.Join(err, d.Set("size", size), d.Set("zone", r.Properties[propertyZone]),
		d.Set("tags", Tags(r.Properties)), d.Set("endpoint", r.Endpoint)))
}

// Package config configures the test provider as the authors of generated providers configure
// theirs.
package config

import (
	"encoding/json"

	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/pipeline/templates"

	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
	graft "github.com/crossplane-graft/graft/pkg/upjet"
)

// ModulePath of the test provider.
const ModulePath = "github.com/crossplane-graft/graft/pkg/hack/upjet"

// Stock returns the configuration without Graft.
func Stock() *config.Provider { return provider(config.TagInitializer) }

// Graft returns the configuration with Graft. These are the lines that a provider's
// author changes.
func Graft() *config.Provider {
	return provider(
		graft.TagInitializer,
		config.WithControllerTemplate(
			graft.ControllerTemplate(templates.ControllerTemplate, graft.WithFinders(ModulePath+"/finders")),
		),
	)
}

func provider(tags config.NewInitializerFn, o ...config.ProviderOption) *config.Provider {
	p := config.NewProvider(schema(), "cloud", ModulePath, []byte("name: cloud\nresources: {}\n"), append(
		o,
		config.WithRootGroup("cloud.graft.example.org"),
		config.WithShortName("cloud"),
		config.WithFeaturesPackage("features"),
		config.WithBasePackages(config.BasePackages{}),
		config.WithIncludeList(nil),
		config.WithTerraformProvider(terraform.SDKProvider()),
		config.WithTerraformPluginSDKIncludeList([]string{terraform.SDKServer + "$", terraform.SDKBucket + "$"}),
		config.WithTerraformPluginFrameworkProvider(terraform.FrameworkProvider(nil)),
		config.WithTerraformPluginFrameworkIncludeList(
			[]string{terraform.FrameworkServer + "$", terraform.FrameworkBucket + "$"},
		),
	)...)

	for _, name := range []string{terraform.SDKServer, terraform.FrameworkServer} {
		p.AddResourceConfigurator(name, func(r *config.Resource) { r.ExternalName = config.IdentifierFromProvider })
	}

	for name := range p.Resources {
		p.AddResourceConfigurator(name, func(r *config.Resource) { r.InitializerFns = append(r.InitializerFns, tags) })
	}
	p.ConfigureResources()
	return p
}

// schema returns what terraform providers schema -json would print of the provider.
func schema() []byte {
	type attribute struct {
		Type     any  `json:"type"`
		Optional bool `json:"optional,omitempty"`
		Computed bool `json:"computed,omitempty"`
		Required bool `json:"required,omitempty"`
	}

	resource := func(named bool) map[string]any {
		attributes := map[string]attribute{
			"id":       {Type: "string", Computed: true},
			"size":     {Type: "number", Optional: true, Computed: true},
			"zone":     {Type: "string", Optional: true},
			"tags":     {Type: []string{"map", "string"}, Optional: true},
			"endpoint": {Type: "string", Computed: true},
		}
		if named {
			attributes["name"] = attribute{Type: "string", Required: true}
		}
		return map[string]any{"version": 0, "block": map[string]any{"attributes": attributes}}
	}

	// Only values that can be marshalled.
	out, _ := json.Marshal(map[string]any{
		"format_version": "1.0",
		"provider_schemas": map[string]any{
			"registry.example.org/graft/cloud": map[string]any{"resource_schemas": map[string]any{
				terraform.SDKServer: resource(false), terraform.SDKBucket: resource(true),
				terraform.FrameworkServer: resource(false), terraform.FrameworkBucket: resource(true),
			}},
		},
	})
	return out
}

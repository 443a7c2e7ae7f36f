package upjet

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// A TemplateOption changes what ControllerTemplate writes.
type TemplateOption func(*templateOptions)

type templateOptions struct {
	finders string

	// limits are the arguments of RateLimits. They are empty without WithRateLimits.
	limits string
}

// WithFinders makes each generated controller ask a package for its Finder. The
// package, of that import path, must have
//
//	func Finder(mgr ctrl.Manager, r *config.Resource) upjet.Finder
//
// which returns nil for resources that it has none for. By default there are none.
func WithFinders(path string) TemplateOption {
	return func(o *templateOptions) { o.finders = path }
}

// WithRateLimits makes each generated controller limit the calls of the external system. All
// controllers of the provider share the limits: perSecond calls for each provider config, with
// bursts of up to burst calls. By default there are no limits. It panics if
// ratelimit.New does.
func WithRateLimits(perSecond float64, burst int) TemplateOption {
	_ = ratelimit.New(perSecond, burst)
	limits := strconv.FormatFloat(perSecond, 'g', -1, 64) + ", " + strconv.Itoa(burst)
	return func(o *templateOptions) { o.limits = limits }
}

// ControllerTemplate changes the template from which upjet generates controllers, so that
// they use Graft. Pass the result to config.WithControllerTemplate. The argument is the
// template that the provider passes there now, or upjet's templates.ControllerTemplate.
//
// Controllers of resources that upjet reconciles with the Terraform CLI only use package
// managed. Everything else in the template stays unchanged.
//
// If the template differs too much from upjet's, the generation of the provider fails with
// an error that names the missing part. Generated controllers are not affected.
func ControllerTemplate(template string, o ...TemplateOption) string {
	to := &templateOptions{}
	for _, o := range o {
		o(to)
	}

	for _, p := range patches(to) {
		matches := p.place.FindAllStringIndex(template, -1)
		if len(matches) == 0 || p.once && len(matches) > 1 {
			return brokenTemplate(fmt.Sprintf("Graft cannot patch the controller template: it has %s %d times. "+
				"Pass a template of the shape of upjet's templates.ControllerTemplate", p.name, len(matches)))
		}
		template = p.place.ReplaceAllString(template, p.with)
	}
	return template
}

// A patch replaces a place in a template.
type patch struct {
	// name of the place, as the error has it.
	name  string
	place *regexp.Regexp
	with  string

	// once says that there must be one such place, not more.
	once bool
}

// noFork is the condition of resources that are reconciled without the Terraform CLI.
const noFork = `or .UseTerraformPluginSDKClient .UseTerraformPluginFrameworkClient`

func patches(o *templateOptions) []patch {
	imports, finder, limits, limitImport, always := "", "", "", "", "false"
	if o.limits != "" {
		limits, always = "\n\t\tgraftratelimit.With(graftupjet.RateLimits("+o.limits+")),", "true"
		limitImport = "\n\tgraftratelimit \"github.com/crossplane-graft/graft/pkg/managed/ratelimit\""
	}
	if o.finders != "" {
		imports = "\n\tgraftfinders \"" + o.finders + "\""
		finder = `, graftfinders.Finder(mgr, o.Provider.Resources["{{ .ResourceType }}"])`
	}
	return []patch{{
		name:  "an import of managed",
		place: regexp.MustCompile(`"github\.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`),
		with: `"github.com/crossplane-graft/graft/pkg/managed"` + limitImport +
			"{{ if or " + always + " (" + noFork + ") }}\n\t" +
			`graftupjet "github.com/crossplane-graft/graft/pkg/upjet"{{ end }}` +
			"{{ if " + noFork + " }}" + imports + "{{ end }}",
		once: true,
	}, {
		// upjet's synchronous connectors do the work.
		name:  "the variable .UseAsync",
		place: regexp.MustCompile(`\.UseAsync\b`),
		with:  "$$graftCLIAsync",
	}, {
		name:  "the package clause",
		place: regexp.MustCompile(`(?m)^package `),
		with:  "{{ $$graftCLIAsync := and .UseAsync (not (" + noFork + ")) -}}\npackage ",
		once:  true,
	}, {
		name:  "the list of reconciler options",
		place: regexp.MustCompile(`\topts := \[\]managed\.ReconcilerOption\{`),
		with: "\t{{- if " + noFork + " }}\n" +
			"\tgraft := graftupjet.NewController(mgr, o, o.Provider.Resources[\"{{ .ResourceType }}\"]" +
			finder + ")\n" +
			"\t{{- end }}\n$0" + limits,
		once: true,
	}, {
		name:  "the option of the external connector",
		place: regexp.MustCompile(`managed\.(WithExternalConnecter|WithExternalConnector)\(`),
		with:  "{{ if " + noFork + " }}graft.WithExternalConnecter{{ else }}managed.${1}{{ end }}(",
		once:  true,
	}, {
		name:  "the watch of the managed resource",
		place: regexp.MustCompile(`Watches\(&\{\{ \.TypePackageAlias \}\}\{\{ \.CRD\.Kind \}\}\{\}, [^)\n]*\)\.`),
		with:  "$0\n\t\t{{- if " + noFork + " }}\n\t\tWatchesRawSource(graft.Source()).\n\t\t{{- end }}",
		once:  true,
	}}
}

// brokenTemplate is a template that cannot be executed. The error has the sentence.
func brokenTemplate(sentence string) string {
	return `{{ template "` + strings.ReplaceAll(sentence, `"`, "'") + `" }}`
}

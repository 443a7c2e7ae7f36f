package upjet

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/pipeline"
	"github.com/crossplane/upjet/v2/pkg/pipeline/templates"
)

func generate(t *testing.T, template string, r *config.Resource) (string, error) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "boilerplate.go.txt"), []byte("// A header.\n"), 0o600))
	r.ShortGroup, r.Kind = "sdk", "Server"
	g := pipeline.NewControllerGenerator(
		dir,
		dir,
		"example.org/provider/controllers",
		"sdk.example.org",
		pipeline.WithControllerTemplate(template),
	)
	if _, err := g.Generate(r, "example.org/provider/apis/sdk/v1", ""); err != nil {
		return "", err
	}
	src, err := os.ReadFile(filepath.Join(dir, "sdk", "server", "zz_controller.go"))
	must(t, err)
	if _, err := parser.ParseFile(token.NewFileSet(), "zz_controller.go", src, parser.AllErrors); err != nil {
		t.Fatalf("the generated controller is no Go: %v\n%s", err, src)
	}
	return string(src), nil
}

func TestControllerTemplate(t *testing.T) {
	const (
		ours   = `"github.com/crossplane-graft/graft/pkg/managed"`
		theirs = `"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"`
	)

	// Controllers of the SDK and of the framework are generated, compiled and run by the
	// test provider. These are of the Terraform CLI.
	cases := map[string]struct {
		reason   string
		old, now string // In upjet's template.
		async    bool
		options  []TemplateOption
		has      []string
		lacks    []string
		err      string
	}{
		"CLI": {
			reason: "a resource of the Terraform CLI keeps its asynchronous connector, and gets the import",
			async:  true,
			has: []string{
				ours,
				"tjcontroller.NewConnector(",
				"tjcontroller.WithCallbackProvider(ac)",
				"ac := tjcontroller.NewAPICallbacks(",
				"managed.WithExternalConnecter(",
			},
			lacks: []string{theirs, "graft/pkg/upjet", "finders", "WatchesRawSource"},
		},
		"SynchronousCLI": {
			reason: "a synchronous one has no callbacks, as before",
			has:    []string{ours, "tjcontroller.NewConnector("},
			lacks:  []string{theirs, "NewAPICallbacks", "graft/pkg/upjet"},
		},
		"LimitedCLI": {
			reason:  "a resource of the Terraform CLI shares the limits of the provider",
			options: []TemplateOption{WithRateLimits(12.5, 100)},
			has: []string{
				"graft/pkg/upjet",
				"graftratelimit.With(graftupjet.RateLimits(12.5, 100)),",
				"tjcontroller.NewConnector(",
			},
			lacks: []string{"finders", "WatchesRawSource"},
		},
		"OwnTemplate": {
			reason: "additions of the provider to its template should stay",
			old:    "managed.WithTimeout(3*time.Minute)", now: "managed.WithTimeout(5*time.Minute)",
			has: []string{ours, "managed.WithTimeout(5*time.Minute)"},
		},
		"OtherSpelling": {
			reason: "a template may use the spelling that is not deprecated",
			old:    "managed.WithExternalConnecter(", now: "managed.WithExternalConnector(",
			has: []string{"managed.WithExternalConnector("},
		},
		"NoImport": {
			reason: "without the import there is no Graft",
			old:    theirs,
			now:    `"example.org/managed"`,
			err:    "it has an import of managed 0 times",
		},
		"NoConnector": {
			reason: "without Graft's connector and tracker, a synchronous connector would block reconciles",
			old:    "managed.WithExternalConnecter(", now: "managed.WithTypedExternalConnector(",
			err: "it has the option of the external connector 0 times",
		},
		"NoWatch": {
			reason: "without the source, the ends of operations go unnoticed",
			old:    "Watches(&{{ .TypePackageAlias }}{{ .CRD.Kind }}{}, eventHandler).",
			now:    "For(&{{ .TypePackageAlias }}{{ .CRD.Kind }}{}).",
			err:    "it has the watch of the managed resource 0 times",
		},
		"TwoConnectors": {
			reason: "which of two is the one cannot be told",
			old:    "managed.WithExternalConnecter(",
			now:    "managed.WithExternalConnecter(nil), managed.WithExternalConnecter(",
			err:    "it has the option of the external connector 2 times",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := templates.ControllerTemplate
			if tc.old != "" {
				template = strings.ReplaceAll(template, tc.old, tc.now)
			}
			src, err := generate(
				t,
				ControllerTemplate(template, append(tc.options, WithFinders("example.org/provider/finders"))...),
				&config.Resource{Name: "cloud_server", UseAsync: tc.async},
			)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("\n%s\nGenerate(): want error %q, got %v", tc.reason, tc.err, err)
			}
			for _, want := range tc.has {
				if !strings.Contains(src, want) {
					t.Errorf("\n%s\nthe controller lacks %s:\n%s", tc.reason, want, src)
				}
			}
			for _, unwanted := range tc.lacks {
				if strings.Contains(src, unwanted) {
					t.Errorf("\n%s\nthe controller has %s:\n%s", tc.reason, unwanted, src)
				}
			}
		})
	}
}

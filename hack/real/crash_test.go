//go:build real

package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// archives names the environment variable with the folder of the providers' archives.
const archives = "GRAFT_PROVIDERS"

const upstreamManaged = "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"

// A crashed provider has a test that calls crashtest.Run, with the provider's own client.
type crashed struct {
	// source returns the folder of a new copy of the provider.
	source func(t *testing.T) string

	// prepare changes the source before it is built. Optional.
	prepare func(t *testing.T, dir string)

	// runtime is the release of crossplane-runtime of its line. It is empty if this tree is
	// the line.
	runtime string

	// require lists modules and versions that the source has to be raised to.
	require []string

	// pkg is the package whose reconciler is crashed. test is the folder of its test.
	pkg, test string
}

// A crash is a life, and how it ends. A verdict is empty if it ends well.
type crash struct {
	stock, graft string

	plant plant
}

// A plant breaks a provider: in a file of its package, is takes the place of was.
type plant struct{ file, was, is string }

// TestCrashes leads the lives of docs/crash-tests.md with providers as they are, and with
// Graft in place of crossplane-runtime's package managed.
func TestCrashes(t *testing.T) {
	cases := map[string]struct {
		provider crashed
		crashes  map[string]crash
	}{
		"http": {
			provider: crashed{
				source: archived("provider-http-*.tar.gz"), runtime: "v2.2.1",
				require: []string{graftModule + "@v0.22.0", "github.com/crossplane/crossplane-runtime/v2@v2.2.1"},
				pkg:     "internal/controller/namespaced/request", test: "provider-http",
			},
			crashes: map[string]crash{
				"create/undisturbed": {stock: "hot loop", graft: "hot loop"},
				"orphan/500-before/4": {
					stock: "second external resource", graft: "second external resource",
				},
				"delete/500-before/4":             {stock: "leak", graft: "leak"},
				"credentials-delete/undisturbed":  {stock: "leak", graft: "leak"},
				"delete-in-create/500-before/12":  {stock: "leak"},
				"delete-in-create/reset-after/10": {stock: "leak", graft: "leak"},
				"delete/reset-before/4":           {stock: "hot loop", graft: "hot loop"},
				"delete/reset-before/4/planted": {
					stock: "leak", graft: "leak",
					plant: plant{
						file: "request.go",
						was:  "err.Error() == observe.ErrObjectNotFound",
						is:   `err.Error() != "not " + observe.ErrObjectNotFound`,
					},
				},
				"delete/undisturbed/planted": {
					stock: "never deleted", graft: "never deleted",
					plant: plant{
						file: "request.go",
						was:  "v1alpha2.ActionRemove)",
						is:   "v1alpha2.ActionObserve)",
					},
				},
			},
		},
		"gitlab": {
			provider: crashed{
				source: archived("provider-gitlab-*.tar.gz"),
				require: []string{
					graftModule + "@v0.24.0", "github.com/crossplane/crossplane-runtime/v2@v2.4.0",
					"gitlab.com/gitlab-org/api/client-go/v2@v2.52.0",
				},
				pkg: "pkg/namespaced/controller/projects/accesstokens", test: "provider-gitlab",
			},
			crashes: map[string]crash{
				"create/500-after/8": {
					stock: "second external resource", graft: "second external resource",
				},
				"same-name/undisturbed":          {stock: "acts on another's", graft: "acts on another's"},
				"delete-in-create/reset-after/8": {stock: "leak", graft: "leak"},
				"create/crash-after/8":           {},
				"credentials/failover-before/10": {},
				"delete/reset-before/5":          {},
				"delete/reset-before/5/planted": {
					stock: "leak", graft: "leak",
					plant: plant{
						file: "controller.go",
						was:  "if clients.IsResponseNotFound(res) {",
						is:   "if clients.IsResponseNotFound(res) || err != nil {",
					},
				},
				"create/undisturbed/planted": {
					stock: "lost name", graft: "lost name",
					plant: plant{
						file: "controller.go",
						was:  "meta.SetExternalName(cr, strconv.FormatInt(at.ID, 10))",
						is:   "_ = meta.GetExternalName(cr)",
					},
				},
			},
		},
		"sql": {
			provider: crashed{
				source:  provider{path: "github.com/crossplane-contrib/provider-sql", version: "v0.16.0"}.source,
				runtime: "v2.2.1", require: []string{graftModule + "@v0.22.0"},
				pkg: "pkg/controller/namespaced/postgresql/role", test: "provider-sql",
				prepare: func(t *testing.T, dir string) {
					t.Helper()
					client := filepath.Join(dir, "pkg", "clients", "postgresql", "postgresql.go")
					replace(t, client, `sql.Open("postgres"`, `sql.Open("crashtest"`)
				},
			},
			crashes: map[string]crash{
				"restart/failover-after/7": {},
				"create/500-after/13":      {stock: "does not have the password of the role"},
				"create/crash-before/16":   {stock: "does not have the password of the role"},
				"create/crash-after/13":    {},
				"delete/reset-before/5":    {},
				"delete/reset-before/5/planted": {
					stock: "leak", graft: "leak",
					plant: plant{
						file: "reconciler.go",
						was:  "if xsql.IsNoRows(err) {",
						is:   "if err != nil {",
					},
				},
				"delete/undisturbed/planted": {
					stock: "never deleted", graft: "never deleted",
					plant: plant{
						file: "reconciler.go",
						was:  "DROP ROLE IF EXISTS ",
						is:   "ALTER ROLE ",
					},
				},
			},
		},
		"kubernetes": {
			provider: crashed{
				source:  provider{path: "github.com/crossplane-contrib/provider-kubernetes", version: "v1.3.1"}.source,
				require: []string{graftModule + "@v0.24.0"},
				pkg:     "internal/controller/namespaced/object", test: "provider-kubernetes",
				prepare: withoutNebius,
			},
			crashes: map[string]crash{
				"create/500-after/10":             {},
				"create/crash-after/10":           {},
				"delete-in-create/reset-after/10": {},
				"delete/500-before/4":             {},
				"delete/500-before/4/planted": {
					stock: "leak", graft: "leak",
					plant: plant{
						file: "object.go",
						was:  "if kerrors.IsNotFound(err) {\n\t\treturn managed",
						is:   "if err != nil {\n\t\treturn managed",
					},
				},
				"delete/undisturbed/planted": {
					stock: "finalizer left", graft: "finalizer left",
					plant: plant{
						file: "object.go",
						was:  "meta.RemoveFinalizer(obj, objFinalizerName)",
						is:   "meta.AddFinalizer(obj, objFinalizerName)",
					},
				},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stock, graft := tc.provider.unpack(t), tc.provider.unpack(t)
			tc.provider.adopt(t, graft)
			right := map[string]string{stock: tc.provider.build(t, stock), graft: tc.provider.build(t, graft)}
			for life, c := range tc.crashes {
				t.Run(life, func(t *testing.T) {
					for dir, verdict := range map[string]string{stock: c.stock, graft: c.graft} {
						program := right[dir]
						if c.plant.file != "" {
							program = tc.provider.buildWith(t, dir, c.plant)
						}
						tc.provider.leads(t, dir, program, strings.TrimSuffix(life, "/planted"), verdict)
					}
				})
			}
		})
	}
}

// archived returns a function that unpacks the archive whose name matches a pattern. It
// skips the test if there is none.
func archived(pattern string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		folder := os.Getenv(archives)
		if folder == "" {
			t.Skip(archives + " does not name a folder with archives of providers")
		}
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		must(t, err)
		if len(found) != 1 {
			t.Skipf("%s has no archive %s", folder, pattern)
		}
		dir := t.TempDir()
		run(t, dir, "tar", "xzf", found[0], "--strip-components=1")
		return dir
	}
}

// unpack the source, with its test and this line of Graft.
func (c crashed) unpack(t *testing.T) string {
	t.Helper()
	dir := c.source(t)
	if c.prepare != nil {
		c.prepare(t, dir)
	}
	line, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	if c.runtime != "" {
		line = filepath.Join(t.TempDir(), "line")
		run(t, "..", "go", "run", "./line", "-runtime", c.runtime, "-write", "-o", line)
	}
	test, err := os.ReadFile(filepath.Join("testdata", c.test, "crash_test.go"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, c.pkg, "crash_test.go"), test, 0o600))
	edit := []string{"go", "mod", "edit", "-replace", graftModule + "=" + line}
	for _, r := range c.require {
		edit = append(edit, "-require", r)
	}
	run(t, dir, edit...)
	run(t, dir, "go", "mod", "tidy")
	return dir
}

// adopt changes the import in the package and in its test.
func (c crashed) adopt(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, c.pkg, "*.go"))
	must(t, err)
	for _, f := range files {
		replace(t, f, `"`+upstreamManaged+`"`, `"`+graftModule+`/pkg/managed"`)
	}
}

// build the test.
func (c crashed) build(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "crash.test")
	run(t, dir, "go", "test", "-c", "-o", program, "./"+c.pkg)
	return program
}

// buildWith builds the test of a provider that is broken.
func (c crashed) buildWith(t *testing.T, dir string, p plant) string {
	t.Helper()
	file := filepath.Join(dir, c.pkg, p.file)
	right, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(right), p.was) {
		t.Fatalf("%s does not have %q", p.file, p.was)
	}
	defer func() { must(t, os.WriteFile(file, right, 0o600)) }()
	replace(t, file, p.was, p.is)
	return c.build(t, dir)
}

// leads a life, which has to end with a verdict.
func (c crashed) leads(t *testing.T, dir, program, life, verdict string) {
	t.Helper()
	pattern := "^TestCrashes$/^" + strings.ReplaceAll(life, "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), program, "-test.run", pattern)
	cmd.Dir = filepath.Join(dir, c.pkg)
	out, err := cmd.CombinedOutput()
	if (verdict == "") != (err == nil) || !strings.Contains(string(out), verdict) {
		t.Errorf("%s: want verdict %q: %v\n%s", life, verdict, err, out)
	}
}

// replace text in a file.
func replace(t *testing.T, file, was, is string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), was, is)), 0o600))
}

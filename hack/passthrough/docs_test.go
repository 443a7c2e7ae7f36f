package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must(t, err)
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		out[f] = string(text)
	}
	return out
}

// Conditions, events, metrics and options are documented, and all names in the documentation exist.
func TestNamesAreDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := read(t, filepath.Join(root, "docs", "*.md"))
	operators := pages[filepath.Join(root, "docs", "operators.md")]
	events := operators + pages[filepath.Join(root, "docs", "reference.md")]
	all := strings.Join(slices.Collect(maps.Values(pages)), "\n")
	api, code := read(t, filepath.Join("..", "api", "*.txt")), map[string]string{}
	delete(api, filepath.Join("..", "api", "watch.txt")) // It is Crossplane's API.
	upstream, err := load(filepath.Join(root, "pkg", "managed"), upstreamPath)
	must(t, err)
	for _, dir := range []string{"*", "*/*"} {
		maps.Copy(code, read(t, filepath.Join(root, "pkg", dir, "*.go")))
	}
	source := strings.Join(slices.Collect(maps.Values(code)), "\n")
	upstreamsEvent := regexp.MustCompile(`^Cannot(Connect|Observe|Create|Update|Delete)\w*(Provider|ExternalResource)$`)
	for _, tc := range []struct {
		what, page, want string
		in               map[string]string
		name             string // What declares one.
	}{
		{"condition types and reasons", operators, "`%s`", api, `xpv2\.Condition(?:Type|Reason)\s+= "(\w+)"`},
		{"events", events, "`%s`", code, `(?m)event\.Reason\s+= "(\w+)"`},
		{"metrics", all, "`%s`", code, `Name: +"(graft_\w+[a-z])"`},
		{"options", all, "%s", api, `(?m)^func (With\w*|Adopt|Refuse)\(`},
	} {
		names := map[string]bool{}
		for file, text := range tc.in {
			for _, m := range regexp.MustCompile(tc.name).FindAllStringSubmatch(text, -1) {
				// An option of a package below managed has its name before it.
				pkg, below := strings.CutPrefix(strings.TrimSuffix(filepath.Base(file), ".txt"), "managed_")
				if below && tc.what == "options" {
					m[1] = pkg + "." + m[1]
				}
				// The golden files are of main's line: the other one's upstream lacks some options.
				gone := tc.what == "options" && !below && !strings.Contains(source, "func "+m[1]+"(")
				names[m[1]] = !strings.HasSuffix(file, "_test.go") && !gone
			}
		}
		for name := range names {
			isUpstreams := upstream[upstreamPath].Types.Scope().Lookup(name) != nil || upstreamsEvent.MatchString(name)
			if names[name] && !isUpstreams && !strings.Contains(tc.page, fmt.Sprintf(tc.want, name)) {
				t.Errorf("the documentation does not have %s, one of the %s", name, tc.what)
			}
		}
		if len(names) < 10 {
			t.Errorf("want more %s than %d", tc.what, len(names))
		}
	}
	declared := strings.Join(append(slices.Collect(maps.Values(api)), slices.Collect(maps.Values(code))...), "\n")
	for _, m := range regexp.MustCompile("`(With[A-Z]\\w+|graft_\\w+)").FindAllStringSubmatch(all, -1) {
		if !strings.Contains(declared, m[1]) {
			t.Errorf("the documentation names %s, which is nowhere declared", m[1])
		}
	}
}

// The README's code compiles.
func TestReadmeCompiles(t *testing.T) {
	page := filepath.Join("..", "..", "README.md")
	block := regexp.MustCompile("(?s)\n```go\n(.*?)```").FindStringSubmatch(read(t, page)[page])
	if block == nil {
		t.Fatal("README.md has no Go code")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	before := read(t, "testdata/readme.txt")["testdata/readme.txt"] // What the page leaves out.
	src, overlay := filepath.Join(t.TempDir(), "readme.go"), filepath.Join(t.TempDir(), "overlay.json")
	for file, text := range map[string]string{
		src:     before + block[1],
		overlay: fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "readme", "readme.go"), src),
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./readme")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// A command that runs no test passes, and shows nothing.
func TestCommandsRunTests(t *testing.T) {
	command := regexp.MustCompile("(cd hack && )?go test [^`\n]*")
	selects, folder := regexp.MustCompile(`-run ('[^']*'|\S+)`), regexp.MustCompile(`\./\S+`)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	checked := 0
	for page, text := range read(t, filepath.Join("..", "..", "docs", "*.md")) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			run := selects.FindStringSubmatch(m[0])
			if len(run) < 2 || run[1] == "'^$'" {
				continue
			}

			// The root has no tests: this one is the reader's.
			if m[1] == "" && folder.FindString(m[0]) == "" {
				continue
			}
			dir := filepath.Join("..", "..", folder.FindString(m[0]))
			if m[1] != "" {
				dir = filepath.Join("..", folder.FindString(m[0]))
			}

			// The tree of an older line lacks some folders.
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			var tests strings.Builder
			for _, src := range read(t, filepath.Join(dir, "*_test.go")) {
				for _, f := range function.FindAllStringSubmatch(src, -1) {
					fmt.Fprintln(&tests, f[1])
				}
			}

			// In a table | is escaped.
			for _, name := range strings.Split(strings.ReplaceAll(strings.Trim(run[1], "'"), `\|`, "|"), "|") {
				if checked++; !regexp.MustCompile(name).MatchString(tests.String()) {
					t.Errorf("%s: no test has a name with %q: %s", filepath.Base(page), name, m[0])
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no command with -run was found")
	}
}

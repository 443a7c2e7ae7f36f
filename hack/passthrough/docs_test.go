package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// An operator looks up each condition type and reason.
func TestReasonsAreDocumented(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "operators.md")
	text := read(t, page)[page]
	constant, found := regexp.MustCompile(`xpv2\.Condition(?:Type|Reason)\s+= "(\w+)"`), 0
	for api, declared := range read(t, filepath.Join("..", "api", "*.txt")) {
		for _, m := range constant.FindAllStringSubmatch(declared, -1) {
			found++
			if name := regexp.MustCompile(
				`(?m)^(### ` + m[1] + `$|.*` + "`" + m[1] + "`" + `)`,
			); !name.MatchString(text) {
				t.Errorf("docs/operators.md does not explain %q, which %s declares", m[1], filepath.Base(api))
			}
		}
	}
	if found == 0 {
		t.Error("no condition types and reasons were found in the golden files")
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

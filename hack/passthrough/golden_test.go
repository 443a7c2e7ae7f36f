package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSurface(t *testing.T) {
	cases := map[string]struct {
		reason string
		src    string
		want   string
	}{
		"Exported": {
			reason: "Constants, variables, functions, types, fields and methods are what a user can depend on.",
			src: `
// A is documented.
const A = 1

var B, c = 2, 3

// F does a lot.
func F(a int) error { return nil }

type T struct {
	// Name is documented.
	Name string

	LongName int
	hidden bool
}

// New returns one.
func New() *T { return &T{} }

func (t *T) M() {}`,
			want: `package p // import "example.org/p"

const A = 1

var B, _ = 2, 3

func F(a int) error

type T struct {
	Name	string
	LongName	int
	// contains filtered or unexported fields
}

func New() *T

func (t *T) M()
`,
		},
		"NotExported": {
			reason: "What users cannot name, and methods of it, are not API.",
			src: `
type t struct{ Name string }

func (t) M() {}

func f() {}`,
			want: "package p // import \"example.org/p\"\n",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()

			for file, src := range map[string]string{"p.go": "package p\n" + tc.src, "p_test.go": "package p\n\nconst Test = 1\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(src), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			got, err := surface(dir, "example.org/p")
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("\n%s\nsurface(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An operator looks up what a condition says.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operators.md"))
	if err != nil {
		t.Fatal(err)
	}

	apis, err := filepath.Glob(filepath.Join("..", "api", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}

	constant, found := regexp.MustCompile(`xpv2\.Condition(?:Type|Reason)\s+= "(\w+)"`), 0

	for _, api := range apis {
		text, err := os.ReadFile(api)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			found++

			if name := regexp.MustCompile(`(?m)^(### ` + m[1] + `$|.*` + "`" + m[1] + "`" + `)`); !name.Match(page) {
				t.Errorf("docs/operators.md does not explain %q, which %s declares", m[1], filepath.Base(api))
			}
		}
	}

	if found == 0 {
		t.Error("no condition types and reasons were found in the golden files")
	}
}

// What a stranger copies first compiles.
func TestReadmeCompiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	block := regexp.MustCompile("(?s)\n```go\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("README.md has no Go code")
	}

	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}

	src, overlay := filepath.Join(t.TempDir(), "readme.go"), filepath.Join(t.TempDir(), "overlay.json")

	for file, text := range map[string]string{
		src:     "package readme\n" + string(block[1]),
		overlay: fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "readme", "readme.go"), src),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./readme")
	build.Dir = root

	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

package main

import (
	"os"
	"path/filepath"
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

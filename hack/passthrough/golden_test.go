package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Constants, variables, functions, types, fields and methods are what a user can depend
// on, and nothing that a user cannot name.
func TestSurface(t *testing.T) {
	src := `package p

// A is documented.
const A = 1

var B, c = 2, 3

// F does a lot.
func F(a int) error { return nil }

type T struct {
	// Name is documented.
	Name string

	hidden bool
}

func (t *T) M() {}

type t struct{ Name string }

func (t) M() {}
`
	want := `package p // import "example.org/p"

const A = 1

var B, _ = 2, 3

func F(a int) error

type T struct {
	Name string
	// contains filtered or unexported fields
}

func (t *T) M()
`
	dir := t.TempDir()
	for file, src := range map[string]string{"p.go": src, "p_test.go": "package p\n\nconst Test = 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := surface(dir, "example.org/p")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("surface(...): -want, +got:\n%s", diff)
	}
}

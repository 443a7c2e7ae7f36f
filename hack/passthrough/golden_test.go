package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSurface(t *testing.T) {
	const want = "package p // import \"example.org/p\"\n\nfunc F(a int, more ...string) (int, error)\n"
	for reason, src := range map[string]string{
		"A function should stand on one line.":                   "func F(a int, more ...string) (int, error) { return 0, nil }",
		"A line break in the source should change nothing.":      "func F(\n\ta int,\n\tmore ...string,\n) (int, error) {\n\treturn 0, nil\n}",
		"Comments and unexported functions should not be there.": "// F.\nfunc F(a int, more ...string) (int, error)\n\nfunc f() {}",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte("package p\n\n"+src+"\n"), 0o600))
		got, err := surface(dir, "example.org/p")
		must(t, err)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s\nsurface(...): -want, +got:\n%s", reason, diff)
		}
	}
}

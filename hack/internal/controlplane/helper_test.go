package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A fixture is a checkout and a go command, none of them real.
type fixture struct {
	checkout string
	calls    string // file with the names of what was built
	progress *os.File
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	root := t.TempDir()
	f := &fixture{checkout: filepath.Join(root, "checkout"), calls: filepath.Join(root, "calls")}
	var err error
	f.progress, err = os.Create(filepath.Join(root, "progress"))
	must(t, err)
	t.Cleanup(func() { _ = f.progress.Close() })
	t.Setenv(cacheVariable, filepath.Join(root, "cache"))
	t.Setenv("PATH", root+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for path, content := range map[string]string{
		"go.mod": "module example.org/kubernetes\n\nrequire (\n" +
			"\tgo.etcd.io/etcd/server/v3 v3.6.5\n\tk8s.io/kubernetes v1.35.4\n)\n",
		"go.sum":              "sums\n",
		"controllers/main.go": "package main\n",
	} {
		path = filepath.Join(f.checkout, "hack", "internal", "controlplane", "kubernetes", path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	t.Chdir(f.checkout)
	script(t, filepath.Join(root, "go"), `
if [ "$1" = env ]; then echo go1.26.8; exit; fi
if [ "$1" = list ]; then exit; fi
printf 'example.org/a\nexample.org/b\n' >&2
while [ "$1" != -o ]; do shift; done
basename "$2" >>`+quote(f.calls)+`
printf '#!/bin/sh\n' >"$2" && chmod 755 "$2"`)
	return f
}

func (f *fixture) built(t *testing.T) []string { return strings.Fields(read(t, f.calls)) }

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	return string(content)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func script(t *testing.T, path, text string) {
	t.Helper()
	must(t, writeScript(path, "#!/bin/sh\n"+text+"\n"))
}

func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		script(t, filepath.Join(dir, name), "")
	}
	return dir
}

// list returns the names of the files in dir, or nothing if it doesn't exist.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

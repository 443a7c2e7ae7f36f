package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newBuilder returns a builder with a module, a go command and a cache that are not real. The go
// command's calls for building are lines of its progress.
func newBuilder(t *testing.T) (builder, *os.File) {
	t.Helper()
	root := t.TempDir()
	t.Setenv("HOME", root)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("PATH", root+string(filepath.ListSeparator)+os.Getenv("PATH"))
	script(t, filepath.Join(root, "go"), `
if [ "$1" = env ]; then echo go1.26.8; exit; fi
if [ "$1" = list ]; then seq 20; exit; fi
while [ "$1" != -o ]; do shift; done
echo "built $3" >&2
printf '#!/bin/sh\n' >"$2" && chmod 755 "$2"`)
	must(t, os.Mkdir(filepath.Join(root, "controllers"), 0o755))
	for name, text := range map[string]string{
		"go.mod":              "module example.org/kubernetes\n\nrequire k8s.io/kubernetes v1.35.4\n",
		"go.sum":              "sums\n",
		"controllers/main.go": "package main\n",
	} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	progress, err := os.Create(filepath.Join(root, "progress"))
	must(t, err)
	t.Cleanup(func() { _ = progress.Close() })
	return builder{module: root, progress: progress}, progress
}

// Progress is a share, and not the name of each package.
func TestShareWriter(t *testing.T) {
	var got strings.Builder
	w := &shareWriter{out: &got, packages: 20, report: func(compiled, packages int) {
		fmt.Fprintf(&got, "%d of %d\n", compiled, packages)
	}}
	for _, part := range []string{"internal/a\nb", "\nexample.org/c\n# example.org/d\nd.go:1: no", " good\ne\n"} {
		_, err := w.Write([]byte(part))
		must(t, err)
	}
	const want = "2 of 20\n# example.org/d\nd.go:1: no good\n4 of 20\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestBuild(t *testing.T) {
	b, progress := newBuilder(t)
	all := []string{etcd, apiServer, controllerManager}
	build := func(programs ...string) string {
		dir, err := b.build(t.Context(), programs)
		if err != nil {
			t.Error(err)
		}
		return dir
	}
	built := func() (out []string) {
		for line := range strings.Lines(read(t, progress.Name())) {
			if pkg, ok := strings.CutPrefix(line, "built "); ok {
				out = append(out, strings.TrimSpace(pkg))
			}
		}
		return out
	}

	dir := build(controllerManager)
	want := []string{"./controllers"}
	if diff := cmp.Diff(want, built()); diff != "" {
		t.Errorf("Only the programs that are asked for are built: -want, +got:\n%s", diff)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if other := build(all...); other != dir {
				t.Errorf("The same module has the same folder: want %s, got %s", dir, other)
			}
		})
	}
	wg.Wait()
	want = append(want, "go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver")
	if diff := cmp.Diff(want, built()); diff != "" {
		t.Errorf("One of two builds, and only what is missing: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(all, list(t, dir)); diff != "" {
		t.Errorf("The folder holds the programs: -want, +got:\n%s", diff)
	}
	must(t, os.WriteFile(filepath.Join(b.module, "go.sum"), []byte("others\n"), 0o644))
	if build(all...) == dir {
		t.Error("Other modules make other programs, in another folder.")
	}
}

func TestStartFails(t *testing.T) {
	assets, tmp := t.TempDir(), t.TempDir()
	script(t, filepath.Join(assets, etcd), `echo "cannot do anything today" >&2; exit 1`)
	script(t, filepath.Join(assets, apiServer), "")
	t.Setenv(assetsVariable, assets)
	t.Setenv("TMPDIR", tmp)
	c, err := start(t.Context(), Options{}, t.TempDir())
	want := "etcd said last:\n\tcannot do anything today"
	if c != nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("The error has the last words of what didn't start: want %q, got: %v", want, err)
	}
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
	}
}

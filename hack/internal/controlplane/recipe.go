package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A recipe has the inputs of a build. Equal recipes build equal programs.
type recipe struct {
	// dir is the folder of the module, hack/internal/controlplane/kubernetes of a checkout.
	dir string

	// targets are the programs, in the order to build them in.
	targets []target

	// key names the set of programs: it changes with everything that could change one of them.
	key string
}

// A target is a program to build.
type target struct {
	name    string // of the program
	pkg     string // of the main package
	source  string // path of the module that has the main package
	version string // of that module
	ldflags string
}

// newRecipe reads the module of the checkout that the working directory is in,
// and asks the go command which version it is.
func newRecipe(ctx context.Context) (recipe, error) {
	dir, err := findModule()
	if err != nil {
		return recipe{}, err
	}

	// The quickest come first, so that a problem of the machine shows early.
	r := recipe{dir: dir, targets: []target{
		{name: etcd, pkg: "go.etcd.io/etcd/server/v3", source: "go.etcd.io/etcd/server/v3"},
		{name: apiServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", source: "k8s.io/kubernetes"},
		{name: controllerManager, pkg: "./controllers", source: "k8s.io/kubernetes"},
	}}
	hash := sha256.New()
	field := func(name, value string) {
		// With its length before it, no value can pass for the next field.
		fmt.Fprintf(hash, "%s %d\n%s\n", name, len(value), value)
	}
	for _, name := range []string{"go.mod", "go.sum", filepath.Join("controllers", "main.go")} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return r, fmt.Errorf("cannot read what the control plane is built from: %w", err)
		}
		field(name, string(content))
		if name == "go.mod" {
			if err := r.setVersions(content); err != nil {
				return r, err
			}
		}
	}

	// The go command may switch to another toolchain in the module.
	version, err := goCommand(ctx, dir, "env", "GOVERSION").Output()
	if err != nil {
		return r, explain("cannot ask the go command for its version", err, nil)
	}
	field("go", strings.TrimSpace(string(version)))
	field("os", runtime.GOOS)
	field("arch", runtime.GOARCH)
	for _, t := range r.targets {
		field("ldflags of "+t.name, t.ldflags)
	}
	r.key = hex.EncodeToString(hash.Sum(nil)[:8])
	return r, nil
}

// setVersions reads the versions of the targets from the text of go.mod.
func (r recipe) setVersions(text []byte) error {
	parsed, err := modfile.Parse(filepath.Join(r.dir, "go.mod"), text, nil)
	if err != nil {
		return fmt.Errorf("cannot read what the control plane is built from: %w", err)
	}
	for i := range r.targets {
		t := &r.targets[i]
		at := slices.IndexFunc(parsed.Require, func(m *modfile.Require) bool { return m.Mod.Path == t.source })
		if at < 0 {
			return fmt.Errorf("%s requires no %s, which %s is built from", parsed.Syntax.Name, t.source, t.name)
		}
		t.version = parsed.Require[at].Mod.Version
		t.ldflags = "-s -w" // 104 MB instead of 147
		if t.source == "k8s.io/kubernetes" {
			// Without these Kubernetes takes itself for v0.0.0-master.
			const pkg = "k8s.io/component-base/version"
			parts := append(strings.Split(strings.TrimPrefix(t.version, "v"), "."), "")
			t.ldflags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s",
				pkg, t.version, pkg, parts[0], pkg, parts[1])
		}
	}
	return nil
}

// findModule finds the folder of the module to build, by going up from the
// working directory.
//
// The obvious alternatives each fail somewhere: the module of this package is
// unknown to `go list -m` outside hack/, runtime.Caller names no folder in a
// program built with -trimpath, and go:embed cannot reach into another module.
// The working directory is inside the checkout under go run, go test and make
// alike, and a developer means the checkout that is the working directory.
func findModule() (string, error) {
	wd, err := os.Getwd()
	for at := wd; err == nil; at = filepath.Dir(at) {
		dir := filepath.Join(at, "hack", "internal", "controlplane", "kubernetes")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if at == filepath.Dir(at) {
			err = fmt.Errorf("no hack/internal/controlplane/kubernetes in %s or a folder above it: run this inside a "+
				"checkout of Graft, or set %s", wd, assetsVariable)
		}
	}
	return "", err
}

// goCommand returns a run of the go command in dir, with the caller's environment except
// what would make the result depend on it.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// GOFLAGS is set rather than emptied, which would let the one that
	// `go env -w` has stored through.
	cmd.Env = append(cmd.Environ(),
		"GOWORK=off", "GOFLAGS=-mod=readonly", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return cmd
}

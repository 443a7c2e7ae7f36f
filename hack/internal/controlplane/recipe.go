package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// A recipe has all inputs of a build. Equal recipes build equal programs.
type recipe struct {
	// dir is the folder of the module, hack/internal/controlplane/kubernetes of a checkout.
	dir string

	// files holds the sources of the build, by path below dir: go.mod, go.sum, and the program of our own.
	files []file

	// goVersion, goos and goarch are the version and the target of the go command.
	goVersion, goos, goarch string

	// targets are the programs, in the order to build them in.
	targets []target
}

// A file is one that takes part in a build.
type file struct {
	path    string
	content []byte
}

// A target is a program to build.
type target struct {
	name    string // of the program
	pkg     string // of the main package
	source  string // path of the module that has the main package
	version string // of that module
	ldflags string
}

// programs are all targets, the quickest first, so that a problem of the machine
// shows early.
func programs() []target {
	return []target{
		{name: etcd, pkg: "go.etcd.io/etcd/server/v3", source: "go.etcd.io/etcd/server/v3"},
		{name: apiServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", source: "k8s.io/kubernetes"},
		{name: controllerManager, pkg: "./controllers", source: "k8s.io/kubernetes"},
	}
}

// key names the set of programs that the recipe makes: it changes with
// everything that could change one of them.
func (r recipe) key() string {
	h := sha256.New()
	field := func(name string, value []byte) {
		// With its length before it, no value can pass for the next field.
		fmt.Fprintf(h, "%s %d\n%s\n", name, len(value), value)
	}
	for _, f := range r.files {
		field(f.path, f.content)
	}
	field("go", []byte(r.goVersion))
	field("os", []byte(r.goos))
	field("arch", []byte(r.goarch))
	for _, t := range r.targets {
		field("ldflags of "+t.name, []byte(t.ldflags))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// recipe reads the module of the checkout that the working directory is in,
// and asks the go command which version it is.
func (s source) recipe(ctx context.Context) (recipe, error) {
	dir, err := s.findModule()
	if err != nil {
		return recipe{}, err
	}
	r := recipe{dir: dir, goos: runtime.GOOS, goarch: runtime.GOARCH, targets: programs()}
	for _, name := range []string{"go.mod", "go.sum", filepath.Join("controllers", "main.go")} {
		f := file{path: name}
		if f.content, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return recipe{}, fmt.Errorf("cannot read what the control plane is built from: %w", err)
		}
		r.files = append(r.files, f)
	}
	parsed, err := modfile.Parse(filepath.Join(dir, "go.mod"), r.files[0].content, nil)
	if err != nil {
		return recipe{}, fmt.Errorf("cannot read what the control plane is built from: %w", err)
	}
	required := make(map[string]string) // versions, by module
	for _, req := range parsed.Require {
		required[req.Mod.Path] = req.Mod.Version
	}
	for i := range r.targets {
		t := &r.targets[i]
		var ok bool
		if t.version, ok = required[t.source]; !ok {
			return recipe{}, fmt.Errorf("%s requires no %s, which %s is built from", filepath.Join(dir, "go.mod"),
				t.source, t.name)
		}
		if t.ldflags, err = ldflags(*t); err != nil {
			return recipe{}, err
		}
	}

	if r.goVersion, err = s.goVersion(ctx, dir); err != nil {
		return recipe{}, err
	}
	return r, nil
}

// findModule finds the folder of the module to build, by going up from the
// working directory.
//
// The obvious alternatives each fail somewhere: the module of this package is
// unknown to `go list -m` outside hack/, runtime.Caller names no folder in a
// program built with -trimpath, and go:embed cannot reach into another module.
// The working directory is inside the checkout under go run, go test and make
// alike, and a developer means the checkout that is the working directory.
func (s source) findModule() (string, error) {
	wd, err := s.getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the module that the control plane is built from: %w", err)
	}
	for at := wd; ; at = filepath.Dir(at) {
		dir := filepath.Join(at, "hack", "internal", "controlplane", "kubernetes")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf(
				"no hack/internal/controlplane/kubernetes in %s or a folder above it: run this inside a checkout of "+
					"Graft, or set %s",
				wd, assetsVariable,
			)
		}
	}
}

// goVersion asks the go command which version it is in the module in dir, where
// it may have switched to another toolchain.
func (s source) goVersion(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, s.goCommand, "env", "GOVERSION")
	cmd.Dir = dir
	cmd.Env = buildEnv(cmd.Environ())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", explain("cannot ask the go command for its version", err, stderr.Bytes())
	}
	v := strings.TrimSpace(string(out))
	if v == "" {
		return "", errors.New("the go command doesn't tell its version (go env GOVERSION)")
	}
	return v, nil
}

// buildEnv is the environment to run the go command in: the caller's, except
// what would make the result depend on it.
func buildEnv(env []string) []string {
	return append(env,
		"GOWORK=off",
		// GOFLAGS is set rather than emptied, which would let the one that
		// `go env -w` has stored through.
		"GOFLAGS=-mod=readonly",
		"GOOS="+runtime.GOOS,
		"GOARCH="+runtime.GOARCH,
	)
}

// ldflags returns the linker flags for a program.
func ldflags(t target) (string, error) {
	const strip = "-s -w" // 104 MB instead of 147
	if t.source != "k8s.io/kubernetes" {
		return strip, nil
	}
	// Without these Kubernetes takes itself for v0.0.0-master.
	parts := strings.SplitN(strings.TrimPrefix(t.version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("version %s of %s isn't of the form v1.2.3", t.version, t.source)
	}
	const pkg = "k8s.io/component-base/version"
	return fmt.Sprintf("%s -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s",
		strip, pkg, t.version, pkg, parts[0], pkg, parts[1]), nil
}

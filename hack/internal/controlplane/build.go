package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
)

// assetsVariable names a folder with etcd and kube-apiserver to use instead of building them.
const assetsVariable = "KUBEBUILDER_ASSETS"

// The programs of a control plane, by the names that envtest gives them.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

// Build returns a folder with the programs of a control plane. It builds those that are not in the
// user's cache folder. If KUBEBUILDER_ASSETS is set, the controller manager is the only one.
//
// A build needs the go command, modules from the proxy or the module cache, and about 3 GB of disk.
// The output of the go command is written to progress, or to standard error if that is nil. Any number of
// processes may call Build at once: one builds, the others wait.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	programs := []string{etcd, apiServer, controllerManager}
	if os.Getenv(assetsVariable) != "" {
		programs = programs[2:]
	}
	_, file, _, _ := runtime.Caller(0)
	b := builder{module: filepath.Join(filepath.Dir(file), "kubernetes"), progress: progress}
	if progress == nil {
		b.progress = os.Stderr
	}
	return b.build(ctx, programs)
}

// A builder builds programs from the module in a folder.
type builder struct {
	module   string
	progress io.Writer
}

func (b builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "control plane: "+format+"\n", args...)
}

// goCommand returns a run of the go command in the module, without the user's flags and workspace.
func (b builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = b.module, b.progress
	// GOFLAGS is set rather than emptied, because the one that `go env -w` has stored would count then.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	return cmd
}

// build returns the folder for the present module, after it has built the programs that the folder lacks.
func (b builder) build(ctx context.Context, programs []string) (string, error) {
	flags, key, err := b.recipe(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot read what the control plane is built from: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot keep the control plane's programs: %w", err)
	}
	dir := filepath.Join(cache, "graft", "controlplane", key)
	lock, err := b.lock(dir)
	if err != nil {
		return "", fmt.Errorf("cannot lock the control plane's programs: %w", err)
	}
	defer func() { _ = lock.Close() }()

	mains := map[string]string{
		etcd:              "go.etcd.io/etcd/server/v3",
		apiServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
		controllerManager: "./controllers",
	}
	for _, program := range programs {
		path := filepath.Join(dir, program)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		b.say("building %s; all programs together take 11 to 14 minutes the first time", program)
		// Without -trimpath, so that packages are in Go's build cache that a user's other builds compiled in the
		// same version, as in hack/go.mod.
		cmd := b.goCommand(ctx, "build", "-v", "-buildvcs=false", "-ldflags="+flags, "-o", path+".new", mains[program])
		// An interrupted go command removes its work folder. If this process is killed, the go command ends when it
		// names the next package, and has the lock until then.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.ExtraFiles = []*os.File{lock}
		cmd.Stderr = &shareWriter{
			out: b.progress, packages: b.packages(ctx, mains[program]), report: func(compiled, packages int) {
				b.say("%s: %d of at most %d packages are compiled", program, compiled, packages)
			},
		}
		if err := errors.Join(cmd.Run(), context.Cause(ctx)); err != nil {
			return "", fmt.Errorf("cannot build %s, see the output of the go command: %w", program, err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return "", fmt.Errorf("cannot keep the control plane's programs: %w", err)
		}
	}
	return dir, nil
}

// packages returns how many packages a program has, or 0 if that cannot be found out.
func (b builder) packages(ctx context.Context, program string) int {
	cmd := b.goCommand(ctx, "list", "-deps", program)
	cmd.Stderr = nil // The build has the same errors.
	out, err := cmd.Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}

// recipe returns the flags for the linker, and a key that changes with everything that could change the programs.
func (b builder) recipe(ctx context.Context) (flags, key string, err error) {
	hash := sha256.New()
	var texts [3][]byte
	for i, name := range []string{"go.mod", "go.sum", filepath.Join("controllers", "main.go")} {
		if texts[i], err = os.ReadFile(filepath.Join(b.module, name)); err != nil {
			return "", "", err
		}
		fmt.Fprintf(hash, "%q\n", texts[i])
	}
	v := regexp.MustCompile(`k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`).FindSubmatch(texts[0])
	if v == nil {
		return "", "", errors.New("go.mod does not require k8s.io/kubernetes")
	}
	// Without a version Kubernetes takes itself for v0.0.0-master. Without the debug information kube-apiserver has
	// 104 MB instead of 147.
	const x = "-X k8s.io/component-base/version."
	flags = fmt.Sprintf("-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", x, v[1], v[2], v[3])

	// The go command may switch to another toolchain in the module.
	env, err := b.goCommand(ctx, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	fmt.Fprintf(hash, "%s\n%s", flags, env)
	return flags, hex.EncodeToString(hash.Sum(nil)[:8]), err
}

// lock makes a folder, and keeps other processes out until the returned file is closed, by the go command too.
func (b builder) lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		b.say("another process is building the control plane, waiting for it")
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// progressInterval is how often a build says how long it has taken.
	progressInterval = 10 * time.Second

	// buildGrace is how long the go command may take to clean up after itself
	// when it's told to stop.
	buildGrace = 5 * time.Second

	// lockInterval is how often a waiting process tries again. The system's own
	// waiting can't be cancelled by a context.
	lockInterval = 100 * time.Millisecond
)

// A builder builds programs, and writes its progress.
type builder struct{ progress io.Writer }

// say writes a line of progress. That it can't be written is no reason to fail.
func (b builder) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "control plane: "+format+"\n", args...)
}

// build returns the cache's folder for the present recipe, having built those
// of the named programs that it lacks.
func (b builder) build(ctx context.Context, names ...string) (string, error) {
	r, err := newRecipe(ctx)
	if err != nil {
		return "", err
	}
	root, err := cacheRoot()
	dir := filepath.Join(root, r.key)
	lacking := func() []target {
		return slices.DeleteFunc(slices.Clone(r.targets), func(t target) bool {
			return !slices.Contains(names, t.name) || isProgram(filepath.Join(dir, t.name))
		})
	}
	if err != nil || len(lacking()) == 0 {
		return dir, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot keep programs, set %s to another folder: %w", cacheVariable, err)
	}
	lock, err := b.lock(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	defer func() { _ = lock.Close() }()

	// The process that held the lock before may have built them.
	if targets := lacking(); len(targets) > 0 {
		return dir, b.buildInto(ctx, dir, r, targets, lock)
	}
	return dir, nil
}

// cacheRoot is the folder that holds every set of programs ever built.
func cacheRoot() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep programs in, set %s to one: %w", cacheVariable, err)
	}
	return filepath.Join(dir, "graft", "controlplane"), nil
}

// lock keeps other goroutines and other processes out until all processes that have the file
// open have closed it or ended. The file stays: removing it would let two processes hold a
// lock each on a file of the same name.
func (b builder) lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	free := func(context.Context) (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return false, nil
		}
		return err == nil, err
	}
	ok, err := free(ctx)
	if !ok && err == nil {
		b.say("another process is building the control plane, waiting for it")
		err = wait.PollUntilContextCancel(ctx, lockInterval, false, free)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// buildInto builds the targets and moves each to dir once it's whole.
func (b builder) buildInto(ctx context.Context, dir string, r recipe, targets []target, lock *os.File) (err error) {
	// A machine that lost its power mid-build has left this.
	tmp := dir + ".tmp"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return fmt.Errorf("cannot make a folder to build in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	// The guard keeps the lock too: if this process is killed, the next builder
	// starts when the guard has cleaned up after this one, and not before.
	g, err := startGuard(tmp, lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.release()) }()
	b.say("building %d of a control plane's %d programs into %s", len(targets), len(r.targets), dir)
	b.say("the first build takes 11 minutes on two busy cores after make demo, else up to 14, and 3 GB of disk, " +
		"for Go's caches; later runs find the result")
	for i, t := range targets {
		prefix := fmt.Sprintf("%d of %d: %s %s", i+1, len(targets), t.name, t.version)
		if err := b.buildOne(ctx, prefix, filepath.Join(tmp, t.name), r, t, g); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(tmp, t.name), filepath.Join(dir, t.name)); err != nil {
			return fmt.Errorf("cannot move %s into the cache: %w", t.name, err)
		}
	}
	return nil
}

// buildOne builds one program to the file out.
func (b builder) buildOne(ctx context.Context, prefix, out string, r recipe, t target, g *guard) error {
	// Without -trimpath, so that packages are in Go's build cache that a user's other builds compiled in the
	// same version, as in hack/go.mod.
	cmd := goCommand(ctx, r.dir, "build", "-v", "-buildvcs=false", "-o", out, "-ldflags="+t.ldflags, t.pkg)
	if cmd.Err != nil {
		return explain("cannot build "+t.name, cmd.Err, nil)
	}
	output := out + ".output"
	var err error
	if cmd.Path, err = g.wrap("go", cmd.Path, output); err != nil {
		return err
	}
	// A group of its own can be stopped with the compilers in it. An interrupted go command
	// removes its work folder; a killed one could not.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel, cmd.WaitDelay = func() error { return kill(syscall.SIGINT) }, buildGrace

	// Packages in Go's build cache are not compiled again. An error shows in the build, too.
	packages, _ := goCommand(ctx, r.dir, "list", "-deps", t.pkg).Output()
	total := bytes.Count(packages, []byte("\n"))
	b.say("%s: building", prefix)
	began := time.Now()
	took := func() time.Duration { return time.Since(began).Round(time.Second) }
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			compiled, _ := readOutput(output)
			b.say("%s: %s, %d of at most %d packages compiled", prefix, took(), compiled, total)
		case err := <-done:
			compiled, said := readOutput(output)
			switch {
			case err != nil && ctx.Err() != nil && cmd.Process != nil:
				_ = kill(syscall.SIGKILL) // What the go command has left.
				return fmt.Errorf("building %s was stopped after %s: %w", t.name, took(), context.Cause(ctx))
			case err != nil:
				return explain("cannot build "+t.name, err, said)
			}
			b.say("%s: built in %s, %d packages compiled", prefix, took(), compiled)
			return nil
		}
	}
}

// readOutput returns how many packages the output of go build -v names, and its other lines,
// which all have a space.
func readOutput(file string) (compiled int, said []byte) {
	text, _ := os.ReadFile(file) // Without it there is less to say.
	for line := range bytes.Lines(text) {
		if bytes.ContainsAny(bytes.TrimSpace(line), " \t") {
			said = append(said, line...)
		} else {
			compiled++
		}
	}
	return compiled, said
}

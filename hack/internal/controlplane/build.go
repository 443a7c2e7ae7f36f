package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// progressInterval is how often a build says how long it has taken.
	progressInterval = 10 * time.Second

	// buildGrace is how long the go command may take to clean up after itself
	// when it's told to stop.
	buildGrace = 5 * time.Second
)

// build returns the cache's folder for the present recipe, having built those
// of the named programs that it lacks.
func (s source) build(ctx context.Context, names ...string) (string, error) {
	root, err := s.cacheRoot()
	if err != nil {
		return "", err
	}
	r, err := s.recipe(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, r.key())
	lacking, err := r.lacking(dir, names)
	if err != nil || len(lacking) == 0 {
		return dir, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot keep the control plane's programs in %s, set %s to another folder: %w", root,
			cacheVariable, err)
	}
	lock, err := acquire(ctx, dir+".lock", func() {
		s.say("another process is building the control plane, waiting for it")
	})
	if err != nil {
		return "", fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	defer lock.release()

	// The process that held the lock before may have built them.
	if lacking, err = r.lacking(dir, names); err != nil || len(lacking) == 0 {
		return dir, err
	}
	if err := s.buildInto(ctx, dir, r, lacking, lock); err != nil {
		return "", err
	}
	return dir, nil
}

// lacking returns the targets among names that dir has no program of. It is
// none at all only if dir is ready to be used.
func (r recipe) lacking(dir string, names []string) ([]target, error) {
	var out []target
	for _, t := range r.targets {
		if !slices.Contains(names, t.name) {
			continue
		}
		ok, err := isProgram(filepath.Join(dir, t.name))
		if err != nil {
			return nil, fmt.Errorf("cannot look for %s in the cache: %w", t.name, err)
		}
		if !ok {
			out = append(out, t)
		}
	}
	return out, nil
}

// buildInto builds the targets and moves each to dir once it's whole. The
// caller holds the lock.
func (s source) buildInto(ctx context.Context, dir string, r recipe, targets []target, l *lock) (err error) {
	// A machine that lost its power mid-build has left this.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("cannot clear away an interrupted build: %w", err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("cannot make a folder to build in: %w", err)
	}
	defer func() {
		if rerr := os.RemoveAll(tmp); err == nil && rerr != nil {
			err = fmt.Errorf("cannot clear away what the build left: %w", rerr)
		}
	}()

	// First, because a folder counts as ready when its programs are there.
	if err := os.WriteFile(filepath.Join(dir, kubectl), nil, 0o755); err != nil {
		return fmt.Errorf("cannot write to the cache: %w", err)
	}

	// The guard keeps the lock too: if this process is killed, the next builder
	// starts when the guard has cleaned up after this one, and not before.
	g, err := startGuard(tmp, l.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.release()) }()
	s.say("building %d of a control plane's %d programs into %s", len(targets), len(programs()), dir)
	s.say("the first build takes 11 minutes on two busy cores after make demo, else up to 14, and 3 GB of disk, " +
		"for Go's caches; later runs find the result")
	for i, t := range targets {
		prefix := fmt.Sprintf("%d of %d: %s %s", i+1, len(targets), t.name, t.version)
		if err := s.buildOne(ctx, prefix, filepath.Join(tmp, t.name), r, t, g); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(tmp, t.name), filepath.Join(dir, t.name)); err != nil {
			return fmt.Errorf("cannot move %s into the cache: %w", t.name, err)
		}
	}
	return nil
}

// buildOne builds one program to the file out.
func (s source) buildOne(ctx context.Context, prefix, out string, r recipe, t target, g *guard) error {
	goPath, err := exec.LookPath(s.goCommand)
	if err != nil {
		return explain("cannot build "+t.name, err, nil)
	}
	script, err := g.wrap("go", goPath)
	if err != nil {
		return err
	}
	// The output goes to a file, not a pipe: Wait would wait until all processes that the go
	// command has started close a pipe.
	output, err := os.Create(out + ".output")
	if err != nil {
		return fmt.Errorf("cannot keep the output of the build: %w", err)
	}
	defer func() { _ = output.Close() }()
	total := s.packages(ctx, r, t)
	// Without -trimpath, so that packages are in Go's build cache that a user's other builds compiled in the
	// same version: go.mod has those of hack/go.mod.
	cmd := exec.Command(script, "build", "-v", "-buildvcs=false", "-o", out, "-ldflags="+t.ldflags, t.pkg)
	cmd.Dir = r.dir
	cmd.Env = buildEnv(cmd.Environ())
	cmd.Stdout, cmd.Stderr = output, output
	// A group of its own can be stopped with the compilers in it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.say("%s: building", prefix)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return explain("cannot build "+t.name, err, nil)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return explain("cannot build "+t.name, err, withoutPackages(tail(output, tailSize)))
			}
			s.say("%s: built in %s, %d packages compiled", prefix, seconds(time.Since(began)), compiled(output))
			return nil
		case <-ticker.C:
			s.say("%s: %s, %d of at most %d packages compiled", prefix, seconds(time.Since(began)), compiled(output),
				total)
		case <-ctx.Done():
			s.stopBuild(cmd.Process.Pid, done)
			return fmt.Errorf("building %s was stopped after %s: %w", t.name, seconds(time.Since(began)),
				context.Cause(ctx))
		}
	}
}

// packages returns how many packages a program has. Those in Go's build cache are not compiled
// again. It returns 0 if it cannot list them: the build says why.
func (s source) packages(ctx context.Context, r recipe, t target) int {
	cmd := exec.CommandContext(ctx, s.goCommand, "list", "-deps", t.pkg)
	cmd.Dir = r.dir
	cmd.Env = buildEnv(cmd.Environ())
	out, err := cmd.Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}

// compiled returns how many packages the output of go build -v names.
func compiled(output *os.File) int {
	n := 0
	for line := range bytes.Lines(tail(output, math.MaxInt64)) {
		if isPackage(line) {
			n++
		}
	}
	return n
}

// withoutPackages returns the output of go build -v without the packages that it names.
func withoutPackages(output []byte) []byte {
	var out []byte
	for line := range bytes.Lines(output) {
		if !isPackage(line) {
			out = append(out, line...)
		}
	}
	return out
}

// isPackage reports whether a line is the path of a package. All other lines of the go command
// have a space.
func isPackage(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && !bytes.ContainsAny(line, " \t")
}

// stopBuild ends the process group of a build and waits until its leader, whose
// end done tells, is gone.
func (s source) stopBuild(pgid int, done <-chan error) {
	// An error of Kill says that the group is gone already. An interrupted go
	// command removes its work folder; a killed one could not.
	_ = syscall.Kill(-pgid, syscall.SIGINT)
	grace := time.NewTimer(buildGrace)
	defer grace.Stop()
	select {
	case <-done:
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	case <-grace.C:
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
		<-done
	}
}

// say writes a line of progress. That it can't be written is no reason to fail.
func (s source) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.progress, "control plane: "+format+"\n", args...)
}

// seconds formats a duration for progress messages.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// tailSize is how much of a program's output is read to explain its failure.
const tailSize = 32 << 10

// tail returns the end of a file, at most size bytes.
func tail(f *os.File, size int64) []byte {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(0, info.Size()-size)
	out, err := io.ReadAll(io.NewSectionReader(f, from, size))
	if err != nil {
		return nil
	}
	return out
}

package controlplane

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// guardedVariable turns the test binary into a program that starts a guarded
// process, in the folder that the variable names, and waits to be killed.
const guardedVariable = "GRAFT_TEST_GUARDED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(guardedVariable); dir != "" {
		if err := runGuarded(dir); err != nil {
			panic(err)
		}
		return
	}
	// Without a logger controller-runtime complains, with a stack trace.
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func runGuarded(dir string) error {
	g, err := startGuard(filepath.Join(dir, "guarded"))
	if err != nil {
		return err
	}
	script, err := g.wrap("it's", filepath.Join(dir, "program"))
	if err != nil {
		return err
	}
	// Nothing below needs the guard, and collected as garbage it would close its
	// pipe: the end that it waits for.
	defer runtime.KeepAlive(g)
	cmd := exec.Command(script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}

// The program writes a line to the fifo and has a child that keeps it open.
func guardedProgram(t *testing.T) (dir, fifo string) {
	t.Helper()
	dir = t.TempDir()
	fifo = filepath.Join(dir, "fifo")
	mkfifo(t, fifo)
	script(t, filepath.Join(dir, "program"), `
exec 4>`+quote(fifo)+`
sleep 1000 &
echo started >&4
wait`)
	if err := os.Mkdir(filepath.Join(dir, "guarded"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, fifo
}

func TestGuardOutlivesItsProcess(t *testing.T) {
	dir, fifo := guardedProgram(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guardedVariable+"="+dir)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitForEnd := waitForLine(t, fifo)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	waitForEnd()
	until(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "guarded"))
		return os.IsNotExist(err)
	})
}

// startGuarded starts the program behind a guard of this process.
func startGuarded(t *testing.T) (g *guard, dir string, cmd *exec.Cmd, waitForEnd func()) {
	t.Helper()
	dir, fifo := guardedProgram(t)
	g, err := startGuard(filepath.Join(dir, "guarded"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := g.wrap("program", filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return g, dir, cmd, waitForLine(t, fifo)
}

func TestGuardRelease(t *testing.T) {
	g, dir, cmd, waitForEnd := startGuarded(t)
	if err := g.release(); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := g.kill(); err != nil {
		t.Errorf("The first end of a guard decides; a later one is no error, got: %v", err)
	}
	if diff := cmp.Diff([]string{"pids", "run"}, list(t, filepath.Join(dir, "guarded"))); diff != "" {
		t.Errorf("A released guard leaves the folder: -want, +got:\n%s", diff)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("A released guard leaves the process: %v", err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitForEnd()
}

func TestGuardSignal(t *testing.T) {
	g, _, cmd, waitForEnd := startGuarded(t)
	steps := []struct {
		reason string
		signal syscall.Signal
		option int
		done   func(syscall.WaitStatus) bool
	}{
		{reason: "A paused program is stopped.", signal: syscall.SIGSTOP, option: syscall.WUNTRACED, done: syscall.WaitStatus.Stopped},
		{reason: "A resumed one continues.", signal: syscall.SIGCONT, option: syscall.WCONTINUED, done: syscall.WaitStatus.Continued},
	}
	for _, s := range steps {
		if err := g.signal("program", s.signal); err != nil {
			t.Fatalf("\n%s\n%v", s.reason, err)
		}
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &ws, s.option, nil); err != nil || !s.done(ws) {
			t.Fatalf("\n%s\nstatus %#x, error %v", s.reason, ws, err)
		}
	}

	if err := g.signal("missing", syscall.SIGSTOP); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("A program that wasn't started can't be paused, got: %v", err)
	}

	// The guard kills a paused program, too: SIGKILL needs no answer.
	if err := g.signal("program", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := g.kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	_ = cmd.Wait()
	waitForEnd()
}

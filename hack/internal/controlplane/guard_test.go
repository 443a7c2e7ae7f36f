package controlplane

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
	script, err := g.wrap("it's", filepath.Join(dir, "program"), os.DevNull)
	if err != nil {
		return err
	}
	// Nothing below needs the guard, and collected as garbage it would close its
	// pipe: the end that it waits for.
	defer runtime.KeepAlive(g)
	cmd := exec.Command(script)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}

// The program, and a child of it, write to the pipe that is read here.
func TestGuardOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "program"), "sleep 1000 & echo started; wait")
	guarded := filepath.Join(dir, "guarded")
	must(t, os.Mkdir(guarded, 0o755))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guardedVariable+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	late := time.AfterFunc(2*time.Minute, func() { _ = out.Close() })
	defer late.Stop()
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	must(t, err)
	must(t, cmd.Process.Kill())
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("a process outlives its end: %v", err)
	}
	_ = cmd.Wait()
	tick := time.NewTicker(2 * time.Millisecond)
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		_, err := os.Stat(guarded)
		if os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the guard doesn't clean up")
		}
	}
}

package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

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
func TestGuardOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	mkfifo(t, fifo)
	script(t, filepath.Join(dir, "program"), `
exec 4>`+quote(fifo)+`
sleep 1000 &
echo started >&4
wait`)
	must(t, os.Mkdir(filepath.Join(dir, "guarded"), 0o755))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guardedVariable+"="+dir)
	cmd.Stderr = t.Output()
	must(t, cmd.Start())
	waitForEnd := waitForLine(t, fifo)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	waitForEnd()
	until(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "guarded"))
		return os.IsNotExist(err)
	})
}

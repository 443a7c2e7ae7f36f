package controlplane

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func TestGuardSignal(t *testing.T) {
	dir, fifo := guardedProgram(t)
	g, err := startGuard(filepath.Join(dir, "guarded"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := g.wrap("program", filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitForEnd := waitForLine(t, fifo)

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

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Pause makes the API server hang: its connections stay open, new ones are
// accepted by the kernel, and nothing is answered until Resume. A pause shorter
// than the leases of the controller manager, 15 seconds, does it no harm.
// Pausing twice is the same as once.
func (c *ControlPlane) Pause() error { return c.guard.signal(apiServer, syscall.SIGSTOP) }

// Resume ends a pause. It does nothing if there is none.
func (c *ControlPlane) Resume() error { return c.guard.signal(apiServer, syscall.SIGCONT) }

// signal sends a signal to a guarded process.
func (g *guard) signal(name string, s syscall.Signal) error {
	pid, err := g.pid(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("cannot send %s to %s: %w", s, name, err)
	}
	return nil
}

// pid returns the process of a guarded program: the script that wrap returns has
// turned into it.
func (g *guard) pid(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "pids", name))
	if err != nil {
		return 0, fmt.Errorf("cannot find the process of %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, errors.Join(fmt.Errorf("cannot find the process of %s: %q is not a process id", name, text), err)
	}
	return pid, nil
}

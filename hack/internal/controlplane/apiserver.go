package controlplane

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Pause makes the API server hang: its connections stay open, new ones are
// accepted by the kernel, and nothing is answered until Resume. A pause shorter
// than the leases of the controller manager, 15 seconds, does it no harm.
// Pausing twice is the same as once.
func (c *ControlPlane) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume ends a pause. It does nothing if there is none.
func (c *ControlPlane) Resume() error { return c.signal(syscall.SIGCONT) }

func (c *ControlPlane) signal(s syscall.Signal) error {
	pid, err := c.guard.pid(apiServer)
	if err == nil {
		err = syscall.Kill(pid, s)
	}
	if err != nil {
		return fmt.Errorf("cannot send %s to the API server: %w", s, err)
	}
	return nil
}

// CPU returns the CPU time that the API server has taken so far. It needs Linux's /proc.
func (c *ControlPlane) CPU() (time.Duration, error) {
	pid, err := c.guard.pid(apiServer)
	p, err1 := procfs.NewProc(pid)
	stat, err2 := p.Stat()
	if err := errors.Join(err, err1, err2); err != nil {
		return 0, fmt.Errorf("cannot read the CPU time of the API server: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of CPU times in /proc on every architecture that Go has.
const clockTick = 10 * time.Millisecond

// CPU returns the CPU time that the API server has taken so far. It needs Linux's
// /proc.
func (c *ControlPlane) CPU() (time.Duration, error) {
	pid, err := c.guard.pid(apiServer)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot read the CPU time of the API server: %w", err)
	}
	// The second field is a name in brackets, which may have spaces. The 14th and
	// 15th are the times of user and system.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("cannot read the CPU time of the API server: %q", text)
	}
	total := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(string(f))
		if err != nil {
			return 0, fmt.Errorf("cannot read the CPU time of the API server: %w", err)
		}
		total += n
	}
	return time.Duration(total) * clockTick, nil
}

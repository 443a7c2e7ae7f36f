package controlplane

import (
	"bufio"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what should be a matter of milliseconds,
// or for a control plane of seconds, on a machine that has other things to do.
const patience = 2 * time.Minute

func until(t *testing.T, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-timeout.C:
			t.Fatal("waited too long")
		}
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))
}

// waitForLine waits until a process has written a line to the fifo, and returns
// a function that waits until every process that has it open has ended.
func waitForLine(t *testing.T, fifo string) (waitForEnd func()) {
	t.Helper()
	// Without O_NONBLOCK this would wait for a writer, for ever if there's none.
	f, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	r := bufio.NewReader(f)
	until(t, func() bool {
		_, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return err == nil
	})
	return func() {
		t.Helper()
		must(t, f.SetReadDeadline(time.Now().Add(patience)))
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("a process outlives its end: %v", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockInterval is how often a waiting process tries again. The system's own
// waiting can't be cancelled by a context.
const lockInterval = 100 * time.Millisecond

// A lock keeps other goroutines and other processes out. The system releases it
// when every process that has its file open has ended.
type lock struct {
	file *os.File
}

// acquire waits until it has the lock at path, or until ctx ends. It calls
// waiting once if another process has it. The file stays: removing it would let
// two processes hold a lock each on a file of the same name.
func acquire(ctx context.Context, path string, waiting func()) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &lock{file: f}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// release lets the next one in, also if another process has the file open.
func (l *lock) release() {
	// Closing the only open file would do; there is nothing to do about an error.
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	_ = l.file.Close()
}

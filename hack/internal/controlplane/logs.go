package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// logs are the files that the programs write to. Each program gets the file itself,
// not a pipe: no goroutine has to copy the output, or wait for the end of it.
type logs struct {
	etcd, apiServer, manager *os.File
}

// openLogs opens a file for each program in keep, or if that's empty in dir.
func openLogs(dir, keep string) (*logs, error) {
	if keep == "" {
		keep = filepath.Join(dir, "logs")
	}
	if err := os.MkdirAll(keep, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a folder for the control plane's output: %w", err)
	}
	l := &logs{}
	for name, f := range map[string]**os.File{etcd: &l.etcd, apiServer: &l.apiServer, controllerManager: &l.manager} {
		var err error
		if *f, err = os.Create(filepath.Join(keep, name+".log")); err != nil {
			l.close()
			return nil, fmt.Errorf("cannot keep the output of %s: %w", name, err)
		}
	}
	return l, nil
}

// close closes the files. The programs have their own descriptors.
func (l *logs) close() {
	for _, f := range []*os.File{l.etcd, l.apiServer, l.manager} {
		if f != nil {
			_ = f.Close()
		}
	}
}

package main

import (
	"io/fs"
	"os"
	"path/filepath"
)

// An edit is a change of one file.
type edit struct {
	path          string // From the module's root, with slashes.
	mode          fs.FileMode
	before, after []byte
	moved         bool   // The import is.
	generated     bool   // By a program that will write it again.
	upjet         bool   // By upjet.
	remark        string // What changed, if that isn't the import.
}

// write replaces the file as a whole: a reader, or a run that is interrupted,
// sees the old content or the new.
func write(name string, e edit) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".adopt-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(e.after)
	if err == nil {
		err = tmp.Chmod(e.mode.Perm())
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

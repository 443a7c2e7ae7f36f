package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// assetsVariable names a folder with programs to use instead of building.
	assetsVariable = "KUBEBUILDER_ASSETS"

	// cacheVariable names the folder that built programs are kept in.
	cacheVariable = "GRAFT_CONTROLPLANE_CACHE"
)

// The programs of a control plane, by the names that envtest gives them.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"

	// kubectl is never run, but envtest's idea of a folder with assets has it.
	kubectl = "kubectl"
)

// Binaries returns the absolute path of a folder that holds etcd,
// kube-apiserver, kube-controller-manager and, for envtest's sake, an empty
// kubectl.
//
// If KUBEBUILDER_ASSETS is set, etcd and kube-apiserver are taken from there,
// and it is an error if one is missing. The kube-controller-manager comes from
// there too if it is there, and else is the only one to be built.
//
// Otherwise the programs are taken from the cache, and what isn't there is
// built. That needs the go command on the PATH, the module proxy or a filled
// module cache, about 3 GB of disk, and a working directory anywhere inside a
// checkout of this repository.
//
// The program that is being built, and its time so far, are written to progress every
// ten seconds, unless progress is nil or nothing has to be built.
//
// Any number of goroutines and processes may call Binaries at once: one builds,
// the others wait. When ctx ends, so does the build; a finished program is
// kept, an unfinished one leaves nothing behind.
func Binaries(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	s := source{
		getenv:    os.Getenv,
		getwd:     os.Getwd,
		goCommand: "go",
		progress:  progress,
	}
	return s.binaries(ctx)
}

// A source has the environment of a build, and where its progress is written.
type source struct {
	getenv    func(string) string
	getwd     func() (string, error)
	goCommand string
	progress  io.Writer
}

func (s source) binaries(ctx context.Context) (string, error) {
	if dir := s.getenv(assetsVariable); dir != "" {
		return s.fromAssets(ctx, dir)
	}
	return s.build(ctx, etcd, apiServer, controllerManager)
}

// cacheRoot is the folder that holds every set of programs ever built.
func (s source) cacheRoot() (string, error) {
	if dir := s.getenv(cacheVariable); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("cannot make %s absolute: %w", cacheVariable, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep the control plane's programs in, set %s to one: %w", cacheVariable,
			err)
	}
	return filepath.Join(dir, "graft", "controlplane"), nil
}

// isProgram reports whether path is a file that may be executed.
func isProgram(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	}
	return info.Mode().IsRegular() && info.Mode()&0o111 != 0, nil
}

package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
)

// Binaries returns the absolute path of a folder that holds etcd, kube-apiserver
// and kube-controller-manager.
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
	b := builder{progress: progress}
	if os.Getenv(assetsVariable) == "" {
		return b.build(ctx, etcd, apiServer, controllerManager)
	}
	assets, err := filepath.Abs(os.Getenv(assetsVariable))
	if err != nil {
		return "", err
	}
	for _, name := range []string{etcd, apiServer} {
		if !isProgram(filepath.Join(assets, name)) {
			return "", fmt.Errorf("%s is %s, where there is no executable %s: set it to a folder that has %s and %s, "+
				"or unset it to have them built", assetsVariable, assets, name, etcd, apiServer)
		}
	}
	if isProgram(filepath.Join(assets, controllerManager)) {
		return assets, nil
	}

	// The released folders of envtest have no controller manager.
	built, err := b.build(ctx, controllerManager)
	if err != nil {
		return "", err
	}
	return linkAssets(assets, built)
}

// linkAssets makes a folder beside built, with links to the programs in assets and to the
// controller manager of built. It does not write to the folder of KUBEBUILDER_ASSETS, because
// that is the user's, and may be read-only.
func linkAssets(assets, built string) (string, error) {
	sum := sha256.Sum256([]byte(assets))
	dir := built + "-with-" + hex.EncodeToString(sum[:4])
	err := os.MkdirAll(dir, 0o755)
	for name, from := range map[string]string{etcd: assets, apiServer: assets, controllerManager: built} {
		// An existing link is the right one: the folder's name says where to.
		if e := os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)); !errors.Is(e, os.ErrExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot make a folder for the control plane's programs: %w", err)
	}
	return dir, nil
}

// isProgram reports whether path is a file that may be executed.
func isProgram(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

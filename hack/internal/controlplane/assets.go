package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fromAssets returns a folder with the programs of the folder that
// KUBEBUILDER_ASSETS names, and a kube-controller-manager.
func (s source) fromAssets(ctx context.Context, assets string) (string, error) {
	assets, err := filepath.Abs(assets)
	if err != nil {
		return "", fmt.Errorf("cannot make %s absolute: %w", assetsVariable, err)
	}
	var missing []string
	for _, name := range []string{etcd, apiServer} {
		ok, err := isProgram(filepath.Join(assets, name))
		if err != nil {
			return "", fmt.Errorf("cannot look into %s: %w", assetsVariable, err)
		}
		if !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf(
			"%s is %s, where there is no executable %s: set it to a folder that has %s and %s, or unset it to have "+
				"them built",
			assetsVariable, assets, strings.Join(missing, " and no executable "), etcd, apiServer,
		)
	}
	ok, err := isProgram(filepath.Join(assets, controllerManager))
	if err != nil {
		return "", fmt.Errorf("cannot look into %s: %w", assetsVariable, err)
	}
	if ok {
		return assets, nil
	}

	// The released folders of envtest have no controller manager.
	built, err := s.build(ctx, controllerManager)
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a folder for the control plane's programs: %w", err)
	}
	for link, target := range map[string]string{
		etcd:              filepath.Join(assets, etcd),
		apiServer:         filepath.Join(assets, apiServer),
		controllerManager: filepath.Join(built, controllerManager),
		kubectl:           filepath.Join(built, kubectl),
	} {
		// An existing link is the right one: the folder's name says where to.
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("cannot link to %s: %w", target, err)
		}
	}
	return dir, nil
}

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// startTimeout is how long each program may take to get ready. All are
	// ready within ten seconds on two cores that have nothing else to do.
	startTimeout = 3 * time.Minute

	// stopTimeout is how long each may take to end before it's killed.
	stopTimeout = time.Minute

	// The limits of requests of this package's clients. They are so high that no test
	// measures client-go's rate limiter.
	clientQPS   = 1000
	clientBurst = 2000
)

// Options say how to start a control plane. The zero value is one without
// custom resources, of the programs that Binaries returns.
type Options struct {
	// CRDs are installed and served before the controller manager starts. A
	// definition that comes later is unknown to the garbage collector for up to
	// 30 seconds, its fixed period of looking for new kinds.
	CRDs []*apiextensionsv1.CustomResourceDefinition

	// CRDDir is a folder of YAML files with further CRDs, unless it is empty.
	CRDDir string

	// Assets is the folder with the programs. If it's empty, they are what
	// Binaries returns.
	Assets string

	// Progress is what Binaries writes progress to. Nil means not to.
	Progress io.Writer

	// LogDir is a folder to keep the programs' output in, in a file each. It is
	// made if it doesn't exist, and files from an earlier start are overwritten.
	// If it's empty, the output is gone when the control plane stops.
	LogDir string
}

// A ControlPlane is one that runs. Its methods may be called concurrently.
type ControlPlane struct {
	dir        string
	config     *rest.Config
	kubeconfig string

	guard   *guard
	env     *envtest.Environment
	manager *manager

	stop    sync.Once
	stopErr error
}

// Start starts a control plane, waits until the API server serves the CRDs and
// the garbage collector collects, and returns it. The caller must call
// Stop.
//
// ctx bounds the start alone: when it ends before Start has returned, everything
// is ended and its cause returned. A control plane that has started runs until
// it's stopped or this process ends.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	assets := o.Assets
	if assets == "" {
		var err error
		if assets, err = Binaries(ctx, o.Progress); err != nil {
			return nil, err
		}
	}
	// The programs are run by scripts in another folder.
	assets, err := filepath.Abs(assets)
	if err != nil {
		return nil, fmt.Errorf("cannot make the folder with the programs absolute: %w", err)
	}
	dir, err := os.MkdirTemp("", "graft-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for the control plane: %w", err)
	}
	c := &ControlPlane{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	if c.guard, err = startGuard(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	// Envtest takes no context. It stops waiting when its programs are killed.
	watching := context.AfterFunc(ctx, func() { _ = c.guard.kill() })
	err = c.start(ctx, assets, o)
	if !watching() {
		// Too late, even if all has gone well: the guard has been sent out.
		err = fmt.Errorf("the start of the control plane was stopped: %w", context.Cause(ctx))
	}
	if err != nil {
		// The error of stopping what hasn't started would only hide this one.
		_ = c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, assets string, o Options) error {
	logs, err := openLogs(c.dir, o.LogDir)
	if err != nil {
		return err
	}
	defer logs.close()
	if err := c.startAPI(assets, o, logs); err != nil {
		return err
	}
	if err := os.WriteFile(c.kubeconfig, c.env.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	if c.manager, err = c.startManager(assets, logs); err != nil {
		return err
	}
	return c.manager.waitUntilCollecting(ctx, c.config)
}

// startAPI starts etcd and kube-apiserver and installs the CRDs.
func (c *ControlPlane) startAPI(assets string, o Options, logs *logs) error {
	dirs := make(map[string]string)
	scripts := make(map[string]string)
	for _, name := range []string{etcd, apiServer} {
		dirs[name] = filepath.Join(c.dir, name)
		if err := os.Mkdir(dirs[name], 0o700); err != nil {
			return fmt.Errorf("cannot make a folder for %s: %w", name, err)
		}
		var err error
		if scripts[name], err = c.guard.wrap(name, filepath.Join(assets, name)); err != nil {
			return err
		}
	}

	env := &envtest.Environment{
		// Envtest's environment variable is ignored: a test that deletes namespaces must
		// not run on an existing cluster.
		UseExistingCluster:       new(bool),
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
		ErrorIfCRDPathMissing:    true,
	}
	for _, crd := range o.CRDs {
		env.CRDs = append(env.CRDs, crd.DeepCopy())
	}
	if o.CRDDir != "" {
		env.CRDDirectoryPaths = []string{o.CRDDir}
	}
	env.ControlPlane.Etcd = &envtest.Etcd{
		Path: scripts[etcd], DataDir: dirs[etcd],
		Out: logs.etcd, Err: logs.etcd,
	}
	env.ControlPlane.APIServer = &envtest.APIServer{
		Path: scripts[apiServer], CertDir: dirs[apiServer],
		Out: logs.apiServer, Err: logs.apiServer,
	}
	env.ControlPlane.KubectlPath = filepath.Join(assets, kubectl)
	c.env = env
	config, err := env.Start()
	if err != nil {
		return fmt.Errorf("cannot start the API server: %w%s%s", err,
			quoteOutput(etcd, tail(logs.etcd, tailSize)), quoteOutput(apiServer, tail(logs.apiServer, tailSize)))
	}
	c.config = rest.CopyConfig(config)
	c.config.QPS, c.config.Burst = clientQPS, clientBurst
	return nil
}

// Config returns a new configuration for clients that may do everything. It
// allows 1,000 requests a second, and bursts of 2,000.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file for a user who may do
// everything. Stop removes it.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Done returns a channel that is closed when the controller manager has ended,
// which it does by itself only if something is wrong. Stop then tells what.
func (c *ControlPlane) Done() <-chan struct{} { return c.manager.done }

// Stop ends the control plane, waits until its processes are gone and removes
// its files. It returns an error if the controller manager had ended before,
// with its last words, or if a process had to be killed. All calls return the
// same.
func (c *ControlPlane) Stop() error {
	c.stop.Do(func() {
		// Nothing that is paused hears that it should end. If the API server never
		// started there is nothing to resume.
		_ = c.Resume()
		var errs []error
		if c.manager != nil {
			errs = append(errs, c.manager.stop())
		}
		if c.env != nil {
			if err := c.env.Stop(); err != nil {
				// Envtest does not wait for programs that it kills, and may leave some running.
				errs = append(errs, fmt.Errorf("cannot stop the API server: %w", err), c.guard.kill())
			}
		}
		errs = append(errs, c.guard.release())
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove the control plane's files: %w", err))
		}
		c.stopErr = errors.Join(errs...)
	})
	return c.stopErr
}

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

// Options say how to start a control plane of the programs that Binaries returns. The
// zero value is one without custom resources.
type Options struct {
	// CRDs are installed and served before the controller manager starts. A
	// definition that comes later is unknown to the garbage collector for up to
	// 30 seconds, its fixed period of looking for new kinds.
	CRDs []*apiextensionsv1.CustomResourceDefinition

	// CRDDir is a folder of YAML files with further CRDs, unless it is empty.
	CRDDir string

	// Progress is what Binaries writes progress to. Nil means not to.
	Progress io.Writer

	// LogDir is a folder to keep the programs' output in, in a file each. It is
	// made if it doesn't exist, and files from an earlier start are overwritten.
	// If it's empty, the output is gone when the control plane stops.
	LogDir string
}

// A ControlPlane is one that runs. Its methods may be called concurrently.
type ControlPlane struct {
	dir, assets, logDir string
	config              *rest.Config

	guard   *guard
	env     *envtest.Environment
	manager *manager

	stop func() error
}

// Start starts a control plane, waits until the API server serves the CRDs and
// the garbage collector collects, and returns it. The caller must call
// Stop.
//
// ctx bounds the start alone: when it ends before Start has returned, everything
// is ended and its cause returned. A control plane that has started runs until
// it's stopped or this process ends.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	assets, err := Binaries(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "graft-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for the control plane: %w", err)
	}
	c := &ControlPlane{dir: dir, assets: assets, logDir: o.LogDir}
	c.stop = sync.OnceValue(c.end)
	if c.guard, err = startGuard(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if c.logDir == "" {
		c.logDir = filepath.Join(dir, "logs")
	}

	// Envtest takes no context. It stops waiting when its programs are killed.
	watching := context.AfterFunc(ctx, func() { _ = c.guard.kill() })
	err = c.start(ctx, o)
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

func (c *ControlPlane) start(ctx context.Context, o Options) error {
	if err := os.MkdirAll(c.logDir, 0o755); err != nil {
		return fmt.Errorf("cannot keep the control plane's output: %w", err)
	}
	if err := c.startAPI(o); err != nil {
		return fmt.Errorf("cannot start the API server: %w%s%s", err, c.lastWords(etcd), c.lastWords(apiServer))
	}
	if err := os.WriteFile(c.Kubeconfig(), c.env.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	var err error
	if c.manager, err = c.startManager(); err != nil {
		return fmt.Errorf("cannot start the controller manager: %w", err)
	}
	if err := c.manager.waitUntilCollecting(ctx, c.config); err != nil {
		return fmt.Errorf("%w%s", err, c.lastWords(controllerManager))
	}
	return nil
}

// startAPI starts etcd and kube-apiserver and installs the CRDs.
func (c *ControlPlane) startAPI(o Options) error {
	etcd, etcdDir, err1 := c.prepare(etcd)
	api, apiDir, err2 := c.prepare(apiServer)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.env = &envtest.Environment{
		// Envtest's environment variable is ignored: a test that deletes namespaces must
		// not run on an existing cluster.
		UseExistingCluster:       new(bool),
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
		ErrorIfCRDPathMissing:    true,
	}
	for _, crd := range o.CRDs {
		c.env.CRDs = append(c.env.CRDs, crd.DeepCopy())
	}
	if o.CRDDir != "" {
		c.env.CRDDirectoryPaths = []string{o.CRDDir}
	}
	c.env.ControlPlane.Etcd = &envtest.Etcd{Path: etcd, DataDir: etcdDir}
	c.env.ControlPlane.APIServer = &envtest.APIServer{Path: api, CertDir: apiDir}
	config, err := c.env.Start()
	if err != nil {
		return err
	}
	c.config = rest.CopyConfig(config)
	c.config.QPS, c.config.Burst = clientQPS, clientBurst
	return nil
}

// prepare returns the path of a script that runs a program, and a folder for its data.
func (c *ControlPlane) prepare(program string) (script, dir string, err error) {
	dir = filepath.Join(c.dir, program)
	script, err = c.guard.wrap(program, filepath.Join(c.assets, program), c.log(program))
	return script, dir, errors.Join(err, os.Mkdir(dir, 0o700))
}

func (c *ControlPlane) log(program string) string { return filepath.Join(c.logDir, program+".log") }

// lastWords returns the end of the output of a program, ready to be added to an error.
func (c *ControlPlane) lastWords(program string) string {
	output, _ := os.ReadFile(c.log(program)) // Without it there is less to say.
	return quoteOutput(program, output)
}

// Config returns a new configuration for clients that may do everything. It
// allows 1,000 requests a second, and bursts of 2,000.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file for a user who may do
// everything. Stop removes it.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Done returns a channel that is closed when the controller manager has ended,
// which it does by itself only if something is wrong. Stop then tells what.
func (c *ControlPlane) Done() <-chan struct{} { return c.manager.done }

// Stop ends the control plane, waits until its processes are gone and removes
// its files. It returns an error if the controller manager had ended before,
// with its last words, or if a process had to be killed. All calls return the
// same.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) end() error {
	// Nothing that is paused hears that it should end. If the API server never
	// started there is nothing to resume.
	_ = c.Resume()
	var errs []error
	if c.manager != nil {
		if err := c.manager.stop(); err != nil {
			errs = append(errs, fmt.Errorf("%w%s", err, c.lastWords(controllerManager)))
		}
	}
	if c.env != nil {
		if err := c.env.Stop(); err != nil {
			// Envtest does not wait for programs that it kills, and may leave some running.
			errs = append(errs, fmt.Errorf("cannot stop the API server: %w", err), c.guard.kill())
		}
	}
	return errors.Join(append(errs, c.guard.release(), os.RemoveAll(c.dir))...)
}

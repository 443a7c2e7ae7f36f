package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

	// outputLines is how many of the last lines of a program's output an error shows.
	outputLines = 15
)

// Options say how to start a control plane. The zero value is one without custom resources.
type Options struct {
	// CRDs are installed and served before the controller manager starts. A
	// definition that comes later is unknown to the garbage collector for up to
	// 30 seconds, its fixed period of looking for new kinds.
	CRDs []*apiextensionsv1.CustomResourceDefinition

	// CRDDir is a folder of YAML files with further CRDs, unless it is empty.
	CRDDir string

	// Progress is for Build.
	Progress io.Writer
}

// A ControlPlane is one that runs. Its methods may be called concurrently.
type ControlPlane struct {
	dir    string
	config *rest.Config

	guard   *guard
	env     *envtest.Environment
	manager *exec.Cmd // Nil until it has started.

	stop func() error
}

// Start builds a control plane if need be, starts it, waits until the API server serves the CRDs
// and the garbage collector collects, and returns it. The caller must call Stop.
//
// ctx bounds the start alone. It stops a build at once, and a start when the API server is ready.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	built, err := Build(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	return start(ctx, o, built)
}

// start starts a control plane of the programs that Build has built.
func start(ctx context.Context, o Options, built string) (*ControlPlane, error) {
	dir, err := os.MkdirTemp("", "graft-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for the control plane: %w", err)
	}
	c := &ControlPlane{dir: dir}
	c.stop = sync.OnceValue(c.end)
	if c.guard, err = startGuard(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err = c.startAPI(o, built); err == nil {
		err = c.startManager(ctx, built)
	}
	if err != nil {
		err = fmt.Errorf("cannot start the control plane: %w%s", err, c.lastWords(etcd, apiServer, controllerManager))
		_ = c.Stop() // Its error would only hide this one.
		return nil, err
	}
	return c, nil
}

// startAPI starts etcd and kube-apiserver and installs the CRDs.
func (c *ControlPlane) startAPI(o Options, built string) error {
	assets := os.Getenv(assetsVariable)
	if assets == "" {
		assets = built
	}
	etcd, etcdDir, err1 := c.prepare(assets, etcd)
	api, apiDir, err2 := c.prepare(assets, apiServer)
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
	return os.WriteFile(c.Kubeconfig(), c.env.KubeConfig, 0o600)
}

// prepare returns the path of a script that runs a program of a folder, and a folder for its data.
func (c *ControlPlane) prepare(from, program string) (script, dir string, err error) {
	dir = filepath.Join(c.dir, program)
	path, err := filepath.Abs(filepath.Join(from, program))
	if err == nil {
		script, err = c.guard.wrap(program, path, dir+".log")
	}
	return script, dir, errors.Join(err, os.Mkdir(dir, 0o700))
}

// lastWords returns the end of the output of programs, ready to be added to an error.
func (c *ControlPlane) lastWords(programs ...string) string {
	words := ""
	for _, program := range programs {
		output, _ := os.ReadFile(filepath.Join(c.dir, program+".log")) // Without it there is less to say.
		if output = bytes.TrimSpace(output); len(output) > 0 {
			lines := bytes.Split(output, []byte("\n"))
			lines = lines[max(0, len(lines)-outputLines):]
			words += fmt.Sprintf("\n%s said last:\n\t%s", program, bytes.Join(lines, []byte("\n\t")))
		}
	}
	return words
}

// Config returns a new configuration for clients that may do everything. It
// allows 1,000 requests a second, and bursts of 2,000.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file for a user who may do
// everything. The output of the programs is beside it. Stop removes both.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Stop ends the control plane, waits until its processes are gone and removes
// its files. It returns an error if the controller manager had failed before,
// with its last words, or if a process had to be killed. All calls return the
// same.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) end() error {
	var err1, err2 error
	if c.manager != nil {
		if err1 = c.stopManager(); err1 != nil {
			err1 = fmt.Errorf("the controller manager failed: %w%s", err1, c.lastWords(controllerManager))
		}
	}
	if c.env != nil {
		if err2 = c.env.Stop(); err2 != nil {
			err2 = fmt.Errorf("cannot stop the API server: %w", err2)
		}
	}
	// Envtest does not wait for programs that it kills, and may leave some running.
	return errors.Join(err1, err2, c.guard.end(err2 == nil), os.RemoveAll(c.dir))
}

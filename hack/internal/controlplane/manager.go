package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// probeInterval is how often to look whether the garbage collector collects.
const probeInterval = 50 * time.Millisecond

// A manager is a kube-controller-manager that has been started.
type manager struct {
	cmd *exec.Cmd
	log string // path of its output

	// done is closed when the process has ended; err is set before, to how.
	done chan struct{}
	err  error
}

// startManager starts the controller manager with the two controllers that make
// deletion work.
func (c *ControlPlane) startManager(assets string, logs *logs) (*manager, error) {
	user, err := c.env.AddUser(envtest.User{Name: controllerManager, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a user for the controller manager: %w", err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot make a kubeconfig for the controller manager: %w", err)
	}
	path := filepath.Join(c.dir, controllerManager+".kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("cannot make a kubeconfig for the controller manager: %w", err)
	}
	script, err := c.guard.wrap(controllerManager, filepath.Join(assets, controllerManager))
	if err != nil {
		return nil, err
	}
	return startManager(exec.Command(script, managerArgs(path)...), logs.manager)
}

// managerArgs are the flags of the controller manager.
func managerArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=garbage-collector-controller,namespace-controller",
		// One manager, one user, and no port that another process may use.
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		"--secure-port=0",
		// By default a namespace takes 15 seconds to go, most of it spent
		// waiting for the manager's own rate limiter.
		fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientBurst),
	}
}

// startManager starts cmd with its output in log.
func startManager(cmd *exec.Cmd, log *os.File) (*manager, error) {
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt from the terminal is for the program that started this one,
	// which then stops everything in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the controller manager: %w", err)
	}
	m := &manager{cmd: cmd, log: log.Name(), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = cmd.Wait()
	}()
	return m, nil
}

// waitUntilCollecting returns when the garbage collector has collected an object
// whose owner doesn't exist. That it does so is the one sign of its readiness
// that depends neither on a port nor on the wording of a log, and that comes
// after it has found every kind there is. It does not wait for the
// namespace controller, which also handles namespaces that were deleted before it started.
func (m *manager) waitUntilCollecting(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the garbage collector didn't collect within %s", startTimeout))
	defer cancel()
	cl, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("cannot make a client for the new API server: %w", err)
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:    metav1.NamespaceDefault,
		GenerateName: "graft-probe-",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: "graft-probe-without-owner", UID: uuid.NewUUID(),
		}},
	}}
	if err := cl.Create(ctx, probe); err != nil {
		return fmt.Errorf("cannot create an object to be collected: %w", err)
	}
	key := types.NamespacedName{Namespace: probe.Namespace, Name: probe.Name}
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-m.done:
			return m.died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the controller manager: %w%s", context.Cause(ctx), m.lastWords())
		}
		err := cl.Get(ctx, key, &corev1.ConfigMap{})
		if kerrors.IsNotFound(err) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot see whether an object is collected: %w", err)
		}
	}
}

// stop ends the process and waits until it's gone. It is an error if it was gone
// before.
func (m *manager) stop() error {
	select {
	case <-m.done:
		return m.died()
	default:
	}
	// An error says that it's gone by now. Either way done is closed soon.
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	grace := time.NewTimer(stopTimeout)
	defer grace.Stop()
	select {
	case <-m.done:
		return nil
	case <-grace.C:
		_ = m.cmd.Process.Kill()
		<-m.done
		return fmt.Errorf("the controller manager didn't end within %s and was killed", stopTimeout)
	}
}

// died returns the error that the process, which has ended, should not have.
func (m *manager) died() error {
	how := "without an error"
	if m.err != nil {
		how = m.err.Error()
	}
	return fmt.Errorf("the controller manager has ended by itself (%s)%s", how, m.lastWords())
}

// lastWords returns the end of the output, ready to be added to an error.
func (m *manager) lastWords() string {
	f, err := os.Open(m.log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	return quoteOutput(controllerManager, tail(f, tailSize))
}

package controlplane

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probeInterval is how often to look whether the garbage collector collects.
const probeInterval = 50 * time.Millisecond

// A manager is a kube-controller-manager that has been started.
type manager struct {
	cmd *exec.Cmd

	// done is closed when the process has ended.
	done chan struct{}
}

// startManager starts the controller manager with the two controllers that make
// deletion work.
func (c *ControlPlane) startManager() (*manager, error) {
	script, _, err := c.prepare(controllerManager)
	if err != nil {
		return nil, err
	}
	m := &manager{done: make(chan struct{}), cmd: exec.Command(script,
		"--kubeconfig="+c.Kubeconfig(),
		"--controllers=garbage-collector-controller,namespace-controller",
		// One manager, one user, and no port that another process may use.
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		"--secure-port=0",
		// By default a namespace takes 15 seconds to go, most of it spent
		// waiting for the manager's own rate limiter.
		fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientBurst),
	)}
	// An interrupt from the terminal is for the program that started this one,
	// which then stops everything in order.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.done)
		_ = m.cmd.Wait() // The state of the process says how it ended.
	}()
	return m, nil
}

// waitUntilCollecting returns when the garbage collector has collected an object
// whose owner doesn't exist. That it does so is the one sign of its readiness
// that depends neither on a port nor on the wording of a log, and that comes
// after it has found every kind there is. It does not wait for the
// namespace controller, which also handles namespaces that were deleted before it started.
func (m *manager) waitUntilCollecting(ctx context.Context, config *rest.Config) error {
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
	collected := func(ctx context.Context) (bool, error) {
		select {
		case <-m.done:
			return false, m.died()
		default:
		}
		err := cl.Get(ctx, client.ObjectKeyFromObject(probe), &corev1.ConfigMap{})
		return kerrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, probeInterval, startTimeout, false, collected); err != nil {
		return fmt.Errorf("the garbage collector does not collect: %w", err)
	}
	return nil
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
	select {
	case <-m.done:
		return nil
	case <-time.After(stopTimeout):
		_ = m.cmd.Process.Kill()
		<-m.done
		return fmt.Errorf("the controller manager didn't end within %s and was killed", stopTimeout)
	}
}

// died returns the error that the process, which has ended, should not have.
func (m *manager) died() error {
	return fmt.Errorf("the controller manager has ended by itself (%s)", m.cmd.ProcessState)
}

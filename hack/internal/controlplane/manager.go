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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probeInterval is how often to look whether the garbage collector collects.
const probeInterval = 50 * time.Millisecond

// startManager starts the controller manager, and returns when the garbage collector has collected
// an object whose owner doesn't exist. That it does so is the one sign of its readiness
// that depends neither on a port nor on the wording of a log, and that comes
// after it has found every kind there is. It does not wait for the
// namespace controller, which also handles namespaces that were deleted before it started.
func (c *ControlPlane) startManager(ctx context.Context, built string) error {
	script, _, err := c.prepare(built, controllerManager)
	if err != nil {
		return err
	}
	cmd := exec.Command(script, c.Kubeconfig())
	// An interrupt from the terminal is for the program that started this one,
	// which then stops everything in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.manager = cmd

	cl, err := client.New(c.config, client.Options{})
	if err != nil {
		return err
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
		err := cl.Get(ctx, client.ObjectKeyFromObject(probe), &corev1.ConfigMap{})
		return kerrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(ctx, probeInterval, startTimeout, false, collected); err != nil {
		return fmt.Errorf("the garbage collector does not collect: %w", err)
	}
	return nil
}

// stopManager stops the controller manager, and returns an error if it had failed before or has to be killed.
func (c *ControlPlane) stopManager() error {
	_ = c.manager.Process.Signal(syscall.SIGTERM) // If it has ended, Wait says how.
	late := time.AfterFunc(stopTimeout, func() { _ = c.manager.Process.Kill() })
	defer late.Stop()
	return c.manager.Wait()
}

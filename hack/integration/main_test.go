//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if description := os.Getenv(processVariable); description != "" {
		ctrl.SetLogger(logr.Discard())
		if err := runProcess(description); err != nil {
			fmt.Fprintln(os.Stderr, "provider:", err)
			os.Exit(1)
		}
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctrl.SetLogger(logr.Discard())

	// The first start builds everything.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	crds := append(v1alpha1.CRDs(), platformCRDs()...)
	if plane, err = controlplane.Start(ctx, controlplane.Options{CRDs: crds, Progress: os.Stderr}); err != nil {
		return 1, err
	}
	code = m.Run()
	err = plane.Stop()

	// The last connections end with the API server, so only now nothing may be left. On a
	// busy machine that takes longer than the half second for which goleak looks.
	for end := time.Now().Add(time.Minute); ; {
		if left := goleak.Find(); left == nil || time.Now().After(end) {
			return code, errors.Join(err, left)
		}
	}
}

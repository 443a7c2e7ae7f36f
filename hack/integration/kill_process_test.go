//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// processVariable turns the test binary into a process of the provider, as the
// variable's value describes it.
const processVariable = "GRAFT_TEST_PROVIDER"

// A processConfig is what a process of the provider has to know. Like any provider
// it has an API server and a cloud that are somewhere else.
type processConfig struct{ API, Cloud string }

// runProcess runs a provider until it is killed, or until its parent process
// exits. Its clients do everything while they are called, and are made asynchronous
// by one option. Databases are looked for after a crash; Buckets are created again
// with the same token.
func runProcess(description string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(description), &c); err != nil {
		return fmt.Errorf("cannot read what %s describes: %w", processVariable, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	m, err := process.NewManager(&rest.Config{Host: c.API, QPS: 1000, Burst: 2000}, ctrl.Options{Scheme: s})
	if err != nil {
		return err
	}
	sessions := sample.WithSessions(func(ctx context.Context, token string) (cloud.Client, error) {
		return httpapi.NewClient(c.Cloud, http.DefaultClient).NewSession(ctx, token)
	})
	for _, of := range sampleKinds() {
		o := []asyncstate.TrackerOption{
			// An operation takes less than a second here, on an idle machine. When
			// an earlier process is dead, what it has asked for takes no longer
			// than latest.
			asyncstate.WithTimeout(10 * time.Second),
			asyncstate.WithAbsenceAfter(4 * time.Second),
			asyncstate.WithBackoff(100*time.Millisecond, time.Second),
		}
		if of.Kind == v1alpha1.BucketKind {
			o = append(o, asyncstate.WithIdempotentTokens())
		}
		r := newAsync(m, of, setup{poll: time.Second}, func(*asyncstate.Tracker) connectors {
			return connectors{
				untyped: sample.NewLasting[resource.Managed](nil, sessions),
				typed:   sample.NewLasting[*v1alpha1.Bucket](nil, sessions, sample.WithCreateTokens()),
			}
		}, o...)
		if err := control(m, of, r, 4); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

package main

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// inMemory is the environment with an API server in memory. Nothing runs in it by
// itself: a reconcile takes place when a story waits for it, so that every column
// is the same.
type inMemory struct{ t *testing.T }

// simulate calls play in simulated time.
func (m inMemory) simulate(play func() error) (err error) {
	synctest.Test(m.t, func(*testing.T) { err = play() })
	return err
}

func (inMemory) describe() string {
	return "an API server in memory"
}

func (inMemory) replicas() int { return 1 }

func (inMemory) parallel() int { return 100 }

func (inMemory) close() error { return nil }

func (inMemory) stage(_ string, r *recorder) (stage, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	server, err := embedded.New(embedded.Options{Scheme: scheme, CRDs: crds()})
	if err != nil {
		return nil, err
	}
	return &inMemoryStage{server: server, recorder: r}, nil
}

type inMemoryStage struct {
	server   *embedded.Server
	recorder *recorder
}

func (s *inMemoryStage) config() *rest.Config { return watchtest.NewAPI().Config() }

func (s *inMemoryStage) user() client.Client { return s.server.Admin() }

func (s *inMemoryStage) program() (client.WithWatch, error) {
	return interceptor.NewClient(s.server.Client(), embedded.Intercept(s.recorder.request)), nil
}

func (s *inMemoryStage) place(o client.Object, i int) { placed(o, "example", i) }

func (s *inMemoryStage) start(_ context.Context, p provider) (process, error) {
	c, err := s.program()
	return &inMemoryProcess{server: s.server, reconciler: s.recorder.reconciles(p.build(s.server.ManagerFor(c)))}, err
}

type inMemoryProcess struct {
	server     *embedded.Server
	reconciler reconcile.Reconciler
}

func (p *inMemoryProcess) first(ctx context.Context, objs []sample.Instance) error {
	return p.reconcile(ctx, 1, objs)
}

// reconcile continues after errors, as a work queue does.
func (p *inMemoryProcess) reconcile(ctx context.Context, n int, objs []sample.Instance) error {
	for _, o := range objs {
		for range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, _ = p.reconciler.Reconcile(ctx, requestFor(o))
		}
	}
	return nil
}

func (p *inMemoryProcess) settle(ctx context.Context, objs []sample.Instance) error {
	for _, o := range objs {
		if err := p.server.Settle(ctx, p.reconciler, o, maxRounds); err != nil {
			return err
		}
	}
	return nil
}

func (p *inMemoryProcess) stop() error { return nil }

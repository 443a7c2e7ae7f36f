package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// An environment is where stories are played: an API server, and a way to run a
// provider against it.
type environment struct {
	title    string // The line about the environment in the table.
	replicas int    // How many managed resources go through a story at once.
	parallel int    // How many stories are played at once.

	// simulate calls play in simulated time. It is nil if time can't be simulated.
	simulate func(play func())

	// stage returns the stage of one column of a story. The name is part of no other stage's.
	stage func(name string, r *recorder) stage

	// close ends the environment. Nothing of it is left.
	close func() error
}

// A stage is the part of an environment that one column of a story has to
// itself.
type stage struct {
	user    client.Client       // Of users. It reads from the API server, and is neither recorded nor counted.
	program client.WithWatch    // Of programs that are not providers. Its writes are recorded.
	config  func() *rest.Config // Of an API server for kinds of a story's own.

	prefix string            // Of the names of objects.
	labels map[string]string // By which the stage's provider sees its objects.

	// start a provider that reconciles a kind, once each object that is there. It runs until it is stopped.
	start func(ctx context.Context, kind resource.ManagedKind, build newProvider, objs []sample.Instance) process
}

// A newProvider returns the reconciler of a provider that runs in a manager.
type newProvider func(m manager.Manager) reconcile.Reconciler

// A process is a provider that runs.
type process struct {
	round func(ctx context.Context, objs []sample.Instance) // Reconciles each object once more, as it now is.
	stop  func() error                                      // Ends the provider, and waits. Its memory is lost.
}

// inMemory returns the environment with an API server in memory. Nothing runs in it by
// itself: a reconcile takes place when a story waits for it, so that every column is
// the same.
func inMemory(t *testing.T) environment {
	return environment{
		title: "an API server in memory", replicas: 1, parallel: 100,
		simulate: func(play func()) { synctest.Test(t, func(*testing.T) { play() }) },
		stage:    stageInMemory,
		close:    func() error { return nil },
	}
}

func stageInMemory(_ string, rec *recorder) stage {
	server := must(embedded.New(embedded.Options{Scheme: newScheme(), CRDs: crds()}))
	program := interceptor.NewClient(server.Client(), embedded.Intercept(rec.request))
	start := func(ctx context.Context, _ resource.ManagedKind, build newProvider, objs []sample.Instance) process {
		r := rec.reconciles(build(server.ManagerFor(program)))
		round := func(ctx context.Context, objs []sample.Instance) {
			for _, o := range objs {
				check(ctx.Err())
				// The error is recorded.
				_, _ = r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			}
		}
		round(ctx, objs)
		return process{round: round, stop: func() error { return nil }}
	}
	return stage{
		user: server.Admin(), program: program, prefix: "example", start: start,
		config: watchtest.NewAPI().Config,
	}
}

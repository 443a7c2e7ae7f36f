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
	// title is the line about the environment in the table.
	title string

	// replicas is how many managed resources go through a story at once.
	replicas int

	// parallel is how many stories are played at once.
	parallel int

	// simulate calls play in simulated time. It is nil if time can't be simulated.
	simulate func(play func())

	// stage returns the stage of one column of a story. The name is part of no
	// other stage's.
	stage func(name string, r *recorder) stage

	// close ends the environment. Nothing of it is left.
	close func() error
}

// A stage is the part of an environment that one column of a story has to
// itself.
type stage struct {
	// user is the client of users. It reads from the API server, and is neither recorded nor
	// counted.
	user client.Client

	// program is the client of programs that are not providers. Its writes are recorded.
	program client.WithWatch

	// config returns the config of an API server for kinds of a story's own.
	config func() *rest.Config

	// prefix of the names of objects, and the labels by which the stage's provider sees them.
	prefix string
	labels map[string]string

	// start a provider that reconciles a kind, once each object that is there. It runs until it is stopped.
	start func(ctx context.Context, kind resource.ManagedKind, build newProvider, objs []sample.Instance) process
}

// A newProvider returns the reconciler of a provider that runs in a manager.
type newProvider func(m manager.Manager) reconcile.Reconciler

// A process is a provider that runs.
type process struct {
	// round reconciles each object once more, as it now is.
	round func(ctx context.Context, objs []sample.Instance)

	// stop the provider and wait for its end. Its memory is lost.
	stop func() error
}

// version returns an object's resource version, empty if there is no such object.
func version(ctx context.Context, c client.Reader, o sample.Instance) (string, error) {
	now, _ := o.DeepCopyObject().(sample.Instance)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return now.GetResourceVersion(), nil
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
	server, err := embedded.New(embedded.Options{Scheme: newScheme(), CRDs: crds()})
	check(err)
	program := interceptor.NewClient(server.Client(), embedded.Intercept(rec.request))
	start := func(ctx context.Context, _ resource.ManagedKind, build newProvider, objs []sample.Instance) process {
		r := rec.reconciles(build(server.ManagerFor(program)))
		round := func(ctx context.Context, objs []sample.Instance) {
			for _, o := range objs {
				check(ctx.Err())
				_, _ = r.Reconcile(ctx, requestFor(o)) // Its error is recorded.
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

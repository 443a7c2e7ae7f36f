package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// An environment is where stories are played: an API server, and a way to run a
// provider against it.
type environment interface {
	// describe returns the line about the environment in the table.
	describe() string

	// replicas is how many managed resources go through a story at once.
	replicas() int

	// parallel is how many stories are played at once.
	parallel() int

	// stage returns the stage of one column of a story. The name is part of no
	// other stage's.
	stage(name string, r *recorder) (stage, error)

	// close ends the environment. Nothing of it is left.
	close() error
}

// A stage is the part of an environment that one column of a story has to
// itself.
type stage interface {
	// user returns the client of users. It reads from the API server, and is
	// neither recorded nor counted.
	user() client.Client

	// program returns a client for programs that are not providers. Its writes are recorded.
	program() (client.WithWatch, error)

	// config returns the config of an API server for kinds of a story's own.
	config() *rest.Config

	// place gives an object that a user is about to create a free name, and the
	// labels by which the stage's provider sees it.
	place(o client.Object, i int)

	// start starts a provider. It runs until it's stopped, or ctx ends.
	start(ctx context.Context, p provider) (process, error)
}

// A provider has a kind and a reconciler.
type provider struct {
	kind  resource.ManagedKind
	build func(m manager.Manager) reconcile.Reconciler
}

// A process is a provider that runs. Its methods return an error if the context
// ends too early.
type process interface {
	// first waits until each object, newly created, was reconciled for the first
	// time.
	first(ctx context.Context, objs []sample.Instance) error

	// reconcile waits until each object as it now is was reconciled n times more.
	reconcile(ctx context.Context, n int, objs []sample.Instance) error

	// settle waits until the provider has nothing to do with any of the objects
	// before its next poll.
	settle(ctx context.Context, objs []sample.Instance) error

	// stop the provider and wait for its end. Its memory is lost.
	stop() error
}

// maxRounds is how often an object is reconciled at most until it comes to rest.
const maxRounds = 20

// placed names an object. Names have to sort like numbers.
func placed(o client.Object, prefix string, i int) { o.SetName(fmt.Sprintf("%s-%02d", prefix, i+1)) }

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

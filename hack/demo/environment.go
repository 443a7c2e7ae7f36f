package main

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// An environment is where stories are played: an API server, and a way to run a
// provider against it.
type environment interface {
	// describe returns the line about the environment in the table.
	describe() string

	// replicas is how many managed resources go through a story at once.
	replicas() int

	// stories is how many stories are played at once.
	stories() int

	// stage returns what one column of a story needs. The name is part of no
	// other stage's.
	stage(name string, r *recorder) (stage, error)

	// close ends the environment. Nothing of it is left.
	close() error
}

// A stage is the part of an environment that one column of a story has to
// itself.
type stage interface {
	// user returns the client for what users do. It reads what the API server
	// has, and is neither recorded nor counted.
	user() client.Client

	// program returns a client for programs that are not providers. Its writes are recorded.
	program() (client.WithWatch, error)

	// config returns that of an API server for kinds of a story's own.
	config() *rest.Config

	// place gives an object that a user is about to create a name that is free,
	// and what else it takes for the stage's provider to see it.
	place(o client.Object, i int)

	// start starts a provider. It runs until it's stopped, or ctx ends.
	start(ctx context.Context, p provider) (process, error)
}

// A provider is what a stage needs to know of one.
type provider struct {
	kind  resource.ManagedKind
	build func(m manager.Manager) reconcile.Reconciler
}

// A process is a provider that runs. Its methods return an error when the context
// ends before what they wait for has come.
type process interface {
	// first waits until each object, newly created, was reconciled for the first
	// time.
	first(ctx context.Context, objs []sample.Instance) error

	// reconcile waits until each object as it now is was reconciled n times more.
	reconcile(ctx context.Context, n int, objs []sample.Instance) error

	// settle waits until the provider has nothing to do with any of the objects
	// before its next poll.
	settle(ctx context.Context, objs []sample.Instance) error

	// stop the provider and wait for its end. What it had in memory is lost.
	stop() error
}

// maxRounds is how often an object is reconciled at most until it comes to rest.
const maxRounds = 20

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()

	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("cannot set up the scheme: %w", err)
		}
	}

	for _, k := range []string{"App", "XApp"} {
		s.AddKnownTypeWithName(platformKind(k), &unstructured.Unstructured{})
	}
	return s, nil
}

// crds are those of all stories that don't define kinds themselves.
func crds() []*extv1.CustomResourceDefinition { return append(v1alpha1.CRDs(), platformCRDs()...) }

// placed names an object. Names have to sort like numbers.
func placed(o client.Object, prefix string, i int) { o.SetName(fmt.Sprintf("%s-%02d", prefix, i+1)) }

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

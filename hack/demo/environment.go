package main

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// A stage is the API server in memory of one column of a story, in which nothing runs by itself. A
// reconcile takes place when a story waits for it, so that every column is the same.
type stage struct {
	user    client.Client       // Of users. It is neither recorded nor counted.
	program client.WithWatch    // Of programs. Its writes are recorded.
	config  func() *rest.Config // Of an API server for kinds of a story's own.
	manager manager.Manager     // Of the provider.
}

func newStage(rec *recorder) stage {
	server := must(embedded.New(embedded.Options{Scheme: newScheme(), CRDs: crds()}))
	program := interceptor.NewClient(server.Client(), embedded.Intercept(rec.request))
	return stage{
		user: server.Admin(), program: program, config: watchtest.NewAPI().Config, manager: server.ManagerFor(program),
	}
}

// A newProvider returns the reconciler of a provider that runs in a manager.
type newProvider func(m manager.Manager) reconcile.Reconciler

// A running provider reconciles the managed resources of its scene. Its memory is lost with it.
type running struct {
	*scene

	reconciler reconcile.Reconciler
}

// start a provider, which reconciles each managed resource once.
func (s *scene) start(build newReconciler, c managed.ExternalConnector) *running {
	return s.startWith(func(m manager.Manager) reconcile.Reconciler { return build(m, s.kind, c) })
}

func (s *scene) startWith(build newProvider) *running {
	r := &running{s, s.reconciles(build(s.manager))}
	_ = r.reconcile(1)
	return r
}

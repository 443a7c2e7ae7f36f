package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// embeddedStates counts the requests of a steady state, with an API server in memory.
func (o options) embeddedStates(ctx context.Context, t *testing.T, r *results) {
	for _, n := range o.sizes {
		for _, side := range sides() {
			server := newServer(t)
			connector := sample.NewSync[resource.Managed](cloud.New(cloud.Options{}))
			reconciler := newReconciler(side, server.Manager(), v1alpha1.DatabaseManagedKind(), connector, time.Hour)
			var requests []reconcile.Request
			for i := range n {
				d := v1alpha1.NewDatabase(fmt.Sprintf("steady-%d", i))
				must(t, server.Admin().Create(ctx, d))
				must(t, server.Settle(ctx, reconciler, d, 20))
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
			}

			before := counted(server)
			for _, request := range requests {
				_, err := reconciler.Reconcile(ctx, request)
				must(t, err)
			}
			addRequests(r.adder("steady/%d/%s/", n, side), before, counted(server))
		}
	}
}

func newServer(t *testing.T) *embedded.Server {
	s := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(s))
	server, err := embedded.New(embedded.Options{Scheme: s, CRDs: v1alpha1.CRDs()})
	must(t, err)
	return server
}

// counted returns the requests, without reads: with no cache they differ from a provider's.
func counted(server *embedded.Server) tally {
	made := tally{}
	for request, n := range server.Counts() {
		if request.Verb != embedded.VerbGet {
			made.add(strings.TrimSpace(string(request.Verb)+" "+request.Subresource), n)
		}
	}
	return made
}

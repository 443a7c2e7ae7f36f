package main

import (
	"context"
	"fmt"
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
func (o options) embeddedStates(ctx context.Context, r *results) error {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	w := &world{options: o, results: r}

	for _, n := range o.sizes {
		for _, side := range sides() {
			server, err := embedded.New(embedded.Options{Scheme: s, CRDs: v1alpha1.CRDs()})
			if err != nil {
				return err
			}
			connector := sample.NewSync[resource.Managed](cloud.New(cloud.Options{}))
			reconciler := newReconciler(side, server.Manager(), v1alpha1.DatabaseManagedKind(), connector, time.Hour)

			for i := range n {
				d := v1alpha1.NewDatabase(fmt.Sprintf("steady-%d", i))
				if err := server.Admin().Create(ctx, d); err != nil {
					return err
				}
				if err := server.Settle(ctx, reconciler, d, 20); err != nil {
					return err
				}
			}

			before := counted(server.Counts())

			for i := range n {
				request := reconcile.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprintf("steady-%d", i)}}
				if _, err := reconciler.Reconcile(ctx, request); err != nil {
					return err
				}
			}

			w.requests(n, side, before, counted(server.Counts()))
		}
	}
	return nil
}

// counted returns the requests, without reads: with no cache they differ from a provider's.
func counted(c embedded.Counts) spent {
	s := spent{Requests: map[string]int{}}

	for request, n := range c {
		verb := string(request.Verb)
		if request.Subresource != "" {
			verb += " " + request.Subresource
		}

		if request.Verb != embedded.VerbGet {
			s.Requests[verb] += n
		}
	}
	return s
}

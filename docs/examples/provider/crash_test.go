package main

import (
	"errors"
	"testing"

	v1 "example.org/provider/apis/v1"
	"example.org/provider/fakecloud"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// TestCrashes leads the life of a Database with a fault at each step.
func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	crashtest.Run(t, crashtest.Provider[*fakecloud.Cloud]{
		Scheme: scheme,
		Object: orders(),
		Beside: []kube.Object{account(), token()},
		CRDs:   "deploy/crds",
		Cloud:  func() *fakecloud.Cloud { return &fakecloud.Cloud{} },
		Start: func(p *crashtest.Process, c *fakecloud.Cloud) (reconcile.Reconciler, error) {
			r, operations := newReconciler(p.Manager(), newShared(p.Manager()), p.Transport(c))
			return r, p.Watch(operations)
		},
		Change: func(o kube.Object) {
			if db, ok := o.(*v1.Database); ok {
				db.Spec.ForProvider.Size = 5
			}
		},
	}, crashtest.Runs(60)) // More than 2,000 are possible.
}

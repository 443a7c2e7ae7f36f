package main

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// TestCrashes leads the life of a Database with a fault at each step.
func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	orders := &Database{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orders"}}
	orders.Spec.ForProvider.Size = 1

	crashtest.Run(t, crashtest.Provider[*databases]{
		Scheme: scheme,
		Object: orders,
		CRDs:   "deploy",
		Cloud:  func() *databases { return &databases{} },
		Start: func(p *crashtest.Process, c *databases) (reconcile.Reconciler, error) {
			r, operations := newReconciler(p.Manager(), &calls{c, p.Step}, asyncstate.NewMetrics())
			return r, p.Watch(operations)
		},
		Change: func(o kube.Object) {
			if db, ok := o.(*Database); ok {
				db.Spec.ForProvider.Size = 5
			}
		},
	}, crashtest.Points(60)) // More than 2,000 are possible.
}

// databases are the content of a cloud in memory.
type databases struct{ crashtest.Resources[database] }

// calls makes each call of the cloud one step of a life.
type calls struct {
	cloud *databases
	step  func(ctx context.Context, name string, call func() error) error
}

func (c *calls) create(ctx context.Context, d database) (string, error) {
	err := c.step(ctx, "create", func() error {
		d.ID = c.cloud.NewName("db")
		c.cloud.Create(d.ID, d)
		return nil
	})
	return d.ID, err
}

func (c *calls) list(ctx context.Context, owner string) (ds []database, err error) {
	err = c.step(ctx, "list", func() error {
		for _, d := range c.cloud.List() {
			if d.Owner == owner {
				ds = append(ds, d)
			}
		}
		return nil
	})
	return ds, err
}

func (c *calls) get(ctx context.Context, id string) (*database, error) {
	var d database
	var exists bool
	err := c.step(ctx, "get "+id, func() error {
		d, exists = c.cloud.Get(id)
		return nil
	})
	if err != nil || !exists {
		return nil, err
	}
	return &d, nil
}

func (c *calls) update(ctx context.Context, d database) error {
	return c.step(ctx, "update "+d.ID, func() error {
		c.cloud.Update(d.ID, d)
		return nil
	})
}

func (c *calls) delete(ctx context.Context, id string) error {
	return c.step(ctx, "delete "+id, func() error {
		c.cloud.Delete(id)
		return nil
	})
}

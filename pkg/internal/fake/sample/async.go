package sample

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

var (
	_ managed.ExternalConnector                        = &Async[resource.Managed]{}
	_ managed.TypedExternalConnector[*v1alpha1.Bucket] = &Async[*v1alpha1.Bucket]{}
	_ managed.TypedExternalClient[*v1alpha1.Bucket]    = &asyncClient[*v1alpha1.Bucket]{}
)

// TypeLastAsyncOperation is the condition that tells of the last operation's end.
const TypeLastAsyncOperation xpv2.ConditionType = "LastAsyncOperation"

// Reasons of the LastAsyncOperation condition.
const (
	ReasonAsyncSuccess xpv2.ConditionReason = "Success"
	ReasonAsyncFailure xpv2.ConditionReason = "Failure"
)

// An Async connector makes clients in the shape of upjet's asynchronous ones.
// Create and Delete start an operation and return. Its result, for example the
// external name, is in this connector's memory until the next Observe sets it on
// the managed resource and reports it as ResourceLateInitialized. While an
// operation runs, Observe says that the resource exists and is up to date.
//
// It is safe for concurrent use.
type Async[M resource.Managed] struct {
	Calls

	cloud    *cloud.Cloud
	settings settings

	running sync.WaitGroup

	mu        sync.Mutex
	known     map[types.UID]*memory
	scheduled []func(context.Context) error
}

// memory is what the connector remembers of one managed resource.
type memory struct {
	id      string
	running bool
	// ended says that an operation ended that no Observe has reported; err is
	// what it ended with.
	ended bool
	err   error
}

// NewAsync returns an Async connector with an empty memory. M is
// resource.Managed for an ExternalConnector, or *Database or *Bucket for a typed
// one.
func NewAsync[M resource.Managed](c *cloud.Cloud, o ...Option) *Async[M] {
	return &Async[M]{cloud: c, settings: newSettings(o), known: map[types.UID]*memory{}}
}

// Connect logs in to the cloud.
func (c *Async[M]) Connect(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
	session, err := c.settings.connect(ctx, c.cloud, mg)
	if err != nil {
		return nil, err
	}
	return &asyncClient[M]{connector: c, session: session}, nil
}

// Finish runs the pending operations to their ends, oldest first, and returns the
// errors that they ended with, joined. The next Observe learns of the ends too.
func (c *Async[M]) Finish(ctx context.Context) error {
	c.mu.Lock()
	scheduled := c.scheduled
	c.scheduled = nil
	c.mu.Unlock()
	errs := make([]error, 0, len(scheduled))
	for _, run := range scheduled {
		errs = append(errs, run(ctx))
	}
	return errors.Join(errs...)
}

// Wait returns when no operation started by WithBackground runs any more. Nothing
// may be started meanwhile.
func (c *Async[M]) Wait() { c.running.Wait() }

// start an operation unless one runs for this managed resource. The operation
// returns the id of the resource it was about, empty if there is none now.
func (c *Async[M]) start(ctx context.Context, mg M, op func(context.Context) (string, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.known[mg.GetUID()]
	if m == nil {
		m = &memory{}
		c.known[mg.GetUID()] = m
	}

	if m.running {
		return
	}

	// The operation outlives the reconcile that started it.
	ctx = context.WithoutCancel(ctx)
	m.running = true

	run := func(ctx context.Context) error {
		id, err := op(ctx)
		c.mu.Lock()
		m.running, m.ended, m.err = false, true, err
		if id != "" {
			m.id = id
		}
		c.mu.Unlock()
		return err
	}

	if !c.settings.background {
		c.scheduled = append(c.scheduled, run)
		return
	}

	// Its error is in the memory for Observe.
	c.running.Go(func() { _ = run(ctx) })
}

// recall returns what is known of a managed resource, and forgets that an
// operation ended.
func (c *Async[M]) recall(uid types.UID) memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.known[uid]
	if m == nil {
		return memory{}
	}
	out := *m
	m.ended, m.err = false, nil
	return out
}

// forget a managed resource whose external resource is gone.
func (c *Async[M]) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, uid)
}

type asyncClient[M resource.Managed] struct {
	connector *Async[M]
	session   cloud.Client
}

func (c *asyncClient[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	m := c.connector.recall(i.GetUID())
	if m.running {
		return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
	}
	if m.ended {
		i.SetConditions(lastAsyncOperation(m.err))
	}
	id := m.id
	if id == "" {
		id = meta.GetExternalName(i)
	}

	if id == "" {
		return managed.ExternalObservation{}, nil
	}
	r, err := c.session.Get(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		// A new resource may be hidden for a while. What is known of it stays in
		// memory until its managed resource is deleted.
		if meta.WasDeleted(i) {
			c.connector.forget(i.GetUID())
		}
		return managed.ExternalObservation{}, nil
	}

	if err != nil {
		return managed.ExternalObservation{}, fmt.Errorf("cannot get the resource: %w", err)
	}
	out := observed(i, r)

	if meta.GetExternalName(i) != r.ID {
		meta.SetExternalName(i, r.ID)

		// There is no better way to have an annotation stored.
		out.ResourceLateInitialized = true
	}
	return out, nil
}

func (c *asyncClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	req := c.connector.settings.createRequest(i)

	c.connector.start(ctx, mg, func(ctx context.Context) (string, error) {
		r, err := c.session.Create(ctx, req)
		if err != nil {
			return "", fmt.Errorf("cannot create the resource: %w", err)
		}
		return r.ID, nil
	})
	return managed.ExternalCreation{}, nil
}

func (c *asyncClient[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalUpdate{}, err
	}
	id, props := meta.GetExternalName(i), properties(i)

	c.connector.start(ctx, mg, func(ctx context.Context) (string, error) {
		if _, err := c.session.Update(ctx, id, props); err != nil {
			return "", fmt.Errorf("cannot update the resource: %w", err)
		}
		return "", nil
	})
	return managed.ExternalUpdate{}, nil
}

func (c *asyncClient[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	i, err := instance(mg)
	if err != nil {
		return managed.ExternalDelete{}, err
	}
	i.SetConditions(xpv2.Deleting())
	id := meta.GetExternalName(i)

	c.connector.start(ctx, mg, func(ctx context.Context) (string, error) {
		if err := ignoreNotFound(c.session.Delete(ctx, id)); err != nil {
			return "", fmt.Errorf("cannot delete the resource: %w", err)
		}
		return "", nil
	})
	return managed.ExternalDelete{}, nil
}

func (c *asyncClient[M]) Disconnect(context.Context) error {
	c.connector.disconnects.Add(1)
	return nil
}

func lastAsyncOperation(err error) xpv2.Condition {
	out := xpv2.Condition{
		Type:               TypeLastAsyncOperation,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(),
		Reason:             ReasonAsyncSuccess,
	}

	if err != nil {
		out.Status, out.Reason, out.Message = corev1.ConditionFalse, ReasonAsyncFailure, err.Error()
	}
	return out
}

package asyncstate

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Connector returns a connector whose external clients have operations that outlive the
// reconciles that begin them. c connects to the clients themselves. By default Create, Update and
// Delete are called in the background, each with a copy of the managed resource, and at most one
// at a time for an object. The annotations that they set on that copy are stored with their
// result; connection details that they return are published by a later reconcile, from memory, so
// a crash in between loses them.
//
// While an operation of an object runs, c does not connect for the object and the external
// resource is not observed: Observe returns that it exists and is up to date, and its
// conditions stay.
//
// Disconnect is called once for each client that was connected: when the operation that was
// begun with it has ended, or when the reconcile has, if none was begun.
//
// Connector panics if c or t is nil. Under Graft's package managed use its WithAsync instead,
// which does more.
func Connector(c managed.ExternalConnector, t *Tracker) managed.ExternalConnector {
	return TypedConnector(c, t)
}

// TypedConnector is Connector for a connector of one type of managed resource.
func TypedConnector[M resource.Managed](
	c managed.TypedExternalConnector[M], t *Tracker,
) managed.TypedExternalConnector[M] {
	mustHave(c, "Connector", "the connector of the provider")
	mustHave(t, "Connector", "the tracker of the controller")
	return &asyncConnector[M]{inner: c, tracker: t}
}

// An asyncConnector makes external clients whose operations outlive reconciles.
type asyncConnector[M resource.Managed] struct {
	inner   managed.TypedExternalConnector[M]
	tracker *Tracker
}

// Connect to the provider, unless an operation runs: it may share the client's state.
func (c *asyncConnector[M]) Connect(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
	c.tracker.objects.Claim(mg)
	if op := c.tracker.operations.get(mg.GetUID()); op != nil && !op.storedIn(mg) {
		return newAsyncClient[M](c.tracker, nil), nil
	}
	ec, err := c.inner.Connect(ctx, mg)
	if err != nil {
		return nil, err
	}
	if is.Nil(ec) {
		return nil, errors.New("the external connector returned neither a client nor an error")
	}
	if err := checkSignatures(ec); err != nil {
		_ = ec.Disconnect(ctx)
		return nil, err
	}
	return newAsyncClient(c.tracker, ec), nil
}

// RunsUntil returns the operation of this process on the external resource of o, or the zero Run. It may have
// ended, if its result is not stored yet.
func (c *asyncConnector[M]) RunsUntil(o client.Object) creation.Run {
	op := c.tracker.operations.get(o.GetUID())
	if op == nil {
		return creation.Run{}
	}
	r := op.stored.snapshot()
	return creation.Run{
		Type:   r.Type,
		Until:  creation.Later(r.Deadline.Time, creation.EndGrace),
		Reason: "see the " + string(TypeOperation) + " condition",
	}
}

// Seam returns the patch of the tracker at the client seam, for Graft's package managed:
//
//   - The record of a create is stored together with upstream's announcement of it, so that
//     there is never one without the other.
//   - Synced is not True while an operation that failed stands.
//
// grace is the reconciler's creation grace period. resolveUnrecorded means that the tracker
// also resolves creates that have no record. It panics if another reconciler uses the tracker.
func (c *asyncConnector[M]) Seam(grace time.Duration, resolveUnrecorded bool) seam.Patch {
	t := c.tracker
	if t.used.Swap(true) {
		panic(errors.New("another reconciler uses this tracker of operations: create one with asyncstate.NewTracker for each controller"))
	}
	t.config.gracePeriod, t.config.resolveUnrecorded = grace, resolveUnrecorded
	return clientPatch{t}.seam()
}

package managed

import (
	"context"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// events drops upstream's events about calls that were skipped.
type events struct {
	external

	dropped *droppedEvents
}

func newEvents(p parts, next external) layer {
	return layer{external: &events{external: next, dropped: p.dropped}}
}

// Update the external resource.
func (e *events) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	u, err := e.external.Update(ctx, c)
	if isStale(err) {
		e.dropped.drop(c.mg, reasonCannotUpdate)
	}
	return u, err
}

// Delete the external resource. Upstream calls Delete in each reconcile while an asynchronous
// deletion is in progress, and after it has failed.
func (e *events) Delete(ctx context.Context, c *call) (deleteResult, error) {
	record := createOf(c.mg).Record
	o, err := e.external.Delete(ctx, c)
	started := o.State != seam.InProgress || o.Reason != reconciler.ReasonWaitingForExternalResource &&
		(record == nil || record.Type != creation.Delete)

	switch {
	case isStale(err):
		e.dropped.drop(c.mg, reasonCannotDelete)
	case err == nil && !started:
		e.dropped.drop(c.mg, reasonDeleted)
	}
	return o, err
}

func isStale(err error) bool {
	var stale *staleError
	return errors.As(err, &stale)
}

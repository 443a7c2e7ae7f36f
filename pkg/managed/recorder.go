package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// Reasons of events of upstream's.
const (
	reasonPending       event.Reason = "PendingExternalResource"
	reasonCannotConnect event.Reason = "CannotConnectToProvider"
	reasonCannotObserve event.Reason = "CannotObserveExternalResource"
	reasonCannotCreate  event.Reason = "CannotCreateExternalResource"
	reasonCannotUpdate  event.Reason = "CannotUpdateExternalResource"
	reasonCannotDelete  event.Reason = "CannotDeleteExternalResource"
	reasonDeleted       event.Reason = "DeletedExternalResource"
)

// events drops upstream's events about calls that were skipped.
type events struct {
	external

	dropped *droppedEvents
}

func newEvents(p parts, next external) layer {
	return layer{external: &events{external: next, dropped: p.dropped}}
}

// droppedEvents holds the reason of the next event to drop for each managed resource.
type droppedEvents struct {
	store *store.Store
	next  store.Key[event.Reason]
}

func (d *droppedEvents) drop(mg resource.Managed, r event.Reason) {
	d.next.Update(d.store, mg, func(v *event.Reason) { *v = r })
}

// dropped reports whether to drop this event.
func (d *droppedEvents) dropped(o runtime.Object, r event.Reason) bool {
	mg, ok := o.(resource.Managed)
	if !ok || d.next.Get(d.store, mg) != r {
		return false
	}
	d.next.Delete(d.store, mg)
	return true
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

// An upstreamRecorder records upstream's events, except those that are dropped.
type upstreamRecorder struct {
	event.Recorder

	events *droppedEvents
}

// Event records an event.
func (r *upstreamRecorder) Event(o runtime.Object, e event.Event) {
	if !r.events.dropped(o, e.Reason) {
		r.Recorder.Event(o, e)
	}
}

// WithAnnotations returns a recorder of events with annotations.
func (r *upstreamRecorder) WithAnnotations(keysAndValues ...string) event.Recorder {
	return &upstreamRecorder{Recorder: r.Recorder.WithAnnotations(keysAndValues...), events: r.events}
}

package managed

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/crossplane-graft/graft/pkg/internal/store"
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

	reasonCannotUpdateManaged event.Reason = "CannotUpdateManagedResource"
)

// droppedEvents holds the reason of the next event to drop for each managed resource.
type droppedEvents struct {
	store *store.Store
	next  store.Key[event.Reason]
}

func (d *droppedEvents) drop(mg resource.Managed, r event.Reason) {
	d.next.Update(d.store, mg, func(v *event.Reason) { *v = r })
}

// take reports whether to drop this event, and forgets it.
func (d *droppedEvents) take(o runtime.Object, r event.Reason) bool {
	mg, ok := o.(resource.Managed)
	if !ok || d.next.Get(d.store, mg) != r {
		return false
	}
	d.next.Delete(d.store, mg)
	return true
}

// An upstreamRecorder records upstream's events, except those that are dropped.
type upstreamRecorder struct {
	event.Recorder

	events *droppedEvents
}

// Event records an event.
func (r *upstreamRecorder) Event(o runtime.Object, e event.Event) {
	if !r.events.take(o, e.Reason) {
		r.Recorder.Event(o, e)
	}
}

// WithAnnotations returns a recorder of events with annotations.
func (r *upstreamRecorder) WithAnnotations(keysAndValues ...string) event.Recorder {
	return &upstreamRecorder{Recorder: r.Recorder.WithAnnotations(keysAndValues...), events: r.events}
}

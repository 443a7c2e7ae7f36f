package managed

import (
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// reasonDeleted is upstream's.
const reasonDeleted event.Reason = "DeletedExternalResource"

// An upstreamRecorder records upstream's events, but for those that are not true since
// upstream doesn't know what its calls led to.
type upstreamRecorder struct {
	event.Recorder
}

// Event records an event.
func (r *upstreamRecorder) Event(o runtime.Object, e event.Event) {
	switch {
	case e.Type == event.TypeWarning && strings.Contains(e.Message, messageLeftAlone):
		// Nothing was tried, and the reconcile runs again.
	case e.Reason == reasonDeleted && deletionRefused(o):
		// Another operation has begun after one that was refused.
	default:
		r.Recorder.Event(o, e)
	}
}

// WithAnnotations returns a recorder of events with annotations.
func (r *upstreamRecorder) WithAnnotations(keysAndValues ...string) event.Recorder {
	return &upstreamRecorder{Recorder: r.Recorder.WithAnnotations(keysAndValues...)}
}

// deletionRefused reports whether the last asynchronous deletion failed.
func deletionRefused(o runtime.Object) bool {
	mg, ok := o.(resource.Managed)
	return ok && recorded(mg) && deletingCondition(mg).Reason == reconciler.ReasonExternalDeleteFailed
}

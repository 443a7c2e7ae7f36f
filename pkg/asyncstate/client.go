package asyncstate

import (
	"context"
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// pollInterval is how soon an object is reconciled again while its operation runs or waits, if
// no controller watches the tracker's source.
const pollInterval = 10 * time.Second

// An asyncClient is the external client of one reconcile, whose operations outlive it.
type asyncClient struct {
	// ExternalClient is the provider's, with the optional methods that it has. It is nil if an operation ran at Connect.
	upstream.ExternalClient
	optional

	tracker *Tracker

	// release releases the permit of the object for this reconcile. It is nil if there is none.
	release func()

	// startOperation starts the goroutine of the operation when the reconcile has ended.
	startOperation func()

	// outcome of the last call.
	outcome seam.Outcome

	// undeletable says why the external resource cannot be deleted yet although no operation
	// runs.
	undeletable string
}

// acquire a permit for the object, or report that the object waits for one. Create, Update and
// Delete of this reconcile use the permit, also if the object is deleted in between.
func (e *asyncClient) acquire(ctx context.Context, mg resource.Managed) bool {
	t := e.tracker

	// During a shutdown no operation can begin, so none may be recorded.
	if e.release == nil && t.shutdown.stopping.Err() == nil {
		e.release = t.semaphores.acquire(ctx, mg)
	}
	if e.release != nil {
		return true
	}
	setOperation(mg, corev1.ConditionFalse, ReasonQueued, messageQueued)
	e.poll(ctx)
	return false
}

// poll reconciles the object again soon if no controller watches the tracker's source.
func (e *asyncClient) poll(ctx context.Context) {
	if !e.tracker.queues.any() {
		seam.From(ctx).Requeue(seam.Within(pollInterval))
	}
}

// observeRunning returns the observation while an operation runs: upstream must begin nothing.
func (e *asyncClient) observeRunning(
	ctx context.Context, mg resource.Managed, op *operation,
) upstream.ExternalObservation {
	s, _ := op.status()
	e.outcome.State = seam.InProgress
	e.poll(ctx)
	e.reportRunning(ctx, mg, s)
	if s.Type == Create && !meta.WasDeleted(mg) {
		mg.SetConditions(xpv2.Creating())
	}
	return upstream.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}
}

// reportRunning reports that an operation runs. A short update is not worth two writes of status.
func (e *asyncClient) reportRunning(ctx context.Context, mg resource.Managed, s Status) {
	quiet := reportInterval - time.Since(s.Started)
	if s.Type != Update || quiet <= 0 || meta.WasDeleted(mg) {
		setRunning(mg, s)
		return
	}
	seam.From(ctx).Requeue(seam.Within(quiet))
}

// reportDeleting reports message as the cause that delays the deletion of the object.
func (e *asyncClient) reportDeleting(ctx context.Context, message string) {
	e.poll(ctx)
	e.outcome = seam.Outcome{
		State:   seam.InProgress,
		Reason:  deletion.ReasonWaitingForAsyncOperation,
		Message: message,
	}
}

// postpone an operation: for wait, unless that is 0, or until there is a permit. Upstream begins nothing after an
// external resource that exists and is up to date.
func (e *asyncClient) postpone(ctx context.Context, o *upstream.ExternalObservation, wait time.Duration) {
	if wait > 0 {
		seam.From(ctx).Requeue(seam.Within(wait))
	}
	if !o.ResourceExists {
		e.outcome.State = seam.Waiting
	}
	o.ResourceExists, o.ResourceUpToDate = true, true
}

// withDetails adds connection details that were returned by an operation.
func (e *asyncClient) withDetails(mg resource.Managed, o upstream.ExternalObservation) upstream.ExternalObservation {
	served := e.tracker.objects.serveDetails(mg)
	if len(served) == 0 {
		return o
	}

	// The client may return the same map for all of its objects.
	all := maps.Clone(served)
	maps.Copy(all, o.ConnectionDetails)
	o.ConnectionDetails = all
	return o
}

// stop the reconcile with a condition that has the text of err, and reconcile again after a
// while.
func (e *asyncClient) stop(
	ctx context.Context, mg resource.Managed, reason xpv2.ConditionReason, again time.Duration, err error,
) error {
	t, message := e.tracker, err.Error()
	had := mg.GetCondition(TypeOperation)
	if had.Reason == ReasonOutcomeUnknown && had.Message == message {
		// An earlier process has waited longer than this one.
		reason = ReasonOutcomeUnknown
	}

	if had.Reason != reason || had.Message != message {
		switch reason {
		case ReasonRecordUnusable:
			t.config.events.warn(mg, reasonRecordUnusable, err)
		case ReasonOutcomeUnknown:
			t.config.events.warn(mg, reasonOutcomeUnknown, err)
			t.config.metrics.observeResolution(Create, interruptedUnknown)
		}
	}

	setOperation(mg, corev1.ConditionFalse, reason, message)
	if meta.WasDeleted(mg) {
		e.outcome.Reason, e.outcome.Message = deletion.ReasonCreateResultUnknown, message
	}

	s := seam.From(ctx)
	t.reconciles.In(s).stopped = err
	s.Requeue(seam.InsteadOfBackoff(again))
	return err
}

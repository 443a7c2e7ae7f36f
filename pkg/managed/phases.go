package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithoutDeletionStatus leaves the status of a managed resource that is being deleted to
// upstream. Upstream does not write it in every phase, and sets no Deleting condition.
func WithoutDeletionStatus() ReconcilerOption {
	return func(r *Reconciler) {
		r.config.reports = false
	}
}

// A phase is the last step that the reconcile of a managed resource that is being deleted has
// reached.
type phase int

const (
	phaseStart phase = iota
	phaseInitializeFailed
	phaseInitialized
	phaseConnectFailed
	phaseObserveFailed
	phaseObservedAbsent
	phaseObservedPresent
	phaseDeleteFailed
	phaseDeleteRequested
	phaseFinalizerRemoved
)

// progress is the progress of a deletion in one reconcile.
type progress struct {
	phase phase

	// outcome is the outcome of the last call. Its reason, if any, takes precedence over the
	// phase.
	outcome seam.Outcome

	// observed reports whether Observe of the provider succeeded.
	observed bool

	// reported is the reason of the Deleting condition when the managed resource
	// was first read.
	reported xpv2.ConditionReason
}

// reports has the layers that change reports.
type reports struct{ layers []layer.Layer }

// phases reports that a managed resource is being deleted, and the reason why it still exists:
//
//   - before upstream's reconciler runs, if the API server does not have the report yet;
//   - with every status write of upstream's reconciler;
//   - after upstream's reconciler has returned, if it wrote no status, or the API server
//     refused the write.
//
// Messages hold no times and no texts of errors, so that an unchanged situation is written
// once. Errors are in the Synced condition.
//
// Ready has the report, too, but is left to another writer that has changed it since, until the
// reason is another one.
type phases struct {
	layer.External

	log      logging.Logger
	recorder event.Recorder

	// own is the finalizer of the reconciler, or empty if its name is unknown.
	own string

	reports *reports

	slot seam.Slot[progress]
}

func (r *reports) newPhases(p layer.Parts, next layer.External) layer.Layer {
	ph := &phases{
		External: next,
		log:      p.Log,
		recorder: p.Recorder,
		own:      p.Settings.Finalizer,
		reports:  r,
	}
	return layer.Layer{
		External: ph,
		Initializer: func(next Initializer) Initializer {
			return upstream.InitializerFn(func(ctx context.Context, mg resource.Managed) error {
				return ph.initialize(ctx, next, mg)
			})
		},
		Finalizer: func(next resource.Finalizer) resource.Finalizer {
			return &phasedFinalizer{
				Finalizer: next,
				phases:    ph,
			}
		},
		Patch: seam.Patch{
			Open: ph.open, Status: ph.status, Close: ph.close, Postponed: ph.postponed, Refused: ph.refused,
			Conditions: []xpv2.ConditionType{deletion.Type},
			Restored:   []xpv2.ConditionType{deletion.Type},
		},
	}
}

func (p *phases) initialize(ctx context.Context, next Initializer, mg resource.Managed) error {
	err := next.Initialize(ctx, mg)
	switch {
	case err != nil:
		p.slot.In(seam.From(ctx)).failed(phaseInitializeFailed, err)
	case meta.WasDeleted(mg):
		p.slot.In(seam.From(ctx)).phase = phaseInitialized
	}
	return err
}

// Connect to the provider.
func (p *phases) Connect(ctx context.Context, c *layer.Call) error {
	err := p.External.Connect(ctx, c)
	if err != nil {
		at := p.slot.In(c.Session)
		at.failed(phaseConnectFailed, err)
		if seam.IsTerminating(err) {
			at.outcome = seam.Outcome{Reason: deletion.ReasonNamespaceTerminating, Message: deletion.MessageTerminating}
		}
	}
	return err
}

// Observe the external resource.
func (p *phases) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := p.External.Observe(ctx, c)
	if err == nil && !meta.WasDeleted(c.Managed) {
		return o, nil
	}
	at := p.slot.In(c.Session)
	at.outcome = o.Outcome

	switch {
	case err != nil:
		at.failed(phaseObserveFailed, err)
	case o.ResourceExists:
		at.phase = phaseObservedPresent
	default:
		at.phase = phaseObservedAbsent
	}
	at.observed = o.State == seam.Done && (err == nil || kerrors.IsConflict(err) &&
		at.outcome.Reason == deletion.ReasonConfirmingAbsence)
	return o, err
}

// Delete the external resource.
func (p *phases) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	at := p.slot.In(c.Session)
	o, err := p.External.Delete(ctx, c)
	switch {
	case err == nil:
		at.phase, at.outcome = phaseDeleteRequested, o.Outcome
	case o.State != seam.Untried:
		at.phase, at.outcome = phaseDeleteFailed, o.Outcome
	}
	return o, err
}

// phasedFinalizer records in the progress that the finalizer was removed.
type phasedFinalizer struct {
	resource.Finalizer

	phases *phases
}

// RemoveFinalizer from the managed resource.
func (f *phasedFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	at := f.phases.slot.In(seam.From(ctx))
	err := f.Finalizer.RemoveFinalizer(ctx, o)

	switch {
	case err == nil:
		at.phase = phaseFinalizerRemoved
	case kerrors.IsConflict(err):
		at.failed(phaseStart, err)
		at.phase = phaseStart
	}
	return err
}

// failed records the phase in which a reconcile failed, and the reason of a Hold. Upstream reconciles again after a
// conflict, without a report.
func (at *progress) failed(p phase, err error) {
	if !kerrors.IsConflict(err) {
		at.phase = p
	}
	if hold := layer.HoldOf(err); hold != nil {
		at.outcome.Reason, at.outcome.Message = hold.Reason, hold.Message
	}
}

func (p *phases) open(ctx context.Context, s *seam.Session, o client.Object) error {
	if err := s.Withdraw(ctx, o, p.failed, deletion.NotDeleting(s.Now())); err != nil || !meta.WasDeleted(o) {
		return err
	}
	at := p.slot.In(s)

	want := func(server client.Object) []xpv2.Condition {
		c := deletion.ConditionOf(server)
		mg, ok := server.(resource.Managed)
		unpaused := ok && c.Reason == deletion.ReasonBlockedByPause && len(mg.GetManagementPolicies()) > 0

		if c.Status != corev1.ConditionTrue || unpaused {
			reason, message := p.initial(server)
			for _, l := range p.reports.layers {
				// As in each report: two messages would replace each other in each reconcile.
				if l.Explain != nil {
					message = l.Explain(s.Now(), message, server)
				}
			}
			return conditions(server, deletion.Conditions(s.Now(), reason, message))
		}
		return nil
	}

	if err := s.Announce(ctx, o, p.failed, want); err != nil {
		return err
	}
	at.reported = deletion.ConditionOf(o).Reason
	return nil
}

func (p *phases) status(_ context.Context, s *seam.Session, o client.Object) {
	if !meta.WasDeleted(o) {
		return
	}
	s.SetConditions(o, p.deleting(s, s.Base(), o)...)
}

func (p *phases) close(ctx context.Context, s *seam.Session) error {
	o, at := s.Base(), p.slot.Find(s)
	refused := s.StatusRefused() && !s.Unannounced()

	switch {
	case !meta.WasDeleted(o), at == nil, !refused && (s.StatusWritten() || at.phase < phaseObservedAbsent &&
		at.outcome.Reason == ""):
		return nil
	case at.phase == phaseFinalizerRemoved && len(o.GetFinalizers()) == 0:
		return nil
	}

	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		return append(p.deleting(s, server, server), synced(s, at, server)...)
	})
	if seam.Permanent(err) {
		p.failed(o, err)
		return nil
	}
	return errors.Wrap(err, "cannot report deletion")
}

// postponed returns the conditions of a deletion whose operation has ended. The OperationRunning
// condition is replaced in the same write, if an earlier reconcile has not done that.
func (p *phases) postponed(s *seam.Session, server client.Object) []xpv2.Condition {
	r := creation.Last(server).Record
	if !meta.WasDeleted(server) || r != nil && r.Phase != creation.RecordFailed ||
		deletion.ConditionOf(server).Reason != deletion.ReasonWaitingForAsyncOperation ||
		seam.ConditionOf(server, deletion.TypeOperation).Reason == deletion.ReasonQueued {
		return nil
	}
	if r != nil && r.Type == creation.Delete {
		p.slot.In(s).phase = phaseDeleteFailed
	}
	return p.deleting(s, server, server)
}

// synced returns a new Synced condition if the API server's condition has an obsolete error:
// the external resource was observed, but upstream wrote no status because it waits. The error
// of an asynchronous operation stays until another operation has succeeded.
func synced(s *seam.Session, at *progress, server client.Object) []xpv2.Condition {
	if !at.observed || s.StatusWritten() || creation.Last(server).Record.HasFailed() ||
		seam.ConditionOf(server, xpv2.TypeSynced).Status != corev1.ConditionFalse {
		return nil
	}
	c := xpv2.ReconcileSuccess()
	c.LastTransitionTime = metav1.NewTime(s.Now())
	return []xpv2.Condition{c}
}

// deleting returns the conditions with the reason why o still exists.
func (p *phases) deleting(s *seam.Session, server, o client.Object) []xpv2.Condition {
	reason, message := p.report(s, o)
	for _, l := range p.reports.layers {
		reason, message = l.Report(s, o, reason, message)
	}
	return conditions(server, deletion.Conditions(s.Now(), reason, message))
}

// conditions returns Ready and Deleting. Ready is the one that server has if another writer has changed it since the
// reason was reported: the two would replace each other's in each reconcile.
func conditions(server client.Object, cs []xpv2.Condition) []xpv2.Condition {
	ready := seam.ConditionOf(server, xpv2.TypeReady).WithObservedGeneration(0)
	reported := deletion.ConditionOf(server)
	if reported.Status == corev1.ConditionTrue && reported.Reason == cs[1].Reason && ready.Reason != "" &&
		!ready.Equal(xpv2.Deleting().WithMessage(reported.Message)) {
		cs[0] = ready
	}
	return cs
}

// refused reports that a status write was made without the Deleting condition.
func (p *phases) refused(s *seam.Session, o client.Object, err error) {
	if meta.WasDeleted(o) && !s.Unannounced() {
		p.failed(o, err)
	}
}

func (p *phases) failed(o client.Object, err error) {
	deletion.CannotReport(p.log, p.recorder, o, err)
}

// deleteRequest reports that the external resource is being deleted right before the call
// that deletes it, which may take long.
type deleteRequest struct {
	layer.External

	log      logging.Logger
	recorder event.Recorder
}

func newDeleteRequest(p layer.Parts, next layer.External) layer.Layer {
	return layer.Layer{External: &deleteRequest{External: next, log: p.Log, recorder: p.Recorder}}
}

// Delete the external resource.
func (e *deleteRequest) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	// The freshness layer skips the Delete of a managed resource that has changed.
	if !c.Tracks(c.Managed) || c.Moved(c.Managed) {
		return e.External.Delete(ctx, c)
	}
	want := func(server client.Object) []xpv2.Condition {
		switch deletion.ConditionOf(server).Reason {
		case deletion.ReasonExternalDeleteRequested, deletion.ReasonExternalDeleteFailed,
			deletion.ReasonWaitingForExternalResource,
			deletion.ReasonWaitingForAsyncOperation,
			deletion.ReasonDeadlineExceeded, deletion.ReasonForceOrphaned:
			return nil
		}

		return conditions(server, deletion.Conditions(
			c.Now(), deletion.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested,
		))
	}

	if err := c.WriteConditions(ctx, c.Managed, want); err != nil {
		deletion.CannotReport(e.log, e.recorder, c.Managed, err)
	}
	return e.External.Delete(ctx, c)
}

// initial returns the reason why o still exists before the reconcile has done anything.
func (p *phases) initial(o client.Object) (xpv2.ConditionReason, string) {
	if meta.IsPaused(o) {
		return deletion.ReasonBlockedByPause, deletion.MessageManagedPaused
	}
	if others := p.otherFinalizers(o); len(others) > 0 {
		return p.waiting(others)
	}
	return deletion.ReasonDeletionRequested, deletion.MessageRequested
}

func (p *phases) waiting(others []string) (xpv2.ConditionReason, string) {
	message := deletion.MessageWaitingForFinalizers
	if p.own == "" {
		message = deletion.MessageSomeFinalizer
	}
	return deletion.ReasonWaitingForFinalizers, message + deletion.Names(others)
}

// report returns the reason why o still exists at the current phase of the reconcile.
func (p *phases) report(s *seam.Session, o client.Object) (xpv2.ConditionReason, string) {
	at := p.slot.In(s)
	if at.outcome.Reason != "" {
		return at.outcome.Reason, at.outcome.Message
	}
	if at.phase == phaseStart && seam.ConditionOf(o, xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused {
		return deletion.ReasonBlockedByPause, deletion.MessageManagedPaused
	}
	switch at.phase {
	case phaseInitializeFailed:
		return deletion.ReasonInitializeFailed, deletion.MessageInitializeFailed
	case phaseConnectFailed:
		return deletion.ReasonConnectFailed, deletion.MessageConnectFailed
	case phaseObserveFailed:
		return deletion.ReasonObserveFailed, deletion.MessageObserveFailed
	case phaseObservedPresent, phaseObservedAbsent:
		return p.observed(s, o, at.phase == phaseObservedAbsent)
	case phaseDeleteFailed:
		return deletion.ReasonExternalDeleteFailed, deletion.MessageDeleteFailed
	case phaseDeleteRequested:
		if at.reported == deletion.ReasonExternalDeleteRequested ||
			at.reported == deletion.ReasonWaitingForExternalResource {
			return deletion.ReasonWaitingForExternalResource, deletion.MessageStillExists
		}
		return deletion.ReasonExternalDeleteRequested, deletion.MessageDeleteRequested
	case phaseFinalizerRemoved:
		return deletion.ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers +
			deletion.Names(o.GetFinalizers())
	case phaseInitialized:
		if creation.Last(o).Incomplete() {
			return deletion.ReasonCreateResultUnknown, deletion.MessageCreateUnknown
		}
	case phaseStart:
		if seam.ConditionOf(o, xpv2.TypeSynced).Status != corev1.ConditionFalse {
			// The managed resource was deleted during the reconcile.
			return p.initial(o)
		}
	}
	return deletion.ReasonReconcileFailed, deletion.MessageReconcileFailed
}

// observed returns the reason why o still exists if the external resource was observed, but
// upstream did not delete it. If upstream wrote no status either, it waits for other
// finalizers to be removed.
func (p *phases) observed(s *seam.Session, o client.Object, absent bool) (xpv2.ConditionReason, string) {
	others := p.otherFinalizers(o)

	switch {
	case s.StatusWritten() && seam.ConditionOf(o, xpv2.TypeSynced).Status != corev1.ConditionFalse:
		// The managed resource was deleted during the reconcile.
		return p.initial(o)
	case s.StatusWritten() && absent:
		return deletion.ReasonReconcileFailed, deletion.MessageCleanupFailed
	case s.StatusWritten():
		return deletion.ReasonReconcileFailed, deletion.MessageReconcileFailed
	case len(others) > 0:
		return p.waiting(others)
	case absent:
		return deletion.ReasonConfirmingAbsence, deletion.MessageGracePeriod
	default:
		return p.initial(o)
	}
}

// otherFinalizers returns the finalizers that upstream may wait for: all except the
// reconciler's own, if there is more than one.
func (p *phases) otherFinalizers(o client.Object) []string {
	if len(o.GetFinalizers()) < 2 {
		return nil
	}
	return deletion.OtherFinalizers(o, p.own)
}

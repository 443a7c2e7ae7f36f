package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A clientPatch changes the writes of a reconcile.
type clientPatch struct{ tracker *Tracker }

func (p clientPatch) seam() seam.Patch {
	return seam.Patch{
		Write:      p.announce,
		Status:     p.correctConditions,
		Close:      p.close,
		Postponed:  p.postponed,
		Conditions: []xpv2.ConditionType{TypeOperation},
		Gone:       func(s *seam.Session) { p.tracker.objects.Forget(s.Key()) },
	}
}

// announce records a create together with upstream's announcement of it.
func (p clientPatch) announce(_ context.Context, s *seam.Session, o client.Object) {
	if !creation.NewlyAnnounced(o, s.Base()) {
		return
	}

	// Observe reports a record that cannot be used.
	if had, err := creation.RecordOf(o); err == nil {
		creation.On(o).WithRecord(p.tracker.records.next(o, Create, had)).Apply(o)
	}
}

// correctConditions corrects the conditions about operations. Upstream may have returned before
// it called Observe.
func (p clientPatch) correctConditions(_ context.Context, s *seam.Session, o client.Object) {
	mg, ok := o.(resource.Managed)
	if !ok {
		return
	}
	t := p.tracker
	synced := mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionTrue
	if synced {
		t.objects.detailsPublished(mg)
	}

	end := reconcileEnd{}
	if found := t.reconciles.Find(s); found != nil {
		end = *found
	}
	if end.stopped != nil {
		// Upstream reports that Observe failed, but Graft stopped at an interrupted create.
		s.SetConditions(o, xpv2.ReconcileError(end.stopped))
	}

	r, err := creation.RecordOf(o)
	if err != nil {
		return
	}
	if r != nil && r.Error != "" && (synced || end.failed) {
		p.reportFailure(s, mg, r)
	}
	p.correctOperation(mg, r)
}

// close corrects the condition of an operation that has ended if upstream wrote no status.
func (p clientPatch) close(ctx context.Context, s *seam.Session) error {
	if s.StatusWritten() || !p.conditionStale(s.Base()) {
		return nil
	}
	if err := s.WriteConditions(ctx, nil, p.ended); err != nil && !seam.Permanent(err) {
		return errors.Wrap(err, "cannot report the end of an operation")
	}
	return nil
}

// ended returns the condition of an operation that has ended, in place of one that says that it runs.
func (p clientPatch) ended(server client.Object) []xpv2.Condition {
	r, err := creation.RecordOf(server)
	if err != nil || !p.conditionStale(server) {
		return nil // Observe reports a record that cannot be used.
	}
	mg, ok := server.DeepCopyObject().(resource.Managed)
	if !ok {
		return nil
	}
	p.correctOperation(mg, r)
	return []xpv2.Condition{mg.GetCondition(TypeOperation)}
}

// postponed returns conditions about an operation that has ended: a reconcile of its object may be
// postponed for hours. A reconcile during which it ended may have corrected only OperationRunning.
func (p clientPatch) postponed(s *seam.Session, server client.Object) []xpv2.Condition {
	r, err := creation.RecordOf(server)
	if err != nil || p.tracker.operation(server.GetUID()) != nil {
		return nil
	}
	cs := p.ended(server)
	if r == nil || r.Error == "" ||
		cs == nil && seam.ConditionOf(server, xpv2.TypeSynced).Status != corev1.ConditionTrue {
		return cs // Most reconciles that are postponed need no copy.
	}
	if mg, ok := server.DeepCopyObject().(resource.Managed); ok {
		p.reportFailure(s, mg, r)
		cs = append(cs, mg.GetCondition(xpv2.TypeSynced))
	}
	return cs
}

// conditionStale reports whether the condition of o says that an operation runs, and none does.
func (p clientPatch) conditionStale(o client.Object) bool {
	return seam.ConditionOf(o, TypeOperation).Status == corev1.ConditionTrue &&
		p.tracker.operation(o.GetUID()) == nil
}

// correctOperation corrects the condition of an operation that has ended. r is the record of
// mg, or nil.
func (p clientPatch) correctOperation(mg resource.Managed, r *creation.Record) {
	if !p.conditionStale(mg) {
		return
	}
	t := p.tracker
	switch {
	case r == nil:
		// For example, the operation has ended while the object was paused.
		setEnded(mg, nil, operationError{}, t.config.backoff)
	case r.Phase == creation.RecordFailed:
		setEnded(mg, r, t.objects.failure(mg, r), t.config.backoff)
	default:
		when := "the external resource can be observed"
		if mg.GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused {
			when = "reconciliation is no longer paused"
		}
		setOperation(
			mg, corev1.ConditionFalse, ReasonInterrupted,
			"The "+string(r.Type)+" was interrupted. Its outcome is determined when "+when+".",
		)
	}
}

// reportFailure sets Synced to the error of the last operation. If this process does not know
// the text of the error, the stored condition that has it stays.
func (p clientPatch) reportFailure(s *seam.Session, mg resource.Managed, r *creation.Record) {
	if p.tracker.objects.failure(mg, r).text == "" {
		if stored, ok := s.Base().(resource.Managed); ok && hasFailure(stored) {
			s.SetConditions(mg, stored.GetCondition(xpv2.TypeSynced).WithObservedGeneration(0))
			return
		}
	}
	s.SetConditions(mg, xpv2.ReconcileError(errors.Wrap(p.tracker.objects.lastError(mg, r), string(r.Type)+" failed")))
}

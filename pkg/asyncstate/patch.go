package asyncstate

import (
	"context"
	"time"

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
		Status:     p.status,
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

// status sets the conditions about operations. Upstream may have returned before it called Observe.
func (p clientPatch) status(_ context.Context, s *seam.Session, o client.Object) {
	mg, ok := o.(resource.Managed)
	if !ok {
		return
	}
	synced := mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionTrue
	if synced {
		p.tracker.objects.detailsPublished(mg)
	}

	now := progressReport{}
	if found := p.tracker.reconciles.Find(s); found != nil {
		now = *found
	}
	r, err := creation.RecordOf(o)
	switch {
	case now.stopped != nil:
		s.SetConditions(o, xpv2.ReconcileError(now.stopped))
	case err == nil && r.HasFailed() && (synced || now.failed):
		s.SetConditions(o, p.failure(s, mg, r))
	}
	if c, ok := p.tracker.condition(o, now); ok {
		mg.SetConditions(c)
	}
}

// close corrects the condition of an operation that has ended if upstream wrote no status.
func (p clientPatch) close(ctx context.Context, s *seam.Session) error {
	if s.StatusWritten() || seam.ConditionOf(s.Base(), TypeOperation).Status != corev1.ConditionTrue {
		return nil
	}
	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition { return p.postponed(s, server) })
	if err != nil && !seam.Permanent(err) {
		return errors.Wrap(err, "cannot report the end of an operation")
	}
	return nil
}

// postponed returns the conditions of an object whose operation has ended: its next reconcile may be postponed for
// hours. A reconcile during which it ended may have corrected only OperationRunning.
func (p clientPatch) postponed(s *seam.Session, server client.Object) []xpv2.Condition {
	mg, ok := server.(resource.Managed)
	r, err := creation.RecordOf(server)
	if !ok || err != nil || p.tracker.operation(server.GetUID()) != nil {
		return nil
	}
	var cs []xpv2.Condition
	if c, ok := p.tracker.condition(server, progressReport{}); ok {
		cs = append(cs, c)
	}
	if r.HasFailed() && (cs != nil || mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionTrue) {
		cs = append(cs, p.failure(s, mg, r))
	}
	return cs
}

// failure returns the condition Synced with the error of the last operation. If this process does not know
// the text of the error, the stored condition that has it stays.
func (p clientPatch) failure(s *seam.Session, mg resource.Managed, r *creation.Record) xpv2.Condition {
	if p.tracker.objects.failure(mg, r).text == "" {
		if stored, ok := s.Base().(resource.Managed); ok && hasFailure(stored) {
			return stored.GetCondition(xpv2.TypeSynced).WithObservedGeneration(0)
		}
	}
	return xpv2.ReconcileError(errors.Wrap(p.tracker.objects.lastError(mg, r), string(r.Type)+" failed"))
}

// hasFailure reports whether the stored Synced condition has the error of the last operation
// that failed: no reconcile has failed since the OperationRunning condition changed.
func hasFailure(stored resource.Managed) bool {
	synced, operation := stored.GetCondition(xpv2.TypeSynced), stored.GetCondition(TypeOperation)
	return synced.Reason == xpv2.ReasonReconcileError &&
		!synced.LastTransitionTime.After(operation.LastTransitionTime.Add(time.Second))
}

// condition returns the condition OperationRunning of o after a reconcile with a report, and whether it differs from
// the one that o has.
func (t *Tracker) condition(o client.Object, report progressReport) (xpv2.Condition, bool) {
	mg, ok := o.(resource.Managed)
	if !ok {
		return xpv2.Condition{}, false
	}

	// Observe reports a record that cannot be used.
	r, err := creation.RecordOf(o)
	if err != nil && report.reason == "" {
		return xpv2.Condition{}, false
	}
	now := situation{
		object: mg, record: r, failure: t.objects.failure(mg, r),
		report: report, backoff: t.config.backoff, now: time.Now(),
	}
	if op := t.operation(mg.GetUID()); op != nil {
		// Until its result is stored, it runs for those who read its record.
		s, _ := op.status()
		now.running = &s
	}
	c, had := now.condition(), mg.GetCondition(TypeOperation)
	return c, c.Reason != had.Reason || c.Message != had.Message
}

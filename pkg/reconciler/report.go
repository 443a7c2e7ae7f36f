package reconciler

import (
	"context"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A deletionReporter reports that an object is being deleted, and the reason why it still
// exists:
//
//   - before the inner reconciler runs, if the API server does not have that yet, or
//     if the deadline has passed meanwhile;
//   - with every status write of the inner reconciler;
//   - when the inner reconciler is done, if it wrote no status, or the API server refused
//     that.
//
// An unchanged situation is written once: messages hold no times but those at
// which something happened.
type deletionReporter struct {
	dependents DependentLister
	watched    func(of schema.GroupVersionKind) bool
	interval   time.Duration
	metrics    *Metrics

	// escape has the kind, its client, where reports go, the deadline and force orphan.
	escape deletion.Escape

	// late has the reads of dependents that took too long, and most the largest number of dependents that a lister
	// returned: it may leave out those that no longer exist.
	late lateReads
	most store.Key[int]

	// observed is the state of the dependents in this reconcile.
	observed seam.Slot[*observation]
}

func (d *deletionReporter) patch() seam.Patch {
	return seam.Patch{
		Open: d.open, Status: d.status, Close: d.close, Gone: d.gone,
		Conditions: []xpv2.ConditionType{TypeDeleting}, Refused: d.refused,
		Restored: []xpv2.ConditionType{xpv2.TypeReady, TypeDeleting},
	}
}

func (d *deletionReporter) open(ctx context.Context, s *seam.Session, o client.Object) error {
	// An earlier object that had the name may no longer exist.
	d.metrics.gone(reportKey{kind: d.escape.Kind, key: s.Key()}, o.GetUID())
	d.escape.ForgetFormer(s, o)
	if err := s.Withdraw(ctx, o, d.failed, NotDeleting(s.Now())); err != nil || !meta.WasDeleted(o) {
		return err
	}
	d.escape.Remember(o)
	if _, ok := d.escape.Objects.Conditioned(o); ok {
		if err := d.announce(ctx, s, o); err != nil {
			return err
		}
	}
	return d.escape.ForceOrphan(ctx, s, o)
}

// announce writes conditions before the dependents are read, and reports once that
// the deadline has passed. A reason that the API server has stays.
func (d *deletionReporter) announce(ctx context.Context, s *seam.Session, o client.Object) error {
	d.escape.Begin(s)
	news := false

	err := s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		reason, message := ReasonDeletionRequested, d.escape.Message(s.Now(), deletion.MessageRequested, server)
		if c := d.escape.Objects.ConditionOf(server, TypeDeleting); c.Status == corev1.ConditionTrue {
			reason, message = c.Reason, c.Message
		}
		reason, message, news = d.escape.Announced(s, server, reason, message)
		ready := d.escape.Objects.ConditionOf(server, xpv2.TypeReady)
		if !news && ready.Status == corev1.ConditionFalse && ready.Reason == xpv2.ReasonDeleting {
			return nil
		}
		return Deleting(s.Now(), reason, message)
	})

	return d.escape.Notify(ctx, o, news, err)
}

func (d *deletionReporter) status(ctx context.Context, s *seam.Session, o client.Object) {
	if !meta.WasDeleted(o) || len(o.GetFinalizers()) == 0 || s.Gone() {
		return
	}
	s.SetConditions(o, d.report(s, o, d.observe(ctx, s, o))...)
}

func (d *deletionReporter) close(ctx context.Context, s *seam.Session) error {
	o := s.Base()
	if !meta.WasDeleted(o) || len(o.GetFinalizers()) == 0 {
		return nil
	}
	err := d.write(ctx, s, o)
	if _, ok := d.escape.Objects.Conditioned(s.Base()); ok {
		d.escape.RequeueAtDeadline(s)
	}

	if on := *d.observed.In(s); on != nil && on.waiting() {
		s.Requeue(seam.Within(d.interval))
	}

	if seam.Permanent(err) {
		d.failed(o, err)
		return nil
	}
	return errors.Wrap(err, "cannot report deletion")
}

// write a report, unless the inner reconciler did.
func (d *deletionReporter) write(ctx context.Context, s *seam.Session, o client.Object) error {
	if _, ok := d.escape.Objects.Conditioned(o); !ok || s.StatusWritten() && !s.StatusRefused() {
		return nil
	}

	// After a conflict the dependents are not read again.
	on := d.observe(ctx, s, o)

	if s.Unannounced() {
		// It can't be written, but it is counted.
		d.report(s, o, on)
		return nil
	}

	return s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		if !meta.WasDeleted(server) || len(server.GetFinalizers()) == 0 {
			return nil
		}
		return d.report(s, server, on)
	})
}

// gone forgets the object.
func (d *deletionReporter) gone(s *seam.Session) {
	d.metrics.gone(reportKey{kind: d.escape.Kind, key: s.Key()}, "")
	d.escape.Gone(s)
}

// observe returns the state of the dependents that o waits for. It reads them once in a
// reconcile. An object that is paused waits for none.
func (d *deletionReporter) observe(ctx context.Context, s *seam.Session, o client.Object) observation {
	if d.dependents == nil || meta.IsPaused(o) {
		return observation{}
	}
	observed := d.observed.In(s)
	if *observed != nil {
		return **observed
	}
	if o.GetObjectKind().GroupVersionKind().Empty() {
		// A typed object from the API server has no kind.
		o, _ = o.DeepCopyObject().(client.Object)
		o.GetObjectKind().SetGroupVersionKind(d.escape.Kind)
	}

	on := observe(ctx, dependentReader{
		Reader: d.escape.Client, live: d.escape.Live, watched: d.watched, late: &d.late, now: s.Now(),
	}, d.dependents, o)
	d.most.Update(&d.escape.Store, o, func(most *int) {
		*most = max(*most, on.total)
		on.total = *most
	})
	*observed = &on
	return on
}

// report returns the conditions that say why o still exists.
func (d *deletionReporter) report(s *seam.Session, o client.Object, on observation) []xpv2.Condition {
	reason, message := d.reason(o, on)
	reason, message = d.escape.Report(s, o, reason, message)

	// The object may have been deleted after it was read in open.
	d.escape.Remember(o)
	if !d.escape.IsGone(o) {
		d.metrics.reported(reportKey{
			kind: d.escape.Kind,
			key:  client.ObjectKeyFromObject(o),
		}, blockedReport{uid: o.GetUID(), reason: reason})
	}
	return Deleting(s.Now(), reason, message)
}

func (d *deletionReporter) reason(o client.Object, on observation) (xpv2.ConditionReason, string) {
	// Without a finalizer of its own, the inner reconciler has let the object go: the end of a pause removes nothing.
	others := d.others(o)
	letGo := len(others) > 0 && len(others) == len(o.GetFinalizers())
	if meta.IsPaused(o) && !letGo {
		return ReasonBlockedByPause, deletion.MessagePaused +
			" To continue, remove the annotation " + meta.AnnotationKeyReconciliationPaused + "."
	}
	reason, message := ReasonDeletionRequested, deletion.MessageRequested
	switch synced := d.escape.Objects.ConditionOf(o, xpv2.TypeSynced); {
	case on.waiting():
		reason, message = on.reason(), ""
	case synced.Status == corev1.ConditionFalse && !letGo:
		reason, message = ReasonReconcileFailed, "It could not be reconciled: see the Synced condition."
	case len(others) > 0:
		reason, message = ReasonWaitingForFinalizers, deletion.MessageWaitingForFinalizers+deletion.Names(others)+"."
	}
	return reason, strings.TrimSpace(on.summary() + " " + message)
}

// others returns the finalizers that the inner reconciler does not remove.
func (d *deletionReporter) others(o client.Object) []string {
	if len(d.escape.Own) == 0 {
		return nil
	}
	return deletion.OtherFinalizers(o, d.escape.Own...)
}

// refused notices that a status write was made without the Deleting condition.
func (d *deletionReporter) refused(s *seam.Session, o client.Object, err error) {
	if meta.WasDeleted(o) && !s.Unannounced() {
		d.failed(o, err)
	}
}

func (d *deletionReporter) failed(o client.Object, err error) {
	deletion.CannotReport(d.escape.Log, d.escape.Record, o, err)
}

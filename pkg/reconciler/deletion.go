package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const messageRequested = "Deletion was requested."

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
	kind       schema.GroupVersionKind
	objects    seam.Kind
	client     client.Client
	live       client.Reader
	lateKinds  lateKinds
	dependents DependentLister
	watched    func(of schema.GroupVersionKind) bool
	interval   time.Duration
	deadline   time.Duration
	exceeded   func(ctx context.Context, o client.Object)
	own        []string
	log        logging.Logger
	record     event.Recorder
	metrics    *Metrics
	reporter   reporter
	memory     memory
	orphaner   orphaner
	restorer   restorer

	// announced is when the reconcile announced that the object is being deleted. A
	// deadline that passes after that is for the next reconcile, which tells it.
	announced seam.Slot[time.Time]

	// share is the time for reading dependents. observed is their state in this reconcile.
	share    share
	observed seam.Slot[*observation]
}

// start completes a deletion that has been configured.
func (d *deletionReporter) start(live client.Reader) {
	d.live = live
	d.reporter = d.metrics.join()
	d.restorer.objects, d.restorer.memory, d.restorer.interval, d.restorer.log = d.objects, &d.memory, d.interval, d.log
	or := &d.orphaner
	or.kind, or.objects, or.client, or.live, or.own = d.kind, d.objects, d.client, d.live, d.own
	or.log, or.record, or.metrics, or.memory, or.failed = d.log, d.record, d.metrics, &d.memory, d.failed
}

func (d *deletionReporter) patch() seam.Patch {
	return seam.Patch{
		Open: d.open, Status: d.status, Close: d.close, Gone: d.gone,
		Conditions: []xpv2.ConditionType{TypeDeleting}, Refused: d.refused,
	}
}

func (d *deletionReporter) open(ctx context.Context, s *seam.Session, o client.Object) error {
	// The object that had the name before may no longer exist.
	d.forget(s, o.GetUID())
	if err := s.Withdraw(ctx, o, d.failed, NotDeleting(s.Now()), d.interval); err != nil || !meta.WasDeleted(o) {
		return err
	}
	d.memory.remember(o)

	if _, ok := d.objects.Conditioned(o); ok {
		if err := d.announce(ctx, s, o); err != nil {
			return err
		}
	}
	return d.orphaner.forceOrphan(ctx, s, o)
}

// announce writes conditions before the dependents are read, and reports once that
// the deadline has passed. A reason that the API server has stays.
func (d *deletionReporter) announce(ctx context.Context, s *seam.Session, o client.Object) error {
	*d.announced.In(s) = s.Now()
	tell := false

	err := s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		// A report about an older state was not written.
		d.restorer.pending.In(s)[beforeInner] = pendingReport{}
		reason, message := ReasonDeletionRequested, d.orphaner.message(messageRequested, server)
		if c := d.objects.ConditionOf(server, TypeDeleting); c.Status == corev1.ConditionTrue {
			reason, message = c.Reason, c.Message
		}
		orphaned := reason == ReasonForceOrphaned && orphanRequested(server)
		if tell = d.pastDeadline(s, server) && reason != ReasonDeadlineExceeded && !orphaned; tell {
			reason, message = ReasonDeadlineExceeded, cut(d.late(server, message), maxMessageLength)
		} else if ready := d.objects.ConditionOf(server, xpv2.TypeReady); ready.Status == corev1.ConditionFalse && ready.Reason == xpv2.ReasonDeleting {
			return nil
		}
		return d.restorer.limit(s, server, beforeInner, Deleting(s.Now(), reason, message))
	})

	if err == nil && !s.Unannounced() {
		d.restorer.recordWritten(s, o, beforeInner)
	}
	return d.tellDeadline(ctx, o, tell, err)
}

// tellDeadline reports that the deadline has passed, once: if the condition on the API server
// changed, or an earlier try may have changed it. Without
// permission to write it, it is reported once a process.
func (d *deletionReporter) tellDeadline(ctx context.Context, o client.Object, news bool, err error) error {
	r, ok := d.memory.get(o)

	switch {
	case !ok, r.deadline == notified, !news && r.deadline == notNotified:
		return err
	case err != nil:
		if news && !kerrors.IsConflict(err) {
			d.memory.update(o, func(r *remembered) { r.deadline = maybeNotified })
		}
		return err
	}

	d.memory.update(o, func(r *remembered) { r.deadline = notified })
	message := cut(d.late(o, "It is still there: see the Deleting condition."), maxEventLength)
	d.log.Info("Deletion takes longer than its deadline", "uid", o.GetUID(), "deadline", d.deadline)
	d.record.Event(o, event.Warning(reasonDeadlineExceeded, errors.New(message)))
	d.metrics.deadlines.WithLabelValues(d.kind.String()).Inc()
	if d.exceeded != nil {
		d.exceeded(ctx, o)
	}
	return nil
}

func (d *deletionReporter) status(ctx context.Context, s *seam.Session, o client.Object) {
	if !meta.WasDeleted(o) || len(o.GetFinalizers()) == 0 || s.Gone() {
		return
	}
	d.restorer.recordInnerWrite(s)
	s.SetConditions(o, d.restorer.limit(s, s.Base(), withInner, d.report(s, o, d.observe(ctx, s, o)))...)
}

func (d *deletionReporter) close(ctx context.Context, s *seam.Session) error {
	o := s.Base()
	if !meta.WasDeleted(o) || len(o.GetFinalizers()) == 0 {
		return nil
	}
	d.restorer.recordInnerWrite(s)
	err := d.write(ctx, s, o)
	_, conditioned := d.objects.Conditioned(s.Base())
	if conditioned && d.deadline > 0 && !d.pastDeadline(s, o) {
		s.Requeue(seam.Within(d.deadlineOf(o).Sub(s.Now())))
	}

	if r, _ := d.memory.get(o); r.waiting {
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
	if _, ok := d.objects.Conditioned(o); !ok || s.StatusWritten() && !s.StatusRefused() {
		return nil
	}

	// After a conflict the dependents are not read again.
	on := d.observe(ctx, s, o)

	if s.Unannounced() {
		// It can't be written, but it is counted.
		d.report(s, o, on)
		return nil
	}

	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		if len(server.GetFinalizers()) == 0 {
			return nil
		}
		return d.restorer.limit(s, server, afterInner, d.report(s, server, on))
	})
	if err == nil {
		d.restorer.recordWritten(s, o, afterInner)
	}
	return err
}

func (d *deletionReporter) gone(s *seam.Session) { d.forget(s, "") }

// forget the object that had the session's name, unless it has the supplied UID.
func (d *deletionReporter) forget(s *seam.Session, unless types.UID) {
	d.metrics.gone(reportKey{kind: d.kind, key: s.Key()}, unless)
	r, ok := d.memory.forget(s.Key(), unless)
	if !ok {
		return
	}
	if r.orphaning != nil {
		d.orphaner.recordOrphaned(r.orphaning)
	}
	d.metrics.took(d.kind, s.Now().Sub(r.since))
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
		o.GetObjectKind().SetGroupVersionKind(d.kind)
	}

	r, _ := d.memory.get(o)
	now := time.Now()
	if granted := d.share.grant(r.look.slow, now); granted > 0 {
		ctx, cancel := context.WithTimeout(ctx, granted)
		defer cancel()
		r.look = observe(ctx, newDependentReader(d.client, d.live, d.watched, &d.lateKinds, s.Now()), d.dependents, o, r.look)
		took := time.Since(now)
		d.share.spend(took, time.Now())
		if r.look.slow = r.look.slow || took > glanceTimeout; !r.look.slow {
			r.look.read = nil
		}
	}

	on := r.look.on
	d.memory.update(o, func(has *remembered) {
		has.look = r.look
		has.dependents = max(has.dependents, on.total)
		on.total = has.dependents
	})
	*observed = &on
	return on
}

// report returns the conditions that say why o still exists.
func (d *deletionReporter) report(s *seam.Session, o client.Object, on observation) []xpv2.Condition {
	reason, message := d.reason(o, on)
	reason, message = d.override(s, o, reason, message)

	d.memory.update(o, func(r *remembered) {
		r.waiting = on.waiting()
		d.metrics.reported(reportKey{kind: d.kind, key: client.ObjectKeyFromObject(o)}, blockedReport{uid: o.GetUID(), reason: reason, by: d.reporter})
	})
	return Deleting(s.Now(), reason, d.orphaner.message(message, o))
}

// override returns the reason and the message to report in place of the supplied ones, because
// an operator asked to orphan o, or because the deadline has passed.
func (d *deletionReporter) override(s *seam.Session, o client.Object, reason xpv2.ConditionReason, message string) (xpv2.ConditionReason, string) {
	switch {
	case len(d.orphaner.toOrphan(o)) > 0:
		return ReasonForceOrphaned, d.orphaner.orphanMessage(o)
	case orphanRequested(o) && len(d.orphaner.finalizers) > 0 && d.objects.ConditionOf(s.Base(), TypeDeleting).Reason == ReasonForceOrphaned:
		return ReasonForceOrphaned, "An operator asked to orphan it, and finalizers were removed. " + message
	case d.pastDeadline(s, o):
		return ReasonDeadlineExceeded, d.late(o, message)
	default:
		return reason, message
	}
}

func (d *deletionReporter) reason(o client.Object, on observation) (xpv2.ConditionReason, string) {
	if meta.IsPaused(o) {
		return ReasonBlockedByPause, "Reconciliation is paused, and deletion with it. Remove the annotation " + meta.AnnotationKeyReconciliationPaused + " to go on."
	}
	if on.waiting() {
		return on.reason(), on.summary()
	}
	if c := d.objects.ConditionOf(o, xpv2.TypeSynced); c.Status == corev1.ConditionFalse {
		return ReasonReconcileFailed, strings.TrimSpace(on.summary() + " It could not be reconciled: see the Synced condition.")
	}
	if others := d.others(o); len(others) > 0 {
		return ReasonWaitingForFinalizers, strings.TrimSpace(on.summary() + " Waiting for other controllers to remove their finalizers: " + names(others) + ".")
	}
	return ReasonDeletionRequested, strings.TrimSpace(on.summary() + " " + messageRequested)
}

// others returns the finalizers that the inner reconciler does not remove.
func (d *deletionReporter) others(o client.Object) []string {
	if len(d.own) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(d.own, f) })
}

func (d *deletionReporter) deadlineOf(o client.Object) time.Time {
	return o.GetDeletionTimestamp().Add(d.deadline)
}

func (d *deletionReporter) pastDeadline(s *seam.Session, o client.Object) bool {
	return d.deadline > 0 && !d.announced.In(s).Before(d.deadlineOf(o))
}

// late returns a message that says that the deadline has passed, and then m.
func (d *deletionReporter) late(o client.Object, m string) string {
	return fmt.Sprintf("The deadline for the deletion was %s. %s", seam.Stamp(d.deadlineOf(o)), m)
}

// refused notices that a status write was made without the Deleting condition.
func (d *deletionReporter) refused(s *seam.Session, o client.Object, err error) {
	if meta.WasDeleted(o) && !s.Unannounced() {
		d.failed(o, err)
	}
}

func (d *deletionReporter) failed(o client.Object, err error) {
	d.log.Info("Cannot report deletion", "uid", o.GetUID(), "error", err)
	d.record.Event(o, event.Warning(reasonCannotReportDeletion, err))
}

package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Event reasons.
const (
	reasonCannotReportDeletion event.Reason = "CannotReportDeletion"
	reasonDeadlineExceeded     event.Reason = "DeletionDeadlineExceeded"
	reasonForceOrphaned        event.Reason = "ForceOrphaned"
)

// deletion is the patch that says that an object is being deleted, and what it
// waits for:
//
//   - before the inner reconciler runs, if it is not said yet;
//   - with every status write of the inner reconciler;
//   - when the inner reconciler is done, if it wrote no status.
//
// An unchanged situation is written once: messages hold no times but those at
// which something happened.
type deletion struct {
	kind       schema.GroupVersionKind
	client     client.Client
	dependents DependentLister
	deadline   time.Duration
	exceeded   func(ctx context.Context, o client.Object)
	orphan     []string
	own        []string
	log        logging.Logger
	record     event.Recorder
	metrics    *Metrics

	// seen is how many dependents an object was seen to have: a lister may not
	// know of those that are gone. Nothing is kept of objects that are gone.
	mu   sync.Mutex
	seen map[client.ObjectKey]int
}

func (d *deletion) patch() seam.Patch {
	return seam.Patch{Open: d.open, Status: d.status, Close: d.close, Gone: d.gone}
}

func (d *deletion) open(ctx context.Context, s *seam.Session, o client.Object) error {
	if !meta.WasDeleted(o) {
		return nil
	}

	if _, ok := seam.Conditioned(o); !ok {
		return d.forceOrphan(ctx, s, o)
	}

	err := s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		if ready := conditionOf(server, xpv2.TypeReady); ready.Status == corev1.ConditionFalse && ready.Reason == xpv2.ReasonDeleting {
			return nil
		}

		return Deleting(s.Now(), ReasonDeletionRequested, d.message("Deletion was requested.", server))
	})
	if err != nil {
		return err
	}

	if err := d.announceDeadline(ctx, s, o); err != nil {
		return err
	}

	return d.forceOrphan(ctx, s, o)
}

func (d *deletion) status(ctx context.Context, s *seam.Session, o client.Object) {
	if meta.WasDeleted(o) {
		s.SetConditions(o, d.report(ctx, s, o)...)
	}
}

func (d *deletion) close(ctx context.Context, s *seam.Session) error {
	o := s.Base()

	if !meta.WasDeleted(o) {
		return nil
	}

	if len(o.GetFinalizers()) == 0 {
		d.metrics.let(d.object(o), s.Now().Sub(o.GetDeletionTimestamp().Time))
		return nil
	}

	if left := d.deadlineOf(o).Sub(s.Now()); d.deadline > 0 && left > 0 {
		s.RequeueWithin(left)
	}

	if _, ok := seam.Conditioned(o); !ok || s.StatusWritten() || s.Unannounced() {
		return nil
	}

	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition { return d.report(ctx, s, server) })
	if seam.Permanent(err) {
		d.failed(o, err)
		return nil
	}

	return errors.Wrap(err, "cannot report deletion")
}

func (d *deletion) gone(key client.ObjectKey) {
	d.mu.Lock()
	delete(d.seen, key)
	d.mu.Unlock()

	d.metrics.gone(deleted{kind: d.kind.Kind, key: key})
}

// report says why o is still there.
func (d *deletion) report(ctx context.Context, s *seam.Session, o client.Object) []xpv2.Condition {
	reason, message := d.reason(ctx, o)

	if at := d.deadlineOf(o); d.deadline > 0 && !s.Now().Before(at) {
		reason = ReasonDeadlineExceeded
		message = fmt.Sprintf("The deadline for the deletion was %s. %s", at.UTC().Format(time.RFC3339), message)
	}

	d.metrics.reported(d.object(o), reason)

	return Deleting(s.Now(), reason, d.message(message, o))
}

func (d *deletion) reason(ctx context.Context, o client.Object) (xpv2.ConditionReason, string) {
	if meta.IsPaused(o) {
		return ReasonBlockedByPause, "Reconciliation is paused, and deletion with it. Remove the annotation " + meta.AnnotationKeyReconciliationPaused + " to go on."
	}

	on := observe(ctx, d.client, d.dependents, o)
	on.total = d.atLeast(client.ObjectKeyFromObject(o), on.total)

	if len(on.blockers) > 0 || on.unknown != "" {
		return on.reason(), on.summary()
	}

	if c := conditionOf(o, xpv2.TypeSynced); c.Status == corev1.ConditionFalse {
		return ReasonReconcileFailed, strings.TrimSpace(on.summary() + " It could not be reconciled: see the Synced condition.")
	}

	if others := d.others(o); len(others) > 0 {
		return ReasonWaitingForFinalizers, strings.TrimSpace(on.summary() + " Waiting for others to remove their finalizers: " + strings.Join(others, ", ") + ".")
	}

	return ReasonDeletionRequested, strings.TrimSpace(on.summary() + " Deletion was requested.")
}

// atLeast returns the largest number of dependents that o was seen to have.
func (d *deletion) atLeast(key client.ObjectKey, n int) int {
	if n == 0 && d.dependents == nil {
		return 0
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.seen[key] = max(d.seen[key], n)

	return d.seen[key]
}

// others returns the finalizers that the inner reconciler does not remove.
func (d *deletion) others(o client.Object) []string {
	if len(d.own) == 0 {
		return nil
	}

	fs := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(d.own, f) })
	slices.Sort(fs)

	return fs
}

func (d *deletion) deadlineOf(o client.Object) time.Time {
	return o.GetDeletionTimestamp().Add(d.deadline)
}

// announceDeadline tells, once, that a deletion takes longer than it should.
func (d *deletion) announceDeadline(ctx context.Context, s *seam.Session, o client.Object) error {
	if d.deadline == 0 || s.Now().Before(d.deadlineOf(o)) || conditionOf(o, TypeDeleting).Reason == ReasonDeadlineExceeded {
		return nil
	}

	err := s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition { return d.report(ctx, s, server) })
	if err != nil || conditionOf(o, TypeDeleting).Reason != ReasonDeadlineExceeded {
		return err
	}

	d.log.Info("Deletion takes longer than its deadline", "uid", o.GetUID(), "deadline", d.deadline)
	d.record.Event(o, event.Warning(reasonDeadlineExceeded, errors.New(conditionOf(o, TypeDeleting).Message)))
	d.metrics.deadlines.WithLabelValues(d.kind.Kind).Inc()

	if d.exceeded != nil {
		d.exceeded(ctx, o)
	}

	return nil
}

func (d *deletion) object(o client.Object) deleted {
	return deleted{kind: d.kind.Kind, key: client.ObjectKeyFromObject(o)}
}

func (d *deletion) failed(o client.Object, err error) {
	d.log.Info("Cannot report deletion", "uid", o.GetUID(), "error", err)
	d.record.Event(o, event.Warning(reasonCannotReportDeletion, err))
}

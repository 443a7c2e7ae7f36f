package managed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// maxFinalizersNamed is how many finalizers a message names.
const maxFinalizersNamed = 5

// deletion is the patch that says that a managed resource is being deleted, and
// why it is still there:
//
//   - before the inner reconciler runs, if it is not said yet;
//   - with every status write of the inner reconciler;
//   - before the external resource is deleted, which may take long;
//   - when the inner reconciler is done, if it wrote no status.
//
// Messages hold nothing that changes by itself, and nothing from errors, so that
// the same situation is written once. Errors are in the Synced condition.
type deletion struct {
	log    logging.Logger
	record event.Recorder
}

func (d *deletion) patch() seam.Patch {
	return seam.Patch{Open: d.open, Status: d.status, Close: d.close}
}

func (d *deletion) open(ctx context.Context, s *seam.Session, o client.Object) error {
	if !meta.WasDeleted(o) {
		return nil
	}

	say := func(server client.Object) []xpv2.Condition {
		c := deletingCondition(server)

		switch {
		case c.Status != corev1.ConditionTrue:
			reason, message := first(server)
			return reconciler.Deleting(s.Now(), reason, message)
		case seam.ConditionOf(server, xpv2.TypeReady).Reason != xpv2.ReasonDeleting:
			// Somebody who knows nothing of deletions wrote Ready.
			return reconciler.Deleting(s.Now(), c.Reason, c.Message)
		default:
			return nil
		}
	}

	if err := s.Announce(ctx, o, d.failed, say); err != nil {
		return err
	}

	s.Reported = deletingCondition(o).Reason

	return nil
}

func (d *deletion) status(_ context.Context, s *seam.Session, o client.Object) {
	if !meta.WasDeleted(o) {
		return
	}

	reason, message := report(s, o)
	s.SetConditions(o, reconciler.Deleting(s.Now(), reason, message)...)
}

// announce that the external resource is about to be deleted.
func (d *deletion) announce(ctx context.Context, s *seam.Session, o client.Object) {
	if d == nil || !s.Tracks(o) {
		return
	}

	say := func(server client.Object) []xpv2.Condition {
		switch deletingCondition(server).Reason {
		case reconciler.ReasonExternalDeleteRequested, reconciler.ReasonExternalDeleteFailed, reconciler.ReasonWaitingForExternalResource,
			reconciler.ReasonWaitingForAsyncOperation:
			return nil
		default:
			return reconciler.Deleting(s.Now(), reconciler.ReasonExternalDeleteRequested, messageDeleteRequested)
		}
	}

	if err := s.WriteConditions(ctx, o, say); err != nil {
		d.failed(o, err)
	}
}

func (d *deletion) close(ctx context.Context, s *seam.Session) error {
	o := s.Base()

	switch {
	case !meta.WasDeleted(o), s.StatusWritten(), s.Phase < seam.PhaseObservedAbsent:
		return nil
	case s.Phase == seam.PhaseFinalizerRemoved && len(o.GetFinalizers()) == 0:
		return nil
	}

	err := s.WriteConditions(ctx, nil, func(server client.Object) []xpv2.Condition {
		reason, message := report(s, server)
		return reconciler.Deleting(s.Now(), reason, message)
	})
	if seam.Permanent(err) {
		d.failed(o, err)
		return nil
	}

	return errors.Wrap(err, "cannot report deletion")
}

func (d *deletion) failed(o client.Object, err error) {
	d.log.Info("Cannot report deletion", "uid", o.GetUID(), "error", err)
	d.record.Event(o, event.Warning(reasonCannotReportDeletion, err))
}

const (
	messageRequested        = "Deletion was requested."
	messagePaused           = "Reconciliation is paused, and deletion with it. Remove the annotation " + meta.AnnotationKeyReconciliationPaused + " (or allow management policies) to go on."
	messageInitializeFailed = "The managed resource could not be initialized: see the Synced condition. The external resource was not touched."
	messageConnectFailed    = "The provider could not be connected to: see the Synced condition. The external resource was not touched."
	messageObserveFailed    = "The external resource could not be observed: see the Synced condition."
	messageCreateUnknown    = "Nobody knows whether the external resource was created, so it can't be deleted safely. " + messageSettle
	messageConfirming       = "The external resource was created moments ago and is not found. Its absence is being confirmed."
	messageAbsent           = "The external resource is not found. It is looked for again, to be sure, before the finalizer goes."
	messageDeleteRequested  = "The external resource is being deleted."
	messageDeleteFailed     = "The external resource could not be deleted: see the Synced condition."
	messageStillExists      = "The external resource still exists after its deletion was requested."
	messageGone             = "The external resource does not exist. What is left to do failed: see the Synced condition."
	messageReconcileFailed  = "The managed resource could not be reconciled: see the Synced condition."
	messageWaitingFinalizer = "Waiting for others to remove their finalizers: "
)

// first says why o is still there when nothing was tried yet.
func first(o client.Object) (xpv2.ConditionReason, string) {
	if meta.IsPaused(o) {
		return reconciler.ReasonBlockedByPause, messagePaused
	}

	if fs := blockingFinalizers(o); len(fs) > 0 {
		return reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer + list(fs)
	}

	return reconciler.ReasonDeletionRequested, messageRequested
}

// report says why o is still there when the reconcile has come as far as it did.
func report(s *seam.Session, o client.Object) (xpv2.ConditionReason, string) {
	if s.Reason != "" {
		return s.Reason, s.Message
	}

	if s.Phase == seam.PhaseStart && seam.ConditionOf(o, xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused {
		return reconciler.ReasonBlockedByPause, messagePaused
	}

	switch s.Phase {
	case seam.PhaseInitializeFailed:
		return reconciler.ReasonInitializeFailed, messageInitializeFailed
	case seam.PhaseConnectFailed:
		return reconciler.ReasonConnectFailed, messageConnectFailed
	case seam.PhaseObserveFailed:
		return reconciler.ReasonObserveFailed, messageObserveFailed
	case seam.PhaseObservedPresent, seam.PhaseObservedAbsent:
		return observed(s, o)
	case seam.PhaseConfirmingAbsence:
		return reconciler.ReasonConfirmingAbsence, messageAbsent
	case seam.PhaseDeleteFailed:
		return reconciler.ReasonExternalDeleteFailed, messageDeleteFailed
	case seam.PhaseDeleteRequested:
		if s.Reported == reconciler.ReasonExternalDeleteRequested || s.Reported == reconciler.ReasonWaitingForExternalResource {
			return reconciler.ReasonWaitingForExternalResource, messageStillExists
		}

		return reconciler.ReasonExternalDeleteRequested, messageDeleteRequested
	case seam.PhaseFinalizerRemoved:
		return reconciler.ReasonWaitingForFinalizers, messageWaitingFinalizer + list(o.GetFinalizers())
	case seam.PhaseInitialized:
		if meta.ExternalCreateIncomplete(o) {
			return reconciler.ReasonCreateResultUnknown, messageCreateUnknown
		}
	case seam.PhaseStart:
	}

	return reconciler.ReasonReconcileFailed, messageReconcileFailed
}

// observed says why o is still there when the external resource was observed
// and nothing came of it.
func observed(s *seam.Session, o client.Object) (xpv2.ConditionReason, string) {
	absent := s.Phase == seam.PhaseObservedAbsent

	if s.StatusWritten() {
		// Something went wrong on the way, or upstream would have written
		// nothing; unless the deletion began while it was on the way to
		// something else.
		switch {
		case seam.ConditionOf(o, xpv2.TypeSynced).Status != corev1.ConditionFalse:
			return first(o)
		case absent:
			return reconciler.ReasonReconcileFailed, messageGone
		default:
			return reconciler.ReasonReconcileFailed, messageReconcileFailed
		}
	}

	if absent && len(blockingFinalizers(o)) == 0 {
		return reconciler.ReasonConfirmingAbsence, messageConfirming
	}

	return first(o)
}

func deletingCondition(o client.Object) xpv2.Condition {
	return seam.ConditionOf(o, reconciler.TypeDeleting)
}

// blockingFinalizers returns the finalizers for which upstream delays the
// deletion of the external resource: all but the managed resource's own, if
// there is more than one.
func blockingFinalizers(o client.Object) []string {
	if len(o.GetFinalizers()) < 2 {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == FinalizerName })
}

// list names finalizers, in an order that doesn't change.
func list(finalizers []string) string {
	fs := slices.Sorted(slices.Values(finalizers))
	if len(fs) <= maxFinalizersNamed {
		return strings.Join(fs, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(fs[:maxFinalizersNamed], ", "), len(fs)-maxFinalizersNamed)
}

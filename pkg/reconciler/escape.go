package reconciler

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

var _ seam.Escape = escape{}

// An escape is the part of a deletion that pkg/managed uses beside its own report: the
// deadline and force orphan.
type escape struct{ d *deletionReporter }

// Open reports once that the deadline has passed, and orphans o if an operator asks for it.
func (e escape) Open(ctx context.Context, s *seam.Session, o client.Object) error {
	d := e.d
	d.forget(s, o.GetUID())
	if !meta.WasDeleted(o) {
		return nil
	}
	d.memory.remember(o)
	*d.announced.In(s) = s.Now()
	tell := false

	err := s.Announce(ctx, o, d.failed, func(server client.Object) []xpv2.Condition {
		c := d.objects.ConditionOf(server, TypeDeleting)
		orphaned := c.Reason == ReasonForceOrphaned && orphanRequested(server)
		if tell = d.pastDeadline(s, server) && c.Reason != ReasonDeadlineExceeded && !orphaned; !tell {
			return nil
		}
		return Deleting(s.Now(), ReasonDeadlineExceeded, cut(d.late(server, c.Message), maxMessageLength))
	})
	if err := d.tellDeadline(ctx, o, tell, err); err != nil {
		return err
	}
	return d.orphaner.forceOrphan(ctx, s, o)
}

// Report returns the reason and the message to report in place of the supplied ones.
func (e escape) Report(s *seam.Session, o client.Object, reason xpv2.ConditionReason, message string) (xpv2.ConditionReason, string) {
	reason, message = e.d.override(s, o, reason, message)
	return reason, e.d.orphaner.message(message, o)
}

// Close asks for a reconcile at the deadline.
func (e escape) Close(_ context.Context, s *seam.Session) error {
	if o := s.Base(); meta.WasDeleted(o) && e.d.deadline > 0 && !e.d.pastDeadline(s, o) {
		s.Requeue(seam.Within(e.d.deadlineOf(o).Sub(s.Now())))
	}
	return nil
}

// Gone forgets an object that no longer exists.
func (e escape) Gone(s *seam.Session) { e.d.gone(s) }

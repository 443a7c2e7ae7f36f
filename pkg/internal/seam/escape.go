package seam

import (
	"context"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An Escape is the deadline of a deletion, and the operator's way out of it. pkg/reconciler
// hands its own to an inner reconciler that is an EscapeUser and has its own report of
// deletions.
type Escape interface {
	// Open reports once that the deadline has passed, and orphans an object if an operator
	// asks for it. It runs after the inner reconciler's own report.
	Open(ctx context.Context, s *Session, o client.Object) error

	// Report returns the reason and the message to report in place of the supplied ones.
	Report(s *Session, o client.Object, reason xpv2.ConditionReason, message string) (xpv2.ConditionReason, string)

	// Close asks for a reconcile at the deadline.
	Close(ctx context.Context, s *Session) error

	// Gone forgets an object that no longer exists.
	Gone(s *Session)
}

// An EscapeUser is a reconciler that uses an Escape.
type EscapeUser interface {
	UseEscape(e Escape)
}

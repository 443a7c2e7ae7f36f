package seam

import (
	"context"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// A Patch changes the behaviour of an inner reconciler. The goroutine of the reconcile calls
// its functions, which make no requests through the Client; nil functions do nothing.
type Patch struct {
	// Open is called with the object as it was first read, before the inner
	// reconciler sees it. An error is returned from that read.
	Open func(ctx context.Context, s *Session, o client.Object) error

	// Write is called with the object before the whole of it is written, but
	// for its status. The last patch comes first: it is the one next to the inner
	// reconciler.
	Write func(ctx context.Context, s *Session, o client.Object)

	// Bound is called with the object before it is updated or patched, but for its status. It may postpone the
	// write, which then succeeds without a request. stored, unless nil, is called with the answer.
	Bound func(ctx context.Context, s *Session, o client.Object) (stored func(server client.Object), postponed bool)

	// Status is called with the object before its status is written. It may set
	// conditions, and nothing else.
	Status func(ctx context.Context, s *Session, o client.Object)

	// Conditions are the types of the conditions that the patch owns. If the API server
	// refuses a status write, it is made without them, and without the changes by Status.
	Conditions []xpv2.ConditionType

	// Restored are the types of the conditions that are restored a limited number of times when another writer
	// replaces them.
	Restored []xpv2.ConditionType

	// Refused is called when a status write was made without them. err is why.
	Refused func(s *Session, o client.Object, err error)

	// Close is called when the inner reconciler has returned. Its error is the
	// reconcile's, if that has none.
	Close func(ctx context.Context, s *Session) error

	// Postponed returns conditions to write when the reconcile is postponed: neither Status nor
	// Close is called then. It is called again for a newer state after a conflict.
	Postponed func(s *Session, server client.Object) []xpv2.Condition

	// Gone is called when the object is known not to exist any more, which may
	// be before it was ever read.
	Gone func(s *Session)
}

// Options of the seams. The zero value is made usable by NewReconciler.
type Options struct {
	// Live reads from the API server itself. The client, if nil.
	Live client.Reader

	// WriteUnchangedStatus makes every status write, also those that change
	// nothing.
	WriteUnchangedStatus bool

	// Store keeps values about objects between reconciles. A new one, if nil.
	Store *store.Store

	// Now returns the time. time.Now, if nil.
	Now func() time.Time

	// Wait waits, or returns the context's error. A timer, if nil.
	Wait func(ctx context.Context, d time.Duration) error
}

// Wait for d, or until ctx is done, whose error it then returns.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

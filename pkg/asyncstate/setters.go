package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// SetExternalName stores the name of the external resource on the API server before it
// returns. Call it as soon as the name is known, with the context that Create was given. A create that
// has set its name and then fails has an unknown outcome.
//
// It returns an error if the name cannot be stored yet, and then stores it with the
// operation's result at the latest; or if the name can never be stored. There is an external
// resource in both cases, so all its errors wrap ErrOutcomeUnknown: a Create that returns one
// is not repeated as one that failed is.
func SetExternalName(ctx context.Context, name string) error {
	return set(ctx, "external name", func(op *operation) error {
		if err := seam.CheckText(name, seam.MaxExternalName); err != nil {
			return err
		}
		if !op.lifetime.get().over {
			op.stored.prepare(func(s *storedRecord) { s.annotations[meta.AnnotationKeyExternalName] = name })
		}
		return op.update(ctx, func(r *creation.Record) { r.Name = name })
	})
}

// SetHandle stores the text that a Resumer needs to resume the operation in another process,
// before it returns. Call it when the external system has accepted the operation. The handle must
// not be a secret, and has 32 KiB at most. SetHandle returns an error if the handle cannot be stored
// yet, and then stores it with the operation's result; or if the handle can never be stored. Its
// errors wrap ErrOutcomeUnknown.
func SetHandle(ctx context.Context, handle string) error {
	return set(ctx, "handle", func(op *operation) error {
		if err := seam.CheckText(handle, maxHandle); err != nil {
			return err
		}

		// The record is JSON, in which some characters take more than one byte.
		had := *op.stored.snapshot()
		had.Handle = handle
		if n := len(had.Text()); n > creation.MaxRecord {
			return errors.Errorf(
				"the record of the operation would have %d bytes, and %d is the most", n, creation.MaxRecord,
			)
		}
		if !op.lifetime.get().over {
			op.stored.prepare(func(s *storedRecord) { s.handle = handle })
		}
		return op.update(ctx, func(*creation.Record) {})
	})
}

// Progress sets how far the operation is: in percent, and in words that must not hold a
// secret. The object's next reconcile shows it, which follows within 10 seconds. It makes no request. It
// returns an error, which wraps ErrOutcomeUnknown, if percent is not from 0 to 100, or if the operation has ended.
func Progress(ctx context.Context, percent int, message string) error {
	return set(ctx, "progress", func(op *operation) error {
		if op.lifetime.get().over {
			return ErrEnded
		}
		changed, err := op.progress.set(percent, message)
		if changed {
			// A queue keeps the earlier one of two.
			op.tracker.queues.enqueueAfter(op.key(), reportInterval)
		}
		return err
	})
}

// Token returns an idempotency token for the external system: the same whenever this attempt is
// repeated, after a crash too, and never the same for another attempt. It is empty if ctx is not the context of an
// operation: check it if the external system must have one.
func Token(ctx context.Context) string {
	op, err := operationIn(ctx)
	if err != nil {
		return ""
	}
	return op.stored.snapshot().Token
}

// set calls fn with the operation that ctx is the context of.
func set(ctx context.Context, what string, fn func(op *operation) error) error {
	op, err := operationIn(ctx)
	if err == nil {
		err = fn(op)
	}
	if err != nil {
		return withUnknownOutcome{errors.Wrap(err, "cannot set "+what)}
	}
	return nil
}

type operationKey struct{}

// operationIn returns the operation that ctx is the context of.
func operationIn(ctx context.Context) (*operation, error) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return nil, ErrNotInOperation
	}
	return op, nil
}

package asyncstate

import (
	"context"

	"github.com/pkg/errors"
)

// SetExternalName is Operation.SetExternalName of the operation that ctx is the context of.
func SetExternalName(ctx context.Context, name string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set external name")
	}
	return op.SetExternalName(ctx, name)
}

// SetHandle is Operation.SetHandle of the operation that ctx is the context of.
func SetHandle(ctx context.Context, handle string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set handle")
	}
	return op.SetHandle(ctx, handle)
}

// Progress is Operation.Progress of the operation that ctx is the context of.
func Progress(ctx context.Context, percent int, message string) error {
	op, err := operationIn(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot set progress")
	}
	return op.Progress(percent, message)
}

// Token is Operation.Token of the operation that ctx is the context of, or that Begin would
// begin with ctx. It is empty if there is none, which an external system takes for no token:
// check it, if it must have one.
func Token(ctx context.Context) string {
	if op, err := operationIn(ctx); err == nil {
		return op.Token()
	}
	if b := beginningIn(ctx); b != nil {
		return b.record.Token
	}
	return ""
}

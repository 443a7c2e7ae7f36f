package layer

import (
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A Hold is the error of a layer that stops the reconcile. It says why a managed resource that is being deleted still
// exists.
type Hold struct {
	Reason  xpv2.ConditionReason
	Message string

	// After is when to reconcile again. Zero means the queue's backoff.
	After time.Duration

	// Cause is the error that upstream reports.
	Cause error
}

// Silently returns the Hold with a cause that upstream does not report: it only reconciles again.
func (h Hold) Silently(o client.Object) *Hold {
	h.Cause = seam.Conflict(o, h.Message)
	return &h
}

func (h *Hold) Error() string { return h.Cause.Error() }

// Unwrap returns the cause.
func (h *Hold) Unwrap() error { return h.Cause }

// HoldOf returns the Hold that err wraps, or nil.
func HoldOf(err error) *Hold {
	if err == nil {
		return nil // Before h, which is an allocation.
	}
	var h *Hold
	_ = errors.As(err, &h)
	return h
}

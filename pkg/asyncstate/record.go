package asyncstate

import (
	"cmp"
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// AnnotationKeyOperation is the annotation that holds the record of an object's operation,
// graft.crossplane.io/async-operation, from before the operation can reach the external
// system until its result is stored. Only Graft writes it. Removing it does not
// settle a create: docs/operators.md, CreateResultUnknown, says how to.
const AnnotationKeyOperation = creation.AnnotationKeyRecord

// A recordMaker makes the records of one tracker.
type recordMaker struct {
	// holder is the tracker. No other tracker has the same.
	holder string

	// timeout of an operation.
	timeout time.Duration
}

// next returns the record of the operation on o that follows had, or of the first operation if
// had is nil.
func (k recordMaker) next(o client.Object, typ Type, had *creation.Record) *creation.Record {
	r := creation.NewRecord(o, creation.OperationType(typ), k.holder, string(uuid.NewUUID()), time.Now(), k.timeout)

	if had != nil && had.Type == r.Type {
		r.Follows(had)
	}
	return r
}

// continued returns the record of the same attempt, which this tracker continues. If the attempt
// was repeated, its other requests may still be carried out.
func (k recordMaker) continued(had *creation.Record) *creation.Record {
	r, now := *had, metav1.NewTime(time.Now())
	r.Holder, r.Phase = k.holder, creation.RecordRunning
	if had.OpenUntil != nil {
		// From now on it is compared with the clock of this process.
		r.OpenUntil = &metav1.Time{Time: creation.Later(now.Time, had.OpenUntil.Sub(had.HolderStarted()))}
	}
	r.RepeatedAt, r.Deadline = &now, metav1.NewTime(creation.Later(now.Time, k.timeout))
	r.Ended, r.Abandoned = nil, false
	return &r
}

// repeated returns the record of the same attempt, which this tracker makes again. Another
// process may make the attempt until openUntil.
func (k recordMaker) repeated(had *creation.Record, openUntil time.Time) *creation.Record {
	r := k.continued(had)
	r.Repeated, r.OpenUntil = true, nil
	if openUntil.After(r.RepeatedAt.Time) {
		r.OpenUntil = &metav1.Time{Time: openUntil}
	}
	return r
}

// neverStarted reports whether this tracker recorded an operation that it did not begin. The
// cache may be stale, and the operation may have ended: the caller must act with a write that
// the API server refuses then.
func (k recordMaker) neverStarted(r *creation.Record) bool {
	return r != nil && r.Phase == creation.RecordRunning && r.Holder == k.holder && !r.Repeated && r.Name == "" &&
		r.Handle == ""
}

// failedRecord returns the record of an operation that ended with err. name is the external name that the operation
// itself set, if any.
//
// The external system has accepted a create that has a handle, and may carry it out although a later
// request was not served.
func failedRecord(r *creation.Record, err error, name string, at time.Time) *creation.Record {
	out, m := *r, failure.Of(err, at)
	out.Name = cmp.Or(name, r.Name)
	accepted := r.Type == creation.Create && r.Handle != "" && !errors.Is(err, ErrCancelled)
	return out.WithFailure(creation.Failure{
		At:        at,
		Class:     classOf(err),
		Unknown:   m.Answer == failure.NoAnswer || accepted && (m.Throttled || m.Answer >= failure.NotFound),
		Forgotten: m.Answer == failure.NotFound,
		Resumable: errors.Is(err, errStopped) || errors.Is(err, errNotStarted),
	})
}

// resultOf returns the changes that store how an operation ended. ended is its record after a failure.
func resultOf(o client.Object, ended *creation.Record, end ending) creation.Changes {
	// The record comes first: if it is another writer's, nothing else is compared.
	cs := creation.On(o)

	switch {
	case end.err != nil && ended.Type == creation.Create && ended.Phase == creation.RecordFailed:
		return cs.FailedWith(ended, end.err, end.at)
	case end.err != nil:
		return cs.WithRecord(ended)
	case ended.Type != creation.Create:
		return cs.WithoutRecord()
	}
	cs = cs.CreateSucceeded(ended, end.at)
	if name := cmp.Or(ended.Name, meta.GetExternalName(o)); name != "" {
		// Another writer may have changed the name of the external resource.
		cs = cs.Named(name)
	}
	return cs
}

// classOf returns the class of the error that an operation ended with. A record has no texts of
// errors, because more users may read annotations than status.
func classOf(err error) string {
	s, grpc := status.FromError(err)
	switch {
	case errors.Is(err, errPanicked), errors.Is(err, errExited):
		return "panic"
	case errors.Is(err, errInterrupted), errors.Is(err, errStopped):
		return "interrupted"
	case errors.Is(err, ErrCancelled):
		return "cancelled"
	case errors.Is(err, ErrDeadline), errors.Is(err, errNotEnded), errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	case grpc:
		return s.Code().String()
	case OutcomeUnknown(err):
		return "no answer"
	default:
		return "error"
	}
}

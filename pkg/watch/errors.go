package watch

import (
	"context"
	"fmt"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reasons why a kind can't be watched or read. Match with errors.Is against the
// error of any call that needs a kind's informer: StartWatches, Get, List
// and GetInformer.
var (
	ErrNoSuchKind   = errors.New("no such kind")                     // The API server doesn't serve the kind.
	ErrNotWatchable = errors.New("kind can't be listed and watched") // The kind is served without these verbs.
	ErrForbidden    = errors.New("forbidden")                        // Listing or watching the kind is.
	ErrNotSynced    = errors.New("informer isn't synced")            // There was not enough time, and no error.
	ErrUnreachable  = errors.New("API server can't be reached")      // Or its answers can't be used.
)

// Errors of calls. Match with errors.Is.
var (
	// ErrNotRunning is returned for a controller that isn't running, and to a reconcile of an
	// earlier controller of the same name.
	ErrNotRunning = errors.New("is not running")

	// ErrNotDrained is returned by Stop and StopWatches if a handler or a reconcile still runs.
	// The controller and its watches are stopped: no event is delivered any more.
	ErrNotDrained = errors.New("handlers or reconciles still run")

	// ErrInvalidWatch is returned for a watch without an object or a handler, with an object of
	// an unknown kind, or with a nil predicate.
	ErrInvalidWatch = errors.New("invalid watch")

	// ErrConflictingWatch is returned for a watch that exists for another representation
	// (typed, unstructured, metadata) of the same kind.
	ErrConflictingWatch = errors.New("conflicting watch")

	// ErrShutDown is returned after the cache has ended.
	ErrShutDown = errors.New("shut down")
)

// A KindError says why a kind can't be watched or read. It matches its reason and its cause,
// unless the cause is an API server's not found.
type KindError struct {
	GVK    schema.GroupVersionKind
	Reason error // One of ErrNoSuchKind, ErrNotWatchable, ErrForbidden, ErrNotSynced, ErrUnreachable.
	Err    error // Nil if there is nothing to add to the reason.
}

// Error names the kind, the reason, and the cause.
func (e *KindError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.GVK, e.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", e.GVK, e.Reason, e.Err)
}

// Unwrap returns the reason and the cause. It doesn't return a not found of the API server,
// because callers would treat it as a missing object. For a missing kind, meta.IsNoMatchError
// is true.
func (e *KindError) Unwrap() []error {
	out := []error{e.Reason}
	if errors.Is(e.Reason, ErrNoSuchKind) {
		out = append(out, &meta.NoKindMatchError{
			GroupKind:        e.GVK.GroupKind(),
			SearchedVersions: []string{e.GVK.Version},
		})
	}
	if e.Err != nil && !kerrors.IsNotFound(e.Err) {
		out = append(out, e.Err)
	}
	return out
}

// classify returns the KindError for an error of a look-up, a list or a watch.
func classify(gvk schema.GroupVersionKind, err error) *KindError {
	var ke *KindError
	if errors.As(err, &ke) {
		return ke
	}
	ke = &KindError{GVK: gvk, Reason: ErrUnreachable, Err: err}
	switch {
	case meta.IsNoMatchError(err):
		ke.Reason = ErrNoSuchKind
	case kerrors.IsMethodNotSupported(err):
		ke.Reason = ErrNotWatchable
	case kerrors.IsForbidden(err), kerrors.IsUnauthorized(err):
		ke.Reason = ErrForbidden
	case errors.Is(err, context.Canceled):
		ke.Reason = ErrNotSynced
	}
	return ke
}

// permanent reports whether retrying soon is no use: an operator must create the kind or grant
// access first.
func (e *KindError) permanent() bool {
	return errors.Is(e.Reason, ErrNoSuchKind) || errors.Is(e.Reason, ErrForbidden) ||
		errors.Is(e.Reason, ErrNotWatchable)
}

// missing reports whether the API server doesn't serve the kind. It is false for no error.
func (e *KindError) missing() bool {
	return e != nil && errors.Is(e.Reason, ErrNoSuchKind)
}

// reasons returns the label of each reason in metrics.
func reasons() map[error]string {
	return map[error]string{
		ErrNoSuchKind:   "NoSuchKind",
		ErrNotWatchable: "NotWatchable",
		ErrForbidden:    "Forbidden",
		ErrNotSynced:    "NotSynced",
		ErrUnreachable:  "Unreachable",
	}
}

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
// error of any call that needs a kind's informer: StartWatches, Get, List,
// GetInformer and IndexField.
var (
	ErrNoSuchKind   = errors.New("no such kind")                     // It isn't served, or its lists are answered by not found.
	ErrNotWatchable = errors.New("kind can't be listed and watched") // It is served without these verbs.
	ErrForbidden    = errors.New("forbidden")                        // To list or watch it.
	ErrNotSynced    = errors.New("informer isn't synced")            // In the time that the call had, and without an error.
	ErrUnreachable  = errors.New("API server can't be reached")      // Or doesn't give a usable answer.
)

// Errors of calls. Match with errors.Is.
var (
	// ErrNotRunning is for a call for a controller that isn't running, or from a
	// reconcile of an earlier controller of the same name.
	ErrNotRunning = errors.New("is not running")

	// ErrNotDrained is for a Stop or StopWatches that gave up waiting for a handler or a
	// reconcile. What it stopped stays stopped: nothing new is delivered.
	ErrNotDrained = errors.New("gave up waiting for what was running")

	// ErrInvalidWatch is for a watch without an object, or with one whose kind isn't
	// known, without a handler, or with a predicate that is nil.
	ErrInvalidWatch = errors.New("invalid watch")

	// ErrConflictingWatch is for a watch that is already there for another representation
	// (typed, unstructured, metadata) of the same kind.
	ErrConflictingWatch = errors.New("conflicting watch")

	// ErrShutDown is for a call after the cache was shut down.
	ErrShutDown = errors.New("shut down")
)

// A KindError says why a kind can't be watched or read. It matches its reason, and
// what the error that caused it matches, unless that is an API server's not found.
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

// Unwrap returns the reason and the cause. An API server reports a missing kind as it
// reports a missing object, and a caller must not take the one for the other. So a
// not found isn't returned: meta's IsNoMatchError is true then, and IsNotFound isn't.
func (e *KindError) Unwrap() []error {
	out := []error{e.Reason}
	if errors.Is(e.Reason, ErrNoSuchKind) {
		out = append(out, &meta.NoKindMatchError{GroupKind: e.GVK.GroupKind(), SearchedVersions: []string{e.GVK.Version}})
	}
	if e.Err != nil && !kerrors.IsNotFound(e.Err) {
		out = append(out, e.Err)
	}
	return out
}

// notRunning returns an error with the text that callers of upstream's engine know.
func notRunning(name string) error {
	return fmt.Errorf("controller %q %w", name, ErrNotRunning)
}

// classify returns what an error that was met on the way to an informer means.
func classify(gvk schema.GroupVersionKind, err error) *KindError {
	var ke *KindError
	if errors.As(err, &ke) {
		return ke
	}
	ke = &KindError{GVK: gvk, Reason: ErrUnreachable, Err: err}
	switch {
	case meta.IsNoMatchError(err), kerrors.IsNotFound(err):
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

// passing reports whether an error is part of an informer's normal life: a resource
// version that is too old. The informer deals with it at once.
func passing(err error) bool {
	return kerrors.IsResourceExpired(err) || kerrors.IsGone(err)
}

// verdict reports whether trying again soon is no use: the kind must be created or
// access must be granted first.
func (e *KindError) verdict() bool {
	return errors.Is(e.Reason, ErrNoSuchKind) || errors.Is(e.Reason, ErrForbidden) || errors.Is(e.Reason, ErrNotWatchable)
}

// reasons that kinds fail for, and the labels that metrics have.
func reasons() map[error]string {
	return map[error]string{
		ErrNoSuchKind:   "NoSuchKind",
		ErrNotWatchable: "NotWatchable",
		ErrForbidden:    "Forbidden",
		ErrNotSynced:    "NotSynced",
		ErrUnreachable:  "Unreachable",
	}
}

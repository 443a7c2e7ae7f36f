package asyncstate

import (
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// maxMessage is how many bytes of an error a condition quotes.
const maxMessage = 4 << 10

// An objectStore holds values about objects in memory between reconciles. The zero value is
// ready to use, and safe for concurrent use.
type objectStore struct {
	store.Store

	// firstSeen is when the tracker first saw a create whose outcome is unknown.
	firstSeen creation.FirstSeen

	details   store.Key[connectionDetails]
	successes store.Key[successes]
	failures  store.Key[operationError]
}

// connectionDetails were returned by an operation. They are kept until a reconcile has
// published them.
type connectionDetails struct {
	values upstream.ConnectionDetails
	served bool
}

// successes counts the operations of one type and one cause that succeeded, and whose effect is not observed. The
// external system may not show it for a while, or ever, and the end of an operation requeues the object at once.
type successes struct {
	times int
	next  time.Time

	// cause is an updateCause after an update, and a creation.Identity after a delete.
	cause any

	// found reports whether the external resource was found after the next delete was due.
	found bool
}

// An updateCause identifies the reason for an update: the spec, and the reconcile that a user
// requested.
type updateCause struct {
	generation int64
	requested  string
}

func updateCauseOf(o client.Object, generation int64) updateCause {
	return updateCause{generation, o.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt]}
}

// An operationError is the text of the error that an operation ended with. A record has only its class.
type operationError struct {
	typ    Type
	number int
	text   string

	// terminal reports whether the operation is not begun again before something changes.
	terminal bool
}

// keepDetails replaces the connection details of an earlier operation.
func (k *objectStore) keepDetails(o client.Object, cd upstream.ConnectionDetails) {
	if len(cd) > 0 {
		k.details.Update(&k.Store, o, func(d *connectionDetails) {
			*d = connectionDetails{values: maps.Clone(cd)}
		})
	}
}

// withDetails adds connection details that were returned by an operation, for the reconcile to publish.
func (k *objectStore) withDetails(mg resource.Managed, o upstream.ExternalObservation) upstream.ExternalObservation {
	kept := k.details.Get(&k.Store, mg).values
	if len(kept) == 0 {
		return o
	}
	k.details.Update(&k.Store, mg, func(d *connectionDetails) { d.served = true })

	// The client may return the same map for all of its objects.
	all := maps.Clone(kept)
	maps.Copy(all, o.ConnectionDetails)
	o.ConnectionDetails = all
	return o
}

// detailsPublished drops connection details that a reconcile was served and has published.
func (k *objectStore) detailsPublished(o client.Object) {
	if k.details.Get(&k.Store, o).served {
		k.dropDetails(o)
	}
}

func (k *objectStore) dropDetails(o client.Object) { k.details.Delete(&k.Store, o) }

// noteSucceeded records that an update or delete succeeded. The next one waits, because an external system may not
// show the update at once, and most external resources exist for a while after a delete.
func (k *objectStore) noteSucceeded(o client.Object, cause any, b backoff) {
	k.successes.Update(&k.Store, o, func(s *successes) {
		if s.cause != cause {
			*s = successes{cause: cause}
		}
		s.times++
		s.next, s.found = time.Now().Add(b.after(s.times)), false
	})
}

// noteObserved records an observation of the external resource of an object. The next update does not wait after
// one that is visible. An external resource that is found counts when the next delete is due.
func (k *objectStore) noteObserved(o client.Object, seen upstream.ExternalObservation) {
	s := k.successes.Get(&k.Store, o)
	switch s.cause.(type) {
	case updateCause:
		if seen.ResourceUpToDate {
			k.successes.Delete(&k.Store, o)
		}
	case creation.Identity:
		if seen.ResourceExists && !time.Now().Before(s.next) {
			k.successes.Update(&k.Store, o, func(s *successes) { s.found = true })
		}
	}
}

// deleteSucceeded reports whether a delete of the external resource of o has succeeded, and nothing
// has found it since.
func (k *objectStore) deleteSucceeded(o client.Object) bool {
	s := k.successes.Get(&k.Store, o)
	return !s.found && s.cause == creation.IdentityOf(o)
}

// untilNextDelete returns how long the next delete has to wait. It is not positive if the
// delete may begin.
func (k *objectStore) untilNextDelete(o client.Object) time.Duration {
	s := k.successes.Get(&k.Store, o)
	if _, ok := s.cause.(creation.Identity); !ok {
		return 0
	}
	return time.Until(s.next)
}

// untilNextUpdate returns how long the next update has to wait. It is not positive if the update
// may begin. A changed spec and a requested reconcile end the wait.
func (k *objectStore) untilNextUpdate(o client.Object) time.Duration {
	s := k.successes.Get(&k.Store, o)
	if s.cause != updateCauseOf(o, o.GetGeneration()) {
		return 0
	}
	return time.Until(s.next)
}

// keepFailure keeps the error that r ended with.
func (k *objectStore) keepFailure(o client.Object, r *creation.Record, err error) {
	k.failures.Update(&k.Store, o, func(f *operationError) {
		*f = operationError{
			typ: Type(r.Type), number: r.Failures, text: creation.Clean(err.Error(), maxMessage),
			terminal: r.Type != creation.Delete && failure.Of(err, time.Now()).Terminal,
		}
	})
}

// dropFailure drops the text of an error, after a success.
func (k *objectStore) dropFailure(o client.Object) { k.failures.Delete(&k.Store, o) }

// failure returns the error that r ended with. It is the zero value if this process does not know
// it, or r is nil.
func (k *objectStore) failure(o client.Object, r *creation.Record) operationError {
	if r == nil {
		return operationError{}
	}
	if f := k.failures.Get(&k.Store, o); f.typ == Type(r.Type) && f.number == r.Failures {
		return f
	}
	return operationError{}
}

// lastError returns the error that r ended with: its class if this process does not know its
// text.
func (k *objectStore) lastError(o client.Object, r *creation.Record) error {
	if text := k.failure(o, r).text; text != "" {
		return errors.New(text)
	}
	return errors.New(r.Error)
}

package asyncstate

import (
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
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
	deletions store.Key[successes]
	updates   store.Key[successes]
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
	cause any

	// found reports whether the external resource was found after the next delete was due.
	found bool
}

// add a success for a cause.
func (s *successes) add(cause any, b backoff) {
	s.times++
	s.cause, s.next, s.found = cause, time.Now().Add(b.after(s.times)), false
}

// An updateCause identifies the reason for an update: the spec, and the reconcile that a user
// requested. The external name is not part of it, because each update may change the name.
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

// A reconcileEnd passes to the write of status how its reconcile ended.
type reconcileEnd struct {
	// stopped is why the reconcile stopped at an interrupted create.
	stopped error

	// failed means that the reconcile returned the error of an operation.
	failed bool
}

// keepDetails replaces the connection details of an earlier operation.
func (k *objectStore) keepDetails(o client.Object, cd upstream.ConnectionDetails) {
	if len(cd) > 0 {
		k.details.Update(&k.Store, o, func(d *connectionDetails) {
			*d = connectionDetails{values: maps.Clone(cd)}
		})
	}
}

// serveDetails returns the connection details of an object for a reconcile to publish.
func (k *objectStore) serveDetails(o client.Object) upstream.ConnectionDetails {
	if k.details.Get(&k.Store, o).values == nil {
		return nil
	}
	return k.details.Update(&k.Store, o, func(d *connectionDetails) { d.served = true }).values
}

// detailsPublished drops connection details that a reconcile was served and has published.
func (k *objectStore) detailsPublished(o client.Object) {
	if k.details.Get(&k.Store, o).served {
		k.dropDetails(o)
	}
}

func (k *objectStore) dropDetails(o client.Object) { k.details.Delete(&k.Store, o) }

// noteDeleteSucceeded records that a delete succeeded. The next one waits, because most external
// resources exist for a while after that.
func (k *objectStore) noteDeleteSucceeded(o client.Object, b backoff) {
	k.deletions.Update(&k.Store, o, func(s *successes) { s.add(creation.IdentityOf(o), b) })
}

// noteFound records that the external resource of o was found. It does not count before the next
// delete is due.
func (k *objectStore) noteFound(o client.Object) {
	if d := k.deletions.Get(&k.Store, o); d.times > 0 && !time.Now().Before(d.next) {
		k.deletions.Update(&k.Store, o, func(s *successes) { s.found = true })
	}
}

// deleteSucceeded reports whether a delete of the external resource of o has succeeded, and nothing
// has found it since.
func (k *objectStore) deleteSucceeded(o client.Object) bool {
	d := k.deletions.Get(&k.Store, o)
	return d.times > 0 && !d.found && d.cause == creation.IdentityOf(o)
}

// untilNextDelete returns how long the next delete has to wait. It is not positive if the
// delete may begin.
func (k *objectStore) untilNextDelete(o client.Object) time.Duration {
	return time.Until(k.deletions.Get(&k.Store, o).next)
}

// noteUpdateSucceeded records that an update of a generation succeeded. The next one waits, because
// an external system may not show the update at once.
func (k *objectStore) noteUpdateSucceeded(o client.Object, generation int64, b backoff) {
	k.updates.Update(&k.Store, o, func(s *successes) {
		cause := updateCauseOf(o, generation)
		if s.cause != cause {
			*s = successes{}
		}
		s.add(cause, b)
	})
}

// noteUpToDate records that the external resource of o was up to date. The next update does not wait.
func (k *objectStore) noteUpToDate(o client.Object) { k.updates.Delete(&k.Store, o) }

// untilNextUpdate returns how long the next update has to wait. It is not positive if the update
// may begin. A changed spec and a requested reconcile end the wait.
func (k *objectStore) untilNextUpdate(o client.Object) time.Duration {
	u := k.updates.Get(&k.Store, o)
	if u.cause != updateCauseOf(o, o.GetGeneration()) {
		return 0
	}
	return time.Until(u.next)
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

package deletion

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// Event reasons.
const (
	reasonDeadlineExceeded  event.Reason = "DeletionDeadlineExceeded"
	reasonForceOrphaned     event.Reason = "ForceOrphaned"
	reasonCannotForceOrphan event.Reason = "CannotForceOrphan"
)

// An Escape is the deadline of the deletions of one kind, and force orphan: an operator's
// request to remove finalizers. The report of a deletion belongs to its user.
type Escape struct {
	Kind    schema.GroupVersionKind
	Objects seam.Kind
	Client  client.Client
	Live    client.Reader
	Log     logging.Logger
	Record  event.Recorder

	// Deadline is zero if there is none. Exceeded is called when it has passed, unless it is
	// nil.
	Deadline time.Duration
	Exceeded func(ctx context.Context, o client.Object)

	// Removable has the finalizers that force orphan removes. Own has the finalizers that the
	// inner reconciler removes.
	Removable, Own []string

	// Runs returns the operation that may run at that time on the external resource of an object. Force orphan waits
	// for its end. It is creation.RunsUntil by default.
	Runs func(o client.Object, now time.Time) creation.Run

	// Metrics is nil if deletions are not counted.
	Metrics Metrics

	// Store holds the values of objects that are being deleted. They are forgotten when the
	// object no longer exists.
	Store  store.Store
	states store.Key[state]

	// begun is the time at which the reconcile began. A deadline that passes later is for the
	// next reconcile, which records the event.
	begun seam.Slot[time.Time]
}

// Metrics count deletions.
type Metrics interface {
	Exceeded()
	Orphaned()
	Took(d time.Duration)
}

// state is the state of one deletion between reconciles. A restart may lose it.
type state struct {
	// since is the time at which the deletion was requested.
	since time.Time

	// gone means that the object no longer exists. A stale cache may still return it.
	gone bool

	// exceeded and orphaning say which events were recorded. orphaning is about the last request.
	exceeded, orphaning bool

	// keptOwned is the time at which the object was last deleted with the propagation policy
	// Orphan. refused is the message of a refused request to orphan the object.
	keptOwned time.Time
	refused   string
}

// CheckDeadline returns an error if d is not a valid deadline.
func CheckDeadline(d time.Duration) error {
	if d <= 0 {
		return errors.Errorf("was given %s: a deadline must be longer than zero", d)
	}
	return nil
}

// CheckFinalizers returns an error unless finalizers names some, of which none is empty or the garbage collector's.
func CheckFinalizers(finalizers []string) error {
	if len(finalizers) == 0 || slices.Contains(finalizers, "") {
		return errors.New("was given no finalizers, or an empty one: name those that may be removed")
	}
	for _, f := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		if slices.Contains(finalizers, f) {
			return errors.Errorf(
				"was given the garbage collector's finalizer %q: leave it out, since only the garbage collector removes it",
				f,
			)
		}
	}
	return nil
}

// Patch returns the patch of a user that reports the deletion itself, in a patch that is
// applied earlier.
func (e *Escape) Patch() seam.Patch {
	return seam.Patch{Open: e.open, Close: e.close, Gone: e.Gone}
}

func (e *Escape) open(ctx context.Context, s *seam.Session, o client.Object) error {
	e.ForgetFormer(s, o)
	if !meta.WasDeleted(o) {
		return nil
	}
	e.Remember(o)
	e.Begin(s)
	news := false
	err := s.Announce(ctx, o, e.failed, func(server client.Object) []xpv2.Condition {
		c := e.Objects.ConditionOf(server, Type)
		if c.Reason, c.Message, news = e.Announced(s, server, c.Reason, c.Message); !news {
			return nil
		}
		return Conditions(s.Now(), c.Reason, c.Message)
	})
	if err := e.Notify(ctx, o, news, err); err != nil {
		return err
	}
	e.RequeueAtDeadline(s) // A later patch may postpone the reconcile.
	return e.ForceOrphan(ctx, s, o)
}

// close requeues the object at the deadline.
func (e *Escape) close(ctx context.Context, s *seam.Session) error {
	e.RequeueAtDeadline(s)
	return e.reportRefusal(ctx, s)
}

// ForgetFormer forgets an earlier object with the name of o, which no longer exists.
func (e *Escape) ForgetFormer(s *seam.Session, o client.Object) {
	if uid, ok := e.Store.UID(s.Key()); ok && uid != o.GetUID() {
		e.forget(s, uid)
	}
}

// Remember an object that is being deleted.
func (e *Escape) Remember(o client.Object) {
	e.states.Update(&e.Store, o, func(v *state) { v.since = o.GetDeletionTimestamp().Time })
}

// Begin sets the time that decides whether the deadline has passed. Without it, an object has
// no deadline.
func (e *Escape) Begin(s *seam.Session) { *e.begun.In(s) = s.Now() }

// Gone forgets the object, which no longer exists.
func (e *Escape) Gone(s *seam.Session) {
	if uid, ok := e.Store.UID(s.Key()); ok {
		e.forget(s, uid)
	}
}

// IsGone reports whether the object no longer exists: a cache may be stale.
func (e *Escape) IsGone(o client.Object) bool { return e.states.Get(&e.Store, o).gone }

// failed records that conditions could not be written.
func (e *Escape) failed(o client.Object, err error) { CannotReport(e.Log, e.Record, o, err) }

// forget an object that no longer exists. It is remembered as gone while the cache returns it.
func (e *Escape) forget(s *seam.Session, uid types.UID) {
	o := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Key().Namespace, Name: s.Key().Name, UID: uid},
	}
	had := e.states.Get(&e.Store, o)
	if cached := s.Base(); cached == nil || cached.GetUID() != uid {
		e.Store.Forget(s.Key())
	} else {
		e.states.Update(&e.Store, o, func(v *state) { v.gone = true })
	}
	if e.Metrics != nil && !had.gone {
		e.Metrics.Took(s.Now().Sub(had.since))
	}
}

// RequeueAtDeadline requeues an object that is being deleted at its deadline.
func (e *Escape) RequeueAtDeadline(s *seam.Session) {
	if o := s.Base(); meta.WasDeleted(o) && e.Deadline > 0 && !e.isExceeded(s, o) {
		s.Requeue(seam.Deadline(e.deadlineOf(o).Sub(s.Now())))
	}
}

// Announced returns the reason and the message to announce instead of the supplied ones, which
// the API server has. It is true if they are about a deadline that has passed since.
func (e *Escape) Announced(
	s *seam.Session, server client.Object, reason xpv2.ConditionReason, message string,
) (xpv2.ConditionReason, string, bool) {
	if !e.isExceeded(s, server) || reason == ReasonDeadlineExceeded || e.keepsReason(server, reason) {
		return reason, message, false
	}
	return ReasonDeadlineExceeded, Cut(e.late(server, message), MaxMessageLength), true
}

// Notify records once that the deadline has passed, if news is true: the condition on the API server does not say so
// yet. err is the error of the write that says so. Another writer may have come first if it is a conflict.
func (e *Escape) Notify(ctx context.Context, o client.Object, news bool, err error) error {
	known := e.states.Get(&e.Store, o)
	if !news || known.exceeded || known.gone || kerrors.IsConflict(err) {
		return err
	}
	e.states.Update(&e.Store, o, func(v *state) { v.exceeded = true })
	message := Cut(e.late(o, "It is still there: see the Deleting condition."), maxEventLength)
	e.Log.Info("Deletion takes longer than its deadline", "uid", o.GetUID(), "deadline", e.Deadline)
	e.Record.Event(o, event.Warning(reasonDeadlineExceeded, errors.New(message)))
	if e.Metrics != nil {
		e.Metrics.Exceeded()
	}
	if e.Exceeded != nil {
		e.Exceeded(ctx, o)
	}
	return err
}

// Report returns the reason and the message to report instead of the supplied ones.
func (e *Escape) Report(
	s *seam.Session, o client.Object, reason xpv2.ConditionReason, message string,
) (xpv2.ConditionReason, string) {
	switch {
	case len(e.toOrphan(o)) > 0:
		reason, message = ReasonForceOrphaned, e.orphanMessage(s.Now(), o)
	case e.keepsReason(o, e.Objects.ConditionOf(s.Base(), Type).Reason):
		reason, message = ReasonForceOrphaned, messageOrphaned+" "+message
	case e.isExceeded(s, o):
		reason, message = ReasonDeadlineExceeded, e.late(o, message)
	}
	return reason, e.Message(s.Now(), message, o)
}

func (e *Escape) deadlineOf(o client.Object) time.Time {
	return o.GetDeletionTimestamp().Add(e.Deadline)
}

func (e *Escape) isExceeded(s *seam.Session, o client.Object) bool {
	return e.Deadline > 0 && !e.begun.In(s).Before(e.deadlineOf(o))
}

// late returns the message with the deadline.
func (e *Escape) late(o client.Object, message string) string {
	return fmt.Sprintf("The deadline for the deletion was %s. %s", seam.Stamp(e.deadlineOf(o)), message)
}

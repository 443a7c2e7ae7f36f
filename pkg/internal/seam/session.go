package seam

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
)

// A Session is the state of one reconcile of one object, which the seams and the patches
// share. One goroutine at a time uses it: the one that has locked it or, while no request
// is in flight, the goroutine of the reconcile.
type Session struct {
	// turn holds a value while the session is locked.
	turn chan struct{}

	key       client.ObjectKey
	kind      Kind
	options   Options
	client    client.Client
	histories *histories
	patches   []Patch

	// base is the newest state of the object that the API server is known to have had.
	// Nothing else shares its memory.
	base client.Object

	// known is true while base is the complete object at its resource version, which is not
	// older than the last write of this process. After a write past the client seam or in another form, and after one
	// without an answer, it is false.
	known bool

	// storedAnnotations are the annotations at the time of Connect, and those stored since.
	// It is never nil once the object was read.
	storedAnnotations map[string]string

	// replacedAnnotations are the earlier values of storedAnnotations.
	replacedAnnotations []map[string]string

	// unopened is true if a patch failed before the inner reconciler saw the object.
	unopened bool

	statusWritten bool

	// statusRefused is true if the API server refused the last status write.
	statusRefused bool

	unannounced bool
	gone        bool
	requeue     Requeue
	slots       []slot
	firstSlots  [2]slot
	meter       limit.Meter
}

type sessionKey struct{}

// From returns the session of the reconcile that ctx belongs to, or nil.
func From(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

func with(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// lock waits until no other goroutine of the reconcile uses the session, or returns the error of ctx.
func (s *Session) lock(ctx context.Context) error {
	// A session that is free is locked even if ctx is done.
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}

	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) unlock() { <-s.turn }

// named reports whether o has the name of this session's object.
func (s *Session) named(o client.Object) bool {
	return s != nil && o.GetName() == s.key.Name && o.GetNamespace() == s.key.Namespace
}

// Tracks reports whether o is the object of this session, in the form in which it was first
// read.
func (s *Session) Tracks(o client.Object) bool {
	return s.named(o) && s.base != nil && o.GetUID() == s.base.GetUID() && s.tracksForm(o)
}

// Key returns the name of the object.
func (s *Session) Key() client.ObjectKey { return s.key }

// Base returns the newest state of the object that the API server is known to have had, or
// nil if the object has not been read. The caller must not change it.
func (s *Session) Base() client.Object { return s.base }

// Gone reports whether the object is known to no longer exist.
func (s *Session) Gone() bool { return s != nil && s.gone }

// Moved reports whether the object is known to have changed since o was read, or to no
// longer exist. A read that is older than the last write through the seams is stale, too.
func (s *Session) Moved(o client.Object) bool {
	switch {
	case s == nil:
		return false
	case s.gone:
		return true
	default:
		return s.Tracks(o) && (o.GetResourceVersion() != s.base.GetResourceVersion() ||
			OlderThan(o.GetResourceVersion(), s.histories.get(o).version))
	}
}

// StatusWritten reports whether the inner reconciler wrote, or would have written,
// the object's status.
func (s *Session) StatusWritten() bool { return s.statusWritten }

// StatusRefused reports whether the API server refused the last status write of the inner
// reconciler, together with the conditions of the patches.
func (s *Session) StatusRefused() bool { return s.statusRefused }

// Unannounced reports whether conditions could not be announced in this reconcile: a retry
// would fail, too.
func (s *Session) Unannounced() bool { return s.unannounced }

// Knows reports whether Base is known to be what the API server has at the resource version of o.
func (s *Session) Knows(o client.Object) bool {
	return s.Tracks(o) && s.known && o.GetResourceVersion() == s.base.GetResourceVersion()
}

// noteGone notes that the object no longer exists. A cache may still have it, so the store
// keeps its values until a read does not find the object.
func (s *Session) noteGone() {
	s.gone = true
	for _, p := range s.patches {
		if p.Gone != nil {
			p.Gone(s)
		}
	}
}

// Meter returns what charges the calls of the external system. Operations that outlive the
// reconcile use it, too. It charges nothing without a session.
func (s *Session) Meter() *limit.Meter {
	if s == nil {
		return nil
	}
	return &s.meter
}

// Now returns the time.
func (s *Session) Now() time.Time { return s.options.Now() }

// Requeue merges r with earlier requests of this reconcile. Backoff comes first; two
// delays of the same kind become the shorter one.
func (s *Session) Requeue(r Requeue) {
	s.requeue = Requeue{
		backoff:  s.requeue.backoff || r.backoff,
		within:   shorter(s.requeue.within, r.within),
		instead:  shorter(s.requeue.instead, r.instead),
		deadline: shorter(s.requeue.deadline, r.deadline),
	}
}

// setBase makes o the newest known state. The caller must not use o afterwards.
func (s *Session) setBase(o client.Object, known bool) { s.base, s.known = o, known }

// open starts the session with o as it was first read.
func (s *Session) open(ctx context.Context, o client.Object) error {
	s.histories.store.Claim(o)
	s.setBase(clone(o), s.histories.get(o).fresh(o.GetResourceVersion()))
	s.nothingToStore(s.base)

	for _, p := range s.patches {
		if p.Open == nil {
			continue
		}
		if err := p.Open(ctx, s, o); err != nil {
			s.unopened = true
			return err
		}
	}

	s.unopened = false

	// An announcement without anything to write succeeds while the API server stores no status. So
	// one alone must not end the count of failures.
	if !s.unannounced && s.histories.get(o).failures > 0 {
		s.histories.update(o, func(v *history) { v.failures = 0 })
	}
	return nil
}

// Connecting notes the annotations of o before the external client sees them. Those that
// initializers have set count as stored: they are not the external client's.
func (s *Session) Connecting(o client.Object) {
	if !s.Tracks(o) {
		return
	}
	if o.GetResourceVersion() != s.base.GetResourceVersion() {
		s.NoteDirectWrite(o)
		s.base.SetAnnotations(maps.Clone(o.GetAnnotations()))
	}
	s.nothingToStore(o)
}

// nothingToStore notes that the annotations of o are stored, or must not be.
func (s *Session) nothingToStore(o client.Object) {
	if s.storedAnnotations != nil && maps.Equal(s.storedAnnotations, o.GetAnnotations()) {
		return
	}
	if s.storedAnnotations != nil {
		s.replacedAnnotations = append(s.replacedAnnotations, s.storedAnnotations)
	}
	if s.storedAnnotations = o.GetAnnotations(); o != s.base {
		s.storedAnnotations = maps.Clone(s.storedAnnotations)
	}
	if s.storedAnnotations == nil {
		s.storedAnnotations = map[string]string{}
	}
}

// NoteDirectWrite notes that o was written past the client seam: by a provider, an initializer
// or a finalizer with its own client.
//
// That client has decoded the API server's answer into o, which may also have changes that
// were not sent. So base takes over only status and the values that the API server sets.
// All other differences between o and base stay changes.
func (s *Session) NoteDirectWrite(o client.Object) {
	if !s.Tracks(o) || o.GetResourceVersion() == s.base.GetResourceVersion() {
		return
	}
	is := clone(s.base)
	bookkeeping(is, o)
	is.SetFinalizers(slices.Clone(o.GetFinalizers()))
	is.SetDeletionTimestamp(o.GetDeletionTimestamp().DeepCopy())
	is.SetDeletionGracePeriodSeconds(o.GetDeletionGracePeriodSeconds())
	s.kind.moveStatus(is, clone(o))
	s.noteWrite(is, false)
}

// noteWrite notes that o is the state after a write through the seams, from the answer or from
// a later read. whole says that o is all that the API server has. The caller must not use o
// afterwards.
func (s *Session) noteWrite(o client.Object, whole bool) {
	s.histories.noteWrite(o)
	s.setBase(o, whole && s.histories.get(o).fresh(o.GetResourceVersion()))
}

// doubt notes that base may lack a write of this process. So the next status write is made, also if it seems to change
// nothing, and a read that is not newer than base is repeated on the API server.
func (s *Session) doubt() {
	if s.base != nil {
		s.known = false
		s.histories.doubted(s.base)
	}
}

// passThrough makes a write that the client seam does not change. o is the object that it has the answer of, or nil.
func (s *Session) passThrough(o client.Object, write func() error) error {
	err := write()
	switch {
	case o == nil, s.base == nil, o.GetUID() == "":
		s.doubt()
	case o.GetUID() == s.base.GetUID():
		if s.doubt(); err == nil {
			s.histories.noteWrite(o)
		}
	}
	return err
}

// noteFailure notes that a write of status has failed. Unless the API server has refused it, it may have been done.
func (s *Session) noteFailure(err error) {
	if err != nil && !kerrors.IsConflict(err) && !kerrors.IsTooManyRequests(err) && !Permanent(err) {
		s.doubt()
	}
}

// KeepStatus calls fn, which may write o past the client seam, and keeps the status in
// memory: the client of fn decodes the API server's answer into o.
//
// If the answer shows that another writer has written status, o keeps that status, and the
// object is reconciled again.
func (s *Session) KeepStatus(o client.Object, fn func() error) error {
	if !s.Tracks(o) || s.kind.status == nil {
		return fn()
	}
	before, kept := o.GetResourceVersion(), Empty(o)
	// Only a status that was read from base can be told from another writer's.
	known := before == s.base.GetResourceVersion()
	s.kind.moveStatus(kept, o)
	s.kind.moveStatus(o, clone(s.base))
	err := fn()
	if err == nil && o.GetResourceVersion() != before {
		s.nothingToStore(o)
	}

	switch {
	case o.GetResourceVersion() == before:
		s.kind.moveStatus(o, kept)
	case known && s.kind.statusEqual(o, s.base):
		s.noteWrite(clone(o), s.known)
		s.kind.moveStatus(o, kept)
	default:
		s.NoteDirectWrite(o)
		s.Requeue(WithBackoff())
	}
	return err
}

// bookkeeping copies the metadata that only the API server sets.
func bookkeeping(dst, src client.Object) {
	dst.SetResourceVersion(src.GetResourceVersion())
	dst.SetGeneration(src.GetGeneration())
	dst.SetManagedFields(slices.Clone(src.GetManagedFields()))
}

// sameButKind reports whether a and b are equal but for the kind in typed objects, which a
// cache sets and an API server does not. It gives a the kind of b.
func sameButKind(a, b client.Object) bool {
	a.GetObjectKind().SetGroupVersionKind(b.GetObjectKind().GroupVersionKind())
	return same(reflect.ValueOf(a), reflect.ValueOf(b)) || storedEqual(a, b)
}

// OnlyAnnotationsDiffer reports whether the only changes of o are annotations that were set,
// and status.
func (s *Session) OnlyAnnotationsDiffer(o client.Object) bool {
	if !s.Tracks(o) {
		return false
	}
	if _, ok := s.kind.statusOf(o); !ok {
		return false
	}
	for k := range s.base.GetAnnotations() {
		if _, ok := o.GetAnnotations()[k]; !ok {
			return false
		}
	}

	want := clone(s.base)
	want.SetAnnotations(o.GetAnnotations())
	bookkeeping(want, o)
	got := clone(o)
	s.kind.moveStatus(got, clone(want))
	return sameButKind(want, got)
}

// tracksForm reports whether a read of the session's key into o is a read of its object.
func (s *Session) tracksForm(o client.Object) bool {
	return s.kind.Has(o) && (s.base == nil || reflect.TypeOf(o) == reflect.TypeOf(s.base))
}

// reread makes the state on the API server itself the newest known one.
func (s *Session) reread(ctx context.Context) error {
	live, err := liveState(ctx, s.options.Live, s.base)
	if err != nil {
		return err
	}
	if live == nil {
		s.noteGone()
		return kerrors.NewNotFound(schema.GroupResource{}, s.key.Name)
	}
	s.setBase(live, s.histories.get(live).fresh(live.GetResourceVersion()))
	return nil
}

// Rebase gives o the newest known state if o has another version, and reports whether it did. o
// keeps the status in memory, unless another writer has changed it since read, the state that o
// had when it was last stored. Its other unstored changes are dropped.
//
// The API server would refuse a write of status with the old version. Call it only when no
// decision follows: upstream has decided from the old state.
func (s *Session) Rebase(o, read client.Object) bool {
	if !s.Tracks(o) || s.gone || !s.known || o.GetResourceVersion() == s.base.GetResourceVersion() {
		return false
	}
	kept := clone(o)
	move(o, clone(s.base))
	if s.kind.statusEqual(read, s.base) {
		s.kind.moveStatus(o, kept)
	}
	s.nothingToStore(s.base)
	return true
}

// Reread gives o, which the inner reconciler has not changed yet, the state on the API server itself, if that can be
// read and is newer.
func (s *Session) Reread(ctx context.Context, o client.Object) {
	live, err := liveState(ctx, s.options.Live, o)
	if err == nil && live != nil && OlderThan(s.base.GetResourceVersion(), live.GetResourceVersion()) {
		s.noteWrite(live, false)
		s.Refresh(o)
	}
}

// Refresh gives o, which the inner reconciler has not changed yet, the newest known state.
// A write or a live read must have returned that state. o may lack it although it has its
// resource version.
func (s *Session) Refresh(o client.Object) {
	move(o, clone(s.base))
	s.known = s.histories.get(s.base).fresh(s.base.GetResourceVersion())
}

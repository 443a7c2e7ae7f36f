package seam

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// storeTimeout bounds all the work of storing annotations once. It has a
	// context of its own: the caller's may be cancelled exactly because the
	// call that learned the external name took too long.
	storeTimeout = 30 * time.Second

	firstStoreDelay = 50 * time.Millisecond
	lastStoreDelay  = 5 * time.Second

	// storeAttempts is how often a write is tried if the next reconcile tries again.
	// resultAttempts is how often a result is tried that is only in memory.
	storeAttempts  = 4
	resultAttempts = 12
)

// AnnotationKeyRecord is the annotation that holds the record of an asynchronous
// operation.
const AnnotationKeyRecord = "graft.crossplane.io/async-operation"

// A Change is an annotation that was set, or set to something else.
type Change struct {
	Key   string
	Value string

	// Was is what the annotation said before, if it was there.
	Was     string
	Existed bool

	// Remove takes the annotation away, if it says what it was.
	Remove bool

	// Result means that an earlier reconcile could not store this result: the rule Result
	// applies to it.
	Result bool
}

// yields reports whether a change never replaces the value of another writer. A record and
// the announcement of a create belong to the process that wrote them.
func (c Change) yields() bool {
	return c.Key == AnnotationKeyRecord || c.Key == meta.AnnotationKeyExternalCreatePending
}

// Changes are sorted by key.
type Changes []Change

// A Rule says what is stored if another writer has changed the object since it was read.
type Rule int

const (
	// Observed stores what another writer has not changed. If another writer has set one
	// of the annotations to another value, that value stays, and a conflict is returned.
	Observed Rule = iota

	// Decided stores nothing if the object has changed in any way, and returns a conflict:
	// the decision may be wrong for the object as it is now.
	Decided

	// Result replaces the values of other writers, because the result of a create is known
	// only once. Only a record, and the announcement of another create, stay.
	Result
)

// An Overwrote function is called for each value of another writer that is replaced.
type Overwrote func(key, theirs, ours string)

// ChangedAnnotations returns the annotations of o that were set since the
// session last knew them to be stored. Annotations that were removed, and an
// external name that was emptied, are not among them: nothing that was stored
// is ever taken away.
func (s *Session) ChangedAnnotations(o client.Object) Changes {
	if !s.Tracks(o) {
		return nil
	}
	var cs Changes

	for k, v := range o.GetAnnotations() {
		was, existed := s.stored[k]

		// What is not UTF-8 is stored as runes are.
		if existed && (was == v || was == string([]rune(v))) || k == meta.AnnotationKeyExternalName && v == "" {
			continue
		}
		cs = append(cs, Change{Key: k, Value: v, Was: was, Existed: existed})
	}

	slices.SortFunc(cs, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return cs
}

// Replaced reports whether a change is back to what the annotation said earlier in this
// reconcile. In an object that was read again from a cache it is no change.
func (s *Session) Replaced(c Change) bool {
	return slices.ContainsFunc(s.replaced, func(as map[string]string) bool {
		was, existed := as[c.Key]
		return existed && was == c.Value
	})
}

// Lacks reports whether o is without an annotation that says which external resource
// there is, and could not be stored yet. An object that was read again is.
func (s *Session) Lacks(o client.Object) bool {
	return s.Tracks(o) && slices.ContainsFunc(s.writes.get(o).pending.identifying(), func(c Change) bool { return o.GetAnnotations()[c.Key] != c.Value })
}

// StoreAnnotations stores exactly these annotations on the API server, even if ctx is
// done. o keeps what is in memory; its resource version follows if
// no other writer wrote in between, and else stays, so that the next write made from
// o meets a conflict.
//
// An object that is gone needs nothing stored, which is no error. What could not
// be stored is stored before the next reconcile of the object does anything else. Left out
// is what the API server refuses, unless it says which external resource there is, and a
// decision, which the next reconcile makes again. A conflict (errors.IsConflict) means that
// another writer set one of the annotations to another value.
func (s *Session) StoreAnnotations(ctx context.Context, o client.Object, cs Changes, rule Rule, ow Overwrote) error {
	return s.storeAnnotations(ctx, o, cs, rule, ow, rule != Decided)
}

// TryStoreAnnotations is StoreAnnotations for callers that store again themselves what could
// not be stored.
func (s *Session) TryStoreAnnotations(ctx context.Context, o client.Object, cs Changes, rule Rule, ow Overwrote) error {
	return s.storeAnnotations(ctx, o, cs, rule, ow, false)
}

func (s *Session) storeAnnotations(ctx context.Context, o client.Object, cs Changes, rule Rule, ow Overwrote, keep bool) error {
	if len(cs) == 0 || s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	current := s.base
	if o.GetResourceVersion() != current.GetResourceVersion() {
		// Not what we know: let the API server judge by o's version.
		current = clone(o)
	}

	w := Writer{Client: s.client, Live: s.options.Live, Wait: s.options.Wait}
	if keep && rule == Result {
		w.Attempts = resultAttempts
	}
	server, followed, err := w.Store(ctx, current, cs, rule, ow)
	if err != nil && server != nil {
		s.wrote(server, true)
	}

	if IsOverruled(err) || err != nil && !keep {
		return err
	}
	if err != nil {
		left := slices.Clone(cs)

		if IsRefused(err) {
			// It will be refused again, and with it each write of the whole object.
			left = left.identifying()
			if server != nil {
				s.keep(left)
				left = nil
			}
		}

		for i := range left {
			left[i].Result = left[i].Result || rule == Result
		}
		s.writes.update(s.base, func(e *written) { e.pending = merged(e.pending.without(cs), left) })
		return err
	}

	if keep {
		s.writes.update(s.base, func(e *written) { e.pending = e.pending.without(cs) })
	}

	if server == nil {
		s.ended()
		return nil
	}

	s.keep(cs)
	if followed {
		o.SetResourceVersion(server.GetResourceVersion())
	}
	s.wrote(server, true)
	return nil
}

// keep notes that changes are stored.
func (s *Session) keep(cs Changes) {
	s.replaced = append(s.replaced, maps.Clone(s.stored))
	for _, c := range cs {
		if c.Remove {
			delete(s.stored, c.Key)
		} else {
			s.stored[c.Key] = c.Value
		}
	}
}

// A Writer stores annotations. It needs no session, and is safe for concurrent
// use if what it is made of is.
type Writer struct {
	Client client.Client

	// Live reads from the API server itself.
	Live client.Reader

	// Wait waits, or returns the context's error.
	Wait func(ctx context.Context, d time.Duration) error

	// Attempts is how often a write is tried. The default is 4.
	Attempts int
}

// Store puts exactly these annotations on the API server, if current's object is
// still there. It returns the object as the API server then has it, or nil if it
// is gone; and whether nothing but the annotations changed since current.
//
// It may return an object together with an error. With a conflict (IsOverruled) it has
// stored the external name alone; with one that says that the API server refuses an
// annotation (IsRefused), what says which external resource there is.
func (w Writer) Store(ctx context.Context, current client.Object, cs Changes, rule Rule, ow Overwrote) (server client.Object, followed bool, err error) {
	server, followed, err = w.store(ctx, current, cs, rule, ow)
	if !IsRefused(err) || rule == Decided {
		return server, followed, err
	}
	needed := cs.Needed()
	if len(needed) == 0 || len(needed) == len(cs) {
		return nil, false, err
	}
	server, _, serr := w.store(ctx, current, needed, rule, ow)
	if serr != nil {
		return nil, false, err
	}
	return server, false, err
}

func (w Writer) store(ctx context.Context, current client.Object, cs Changes, rule Rule, ow Overwrote) (server client.Object, followed bool, err error) {
	var overruler error
	attempts, delay := cmp.Or(w.Attempts, storeAttempts), firstStoreDelay
	followed = true

	for {
		server, err = w.patchAnnotations(ctx, current, cs)

		switch {
		case err == nil:
			return server, followed, overruler
		case rule == Decided && (kerrors.IsConflict(err) || kerrors.IsNotFound(err)):
			return nil, false, err
		case kerrors.IsConflict(err), kerrors.IsNotFound(err), kerrors.IsInvalid(err):
			// What we know of the object is not what the API server has.
			followed = false
			live, lerr := w.live(ctx, current)
			if lerr == nil && live == nil {
				return nil, false, nil
			}
			if lerr == nil {
				if kerrors.IsInvalid(err) && live.GetResourceVersion() == current.GetResourceVersion() {
					return nil, false, errors.Wrap(err, "cannot store annotations")
				}
				if rule == Decided {
					return nil, false, kerrors.NewConflict(schema.GroupResource{}, current.GetName(), err)
				}
				left, rerr := cs.Left(live, rule, ow)
				if rerr != nil {
					overruler = rerr
				}

				if len(left) == 0 {
					return live, false, overruler
				}
				current, cs = live, left
			}
		case Permanent(err):
			return nil, false, errors.Wrap(err, "cannot store annotations")
		}

		if attempts--; attempts == 0 {
			return nil, false, errors.Wrap(err, "cannot store annotations")
		}
		if werr := w.Wait(ctx, delay); werr != nil {
			return nil, false, errors.Wrap(err, "cannot store annotations")
		}
		delay = min(2*delay, lastStoreDelay)
	}
}

func (w Writer) patchAnnotations(ctx context.Context, current client.Object, cs Changes) (client.Object, error) {
	set := make(map[string]any, len(cs))
	for _, c := range cs {
		if set[c.Key] = c.Value; c.Remove {
			set[c.Key] = nil
		}
	}

	p, err := guarded(current, map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return nil, err
	}
	o := Empty(current)
	err = w.Client.Patch(ctx, o, p)
	if kerrors.IsForbidden(err) {
		// Upstream needs no permission to patch, so we may not have it.
		return w.updateAnnotations(ctx, current, cs)
	}
	return o, err
}

// updateAnnotations does what patchAnnotations does by writing the whole object.
// It starts from what the API server has: current may have more in memory.
func (w Writer) updateAnnotations(ctx context.Context, current client.Object, cs Changes) (client.Object, error) {
	o, err := w.live(ctx, current)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, kerrors.NewNotFound(schema.GroupResource{}, current.GetName())
	}
	if o.GetResourceVersion() != current.GetResourceVersion() {
		return nil, kerrors.NewConflict(schema.GroupResource{}, current.GetName(), errors.New("the object has changed since it was read"))
	}
	cs.Apply(o)
	return o, w.Client.Update(ctx, o)
}

// Apply the changes to an object in memory.
func (cs Changes) Apply(o client.Object) {
	for _, c := range cs {
		if c.Remove {
			meta.RemoveAnnotations(o, c.Key)
		} else {
			meta.AddAnnotations(o, map[string]string{c.Key: c.Value})
		}
	}
}

// Undo the change of an object in memory.
func (c Change) Undo(o client.Object) {
	Changes{{Key: c.Key, Value: c.Was, Remove: !c.Existed}}.Apply(o)
}

// Left returns the changes that live, which was read from the API server itself,
// still lacks; or a conflict if another writer decided otherwise (IsOverruled). With
// that only the external name is left, unless the conflict is about a change that yields:
// a name must not be lost with another annotation.
func (cs Changes) Left(live client.Object, rule Rule, ow Overwrote) (Changes, error) {
	var (
		left      Changes
		overruler error
	)

	for _, c := range cs {
		theirs, exists := live.GetAnnotations()[c.Key]

		switch {
		case c.Remove && !exists, !c.Remove && exists && theirs == c.Value:
			continue
		case exists == c.Existed && theirs == c.Was, !exists && !c.yields():
		case (rule == Result || c.Result) && !c.yields():
			if ow != nil {
				ow(c.Key, theirs, c.Value)
			}
		default:
			overruler = overruled{Conflict(live, fmt.Sprintf("annotation %q was set by another writer meanwhile", c.Key))}
			if c.yields() {
				return nil, overruler
			}
			continue
		}

		// Should live change again, it is compared with what it says now.
		c.Was, c.Existed = theirs, exists
		left = append(left, c)
	}

	if overruler != nil {
		left = left.Only(meta.AnnotationKeyExternalName)
	}
	return left, overruler
}

// IdentifiesResource reports whether an annotation says which external resource there
// is, or may be.
func IdentifiesResource(key string) bool {
	switch key {
	case meta.AnnotationKeyExternalName, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed:
		return true
	default:
		return false
	}
}

// Only returns the changes of these annotations.
func (cs Changes) Only(keys ...string) Changes {
	var only Changes
	for _, c := range cs {
		if slices.Contains(keys, c.Key) {
			only = append(only, c)
		}
	}
	return only
}

// Needed returns the changes that are stored although the API server refuses the others:
// those that say which external resource there is, and those that yield.
func (cs Changes) Needed() Changes {
	return slices.DeleteFunc(slices.Clone(cs), func(c Change) bool { return !c.yields() && !IdentifiesResource(c.Key) })
}

// identifying returns the changes that say which external resource there is.
func (cs Changes) identifying() Changes {
	return slices.DeleteFunc(slices.Clone(cs), func(c Change) bool { return !IdentifiesResource(c.Key) })
}

// without returns the changes of other annotations than those of done.
func (cs Changes) without(done Changes) Changes {
	return slices.DeleteFunc(slices.Clone(cs), func(c Change) bool {
		return slices.ContainsFunc(done, func(d Change) bool { return d.Key == c.Key })
	})
}

// overruled is the conflict that is not about the version of the object, but
// about what an annotation should say. To try again is no way out of it.
type overruled struct{ error }

func (o overruled) Unwrap() error { return o.error }

// IsOverruled reports whether err says that another writer set an annotation that was
// to be stored to another value, which is there now.
func IsOverruled(err error) bool {
	var o overruled
	return errors.As(err, &o)
}

// merged returns both, later ones replacing earlier ones of the same key.
func merged(earlier, later Changes) Changes {
	out := slices.Concat(later, earlier.without(later))
	slices.SortFunc(out, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// PendingAnnotations is the patch that stores what an earlier reconcile could
// not store, before the inner reconciler sees the object: without the external
// name it might create a second external resource.
func PendingAnnotations(overwrote func(o client.Object, key, theirs, ours string)) Patch {
	return Patch{Open: func(ctx context.Context, s *Session, o client.Object) error {
		e := s.writes.get(o)
		if len(e.pending) == 0 {
			return nil
		}
		ow := func(key, theirs, ours string) { overwrote(o, key, theirs, ours) }
		left := e.pending
		var err error

		// Another writer may have written since. If o is known to be older than our
		// own writes that proves nothing, and the patch will meet a conflict.
		if s.exact {
			left, err = left.Left(o, Observed, ow)
		}

		if len(left) == 0 && err == nil {
			s.writes.update(o, func(e *written) { e.pending = nil })
			return nil
		}
		if len(left) > 0 {
			if serr := s.StoreAnnotations(ctx, o, left, Observed, ow); serr != nil {
				err = serr
			}
		}

		switch {
		case IsOverruled(err):
			// Another writer decided meanwhile, and what we had can be learned
			// again. A name that a create returned can't: it is stored next, if
			// there is no other.
			s.writes.update(o, func(e *written) {
				name := e.pending.Only(meta.AnnotationKeyExternalName)
				if len(e.pending) == 1 || len(name) == 0 || !name[0].Result {
					e.pending = nil
					return
				}
				name[0].Result = false
				e.pending = name
			})
			return err
		case Permanent(err):
			// Waiting doesn't help. With these annotations in memory nothing is
			// created again, the reconcile can say what is wrong, and the object
			// can be deleted.
			e.pending.identifying().Apply(o)
			return nil
		case err != nil:
			return errors.Wrap(err, "cannot store annotations left over from an earlier reconcile")
		case s.gone:
			return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
		}

		s.writes.update(o, func(e *written) { e.pending = nil })

		// StoreAnnotations leaves alone what is in memory, which here is the
		// object without the annotations.
		s.Refresh(o)
		return nil
	}}
}

// Refresh gives o, with which nothing has been done yet, the newest known state,
// which must be what a write or a live read returned. That o has the resource
// version of that state already does not mean that it has the state.
func (s *Session) Refresh(o client.Object) {
	move(o, clone(s.base))
	s.exact = s.writes.get(s.base).fresh(s.base.GetResourceVersion())
}

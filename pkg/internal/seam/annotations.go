package seam

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ChangedAnnotations returns the annotations of o that were set and are not stored yet.
// It leaves out annotations that were removed, and an empty external name, because Graft
// never removes a stored annotation of the provider.
func (s *Session) ChangedAnnotations(o client.Object) Changes {
	if !s.Tracks(o) {
		return nil
	}
	var cs Changes

	for k, v := range o.GetAnnotations() {
		was, existed := s.storedAnnotations[k]

		// The API server replaces invalid UTF-8.
		if existed && (was == v || was == string([]rune(v))) || k == meta.AnnotationKeyExternalName && v == "" {
			continue
		}
		cs = append(cs, Change{Key: k, Value: v, Was: was, Existed: existed})
	}

	slices.SortFunc(cs, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return cs
}

// Replaced reports whether a change restores an earlier value of this reconcile. If the
// provider has read the object again, from a stale cache, that is no change.
func (s *Session) Replaced(c Change) bool {
	return slices.ContainsFunc(s.replacedAnnotations, func(as map[string]string) bool {
		was, existed := as[c.Key]
		return existed && was == c.Value
	})
}

// EmptiesName reports whether the provider has set an empty external name in o, and the API
// server has another one.
func (s *Session) EmptiesName(o client.Object) bool {
	is, exists := o.GetAnnotations()[meta.AnnotationKeyExternalName]
	return exists && is == "" && s.Tracks(o) && meta.GetExternalName(s.base) != ""
}

// KeepName gives o the external name that the API server has, if the provider has set an empty
// one.
func (s *Session) KeepName(o client.Object) {
	if s.EmptiesName(o) {
		meta.SetExternalName(o, meta.GetExternalName(s.base))
	}
}

// Lacks reports whether o lacks an annotation that identifies the external resource and
// could not be stored yet. An object that the provider has read again lacks it.
func (s *Session) Lacks(o client.Object) bool {
	return s.Tracks(o) &&
		slices.ContainsFunc(
			s.histories.get(o).pending.Identifying(),
			func(c Change) bool { return o.GetAnnotations()[c.Key] != c.Value },
		)
}

// StoreAnnotations stores exactly these annotations on the API server, even if ctx is
// done. In memory only the resource version of o changes: it follows the write if no other
// writer wrote in between. Otherwise it stays, so that the next write of o meets a
// conflict.
//
// If the object no longer exists, nothing is stored and no error returned. Changes that
// could not be stored are stored before the next reconcile of the object does anything
// else, except for decisions, which the next reconcile makes again, and for changes that
// the API server refuses and that don't identify the external resource. A conflict
// (errors.IsConflict) means that another writer set one of the annotations to another
// value.
func (s *Session) StoreAnnotations(ctx context.Context, o client.Object, cs Changes, rule Rule, ow Overwrote) error {
	if len(cs) == 0 || s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	current, keep := s.base, rule != Decided
	if o.GetResourceVersion() != current.GetResourceVersion() {
		// The session does not know this version, so the API server decides.
		current = clone(o)
	}

	w := Writer{Client: s.client, Live: s.options.Live, Wait: s.options.Wait}
	if keep && rule == Result {
		w.Attempts = resultAttempts
	}
	server, followed, err := w.Store(ctx, current, cs, rule, ow)
	if err != nil && server != nil {
		s.noteWrite(server, true)
	}

	if IsOverruled(err) || err != nil && !keep {
		return err
	}
	if err != nil {
		left := slices.Clone(cs)

		if IsRefused(err) {
			// The API server would refuse it again, also as part of the whole object.
			left = left.Identifying()
			if server != nil {
				s.noteStored(left)
				left = nil
			}
		}

		for i := range left {
			left[i].Result = left[i].Result || rule == Result
		}
		s.histories.update(s.base, func(e *history) { e.pending = append(e.pending.Without(cs), left...) })
		return err
	}

	if keep {
		s.histories.update(s.base, func(e *history) { e.pending = e.pending.Without(cs) })
	}

	if server == nil {
		s.noteGone()
		return nil
	}

	s.noteStored(cs)
	if followed {
		o.SetResourceVersion(server.GetResourceVersion())
	}
	s.noteWrite(server, true)
	return nil
}

// noteStored notes that changes are stored.
func (s *Session) noteStored(cs Changes) {
	s.replacedAnnotations = append(s.replacedAnnotations, s.storedAnnotations)
	s.storedAnnotations = maps.Clone(s.storedAnnotations)
	for _, c := range cs {
		if c.Remove {
			delete(s.storedAnnotations, c.Key)
		} else {
			s.storedAnnotations[c.Key] = c.Value
		}
	}
}

// PendingAnnotations returns the patch that stores the pending changes of earlier
// reconciles before the inner reconciler sees the object: without the external name it
// might create a second external resource.
func PendingAnnotations(overwrote func(o client.Object, key, theirs, ours string)) Patch {
	return Patch{Open: func(ctx context.Context, s *Session, o client.Object) error {
		e := s.histories.get(o)
		if len(e.pending) == 0 {
			return nil
		}
		ow := func(key, theirs, ours string) { overwrote(o, key, theirs, ours) }
		left := e.pending
		var err error

		// Another writer may have written since. A stale o proves nothing, and the
		// patch will meet a conflict.
		if s.known {
			left, err = left.Left(o, Observed, ow)
		}

		if len(left) == 0 && err == nil {
			s.histories.update(o, func(e *history) { e.pending = nil })
			return nil
		}
		if len(left) > 0 {
			if serr := s.StoreAnnotations(ctx, o, left, Observed, ow); serr != nil {
				err = serr
			}
		}

		switch {
		case IsOverruled(err):
			// Another writer has decided, and the provider can observe the other
			// values again. It cannot observe the name that a create returned: that
			// is stored next, if there is no other name.
			s.histories.update(o, func(e *history) {
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
			// A retry does not help. With these annotations in memory the provider
			// creates nothing twice, the reconcile can report the error, and the
			// object can be deleted.
			e.pending.Identifying().Apply(o)
			return nil
		case err != nil:
			return errors.Wrap(err, "cannot store annotations left over from an earlier reconcile")
		case s.gone:
			return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
		}

		s.histories.update(o, func(e *history) { e.pending = nil })

		// StoreAnnotations has not changed o, which lacks the annotations.
		s.Refresh(o)
		return nil
	}}
}

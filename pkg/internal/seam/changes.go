package seam

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnotationKeyRecord is the annotation that holds the record of an asynchronous
// operation.
const AnnotationKeyRecord = "graft.crossplane.io/async-operation"

// A Change is an annotation that was set, or set to something else.
type Change struct {
	Key   string
	Value string

	// Was is the value before, if Existed.
	Was     string
	Existed bool

	// Remove the annotation, if it still has the value Was.
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

// guards reports whether a change keeps the value that there is, so that the other changes are
// stored only with that value.
func (c Change) guards() bool { return c.yields() && c.Existed && !c.Remove && c.Was == c.Value }

// Changes are stored with one write.
type Changes []Change

// A Rule decides between a change and the value of another writer that has changed the
// object since it was read.
type Rule int

const (
	// Observed stores changes of annotations that no other writer has changed. If another
	// writer has set one of them to another value, that value stays, and the write returns
	// a conflict.
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

// Left returns the changes that live still lacks, which was read from the API server
// itself. If another writer has set one of the annotations to another value, it returns a
// conflict (IsOverruled) with the external name alone, which must not be lost with another
// annotation. If that annotation is a record or an announcement it returns no changes.
func (cs Changes) Left(live client.Object, rule Rule, ow Overwrote) (Changes, error) {
	var (
		left      Changes
		overruler error
	)

	for _, c := range cs {
		theirs, exists := live.GetAnnotations()[c.Key]

		switch {
		case !c.guards() && (c.Remove && !exists || !c.Remove && exists && theirs == c.Value):
			continue
		case exists == c.Existed && theirs == c.Was, !exists && !c.yields():
		case c.Key == meta.AnnotationKeyExternalName && c.Value == "" && !c.Remove:
			// An empty external name replaces only the one that the create began with.
			continue
		case (rule == Result || c.Result) && !c.yields():
			if ow != nil {
				ow(c.Key, theirs, c.Value)
			}
		default:
			overruler = overruled{
				Conflict(live, fmt.Sprintf("annotation %q was set by another writer meanwhile", c.Key)),
			}
			if c.yields() {
				return nil, overruler
			}
			continue
		}

		// The next attempt compares with these values.
		c.Was, c.Existed = theirs, exists
		left = append(left, c)
	}

	if overruler != nil {
		left = left.Only(meta.AnnotationKeyExternalName)
	}
	if !slices.ContainsFunc(left, func(c Change) bool { return !c.guards() }) {
		return nil, overruler
	}
	return left, overruler
}

// IdentifiesResource reports whether an annotation identifies the external resource, or
// records its create.
func IdentifiesResource(key string) bool {
	switch key {
	case meta.AnnotationKeyExternalName, meta.AnnotationKeyExternalCreatePending,
		meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed:
		return true
	default:
		return false
	}
}

// Only returns the changes of these annotations.
func (cs Changes) Only(keys ...string) Changes {
	return cs.where(func(c Change) bool { return slices.Contains(keys, c.Key) })
}

// Needed returns the changes that are stored although the API server refuses the others:
// records, and annotations that identify the external resource.
func (cs Changes) Needed() Changes {
	return cs.where(func(c Change) bool { return c.yields() || IdentifiesResource(c.Key) })
}

// Identifying returns the changes of annotations that identify the external resource.
func (cs Changes) Identifying() Changes {
	return cs.where(func(c Change) bool { return IdentifiesResource(c.Key) })
}

// Without returns the changes of annotations that others do not change.
func (cs Changes) Without(others Changes) Changes {
	return cs.where(func(c Change) bool { return len(others.Only(c.Key)) == 0 })
}

func (cs Changes) where(keep func(c Change) bool) Changes {
	return slices.DeleteFunc(slices.Clone(cs), func(c Change) bool { return !keep(c) })
}

// overruled is a conflict about the value of an annotation, not about the version of the
// object. A retry does not resolve it.
type overruled struct{ error }

func (o overruled) Unwrap() error { return o.error }

// IsOverruled reports whether err says that another writer has set one of the annotations to
// another value.
func IsOverruled(err error) bool {
	var o overruled
	return errors.As(err, &o)
}

// MaxExternalName is how many bytes an external name may have. The API server allows
// 256 KiB for all annotations of an object together.
const MaxExternalName = 4 << 10

// SetAnnotation is the change that sets an annotation of o.
func SetAnnotation(o client.Object, key, value string) Change {
	was, existed := o.GetAnnotations()[key]
	return Change{Key: key, Value: value, Was: was, Existed: existed}
}

// CheckText returns an error unless an annotation keeps s unchanged: s must not be empty,
// must be UTF-8 without control characters, and have at most longest bytes.
func CheckText(s string, longest int) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > longest:
		return errors.Errorf("it has %d bytes, and %d is the most", len(s), longest)
	case !utf8.ValidString(s):
		return errors.New("it is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("it has control characters")
	}
	return nil
}

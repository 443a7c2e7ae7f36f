package reconciler

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A look is the outcome of reading the dependents of one object, for the next one.
type look struct {
	// on is the state of the dependents when all of them had been read, and complete
	// whether they were.
	on       observation
	complete bool

	// slow is whether it took longer than glanceTimeout. read then has the dependents
	// that were read, which are nil if they don't exist, and next the place in the list
	// at which the next look begins.
	slow bool
	read map[Dependent]*blocker
	next int
}

// observe reads o's dependents, until ctx is done. Those that are not read then are as they
// were in the last look. It never fails: the report has the error.
func observe(ctx context.Context, r *dependentReader, l DependentLister, o client.Object, last look) look {
	list, err := l.ListDependents(ctx, r, o)
	list = unique(list)
	out := look{on: observation{total: len(list)}, read: make(map[Dependent]*blocker, len(list)), next: last.next}
	if err != nil && ctx.Err() != nil {
		out.slow = true
		return out.orLast(last)
	}
	if err != nil {
		out.on.unknown = unreadable(err)
	}

	for n := range list {
		d := list[(last.next+n)%len(list)]
		b, err := r.blocker(ctx, d, l, o)
		if err != nil && ctx.Err() != nil {
			// One that takes all the time there is must not be the first again.
			out.next = last.next + max(n, 1)
			out.slow = true
			break
		}
		out.read[d.key()] = b
	}

	for _, d := range list {
		b, read := out.read[d.key()]
		if !read {
			if b, read = last.read[d.key()]; !read {
				return out.orLast(last)
			}
			out.read[d.key()] = b
		}
		if b != nil {
			out.on.blockers = append(out.on.blockers, *b)
		}
	}

	out.complete = true
	slices.SortStableFunc(out.on.blockers, byUrgency)
	return out
}

// orLast returns l, which did not read all dependents, with the observation of the last look.
// If no look has read all of them, the observation counts and names nothing, because that
// would depend on the time that each read took.
func (l look) orLast(last look) look {
	if l.on, l.complete = last.on, last.complete; !l.complete {
		l.on = observation{unknown: "they were not all read in time"}
	}
	return l
}

// unique returns the dependents of a list once each.
func unique(list []Dependent) []Dependent {
	seen := make(map[Dependent]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(d Dependent) bool {
		had := seen[d.key()]
		seen[d.key()] = true
		return had
	})
}

// blocker returns why a dependent of o still exists, or nil if it doesn't. An error is why it
// could not be read, which the blocker says, too.
func (r *dependentReader) blocker(
	ctx context.Context, d Dependent, l DependentLister, o client.Object,
) (*blocker, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(d.GroupVersionKind)
	get := r.Get
	if _, named := r.named.Load(d.GroupVersionKind); named || d.Owner != "" {
		get = r.getReferenced
	}

	if err := get(ctx, d.NamespacedName, u); err != nil {
		if seam.IsGone(err) {
			return nil, nil //nolint:nilnil // It doesn't exist.
		}
		return &blocker{Dependent: d, why: "unknown: " + unreadable(err), urgency: urgencyStuck}, err
	}

	b := blocker{Dependent: d, why: "it still exists", urgency: urgencyDeleting}
	switch d.relationOf(l, o, u) {
	case unrelated:
		return nil, nil //nolint:nilnil // It is treated as if it did not exist.
	case unbound:
		b.why, b.urgency = errNotBound.Error(), urgencyStuck
	case described:
		b = blockerOf(d, u)
	case listed:
	}
	return &b, nil
}

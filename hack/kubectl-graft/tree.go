package main

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// A visit is to one object.
type visit struct {
	node

	// The owners that the object itself names: its controller, and the claim of a composite.
	controller types.UID
	claim      corev1.ObjectReference

	missing  bool
	deleting bool // Its deletion was requested.
	doomed   bool // So was that of an object above it, or its own.
	links    []*link
	below    []*link
}

// A link leads to an object that may be in the way of the one that it comes from.
type link struct {
	corev1.ObjectReference

	from, to *visit

	// Named means that the object that it comes from names the other in its spec, which a user may write.
	named bool
	shows bool // The object is shown here, and not at another link to it.
}

// holds reports whether a link leads to an object that is in the way. A named one must be owned by the one that names
// it: it is another's otherwise.
func (l *link) holds() bool {
	from, to := l.from.Object, l.to
	return !l.named || to.Object.UID == "" || to.controller == from.UID ||
		placeOf(to.claim) == placeOf(from) && (to.claim.UID == "" || to.claim.UID == from.UID)
}

// examine an object and, level by level, those that may be in its way. Each is read once.
func (i *inspection) examine(ctx context.Context, o object) node {
	root := &visit{}
	i.expand(ctx, o, root, false)
	seen := map[place]*visit{i.placeOf(root.Object): root}

	for level := root.below; len(level) > 0; {
		var fresh []*visit
		for _, l := range level {
			at := i.placeOf(l.ObjectReference)
			if seen[at] == nil {
				seen[at] = &visit{}
				fresh = append(fresh, seen[at])
			}
			l.to = seen[at]
			l.to.links = append(l.to.links, l)
		}
		cluster.Each(fresh, func(_ int, v *visit) { i.reach(ctx, v) })
		level = nil
		for _, v := range fresh {
			if !slices.ContainsFunc(v.links, func(l *link) bool { return l.shows }) {
				// It may be in the way of an object of another level.
				delete(seen, i.placeOf(v.links[0].ObjectReference))
			}
			level = append(level, v.below...)
		}
	}
	return root.tree()
}

// placeOf returns the place that a reference leads to. A namespace means nothing for a cluster-scoped kind.
func (i *inspection) placeOf(r corev1.ObjectReference) place {
	at := placeOf(r)
	if k, ok := i.cluster.Of(at.GroupKind); ok && !k.Resource.Namespaced {
		at.namespace = ""
	}
	return at
}

// expand a visit to an object with its diagnosis, and with links to the objects that may be in its way.
func (i *inspection) expand(ctx context.Context, o object, v *visit, doomed bool) {
	v.node, v.deleting = i.diagnose(o), o.deleted()
	v.doomed = doomed || v.deleting
	i.surroundings(ctx, o, v)
	if v.State == diagnosis.Ready && !o.kind.In(cluster.Composite, cluster.Claim) {
		return
	}
	named, references := i.below(ctx, o)
	for _, r := range references {
		v.below = append(v.below, &link{ObjectReference: r, from: v, named: named})
	}
}

// tree returns the node of a visit, with those in its way.
func (v *visit) tree() node {
	n := v.node
	for _, l := range v.below {
		c := l.to.node
		switch {
		case l.to.missing && v.deleting:
			continue
		case !l.holds():
			n.Note("It refers to %s, which it does not control.", nameOf(l.to.Object))
			continue
		case l.shows:
			c = l.to.tree()
		default:
			c.Diagnosis = diagnosis.Diagnosis{State: c.State, Reason: c.Reason, Guess: c.Guess, Since: c.Since}
			c.Note("It is shown elsewhere.")
		}
		switch {
		case c.State == diagnosis.Ready:
			n.Others++
		case len(n.InTheWay) == maxInTheWay:
			n.More++
		default:
			n.InTheWay = append(n.InTheWay, c)
		}
	}
	return n
}

// reach the object of a visit, whose links lead to it. If the object can't be read, the node says why.
func (i *inspection) reach(ctx context.Context, v *visit) {
	r := v.links[0].ObjectReference
	o, err := i.follow(ctx, r.GroupVersionKind().GroupKind(), r.Namespace, r.Name)
	if err == nil {
		v.Object, v.claim = o.reference(), diagnosis.ClaimOf(o.Unstructured)
		if owner := metav1.GetControllerOf(o); owner != nil {
			v.controller = owner.UID
		}
	}
	first := slices.IndexFunc(v.links, (*link).holds)
	if first < 0 {
		return
	}
	v.links[first].shows = true
	above := v.links[first].from
	if err == nil {
		i.expand(ctx, o, v, above.doomed)
		silent := v.State == diagnosis.NotReady && v.Reason == ""
		if above.deleting && (v.State == diagnosis.Ready || silent) {
			v.State, v.Message, v.Since = diagnosis.NotReady, "Its deletion was not requested yet.", nil
			v.Guess = false
			if o.GetLabels()[diagnosis.LabelInUse] == "true" {
				v.State, v.Reason, v.Guess = diagnosis.Stopped, diagnosis.ReasonBlockedByProtection, true
			}
		}
		return
	}

	v.Object = corev1.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name}
	if o.kind.Resource.Namespaced || errors.Is(err, errNoKind) {
		v.Object.Namespace = r.Namespace
	}
	v.State = diagnosis.Unknown
	switch {
	case errors.Is(err, errNoKind):
		v.Message = "The API server has no such kind. If its CRD was deleted, so was the object."
	case kerrors.IsNotFound(err):
		v.Message, v.missing = "It does not exist.", true
	case kerrors.IsForbidden(err):
		v.Message = "You may not read it."
	default:
		v.Message = "It cannot be read: " + sentence(err)
	}
}

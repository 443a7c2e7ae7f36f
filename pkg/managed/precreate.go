package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
)

// AnnotationKeyCreateRefused is set on a managed resource whose external resource
// was not created since it came up by itself right before. Its value says which
// one it was. As long as it stands, that external resource is neither updated nor
// deleted for this managed resource. To remove the annotation is to adopt it.
const AnnotationKeyCreateRefused = "graft.crossplane.io/create-refused"

// WithPreCreateObserve observes an external resource once more right before it is
// created. Whoever created it since it was observed, and found not to exist, may
// be anybody: a second managed resource of its name, another control plane, or an
// earlier create of ours of which the external system said that it failed.
//
// By default the create is refused, because two owners of one external resource
// undo each other's changes, and the first of them that is deleted takes it from
// the other. The managed resource then says in its Synced condition what to do,
// is marked with AnnotationKeyCreateRefused, and goes without touching the
// external resource if it is deleted. With AdoptExisting it manages what it found.
//
// The window in which somebody may come first gets as short as a call of Observe.
// To close it among managed resources of this control plane, use
// WithExternalNameReservation. It costs one more call of Observe for each create.
func WithPreCreateObserve(o ...PreCreateObserveOption) ReconcilerOption {
	p := &preCreate{}

	for i, po := range o {
		if po == nil {
			panic(errors.Errorf("managed.WithPreCreateObserve was given nil (argument %d): leave it out", i+1))
		}

		po(p)
	}

	return func(r *Reconciler) { r.config.preCreate = &preCreate{adopt: p.adopt, config: &r.config} }
}

// A PreCreateObserveOption configures WithPreCreateObserve.
type PreCreateObserveOption func(*preCreate)

// AdoptExisting lets a managed resource have the external resource that came up
// right before it was created, as if it had been created. It is for external
// systems in which nobody else can make a resource of that name, so that what
// came up can only be our own.
func AdoptExisting() PreCreateObserveOption {
	return func(p *preCreate) { p.adopt = true }
}

// preCreate observes before it creates, at the external seam.
type preCreate struct {
	adopt  bool
	config *config
}

// observePreCreate tells whether there is nothing left to create.
func observePreCreate[managed resource.Managed](ctx context.Context, p *preCreate, c TypedExternalClient[managed], mg managed) (bool, error) {
	if p == nil {
		return false, nil
	}

	// What Observe does to the managed resource is not to be done twice, nor to
	// be stored if nothing comes of it.
	seen, ok := mg.DeepCopyObject().(managed)
	if !ok {
		return false, errors.Errorf("cannot copy managed resource: %T has a deep copy of another type", mg)
	}

	o, err := c.Observe(ctx, seen)

	switch {
	case err != nil:
		return false, errors.Wrap(err, "cannot observe the external resource once more before it is created")
	case !o.ResourceExists:
		return false, nil
	case !p.adopt:
		meta.AddAnnotations(mg, map[string]string{AnnotationKeyCreateRefused: refusedAs(seen)})
		return false, errRefused(seen)
	}

	meta.AddAnnotations(mg, seen.GetAnnotations())
	p.config.record.Event(mg, event.Normal(reasonAdopted, "An external resource was there right before it was to be created. It is managed from now on.", "external-name", meta.GetExternalName(mg)))

	return true, nil
}

// observed corrects what Observe found if the external resource was refused. It
// tells whether it took away what was found, so that the managed resource goes
// without it.
func (p *preCreate) observed(mg resource.Managed, o *ExternalObservation) (bool, error) {
	refused := mg.GetAnnotations()[AnnotationKeyCreateRefused]
	if p == nil || refused == "" {
		return false, nil
	}

	switch {
	case !o.ResourceExists:
		if !meta.WasDeleted(mg) {
			// What stood in the way is gone, and what will be created is ours.
			// It is stored when the create is announced.
			meta.AddAnnotations(mg, map[string]string{AnnotationKeyCreateRefused: ""})
		}
	case refused != refusedAs(mg):
		// It has been given another name since.
	case meta.WasDeleted(mg):
		*o = ExternalObservation{}
		return true, nil
	default:
		return false, errRefused(mg)
	}

	return false, nil
}

// refusedAs says which external resource was refused. One without a name is told
// from no other.
func refusedAs(mg resource.Managed) string {
	if n := meta.GetExternalName(mg); n != "" {
		return n
	}

	return string(mg.GetUID())
}

func errRefused(mg resource.Managed) error {
	return errors.Errorf("external resource %q was not created, and is not managed: it was not found at first, and was there right before it was to be created, so somebody else may have created it. "+
		"To manage it all the same, remove the annotation %s. To have another one, change the annotation %s. If this managed resource is deleted, the external resource stays",
		refusedAs(mg), AnnotationKeyCreateRefused, meta.AnnotationKeyExternalName)
}

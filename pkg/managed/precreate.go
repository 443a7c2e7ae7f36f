package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyCreateRefused is set on a managed resource whose external resource
// was not created because it appeared right before (WithPreCreateObserve). Its value
// says which external resource that was. As long as the annotation has that value, the
// external resource is neither updated nor deleted for this managed resource, with or
// without WithPreCreateObserve. Remove the annotation to adopt the external resource.
const AnnotationKeyCreateRefused = "graft.crossplane.io/create-refused"

// WithPreCreateObserve observes an external resource once more right before it is
// created. One that was created since it was observed, and found not to exist, may
// belong to another: a second managed resource of its name, another control plane, or an
// earlier create of ours for which the external system returned an error.
//
// By default the create is refused, because two owners of one external resource
// undo each other's changes, and the first of them that is deleted takes it from
// the other. The managed resource then says in its Synced condition what to do,
// is marked with AnnotationKeyCreateRefused, and is deleted without touching the
// external resource. With WithAdoption it manages what it found.
//
// The window in which another may come first gets as short as a call of Observe.
// To close it among managed resources of this control plane, use
// WithExternalNameReservation. It costs one more call of Observe for each create.
func WithPreCreateObserve(o ...PreCreateObserveOption) ReconcilerOption {
	var po preCreateOptions

	for i, fn := range o {
		if fn == nil {
			panic(errors.Errorf("managed.WithPreCreateObserve was given nil (argument %d): leave it out", i+1))
		}
		fn(&po)
	}
	return withLayer(slotPreCreate, func(p parts) layer {
		return layer{external: func(next external) external {
			return &preCreate{external: next, adopt: po.adopt, record: p.record}
		}}
	})
}

// A PreCreateObserveOption configures WithPreCreateObserve.
type PreCreateObserveOption func(*preCreateOptions)

type preCreateOptions struct{ adopt bool }

// WithAdoption lets a managed resource have the external resource that appeared
// right before it was created, as if it had been created. It is for external
// systems in which nothing else can create a resource of that name.
func WithAdoption() PreCreateObserveOption {
	return func(o *preCreateOptions) { o.adopt = true }
}

// preCreate observes before it creates.
type preCreate struct {
	external

	adopt  bool
	record event.Recorder
}

// Create the external resource, unless it exists by now.
func (e *preCreate) Create(ctx context.Context, c *call) (creation, error) {
	// What Observe does to the managed resource must not be done twice, nor be
	// stored if the external resource does not exist.
	seen, err := copyOf(c.mg)
	if err != nil {
		return creation{}, err
	}

	// What exists is not what this create made: it has not begun.
	meta.RemoveAnnotations(seen, asyncstate.AnnotationKeyOperation)
	again := *c
	again.mg = seen

	// If Observe panics, this is stored, as are all annotations that a call has set.
	failed := seam.Changes{seam.CreateEnded(c.mg, meta.AnnotationKeyExternalCreateFailed, c.Now())}
	returned, was := false, c.Base()
	defer func() {
		if !returned {
			failed.Apply(c.mg)
		}
	}()
	o, err := e.external.Observe(ctx, &again)
	returned = true

	switch {
	case err != nil:
		return creation{Outcome: seam.Outcome{State: seam.Untried}}, errors.Wrap(err, "cannot observe the external resource once more before it is created")
	case !o.ResourceExists:
		followWrite(c, was, seen)
		return e.external.Create(ctx, c)
	case !e.adopt:
		meta.AddAnnotations(c.mg, map[string]string{AnnotationKeyCreateRefused: refusedAs(seen)})
		return creation{Outcome: seam.Outcome{State: seam.Untried}}, errRefused(seen)
	}

	meta.AddAnnotations(c.mg, seen.GetAnnotations())
	e.record.Event(c.mg, event.Normal(reasonAdopted, "The external resource appeared right before it was to be created. It is managed from now on.", "external-name", meta.GetExternalName(c.mg)))
	return creation{}, nil
}

// followWrite makes the managed resource follow a write that the provider made of its
// copy in Observe, of status for instance. What was decided from the managed resource
// still holds, and nothing of another writer's is missing in it: it may be written as a
// whole.
func followWrite(c *call, was client.Object, seen resource.Managed) {
	if was == nil || seen.GetGeneration() != was.GetGeneration() {
		return
	}
	metadata := func(o client.Object) []any {
		return []any{meta.WasDeleted(o), o.GetAnnotations(), o.GetLabels(), o.GetFinalizers(), o.GetOwnerReferences()}
	}
	if equality.Semantic.DeepEqual(metadata(seen), metadata(was)) {
		c.mg.SetResourceVersion(seen.GetResourceVersion())
	}
}

// newRefusal returns the layer that leaves an external resource alone that was refused.
// It is always there: the option that refused it may have been given by an earlier
// version of the provider.
func newRefusal(parts) layer {
	r := &refusal{}
	return layer{
		external: func(next external) external {
			r.external = next
			return r
		},
		patch: seam.Patch{Gone: func(s *seam.Session) { r.unmarked.forget(s.Key()) }},
	}
}

type refusal struct {
	external

	// unmarked is what was refused where the API server has refused the annotation that
	// says so.
	unmarked memory[string]
}

// Observe the external resource. One that was refused is none of the managed
// resource's.
func (e *refusal) Observe(ctx context.Context, c *call) (observation, error) {
	o, err := e.external.Observe(ctx, c)
	refused := c.mg.GetAnnotations()[AnnotationKeyCreateRefused]
	if refused == "" {
		refused = e.unmarked.get(c.mg)
	}
	if err != nil || refused == "" || o.State != seam.Done {
		// What is in progress is the managed resource's own.
		return o, err
	}
	switch {
	case !o.ResourceExists:
	case meta.GetExternalCreateSucceeded(c.mg).After(meta.GetExternalCreateFailed(c.mg)) && !meta.ExternalCreateIncomplete(c.mg):
		// What was refused no longer existed, and this was created since.
	case refused != refusedAs(c.mg):
		// The managed resource was given another name since.
	case meta.WasDeleted(c.mg):
		return observation{}, nil
	default:
		return o, errRefused(c.mg)
	}
	return o, nil
}

// Create the external resource. What is created is the managed resource's own.
func (e *refusal) Create(ctx context.Context, c *call) (creation, error) {
	o, err := e.external.Create(ctx, c)
	var re *refusedError
	if errors.As(err, &re) && c.mg.GetAnnotations()[AnnotationKeyCreateRefused] == "" {
		e.unmarked.update(c.mg, func(as *string) { *as = re.as })
	}
	if err == nil && o.State == seam.Done && c.mg.GetAnnotations()[AnnotationKeyCreateRefused] != "" {
		// This is stored with the result of the create.
		meta.AddAnnotations(c.mg, map[string]string{AnnotationKeyCreateRefused: ""})
	}
	return o, err
}

// refusedAs says which external resource was refused. One without a name can't be
// told from another.
func refusedAs(mg resource.Managed) string {
	if n := meta.GetExternalName(mg); n != "" {
		return n
	}
	return string(mg.GetUID())
}

// A refusedError says that an external resource was refused.
type refusedError struct {
	error

	as string
}

func errRefused(mg resource.Managed) error {
	return &refusedError{as: refusedAs(mg), error: errors.Errorf("external resource %q was not created, and is not managed: it was not found at first, and existed right before it was to be created, so it may belong to another. "+
		"To manage it, remove the annotation %s. To have another one, change the annotation %s. If this managed resource is deleted, the external resource stays",
		refusedAs(mg), AnnotationKeyCreateRefused, meta.AnnotationKeyExternalName)}
}

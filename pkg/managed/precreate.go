package managed

import (
	"context"
	"maps"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// AnnotationKeyCreateRefused is set on a managed resource whose external resource
// was not created because it appeared right before (WithPreCreateObserve). Its value
// says which external resource that was. As long as the annotation has that value, the
// external resource is neither updated nor deleted for this managed resource, with or
// without WithPreCreateObserve. Remove the annotation to adopt the external resource.
const AnnotationKeyCreateRefused = creation.AnnotationKeyRefused

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

	mustHaveNoNil(o, "WithPreCreateObserve", 1)
	for _, fn := range o {
		fn(&po)
	}
	return func(r *Reconciler) {
		r.config.preCreate = func(p parts, next external) layer {
			return layer{external: &preCreate{external: next, adopt: po.adopt, record: p.record}}
		}
	}
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
func (e *preCreate) Create(ctx context.Context, c *call) (createResult, error) {
	// What Observe does to the managed resource must not be done twice, nor be
	// stored if the external resource does not exist.
	seen, err := copyOf(c.mg)
	if err != nil {
		return createResult{}, err
	}

	// The recorded create has not begun, so an external resource that exists is another one's.
	creation.Unannounce(seen)
	again := *c
	again.mg = seen

	// If Observe panics, this is stored, as are all annotations that a call has set.
	failed := creation.On(c.mg).Failed(c.Now())
	returned, annotations, labels := false, maps.Clone(seen.GetAnnotations()), maps.Clone(seen.GetLabels())
	defer func() {
		if !returned {
			failed.Apply(c.mg)
		}
	}()
	o, err := e.external.Observe(ctx, &again)
	returned = true

	switch {
	case err != nil:
		return createResult{Outcome: seam.Outcome{State: seam.Untried}}, errors.Wrap(err, "cannot observe the external resource once more before it is created")
	case !o.ResourceExists:
		if seen.GetResourceVersion() != c.mg.GetResourceVersion() && follows(c.mg, seen) {
			c.mg.SetAnnotations(merged(c.mg.GetAnnotations(), annotations, seen.GetAnnotations()))
			c.mg.SetLabels(merged(c.mg.GetLabels(), labels, seen.GetLabels()))
			c.mg.SetResourceVersion(seen.GetResourceVersion())
		}
		return e.external.Create(ctx, c)
	case !e.adopt:
		meta.AddAnnotations(c.mg, map[string]string{AnnotationKeyCreateRefused: creation.RefusedAs(seen)})
		return createResult{Outcome: seam.Outcome{State: seam.Untried}}, errRefused(seen)
	}

	meta.AddAnnotations(c.mg, seen.GetAnnotations())
	e.record.Event(c.mg, event.Normal(reasonAdopted, "The external resource appeared right before it was to be created. It is managed from now on.", "external-name", meta.GetExternalName(c.mg)))
	return createResult{}, nil
}

// follows reports whether mg is to follow a write that the provider made of a copy of it in
// Observe, of status for instance. All that upstream has decided from must be the same.
func follows(mg, written resource.Managed) bool {
	return mg.GetGeneration() == written.GetGeneration() && meta.WasDeleted(mg) == meta.WasDeleted(written) && meta.IsPaused(mg) == meta.IsPaused(written) &&
		creation.IdentityOf(mg) == creation.IdentityOf(written) &&
		equality.Semantic.DeepEqual([]any{mg.GetFinalizers(), mg.GetOwnerReferences()}, []any{written.GetFinalizers(), written.GetOwnerReferences()})
}

// merged returns m with the changes from one map to another.
func merged(m, from, to map[string]string) map[string]string {
	out := maps.Clone(m)
	for k := range from {
		if _, ok := to[k]; !ok {
			delete(out, k)
		}
	}
	for k, v := range to {
		if was, ok := from[k]; !ok || was != v {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// refusal leaves a refused external resource alone. The layer is always there: an earlier
// version of the provider may have refused it, with an option that this one does not have.
type refusal struct {
	external

	store *store.Store

	// unmarked is the refused external resource if the API server has refused the
	// annotation about it.
	unmarked store.Key[string]
}

func newRefusal(p parts, next external) layer {
	return layer{external: &refusal{external: next, store: p.store}}
}

// Observe the external resource. A refused one does not belong to the managed resource.
func (e *refusal) Observe(ctx context.Context, c *call) (observeResult, error) {
	o, err := e.external.Observe(ctx, c)
	if err != nil || !o.ResourceExists || o.State != seam.Done {
		// A create in progress is the managed resource's own.
		return o, err
	}
	refused := c.mg.GetAnnotations()[AnnotationKeyCreateRefused]
	if refused == "" {
		refused = e.unmarked.Get(e.store, c.mg)
	}

	switch {
	case refused != creation.RefusedAs(c.mg), createOf(c.mg).Phase == creation.Created:
		// It has another name, or was created after the refused one was deleted.
		return o, nil
	case meta.WasDeleted(c.mg):
		return observeResult{}, nil
	default:
		return o, errRefused(c.mg)
	}
}

// Create the external resource. It belongs to the managed resource then.
func (e *refusal) Create(ctx context.Context, c *call) (createResult, error) {
	o, err := e.external.Create(ctx, c)
	var re *refusedError
	if errors.As(err, &re) && c.mg.GetAnnotations()[AnnotationKeyCreateRefused] == "" {
		e.unmarked.Update(e.store, c.mg, func(as *string) { *as = re.as })
	}
	if err == nil && o.State == seam.Done && c.mg.GetAnnotations()[AnnotationKeyCreateRefused] != "" {
		// This is stored with the result of the create.
		meta.AddAnnotations(c.mg, map[string]string{AnnotationKeyCreateRefused: ""})
	}
	return o, err
}

// A refusedError says that an external resource was refused.
type refusedError struct {
	error

	as string
}

func errRefused(mg resource.Managed) error {
	return &refusedError{as: creation.RefusedAs(mg), error: errors.Errorf("external resource %q was not created, and is not managed: it was not found at first, and existed right before it was to be created, so it may belong to another. "+
		"To manage it, remove the annotation %s. To have another one, change the annotation %s. If this managed resource is deleted, the external resource stays",
		creation.RefusedAs(mg), AnnotationKeyCreateRefused, meta.AnnotationKeyExternalName)}
}

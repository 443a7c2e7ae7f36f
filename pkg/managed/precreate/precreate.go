package precreate

import (
	"cmp"
	"context"
	"maps"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// Event reasons.
const (
	reasonAdopted event.Reason = "AdoptedExternalResource"
)

// AnnotationKeyRefused is set on a managed resource whose external resource was not
// created because it existed right before the create (Refuse). Its value
// identifies that external resource. While the annotation is set, the external resource is
// neither updated nor deleted for this managed resource, with or without
// Refuse. Remove the annotation to adopt the external resource.
const AnnotationKeyRefused = creation.AnnotationKeyRefused

// Refuse observes an external resource once more right before it is
// created. An external resource that was created since the first observation may belong to
// another managed resource of the same name, to another control plane, or to an earlier
// create of this managed resource that returned an error. Or it is the managed resource's own,
// and the first observation was wrong: the second one cannot tell these cases apart.
//
// The create is refused then, because two owners of one external resource undo each
// other's changes, and the deletion of one owner deletes the external resource of the other.
// The Synced condition then has the steps to resolve the conflict. The managed resource gets
// the annotation AnnotationKeyRefused, and its deletion does not touch the external
// resource. Adopt lets it manage the external resource instead.
//
// This shortens the time in which another create can come first to one call of Observe.
// reservation.With excludes it for managed resources of this control plane.
// Refuse costs one more call of Observe for each create.
func Refuse() managed.ReconcilerOption { return withPreCreate(false) }

// Adopt is Refuse, but lets a managed resource manage an external
// resource that existed right before the create, as if it had created it. It is for external
// systems in which nothing else can create a resource of that name.
func Adopt() managed.ReconcilerOption { return withPreCreate(true) }

func withPreCreate(adopt bool) managed.ReconcilerOption {
	return managed.With(layer.Option{Name: "precreate.Refuse", Layers: []layer.Staged{
		{Stage: layer.Doubt, New: newRefusal},
		{Stage: layer.Last, New: func(p layer.Parts, next layer.External) layer.Layer {
			return layer.Layer{External: &preCreate{External: next, adopt: adopt, recorder: p.Recorder}}
		}},
	}})
}

// preCreate observes before it creates.
type preCreate struct {
	layer.External

	adopt    bool
	recorder event.Recorder
}

// Create the external resource, unless it exists now.
func (e *preCreate) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	// Observe a copy, because changes by Observe must not be applied twice, nor be stored if
	// the external resource does not exist.
	seen, err := layer.Copy(c.Managed)
	if err != nil {
		return layer.Creation{}, err
	}

	// The announced create has not started, so it did not create an existing resource.
	creation.Unannounce(seen)
	again := *c
	again.Managed, again.Announced = seen, creation.Last(c.Managed).Announcement

	annotations, labels := maps.Clone(seen.GetAnnotations()), maps.Clone(seen.GetLabels())
	o, err := e.observe(ctx, c, &again)

	switch {
	case err != nil:
		return layer.Creation{
			Outcome: seam.Outcome{State: seam.Untried},
		}, errors.Wrap(err, "cannot observe the external resource once more before it is created")
	case o.State != seam.Done:
		// No create begins any more, so the external resource was reported to exist.
		return layer.Creation{Outcome: seam.Outcome{State: seam.Untried}}, seam.Conflict(
			c.Managed, "the provider stops",
		)
	case !o.ResourceExists:
		follow(c, seen, annotations, labels)
		return e.External.Create(ctx, c)
	case c.Now().Before(creation.Last(c.Managed).OpenUntil):
		// The create that is repeated may have created it.
		return layer.Creation{Outcome: seam.Outcome{State: seam.Untried}}, seam.Conflict(
			c.Managed, "the external resource exists now: an earlier create may have created it",
		)
	}

	// An Observe that finds the external resource does not empty its name.
	name := cmp.Or(meta.GetExternalName(seen), meta.GetExternalName(c.Managed))
	if !e.adopt {
		// A name that the first Observe has emptied stays stored.
		meta.SetExternalName(seen, cmp.Or(name, meta.GetExternalName(c.Base())))
		meta.AddAnnotations(c.Managed, map[string]string{AnnotationKeyRefused: creation.RefusedAs(seen)})
		return layer.Creation{Outcome: seam.Outcome{State: seam.Refused}}, errRefused(seen)
	}
	if name != "" {
		meta.SetExternalName(seen, name)
	}
	meta.AddAnnotations(c.Managed, seen.GetAnnotations())
	e.recorder.Event(
		c.Managed,
		event.Normal(
			reasonAdopted,
			"The external resource appeared right before it was to be created. It is managed from now on.",
			"external-name", meta.GetExternalName(c.Managed),
		),
	)
	return layer.Creation{}, nil
}

// observe again for a create that has been announced.
func (e *preCreate) observe(ctx context.Context, c, again *layer.Call) (layer.Observation, error) {
	failed, returned := creation.On(c.Managed).Failed(c.Now()), false
	defer func() {
		// After a panic, the layer that stores annotations stores the failure, too.
		if !returned {
			failed.Apply(c.Managed)
		}
	}()
	o, err := e.External.Observe(ctx, again)
	returned = true
	return o, err
}

// refusal hides a refused external resource.
type refusal struct {
	layer.External

	store *store.Store

	// unmarked identifies the refused external resource if the API server refused the
	// annotation.
	unmarked store.Key[string]
}

func newRefusal(p layer.Parts, next layer.External) layer.Layer {
	return layer.Layer{External: &refusal{External: next, store: p.Store}}
}

// Observe the external resource, unless it was refused.
func (e *refusal) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := e.External.Observe(ctx, c)
	if err != nil || !o.ResourceExists || o.State != seam.Done {
		// A create in progress is the managed resource's own.
		return o, err
	}
	refused := c.Managed.GetAnnotations()[AnnotationKeyRefused]
	if refused == "" {
		refused = e.unmarked.Get(e.store, c.Managed)
	}

	switch was := creation.Last(c.Managed); {
	case refused == "", refused != creation.RefusedAs(c.Managed), was.Phase == creation.Created:
		// It was not refused. Or the name is another one, or it was created after the refused
		// one was deleted.
		return o, nil
	case was.Incomplete():
		return o, &layer.Hold{
			Reason: deletion.ReasonCreateResultUnknown, Message: messageRefusedOrCreated,
			Cause: errors.New(messageRefusedOrCreated),
		}
	case meta.WasDeleted(c.Managed):
		return layer.Observation{}, nil
	case !seam.Allows(c.Managed, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete):
		// It is only observed.
		return o, nil
	default:
		return o, errRefused(c.Managed)
	}
}

// Create the external resource. If that may have succeeded, remove the refusal.
func (e *refusal) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	o, err := e.External.Create(ctx, c)
	var re *refusedError
	if errors.As(err, &re) && c.Managed.GetAnnotations()[AnnotationKeyRefused] == "" {
		e.unmarked.Update(e.store, c.Managed, func(as *string) { *as = re.as })
	}
	created := o.State == seam.Unknown || o.State == seam.Done && (err == nil || failure.Lost(err, failure.Text))
	if !created {
		return o, err
	}
	e.unmarked.Delete(e.store, c.Managed)
	if c.Managed.GetAnnotations()[AnnotationKeyRefused] != "" {
		// The annotation is stored with the result of the create.
		meta.AddAnnotations(c.Managed, map[string]string{AnnotationKeyRefused: ""})
	}
	return o, err
}

const messageRefusedOrCreated = "The external resource was refused once, and the last create may have created it again. " +
	"To keep it, remove the annotation " + creation.AnnotationKeyPending + ". To delete it, remove the annotation " +
	AnnotationKeyRefused + "."

// A refusedError is the error of a refused create.
type refusedError struct {
	error

	as string
}

func errRefused(mg resource.Managed) error {
	return &refusedError{
		as: creation.RefusedAs(mg),
		error: errors.Errorf(
			"external resource %q was not created, and is not managed: it was not found at first, but existed right before the create, so it may have another owner. "+
				"To manage it, remove the annotation %s. To create another one, change the annotation %s. If this managed resource is deleted, the external resource stays",

			creation.RefusedAs(mg), AnnotationKeyRefused, meta.AnnotationKeyExternalName,
		),
	}
}

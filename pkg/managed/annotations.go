package managed

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithoutExternalNamePersistence stores annotations that the external client set only when
// upstream does: after Create, and after an Observe that returns ResourceLateInitialized if
// the management policies allow it.
func WithoutExternalNamePersistence() ReconcilerOption {
	return func(r *Reconciler) { r.config.persists = false }
}

// annotations stores the annotations that the provider set, such as the external name, as
// soon as the call returns, even if the call failed or panicked.
//
// The external name and the annotations that record creates are stored after each call. Others
// are stored after Create, Update and Delete, and after an Observe that returns
// ResourceLateInitialized: an annotation that Observe changes each time, such as an etag, would
// cause a write and an event in each reconcile.
//
// The error of the call takes precedence over the error of storing annotations. Create never
// returns the latter: upstream would record the create as failed, although it succeeded.
//
// An empty external name is not stored, also not by a write of the whole object, unless Create
// returned it without an error. An asynchronous create has no result yet when Create returns.
type annotations struct {
	layer.External

	async    bool
	log      logging.Logger
	recorder event.Recorder
}

func newAnnotations(p layer.Parts, next layer.External) layer.Layer {
	patch := seam.PendingAnnotations(func(o client.Object, key, theirs, ours string) {
		layer.Overwrote(p.Log, p.Recorder, o, key, theirs, ours)
	})
	patch.Write = func(_ context.Context, s *seam.Session, o client.Object) { s.KeepName(o) }
	return layer.Layer{
		External: &annotations{
			External: next, async: p.Settings.Async, log: p.Log, recorder: p.Recorder,
		},
		Patch: patch,
	}
}

// Observe the external resource.
func (a *annotations) Observe(ctx context.Context, c *layer.Call) (o layer.Observation, err error) {
	version := c.Managed.GetResourceVersion()
	defer func() {
		changes := changed(c, version)
		late := err == nil && o.ResourceLateInitialized
		if !late {
			changes = changes.Identifying()
		}
		if serr := a.storeChanges(ctx, c, changes, seam.Observed); err == nil {
			err = serr
		}
		// If nothing else changed, upstream has nothing to write, and the management policies may
		// forbid the write.
		if late && err == nil && c.OnlyAnnotationsDiffer(c.Managed) {
			o.ResourceLateInitialized = false
		}
	}()
	o, err = a.External.Observe(ctx, c)
	if err == nil && c.Lacks(c.Managed) {
		err = errors.New("the provider has read the managed resource again, without the external name or the result of a create that could not be stored: see the events")
	}
	c.Emptied = err == nil && !o.ResourceExists && !a.async && c.EmptiesName(c.Managed)
	return o, err
}

// Create the external resource. Its name is lost if it is not stored now.
func (a *annotations) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	version := c.Managed.GetResourceVersion()
	defer func() {
		_ = a.storeChanges(ctx, c, changed(c, version), seam.Result)
	}()
	if c.Emptied {
		meta.SetExternalName(c.Managed, "")
	}
	o, err := a.External.Create(ctx, c)
	c.Emptied = c.Emptied && meta.GetExternalName(c.Managed) == ""
	if err != nil || a.async || seam.OlderThan(c.Managed.GetResourceVersion(), version) {
		c.KeepName(c.Managed)
	}
	return o, err
}

// Update the external resource.
func (a *annotations) Update(ctx context.Context, c *layer.Call) (_ ExternalUpdate, err error) {
	defer a.storeAfter(ctx, c, c.Managed.GetResourceVersion(), &err)
	return a.External.Update(ctx, c)
}

// Delete the external resource.
func (a *annotations) Delete(ctx context.Context, c *layer.Call) (_ layer.Deletion, err error) {
	defer a.storeAfter(ctx, c, c.Managed.GetResourceVersion(), &err)
	return a.External.Delete(ctx, c)
}

// changed returns the annotations that a call has set. version is the resource version at the
// start of the call. If the provider has read the managed resource again from a stale cache,
// changed reverts annotations to the values that this reconcile has written.
func changed(c *layer.Call, version string) seam.Changes {
	changes := c.ChangedAnnotations(c.Managed)
	if !seam.OlderThan(c.Managed.GetResourceVersion(), version) {
		return changes
	}
	return slices.DeleteFunc(changes, func(ch seam.Change) bool {
		replaced := c.Replaced(ch)
		if replaced {
			ch.Undo(c.Managed)
		}
		return replaced
	})
}

func (a *annotations) storeAfter(ctx context.Context, c *layer.Call, version string, err *error) {
	if serr := a.storeChanges(ctx, c, changed(c, version), seam.Observed); *err == nil {
		*err = serr
	}
}

func (a *annotations) storeChanges(ctx context.Context, c *layer.Call, changes seam.Changes, rule seam.Rule) error {
	err := c.StoreAnnotations(
		ctx, c.Managed, changes, rule,
		func(key, theirs, ours string) { layer.Overwrote(a.log, a.recorder, c.Managed, key, theirs, ours) },
	)
	if err != nil && !kerrors.IsConflict(err) {
		a.log.Info("Cannot store annotations that the external client set", "uid", c.Managed.GetUID(), "error", err)
		a.recorder.Event(c.Managed, event.Warning(reasonCannotStoreAnnotations, err))
	}

	if seam.IsRefused(err) {
		// What identifies the external resource was sent alone after the refusal. A write of the whole object
		// would be refused for the others, too.
		if unstored := c.ChangedAnnotations(c.Managed); len(unstored.Identifying()) == 0 {
			for _, ch := range unstored {
				ch.Undo(c.Managed)
			}
			err = nil
		}
	}

	// The name of an asynchronous create counts only if the create was recorded as a success.
	if c.Gone() && (rule == seam.Result || creation.Last(c.Managed).Confirmed) {
		for _, ch := range changes.Only(meta.AnnotationKeyExternalName) {
			reportLeak(a.log, a.recorder, c.Managed, ch.Value)
		}
	}
	return err
}

// reportLeak reports the name of an external resource that was created for a managed resource
// that no longer exists, because the name can't be stored.
func reportLeak(log logging.Logger, record event.Recorder, o client.Object, name string) {
	log.Info(
		"Created an external resource for a managed resource that no longer exists", "uid", o.GetUID(),
		"external-name", name,
	)
	record.Event(o, event.Warning(reasonLostManagedResource,
		errors.Errorf(
			"the managed resource was removed while its external resource %q was created: delete the external resource if it is not needed",
			name,
		)))
}

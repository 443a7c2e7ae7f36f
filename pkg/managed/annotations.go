package managed

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

const (
	// unstableAfter is the number of changes of one annotation that are stored in a row.
	// Later changes are stored once in an unstableInterval.
	unstableAfter    = 5
	unstableInterval = time.Minute

	// refusedInterval is the time until a value that the API server refused is sent again.
	// By then, an operator may have granted a missing permission.
	refusedInterval = 10 * time.Minute
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
// The error of the call takes precedence over the error of storing annotations. Create never
// returns the latter: upstream would record the create as failed, although it succeeded.
//
// The external name, and the annotations that record creates and operations, are stored at
// once. An annotation that Observe changes each time, such as an etag, would cause a write
// and an event in each reconcile, so it is stored at a limited rate.
//
// An empty external name is not stored, also not by a write of the whole object, unless Create
// returned it without an error. An asynchronous create has no result yet when Create returns.
type annotations struct {
	layer.External

	async    bool
	live     client.Reader
	log      logging.Logger
	recorder event.Recorder

	// changes has the recent changes of annotations, by key.
	store   *store.Store
	changes store.Key[map[string]change]
}

// A change counts the recent changes of one annotation.
type change struct {
	times int
	last  time.Time

	// held is a value that will replace the value stored. holds reports whether there is one.
	held, stored string
	holds        bool

	// refused is the value that the API server refused at refusedAt. refusedAt is zero if it
	// refused none.
	refused   string
	refusedAt time.Time
}

func newAnnotations(p layer.Parts, next layer.External) layer.Layer {
	patch := seam.PendingAnnotations(func(o client.Object, key, theirs, ours string) {
		layer.Overwrote(p.Log, p.Recorder, o, key, theirs, ours)
	})
	patch.Write = func(_ context.Context, s *seam.Session, o client.Object) { s.KeepName(o) }
	return layer.Layer{
		External: &annotations{
			External: next, async: p.Settings.Async, live: p.Live, log: p.Log, recorder: p.Recorder, store: p.Store,
		},
		Patch: patch,
	}
}

// Observe the external resource.
func (a *annotations) Observe(ctx context.Context, c *layer.Call) (o layer.Observation, err error) {
	defer a.storeObserved(ctx, c, c.Managed.GetResourceVersion(), &o, &err)
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
	a.restore(c)
	if serr := a.storeChanges(ctx, c, a.due(c, changed(c, version)), seam.Observed); *err == nil {
		*err = serr
	}
}

func (a *annotations) storeObserved(ctx context.Context, c *layer.Call, version string, o *layer.Observation, err *error) {
	a.storeAfter(ctx, c, version, err)

	// Annotations are stored already, or will be. If nothing else changed, upstream has
	// nothing to write, and the management policies may forbid the write.
	if *err == nil && o.ResourceLateInitialized && c.OnlyAnnotationsDiffer(c.Managed) {
		o.ResourceLateInitialized = false
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

	if seam.IsRefused(err) && a.refuse(ctx, c, changes) {
		err = nil
	}

	// The name of an asynchronous create counts only if the create was recorded as a success.
	if c.Gone() && (rule == seam.Result || creation.Last(c.Managed).Confirmed) {
		for _, ch := range changes {
			if ch.Key == meta.AnnotationKeyExternalName {
				reportLeak(a.log, a.recorder, c.Managed, ch.Value)
			}
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

// due returns the changes of an Observe, Update or Delete to store now.
func (a *annotations) due(c *layer.Call, changes seam.Changes) seam.Changes {
	var due seam.Changes

	for _, ch := range changes {
		known := a.changes.Get(a.store, c.Managed)[ch.Key]
		switch {
		case known.refused == ch.Value && c.Now().Sub(known.refusedAt) < refusedInterval:
			// The API server would refuse the whole object, too.
			ch.Undo(c.Managed)
		case seam.IdentifiesResource(ch.Key), a.mayStore(c, ch):
			due = append(due, ch)
		case !known.refusedAt.IsZero():
			ch.Undo(c.Managed)
		}
	}
	return due
}

// restore sets values that were held back long enough, unless the annotation was changed since.
func (a *annotations) restore(c *layer.Call) {
	for key, ch := range a.changes.Get(a.store, c.Managed) {
		wait := unstableInterval - c.Now().Sub(ch.last)
		switch {
		case !ch.holds || c.Managed.GetAnnotations()[key] != ch.stored:
		case wait > 0:
			c.Requeue(seam.Within(wait))
		default:
			meta.AddAnnotations(c.Managed, map[string]string{key: ch.held})
		}
	}
}

// mayStore reports whether to store a change of an existing annotation now, and counts the
// change if so.
func (a *annotations) mayStore(c *layer.Call, of seam.Change) bool {
	may, first := true, false

	a.update(c, func(all map[string]change) {
		ch, now := all[of.Key], c.Now()
		since := now.Sub(ch.last)
		if since >= 2*unstableInterval {
			ch.times = 0
		}

		if may = ch.times < unstableAfter || since >= unstableInterval; may {
			ch = change{times: ch.times + 1, last: now}
			first = ch.times == unstableAfter
		} else {
			ch.held, ch.stored, ch.holds = of.Value, of.Was, true
			c.Requeue(seam.Within(unstableInterval - since))
		}

		all[of.Key] = ch
	})

	if first {
		a.log.Info("The provider changes an annotation all the time", "annotation", of.Key, "uid", c.Managed.GetUID())
		a.recorder.Event(c.Managed, event.Warning(reasonUnstableAnnotation,
			errors.Errorf(
				"the provider changes the annotation %s all the time: it is stored once in %s from now on", of.Key,
				unstableInterval,
			)))
	}
	return may
}

// refuse records that the API server refused changes. It returns false if a change that
// identifies the external resource is not stored. A change that the API server has already is
// another writer's: the provider has read the managed resource again.
func (a *annotations) refuse(ctx context.Context, c *layer.Call, changes seam.Changes) bool {
	unstored := c.ChangedAnnotations(c.Managed)
	if slices.ContainsFunc(unstored, func(ch seam.Change) bool { return seam.IdentifiesResource(ch.Key) }) {
		return false
	}
	is := seam.Empty(c.Managed)
	_ = a.live.Get(ctx, c.Key(), is) // If this fails, all changes count as the provider's.
	a.update(c, func(all map[string]change) {
		for _, of := range changes {
			theirs, there := is.GetAnnotations()[of.Key]
			if ch := all[of.Key]; !seam.IdentifiesResource(of.Key) && (!there || theirs != of.Value) {
				ch.refused, ch.refusedAt = of.Value, c.Now()
				all[of.Key] = ch
				of.Undo(c.Managed)
			}
		}
	})
	return true
}

// update the changes of a managed resource's annotations. It updates a copy, because other
// goroutines may read the map.
func (a *annotations) update(c *layer.Call, fn func(all map[string]change)) {
	a.changes.Update(a.store, c.Managed, func(all *map[string]change) {
		known := map[string]change{}
		maps.Copy(known, *all)
		fn(known)
		*all = known
	})
}

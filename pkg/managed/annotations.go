package managed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

const (
	// unstableAfter is how often Observe may change one annotation in a row at the
	// rate of reconciles. After that it is stored once an unstableInterval.
	unstableAfter    = 5
	unstableInterval = time.Minute

	// refusedInterval is how long a value that the API server has refused isn't tried again.
	// It may be granted by then: a permission may have been missing.
	refusedInterval = 10 * time.Minute
)

// WithoutExternalNamePersistence leaves it to upstream when annotations that the
// external client set are stored: after Create, and after Observe only if that
// says ResourceLateInitialized and the management policies allow it.
func WithoutExternalNamePersistence() ReconcilerOption {
	return func(r *Reconciler) { r.config.annotations = nil }
}

// annotations stores the annotations that the provider set, the external name above
// all, as soon as the call returns, also if it failed, and even if it panicked.
//
// The call's own error comes first. That storing failed is returned only if the call
// succeeded and would be repeated: upstream takes an error from Create to mean that
// nothing was created, so a create that succeeded must not return one.
//
// The external name, and what creates and operations are recorded in, are stored at
// once. An annotation that Observe changes each time, such as an etag, would cause a
// write and an event in each reconcile, so it is stored at a bounded rate.
//
// An external name that was emptied is not stored: a name that was stored is never
// taken away.
type annotations struct {
	external

	live   client.Reader
	log    logging.Logger
	record event.Recorder

	// changes that Observe made, by annotation.
	store   *store.Store
	changes store.Key[map[string]change]
}

// A change is what is known of the changes of an annotation.
type change struct {
	times int
	last  time.Time

	// held is what is yet to be stored, if anything, in the place of stored.
	held, stored string
	holds        bool

	// refused is the value that the API server has refused, at a time; zero if it hasn't.
	refused   string
	refusedAt time.Time
}

func newAnnotations(p parts, next external) layer {
	return layer{
		external: &annotations{external: next, live: p.live, log: p.log, record: p.record, store: p.store},
		patch:    seam.PendingAnnotations(func(o client.Object, key, theirs, ours string) { overwrote(p.log, p.record, o, key, theirs, ours) }),
	}
}

// Observe the external resource.
func (a *annotations) Observe(ctx context.Context, c *call) (o observeResult, err error) {
	defer a.storeObserved(ctx, c, c.mg.GetResourceVersion(), &o, &err)
	o, err = a.external.Observe(ctx, c)
	if err == nil && c.Lacks(c.mg) {
		err = errors.New("the provider has read the managed resource again, without the external name or the result of a create that could not be stored: see the events")
	}
	return o, err
}

// Create the external resource. The name that a create returns is known only once.
func (a *annotations) Create(ctx context.Context, c *call) (createResult, error) {
	version := c.mg.GetResourceVersion()
	defer func() {
		_ = a.storeChanges(ctx, c, changed(c, version), seam.Result)
	}()
	return a.external.Create(ctx, c)
}

// Update the external resource.
func (a *annotations) Update(ctx context.Context, c *call) (_ ExternalUpdate, err error) {
	defer a.storeAfter(ctx, c, c.mg.GetResourceVersion(), &err)
	return a.external.Update(ctx, c)
}

// Delete the external resource.
func (a *annotations) Delete(ctx context.Context, c *call) (_ deleteResult, err error) {
	defer a.storeAfter(ctx, c, c.mg.GetResourceVersion(), &err)
	return a.external.Delete(ctx, c)
}

// changed returns the annotations that a call set which began at a resource version. A
// provider may have read the managed resource again, from a cache that lags behind what
// was written in this reconcile: that is made up for.
func changed(c *call, version string) seam.Changes {
	changes := c.ChangedAnnotations(c.mg)
	if !seam.OlderThan(c.mg.GetResourceVersion(), version) {
		return changes
	}
	return slices.DeleteFunc(changes, func(ch seam.Change) bool {
		replaced := c.Replaced(ch)
		if replaced {
			ch.Undo(c.mg)
		}
		return replaced
	})
}

func (a *annotations) storeAfter(ctx context.Context, c *call, version string, err *error) {
	a.restore(c)
	if serr := a.storeChanges(ctx, c, a.due(c, changed(c, version)), seam.Observed); *err == nil {
		*err = serr
	}
}

func (a *annotations) storeObserved(ctx context.Context, c *call, version string, o *observeResult, err *error) {
	a.storeAfter(ctx, c, version, err)

	// Annotations are stored by now, or will be. If nothing else changed, writing the
	// whole object would only cost a write, and the management policies may not
	// allow it.
	if *err == nil && o.ResourceLateInitialized && c.OnlyAnnotationsDiffer(c.mg) {
		o.ResourceLateInitialized = false
	}
}

func (a *annotations) storeChanges(ctx context.Context, c *call, changes seam.Changes, rule seam.Rule) error {
	err := c.StoreAnnotations(ctx, c.mg, changes, rule, func(key, theirs, ours string) { overwrote(a.log, a.record, c.mg, key, theirs, ours) })
	if err != nil && !kerrors.IsConflict(err) {
		a.log.Info("Cannot store annotations that the external client set", "uid", c.mg.GetUID(), "error", err)
		a.record.Event(c.mg, event.Warning(reasonCannotStoreAnnotations, err))
	}

	if seam.IsRefused(err) && a.refuse(ctx, c, changes) {
		err = nil
	}

	// An asynchronous create may have a name only when it was recorded as a success.
	if c.Gone() && (rule == seam.Result || createOf(c.mg).Confirmed) {
		a.lost(c, changes)
	}
	return err
}

// lost says under which name an external resource was created whose managed resource
// no longer exists: the name is stored nowhere.
func (a *annotations) lost(c *call, changes seam.Changes) {
	for _, ch := range changes {
		if ch.Key != meta.AnnotationKeyExternalName {
			continue
		}
		createdForNothing(a.log, a.record, c.mg, ch.Value)
	}
}

// createdForNothing says that an external resource was created for a managed resource
// that no longer exists.
func createdForNothing(log logging.Logger, record event.Recorder, o client.Object, name string) {
	log.Info("Created an external resource for a managed resource that no longer exists", "uid", o.GetUID(), "external-name", name)
	record.Event(o, event.Warning(reasonLostManagedResource,
		errors.Errorf("the managed resource was removed while its external resource %q was created: delete the external resource if it is not needed", name)))
}

// due returns those of the changes of an Observe, Update or Delete that are to be stored
// now.
func (a *annotations) due(c *call, changes seam.Changes) seam.Changes {
	var due seam.Changes

	for _, ch := range changes {
		known := a.changes.Get(a.store, c.mg)[ch.Key]
		switch {
		case known.refused == ch.Value && c.Now().Sub(known.refusedAt) < refusedInterval:
			// It would be refused again, also as a part of the whole object.
			ch.Undo(c.mg)
		case seam.IdentifiesResource(ch.Key), !ch.Existed && known.refusedAt.IsZero(), a.mayStore(c, ch):
			due = append(due, ch)
		case !known.refusedAt.IsZero():
			ch.Undo(c.mg)
		}
	}
	return due
}

// restore what was held back for long enough, unless the annotation was changed since.
func (a *annotations) restore(c *call) {
	for key, ch := range a.changes.Get(a.store, c.mg) {
		wait := unstableInterval - c.Now().Sub(ch.last)
		switch {
		case !ch.holds || c.mg.GetAnnotations()[key] != ch.stored:
		case wait > 0:
			c.Requeue(seam.Within(wait))
		default:
			meta.AddAnnotations(c.mg, map[string]string{key: ch.held})
		}
	}
}

// mayStore reports whether a change of an annotation that was set before is to be stored
// now, and counts it if it is.
func (a *annotations) mayStore(c *call, of seam.Change) bool {
	may, first := true, false

	a.note(c, func(all map[string]change) {
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
		a.log.Info("The provider changes an annotation all the time", "annotation", of.Key, "uid", c.mg.GetUID())
		a.record.Event(c.mg, event.Warning(reasonUnstableAnnotation,
			errors.Errorf("the provider changes the annotation %s all the time: it is stored once in %s from now on", of.Key, unstableInterval)))
	}
	return may
}

// refuse notes that the API server has refused changes. It is false if one of them says
// which external resource there is, and could not be stored without the others. What is
// there already is another writer's: the provider has read the managed resource again.
func (a *annotations) refuse(ctx context.Context, c *call, changes seam.Changes) bool {
	unstored := c.ChangedAnnotations(c.mg)
	if slices.ContainsFunc(unstored, func(ch seam.Change) bool { return seam.IdentifiesResource(ch.Key) }) {
		return false
	}
	is := seam.Empty(c.mg)
	_ = a.live.Get(ctx, c.Key(), is) // Without an answer all of them are taken for the provider's.
	a.note(c, func(all map[string]change) {
		for _, of := range changes {
			theirs, there := is.GetAnnotations()[of.Key]
			if ch := all[of.Key]; !seam.IdentifiesResource(of.Key) && (!there || theirs != of.Value) {
				ch.refused, ch.refusedAt = of.Value, c.Now()
				all[of.Key] = ch
				of.Undo(c.mg)
			}
		}
	})
	return true
}

// note changes what is known of the annotations of a managed resource. It changes a copy:
// others may read the map that they were handed.
func (a *annotations) note(c *call, fn func(all map[string]change)) {
	a.changes.Update(a.store, c.mg, func(all *map[string]change) {
		known := map[string]change{}
		maps.Copy(known, *all)
		fn(known)
		*all = known
	})
}

// overwrote tells the user that the value of another writer was replaced by the result
// of a create.
func overwrote(log logging.Logger, record event.Recorder, o client.Object, key, theirs, ours string) {
	msg := "the result of creating the external resource replaced another value of the annotation " + key
	if key == meta.AnnotationKeyExternalName {
		msg += fmt.Sprintf(": %q, not %q, is its external name", ours, theirs)
	}
	log.Info("Overwrote an annotation", "annotation", key, "uid", o.GetUID())
	record.Event(o, event.Warning(reasonOverwroteAnnotation, errors.New(msg)))
}

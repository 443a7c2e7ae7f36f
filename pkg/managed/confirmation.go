package managed

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// WithDeletionConfirmation keeps the finalizer of a managed resource that is being
// deleted until its external resource was not found n times in a row, at least interval
// apart, or was not found right after a Delete that succeeded. Until then nothing is
// unpublished, and the Deleting condition gives the reason ConfirmingAbsence.
//
// It is for external systems that sometimes answer "not found" for what exists. An
// Observe that finds the external resource, or fails, starts the count again, and so
// does a Delete that fails, another external name, or a restart of the provider. What is deleted with its
// external resource left alone (deletionPolicy Orphan, management policies without
// Delete) is not observed, and is removed at once. A Delete that has only begun an
// asynchronous operation is not known to have succeeded.
//
// It costs n-1 more calls of Observe, and (n-1) times interval, for each managed
// resource that is deleted without a Delete of ours. WithDeletionConfirmation
// panics if n is less than 1, or interval is not positive.
func WithDeletionConfirmation(n int, interval time.Duration) ReconcilerOption {
	if n < 1 {
		panic(errors.Errorf("managed.WithDeletionConfirmation was given n = %d: pass how often in a row an external resource must not be found, 1 or more", n))
	}
	if interval <= 0 {
		panic(errors.Errorf("managed.WithDeletionConfirmation was given an interval of %s: pass how long to wait from one observation to the next, more than nothing", interval))
	}
	return withLayer(slotConfirmation, func(p parts) layer {
		e := &confirmation{times: n, interval: interval, log: p.log, record: p.record}
		return layer{
			external: func(next external) external {
				e.external = next
				return e
			},
			patch: seam.Patch{Gone: func(s *seam.Session) { e.absences.forget(s.Key()) }},
		}
	})
}

// confirmation keeps a managed resource that is being deleted until its external
// resource is known not to exist. What it doesn't believe it turns into a conflict,
// which upstream takes for a reason to reconcile again, and for no other.
//
// What it knows is only in memory. To forget is safe.
type confirmation struct {
	external

	times    int
	interval time.Duration
	log      logging.Logger
	record   event.Recorder
	absences memory[absence]
}

// An absence is what is known of an external resource that is to be deleted.
type absence struct {
	// times is how often in a row it was not found, and last when that was last
	// counted.
	times int
	last  time.Time

	// deleted means that a Delete of ours succeeded, and that it was not seen since.
	deleted bool

	// name is its external name. Of another external resource nothing is known.
	name string
}

const messageAbsent = "The external resource is not found. It is observed again before the finalizer is removed."

// Observe the external resource.
func (e *confirmation) Observe(ctx context.Context, c *call) (observation, error) {
	o, err := e.external.Observe(ctx, c)

	switch {
	case !meta.WasDeleted(c.mg):
		return o, err
	case err != nil:
		e.start(c, false)
		return o, err
	case o.ResourceExists:
		e.start(c, true)
		return o, nil
	}

	now, name := c.Now(), meta.GetExternalName(c.mg)
	first := false

	a := e.absences.update(c.mg, func(a *absence) {
		if a.name != name {
			*a = absence{name: name}
		}
		if a.times == 0 || now.Sub(a.last) >= e.interval {
			a.times++
			a.last = now
			first = a.times == 1
		}
	})

	if a.deleted || a.times >= e.times {
		return o, nil
	}
	if first {
		e.record.Event(c.mg, event.Normal(reasonConfirmingAbsence, messageAbsent))
	}
	c.Requeue(seam.InsteadOfBackoff(a.last.Add(e.interval).Sub(now)))
	o.Reason, o.Message = reconciler.ReasonConfirmingAbsence, messageAbsent
	return o, seam.Conflict(c.mg, "the absence of the external resource is yet to be confirmed")
}

// Delete the external resource.
func (e *confirmation) Delete(ctx context.Context, c *call) (deletion, error) {
	o, err := e.external.Delete(ctx, c)
	e.absences.update(c.mg, func(a *absence) {
		*a = absence{deleted: err == nil && o.State == seam.Done, name: meta.GetExternalName(c.mg)}
	})
	return o, err
}

// start the count again, since the external resource was found, or could not be
// observed.
func (e *confirmation) start(c *call, found bool) {
	had := e.absences.get(c.mg)
	if had == (absence{}) {
		return
	}
	e.absences.update(c.mg, func(a *absence) {
		a.times = 0
		// A Delete is not undone by an Observe that failed.
		a.deleted = a.deleted && !found
	})

	if found && had.times > 0 {
		e.log.Info("An external resource that was not found exists", "uid", c.mg.GetUID(), "times", had.times)
		e.record.Event(c.mg, event.Warning(reasonFoundAfterAll, errors.New("the external resource was not found before, and exists now")))
	}
}

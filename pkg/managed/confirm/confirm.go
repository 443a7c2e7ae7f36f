package confirm

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// Event reasons.
const (
	reasonConfirmingAbsence event.Reason = "ConfirmingAbsence"
	reasonFoundAfterAll     event.Reason = "FoundAfterAll"
)

const messageAbsent = "The external resource is not found. It is observed again before the finalizer is removed."

// With keeps the finalizer of a managed resource that is being deleted until its external resource was not found n
// times in a row, at least interval apart, or was not found right after a Delete that succeeded. Until then, connection
// details are not unpublished, and the Deleting condition has the reason ConfirmingAbsence.
//
// The count restarts if Observe finds the external resource or fails, if Delete is called, if the external name
// changes, or if the provider restarts. A managed resource whose external resource is orphaned (deletionPolicy Orphan,
// management policies without Delete) is not observed, and is removed at once. A Delete that has only started an
// asynchronous operation does not count as succeeded.
//
// It costs n-1 more calls of Observe, and (n-1) times interval, for each managed resource whose external resource was
// not deleted by this process. With panics if n is less than 1, or interval is not positive.
func With(n int, interval time.Duration) managed.ReconcilerOption {
	if n < 1 {
		panic(errors.Errorf(
			"confirm.With was given n = %d: pass the number of times in a row that the external resource must not be found, 1 or more",
			n,
		))
	}
	if interval <= 0 {
		panic(errors.Errorf(
			"confirm.With was given an interval of %s: pass the time between two observations, more than zero",
			interval,
		))
	}
	return managed.With(layer.Option{Name: "confirm.With", Layers: []layer.Staged{{
		Stage: layer.Doubt,
		New: func(p layer.Parts, next layer.External) layer.Layer {
			return layer.Layer{External: &confirmation{
				External: next, times: n, interval: interval, recorder: p.Recorder, store: p.Store,
			}}
		},
	}}})
}

// confirmation holds the reconcile until the external resource was not found often enough.
type confirmation struct {
	layer.External

	times    int
	interval time.Duration
	recorder event.Recorder

	store  *store.Store
	counts store.Key[count]
}

// A count counts how often in a row the external resource of that name was not found.
type count struct {
	name  string
	times int
	last  time.Time // when times was last incremented
}

// Observe the external resource.
func (e *confirmation) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	o, err := e.External.Observe(ctx, c)

	switch {
	case !meta.WasDeleted(c.Managed):
		return o, err
	case err != nil, o.ResourceExists:
		if err == nil && e.counts.Get(e.store, c.Managed).times > 0 {
			e.recorder.Event(c.Managed, event.Warning(
				reasonFoundAfterAll, errors.New("the external resource was not found before, and exists now"),
			))
		}
		e.counts.Delete(e.store, c.Managed)
		return o, err
	case o.Deleted:
		return o, nil
	}

	now, name, first := c.Now(), creation.Last(c.Managed).Name, false
	n := e.counts.Update(e.store, c.Managed, func(n *count) {
		if n.name != name {
			*n = count{name: name}
		}
		if first = n.times == 0; first || now.Sub(n.last) >= e.interval {
			n.times, n.last = n.times+1, now
		}
	})

	if n.times >= e.times {
		return o, nil
	}
	if first {
		e.recorder.Event(c.Managed, event.Normal(reasonConfirmingAbsence, messageAbsent))
	}
	return o, layer.Hold{
		Reason: deletion.ReasonConfirmingAbsence, Message: messageAbsent, After: n.last.Add(e.interval).Sub(now),
	}.Silently(c.Managed)
}

// Delete the external resource.
func (e *confirmation) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	e.counts.Delete(e.store, c.Managed)
	return e.External.Delete(ctx, c)
}

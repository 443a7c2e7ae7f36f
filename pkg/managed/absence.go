package managed

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// absence decides when a "not found" is final:
//
//   - After a create that succeeded, a "not found" is final when the creation grace period
//     has passed, or when a Delete of this process has succeeded since. Upstream's own grace
//     period is disabled, because it does not take the Delete into account.
//   - After a create that was interrupted or got no answer, a "not found" is final for a
//     deletion when the create has certainly ended, and the grace period has passed. If the
//     create was repeated, a Delete that succeeded does not shorten this: the other request
//     may still create the external resource again.
//   - After any create, a "not found" is final in the second after it ended. Upstream's
//     annotations have a resolution of one second: if the process crashed in a create that
//     started in the second in which the last create ended, upstream would create again.
//
// Until then, Observe returns a conflict, which makes upstream reconcile again.
//
// If the external resource is kept, upstream removes the finalizer without a call of the provider. It stays while an
// operation may still run, whose result would be lost.
type absence struct {
	layer.External

	settings layer.Settings
	recorder event.Recorder
	store    *store.Store
	runs     *layer.Runs

	firstSeen creation.FirstSeen

	// deleted identifies the external resource that a Delete has deleted, if no Observe has
	// found it since.
	deleted store.Key[*creation.Identity]

	slot seam.Slot[absenceState]
}

// absenceState is the state of one reconcile.
type absenceState struct {
	// announces says that the next write announces a create, if it follows upstream's finalizer: upstream announces
	// one after it has observed no external resource. finalized says that the finalizer was added.
	announces, finalized bool

	// observed says that the layers below have observed the external resource for a deletion.
	observed bool
}

func newAbsence(p layer.Parts, next layer.External) layer.Layer {
	a := &absence{External: next, settings: p.Settings, recorder: p.Recorder, store: p.Store, runs: p.Runs}
	return layer.Layer{
		External: a,
		Patch:    seam.Patch{Write: a.announce},
		Finalizer: func(next resource.Finalizer) resource.Finalizer {
			return resource.FinalizerFns{
				AddFinalizerFn: func(ctx context.Context, o resource.Object) error {
					err := next.AddFinalizer(ctx, o)
					if n := a.slot.Find(seam.From(ctx)); n != nil {
						n.finalized = true
					}
					return err
				},
				RemoveFinalizerFn: func(ctx context.Context, o resource.Object) error {
					s := seam.From(ctx)
					run, reason := a.run(s, o), deletion.ReasonWaitingForAsyncOperation
					if run.Until.IsZero() {
						return next.RemoveFinalizer(ctx, o)
					}
					if run.Unresolved() {
						// Upstream doesn't connect to the provider, so nothing resumes it: a person has to settle it.
						reason = deletion.ReasonCreateResultUnknown
					}
					s.Requeue(seam.InsteadOfBackoff(deletion.BusyInterval))
					return layer.Hold{
						Reason: reason, Message: fmt.Sprintf(deletion.MessageOperationRuns, run),
					}.Silently(o)
				},
			}
		},

		// With zero, upstream waits for a create that ended by a clock that is ahead.
		Upstream: []upstream.ReconcilerOption{upstream.WithCreationGracePeriod(math.MinInt64)},
	}
}

// Observe the external resource.
func (a *absence) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	// The external resource may exist by the time the answer arrives.
	began := c.Now()
	o, err := a.External.Observe(ctx, c)
	if meta.WasDeleted(c.Managed) {
		a.slot.In(c.Session).observed = err == nil
	}

	switch {
	case err != nil:
		return o, err
	case o.ResourceExists:
		a.firstSeen.Forget(a.store, c.Managed)
		a.deleted.Delete(a.store, c.Managed)
		return o, nil
	}

	if was := a.deleted.Get(a.store, c.Managed); was != nil && *was == creation.IdentityOf(c.Managed) {
		o.Deleted = true
	}

	// A managed resource that is only observed reports the absence at once.
	if !seam.Allows(
		c.Managed, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
		xpv2.ManagementActionLateInitialize,
	) {
		return o, nil
	}
	q := a.question(c.Managed, began)
	a.slot.In(c.Session).announces = q.Can.Create
	if q.Incomplete() && !a.continuesUnresolved(q.State) {
		return o, nil
	}
	q.Observed, q.DeleteSucceeded = creation.Absent, o.Deleted

	switch step := creation.Next(q); {
	case step.Action == creation.Wait && step.Reason == creation.MayBeInProgress && q.Phase == creation.Created:
		a.recorder.Event(c.Managed, event.Normal(reasonPending, "Waiting for external resource existence to be confirmed"))
		return o, layer.Hold{
			Reason: deletion.ReasonConfirmingAbsence, Message: deletion.MessageGracePeriod, After: step.Delay,
		}.Silently(c.Managed)
	case step.Action == creation.Wait && q.Deleting:
		return o, layer.Hold{
			Reason:  deletion.ReasonConfirmingAbsence,
			Message: fmt.Sprintf(deletion.MessageMayBeCreated, seam.Stamp(step.Until)),
			After:   step.Delay,
		}.Silently(c.Managed)
	case !q.Deleting && q.Can.Create && q.Now.Before(q.NextCreate()):
		return o, seam.Conflict(c.Managed, "the last create ended in this second")
	}
	return o, nil
}

// question returns the question about the last create of mg.
func (a *absence) question(mg resource.Managed, now time.Time) creation.Question {
	s := creation.Last(mg)
	return creation.Question{
		State: s,
		Can: creation.Can{
			Names:  a.settings.DeterministicExternalName,
			Create: seam.Allows(mg, xpv2.ManagementActionCreate),
		},
		Limits:    creation.Limits{Announced: a.settings.LongestCreate(), Grace: a.settings.Grace},
		Deleting:  meta.WasDeleted(mg),
		Now:       now,
		FirstSeen: a.firstSeen.At(a.store, mg, s, now),
	}
}

// continuesUnresolved reports whether upstream continues although the outcome of the last create
// is unknown.
func (a *absence) continuesUnresolved(s creation.State) bool {
	return a.settings.DeterministicExternalName && s.Incomplete() && (!s.Recorded || !a.settings.Async)
}

// Delete the external resource.
func (a *absence) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	o, err := a.External.Delete(ctx, c)
	if err == nil && o.State == seam.Done {
		is := creation.IdentityOf(c.Managed)
		a.deleted.Update(a.store, c.Managed, func(v **creation.Identity) { *v = &is })
	}
	return o, err
}

// run returns the operation that the finalizer waits for. If the external resource was observed, the layers below have
// decided that it no longer exists.
func (a *absence) run(s *seam.Session, o client.Object) creation.Run {
	if a.slot.In(s).observed {
		return a.runs.Own(o)
	}
	return a.runs.Of(o, s.Now())
}

// announce corrects the annotation that announces a create, before o is written.
func (a *absence) announce(_ context.Context, s *seam.Session, o client.Object) {
	n := a.slot.Find(s)
	if n == nil || !n.announces || !n.finalized {
		return
	}
	n.announces = false

	var repeated time.Duration
	if a.continuesUnresolved(creation.Last(s.Base())) {
		repeated = a.settings.Timeout
	}
	creation.Announce(o, s.Base(), repeated, s.Now())
}

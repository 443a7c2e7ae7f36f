package managed

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// absence decides when it is believed that there is no external resource:
//
//   - After a create succeeded, when the creation grace period is over. A Delete of this
//     process that has succeeded since ends it. Upstream's own grace period is switched off,
//     because it does not know about the Delete.
//   - After a create ended, in the next second. Upstream's annotations have a resolution of
//     one second. If the process died during a create that began in the second in which the
//     last one ended, upstream would create again.
//
// Until then Observe returns a conflict, which makes upstream reconcile again.
type absence struct {
	external

	grace  time.Duration
	record event.Recorder
	store  *store.Store

	firstSeen creation.FirstSeen

	// deleted is the external resource that a Delete has deleted. No Observe has found it
	// since.
	deleted store.Key[*creation.Identity]
}

func newAbsence(p parts, next external) layer {
	a := &absence{external: next, grace: p.settings.grace, record: p.record, store: p.store}
	return layer{external: a, patch: seam.Patch{Write: a.announce}, upstream: []upstream.ReconcilerOption{upstream.WithCreationGracePeriod(0)}}
}

// Observe the external resource.
func (a *absence) Observe(ctx context.Context, c *call) (observeResult, error) {
	o, err := a.external.Observe(ctx, c)

	switch {
	case err != nil:
		return o, err
	case o.ResourceExists:
		a.firstSeen.Forget(a.store, c.mg)
		a.deleted.Delete(a.store, c.mg)
		return o, nil
	}

	if was := a.deleted.Get(a.store, c.mg); was != nil && *was == creation.IdentityOf(c.mg) {
		o.Deleted = true
	}

	// A managed resource that is only observed reports at once that there is nothing.
	if !seam.Allows(c.mg, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete, xpv2.ManagementActionLateInitialize) {
		return o, nil
	}
	q := creation.Question{State: createOf(c.mg), Limits: creation.Limits{Grace: a.grace}, Observed: creation.Absent, Deleted: o.Deleted, Now: c.Now()}
	if q.Ended.IsZero() {
		return o, nil
	}
	q.FirstSeen = a.firstSeen.At(a.store, c.mg, q.State, q.Now)

	switch step := creation.Next(q); {
	case q.Phase == creation.Created && step.Action == creation.Wait:
		a.record.Event(c.mg, event.Normal(reasonPending, "Waiting for external resource existence to be confirmed"))
		c.Requeue(seam.InsteadOfBackoff(step.Delay))
		o.Reason, o.Message = reconciler.ReasonConfirmingAbsence, messageGracePeriod
		return o, seam.Conflict(c.mg, "the external system may not show yet what was created")
	case !meta.WasDeleted(c.mg) && seam.Allows(c.mg, xpv2.ManagementActionCreate) && q.Now.Before(q.NextCreate()):
		return o, seam.Conflict(c.mg, "the last create ended in this second")
	}
	return o, nil
}

// Delete the external resource.
func (a *absence) Delete(ctx context.Context, c *call) (deleteResult, error) {
	o, err := a.external.Delete(ctx, c)
	if err == nil && o.State == seam.Done {
		is := creation.IdentityOf(c.mg)
		a.deleted.Update(a.store, c.mg, func(v **creation.Identity) { *v = &is })
	} else {
		a.deleted.Delete(a.store, c.mg)
	}
	return o, err
}

// announce corrects the announcement of a create that o is about to be written with.
func (a *absence) announce(_ context.Context, s *seam.Session, o client.Object) {
	creation.Announce(o, s.Base())
}

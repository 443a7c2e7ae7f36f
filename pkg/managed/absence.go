package managed

import (
	"context"
	"math"
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

// absence decides when a "not found" is final:
//
//   - After a create that succeeded, a "not found" is final when the creation grace period
//     has passed, or when a Delete of this process has succeeded since. Upstream's own grace
//     period is disabled, because it does not take the Delete into account.
//   - After any create, a "not found" is final in the second after it ended. Upstream's
//     annotations have a resolution of one second: if the process crashed in a create that
//     started in the second in which the last create ended, upstream would create again.
//
// Until then, Observe returns a conflict, which makes upstream reconcile again.
type absence struct {
	external

	grace    time.Duration
	recorder event.Recorder
	store    *store.Store

	firstSeen creation.FirstSeen

	// deleted identifies the external resource that a Delete has deleted, if no Observe has
	// found it since.
	deleted store.Key[*creation.Identity]
}

func newAbsence(p parts, next external) layer {
	a := &absence{external: next, grace: p.settings.grace, recorder: p.recorder, store: p.store}
	return layer{
		external: a,
		patch:    seam.Patch{Write: a.announce},

		// With zero, upstream waits for a create that ended by a clock that is ahead.
		upstream: []upstream.ReconcilerOption{upstream.WithCreationGracePeriod(math.MinInt64)},
	}
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

	// A managed resource that is only observed reports the absence at once.
	if !seam.Allows(
		c.mg, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete,
		xpv2.ManagementActionLateInitialize,
	) {
		return o, nil
	}
	q := creation.Question{
		State:           createOf(c.mg),
		Limits:          creation.Limits{Grace: a.grace},
		Observed:        creation.Absent,
		DeleteSucceeded: o.Deleted,
		Now:             c.Now(),
	}
	if q.Ended.IsZero() {
		return o, nil
	}
	q.FirstSeen = a.firstSeen.At(a.store, c.mg, q.State, q.Now)

	switch step := creation.Next(q); {
	case q.Phase == creation.Created && step.Action == creation.Wait:
		a.recorder.Event(c.mg, event.Normal(reasonPending, "Waiting for external resource existence to be confirmed"))
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

// announce corrects the annotation that announces a create, before o is written.
func (a *absence) announce(_ context.Context, s *seam.Session, o client.Object) {
	creation.Announce(o, s.Base())
}

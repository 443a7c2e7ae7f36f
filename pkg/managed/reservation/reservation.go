package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	messageOnlyObserved     = "The management policies allow no change of the external resource."
	messageFinalizerRemoved = "its finalizer was removed"
	messageMayHaveCreated   = "its failed create may have created an external resource under another name: look for it, " +
		"and then remove the annotation " + creation.AnnotationKeyPending
	messageUnconfirmed = "Nothing is reserved: no create has confirmed the external name."
)

// With lets only one managed resource at a time act on an external
// resource. A Lease in the supplied namespace has the holder: one Lease for each kind,
// provider config and external name. A managed resource takes the Lease before it creates the
// external resource, or when it first observes an existing one, and holds it until its
// finalizer is removed. Create, Update and Delete are called only while it holds the Lease.
// Each of these calls reads the Lease from the API server.
//
// A create that failed releases the Lease, unless the external resource exists. If the create was
// throttled, the next reconcile releases it. A name that no create has confirmed is reserved only
// while a create is in progress, or while its outcome is unknown. After a create that was
// interrupted, or got no answer, the name stays reserved for the timeout of a reconcile
// (WithTimeout) and one more minute, even if another create fails meanwhile. A managed resource
// whose management policies allow no Create, Update or Delete holds no Lease.
//
// A second managed resource reports the conflict in its conditions Synced and
// ExternalNameReserved, and retries with backoff. Both conditions name the holder if it is in
// the same namespace. Otherwise they name only the Lease, because the user may not be allowed
// to read the holder. If the second managed resource is deleted, and no create
// of its own succeeded, it is removed without touching the external resource. While the Lease cannot be
// read, no call changes the external resource.
//
// A Lease does not expire. It is taken over if its holder no longer exists, by UID. It stays
// until then if the provider dies while it removes a managed resource, or if anything else
// removes the finalizer. Names that the external system assigns are reserved as soon as they
// are known.
//
// By default, external names must be unique among the external resources of a kind and
// provider config. Two provider configs with different names, or in different namespaces,
// have different Leases, even if both log in to one account. If provider configs or kinds
// share external resources, or if names are unique only within a parent or a region, pass
// WithKey.
//
// The provider needs the permissions get, create, update and delete for
// leases.coordination.k8s.io in the namespace, and get for each kind that shares the keys. It
// makes no requests while nothing changes. Otherwise it makes:
//
//   - one or two when this process first observes a managed resource;
//   - one for each Create, Update and Delete, and one more for a Create if an earlier process
//     took the Lease;
//   - two for a create that failed, and one call of Observe unless the create was throttled;
//   - one for each Observe of an external resource that was never created, or is being created
//     asynchronously;
//   - two when a changed external name or management policy releases a Lease;
//   - two for each retry of a managed resource that waits;
//   - one when the managed resource is removed.
//
// A managed resource whose external name changes reserves the new name, then releases the old
// one. If the provider restarts in between, the old Lease stays until the managed resource is
// removed or the Lease is deleted.
//
// With panics if the namespace is not a valid name.
func With(namespace string) managed.ReconcilerOption {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		panic(errors.Errorf(
			"reservation.With was given the namespace %q: pass the one in which the provider keeps its leases, such as its own (%s)",
			namespace, strings.Join(problems, ", "),
		))
	}
	return managed.With(layer.Option{
		Name: "reservation.With",
		Layers: []layer.Staged{{
			Stage: layer.Identity,
			New: func(p layer.Parts, next layer.External) layer.Layer {
				key := p.Settings.ReservationKey
				if key == nil {
					key = defaultKey(p.Kind.GroupKind(), p.Log)
				}
				return newReservation(namespace, key, p, next)
			},
		}},
		Set: func(s *layer.Settings) { s.Reserves = true },
	})
}

// reservation lets only one managed resource act on an external resource.
//
// Its state is in memory only. It saves a read of the lease before Observe, but not before a
// call that changes the external resource.
type reservation struct {
	layer.External

	kind     schema.GroupVersionKind
	key      keyFunc
	leases   *leases
	log      logging.Logger
	recorder event.Recorder

	// own is the name of the finalizer that the reconciler adds, or empty if it is unknown.
	own string

	// createTimeout is how long a create whose outcome is unknown may be in progress.
	createTimeout time.Duration

	// resolves reports whether a resolver is set, finds whether it looks up the external
	// resource of a create that failed.
	// repeats reports whether a create is repeated although its outcome is unknown.
	// async reports whether WithAsync is set.
	resolves, finds, repeats, async bool

	store *store.Store
	held  store.Key[holding]
}

func newReservation(namespace string, key keyFunc, p layer.Parts, next layer.External) layer.Layer {
	r := &reservation{
		External: next,
		kind:     p.Kind,
		key:      key,
		leases:   &leases{client: p.Client, live: p.Live, namespace: namespace},
		own:      p.Settings.Finalizer,
		resolves: p.Settings.Resolves,
		finds:    p.Settings.Resolves && !p.Settings.DeterministicExternalName,
		repeats:  p.Settings.Resolves || p.Settings.DeterministicExternalName,
		async:    p.Settings.Async,
		log:      p.Log,
		recorder: p.Recorder,
		store:    p.Store,

		createTimeout: p.Settings.LongestCreate(),
	}
	return layer.Layer{
		External: r,
		Finalizer: func(next resource.Finalizer) resource.Finalizer {
			return &reservedFinalizer{Finalizer: next, reservation: r}
		},
		Patch: seam.Patch{Conditions: []xpv2.ConditionType{TypeReserved}},
	}
}

// A holding is the state of a managed resource's reservation.
type holding struct {
	leased
	creates

	// confirmed is the key of the external resource that was last observed or created.
	confirmed string

	// former has the leases of previous keys. They are released when no create is in progress
	// that may use those keys.
	former []lease

	// unneeded reports whether the management policies forbid changes, and the lease is released.
	unneeded bool

	// released is the resource version of the managed resource before its finalizer was
	// removed. Nothing is reserved for that version, which a stale cache may still return.
	released string
}

// take records that the managed resource holds the lease of a key. A lease of another key becomes
// a former one.
func (h *holding) take(key string, l lease) {
	former := slices.Clone(h.former)
	if h.key != "" {
		former = append(former, h.lease)
	}
	// The key may be a previous one again.
	h.former = slices.DeleteFunc(former, func(f lease) bool { return f.name == l.name })
	h.leased, h.unneeded = leased{key: key, lease: l}, false
}

// doubt records that the managed resource may have lost its lease. If it still has that lease when
// its key changes, the lease is released.
func (h *holding) doubt() { h.take("", lease{}) }

// leased is a lease that a managed resource holds.
type leased struct {
	key   string
	lease lease
}

// creates is the state of a managed resource's creates.
type creates struct {
	// inProgress is the time until which a create whose outcome is unknown may be in progress.
	inProgress time.Time

	// announced is the announcement of the last create that inProgress includes.
	announced string
}

// busy reports whether an operation in progress may still change the external resource.
func (h holding) busy(c *layer.Call) bool {
	return creation.Last(c.Managed).Incomplete() || !creation.RunsUntil(c.Managed, c.Now()).Until.IsZero() ||
		c.Now().Before(h.inProgress)
}

// Observe the external resource. It reads the lease only if this process does not know the
// holder, because Observe changes nothing.
func (r *reservation) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	if !seam.Allows(c.Managed, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete) {
		return r.observeOnly(ctx, c)
	}
	var o layer.Observation
	err := r.before(ctx, c)
	if err == nil {
		if o, err = r.External.Observe(ctx, c); err != nil {
			return o, err
		}
		err = r.after(ctx, c, o)
	}

	var held *heldError
	switch was := creation.Last(c.Managed); {
	case !errors.As(err, &held) || !meta.WasDeleted(c.Managed) || was.MayExist():
		return o, err
	case r.finds && was.Phase == creation.Failed && (!r.async || !was.Recorded) && was.Announcement != "":
		return o, errors.Wrap(err, messageMayHaveCreated)
	}
	// No create of its own succeeded.
	return layer.Observation{}, nil
}

// before an Observe, reserve the external name if an external resource may exist. Otherwise
// check that no other managed resource has it.
func (r *reservation) before(ctx context.Context, c *layer.Call) error {
	was := creation.Last(c.Managed)

	had := r.held.Update(r.store, c.Managed, func(h *holding) {
		if was.Phase == creation.Announced && !was.Recorded && h.announced != was.Announcement {
			// The create was interrupted.
			h.creates = creates{inProgress: creation.Later(c.Now(), r.createTimeout), announced: was.Announcement}
		}
	})

	key, err := r.key(ctx, c.Managed)
	if err != nil {
		return err
	}
	if !had.busy(c) {
		r.releaseFormer(ctx, c, key)
	}
	if had.key == "" && key == "" {
		// The condition may be about an earlier name.
		r.notNeeded(c, messageUnconfirmed)
	}

	switch {
	case was.Recorded && was.Incomplete():
		// Observe may repeat the recorded create.
		return r.reserve(ctx, c, leaseRead)
	case lastMayExist(was):
		return r.reserve(ctx, c, leaseKnown)
	default:
		return r.check(ctx, c)
	}
}

// after an Observe, reserve the external name, which may be known only now, or release it if
// there is no external resource.
func (r *reservation) after(ctx context.Context, c *layer.Call, o layer.Observation) error {
	was := creation.Last(c.Managed)

	switch {
	case o.State == seam.Done && (o.ResourceExists || lastMayExist(was)):
		if err := r.reserve(ctx, c, leaseKnown); err != nil {
			return err
		}
		if o.ResourceExists {
			r.confirm(c)
		}
	case (o.State == seam.Done || o.State == seam.Waiting) && !lastMayExist(was) && !c.Moved(c.Managed):
		// A create failed in another process, or asynchronously.
		r.releaseUnused(ctx, c)
	}
	return nil
}

// confirm records that the external resource of the reserved key was observed or created.
func (r *reservation) confirm(c *layer.Call) {
	r.held.Update(r.store, c.Managed, func(h *holding) { h.confirmed = h.key })
}

// observeOnly observes for a managed resource that may not change its external resource, and
// needs no lease.
func (r *reservation) observeOnly(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	had := r.held.Get(r.store, c.Managed)

	mayRelease := !had.busy(c) && !r.outdated(c.Managed, had)
	if mayRelease {
		r.releaseFormer(ctx, c, "")
	}

	if mayRelease && !had.unneeded {
		// An earlier process may have reserved it.
		key, err := r.key(ctx, c.Managed)
		if err != nil {
			return layer.Observation{}, err
		}
		if had.key == "" && key != "" {
			had.lease = lease{name: leaseName(key)}
		}

		if had.lease.name == "" || r.releaseLease(ctx, c.Managed, had.lease, r.changed(c.Managed)) {
			r.held.Update(r.store, c.Managed, func(h *holding) { *h = holding{unneeded: true, former: h.former} })
		}
	}

	if r.held.Get(r.store, c.Managed).unneeded ||
		seam.ConditionOf(c.Managed, TypeReserved).Status == corev1.ConditionFalse {
		r.notNeeded(c, messageOnlyObserved)
	}
	return r.External.Observe(ctx, c)
}

// Create the external resource, while its name is reserved.
func (r *reservation) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	mayRun, announced := c.Now().Before(r.held.Get(r.store, c.Managed).inProgress), creation.Last(c.Managed).Announcement
	o, err := r.create(ctx, c)
	r.held.Update(r.store, c.Managed, func(h *holding) { h.announced = announced })
	if err != nil && mayRun && r.repeats && o.State != seam.InProgress {
		// The previous create may still succeed.
		o.State = seam.Unknown
	}
	return o, err
}

func (r *reservation) create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	was := creation.Last(c.Managed)
	if err := r.reserve(ctx, c, leaseRenewed); err != nil {
		return layer.Creation{Outcome: seam.Outcome{State: seam.Untried}}, err
	}
	o, err := r.External.Create(ctx, c)

	switch {
	case err == nil:
		// Don't return the error, because upstream would record the create as failed. The
		// next reconcile reserves the name again.
		if rerr := r.reserve(ctx, c, leaseKnown); rerr != nil {
			r.log.Info("Cannot reserve the name of a created external resource", "uid", c.Managed.GetUID(), "error", rerr)
		} else if o.State == seam.Done {
			r.confirm(c)
		}
	case o.State == seam.Untried, o.State == seam.Refused:
		r.releaseUnused(ctx, c)
	case o.State == seam.Unknown, o.State == seam.Done && failure.Lost(err):
		r.held.Update(r.store, c.Managed, func(h *holding) { h.inProgress = creation.Later(c.Now(), r.createTimeout) })
	case was.Confirmed && failure.Exists(err, was.Name) && r.held.Get(r.store, c.Managed).confirmed == "":
		// The create of an earlier process created the external resource. The external system
		// does not show it yet.
	case o.State == seam.Done && !r.resolves && !failure.Of(err, c.Now()).Throttled && r.absent(ctx, c):
		r.releaseUnused(ctx, c)
	}
	return o, err
}

// absent reports whether the reserved external resource does not exist after a create that
// failed. The create may have failed in a later step, or because the external resource exists.
func (r *reservation) absent(ctx context.Context, c *layer.Call) bool {
	if r.held.Get(r.store, c.Managed).key == "" {
		return false
	}

	// The reconcile may have ended because a call took too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()

	// Changes by this Observe must not be stored.
	mg, err := layer.Copy(c.Managed)
	if err != nil {
		return false
	}
	observe := func() (managed.ExternalObservation, error) { return c.Client.Observe(ctx, mg) }
	var o managed.ExternalObservation
	if r.async {
		o, err = observe() // The tracker charges the call.
	} else {
		o, err = limit.Call(c.Meter(), observe)
	}
	layer.Follow(c, mg, c.Managed.GetAnnotations(), c.Managed.GetLabels())
	return err == nil && !o.ResourceExists
}

// Update the external resource, if its name is reserved.
func (r *reservation) Update(ctx context.Context, c *layer.Call) (managed.ExternalUpdate, error) {
	if err := r.reserve(ctx, c, leaseRead); err != nil {
		return managed.ExternalUpdate{}, err
	}
	return r.External.Update(ctx, c)
}

// Delete the external resource, if its name is reserved.
func (r *reservation) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	if err := r.reserve(ctx, c, leaseRead); err != nil {
		return layer.Deletion{}, err
	}
	return r.External.Delete(ctx, c)
}

// lastMayExist reports whether the last create may have created the external resource.
func lastMayExist(s creation.State) bool { return s.Phase == creation.Created || s.Incomplete() }

// check that no other managed resource has reserved the external name.
func (r *reservation) check(ctx context.Context, c *layer.Call) error {
	had := r.held.Get(r.store, c.Managed)
	key, err := r.key(ctx, c.Managed)

	switch {
	case err != nil:
		return err
	case r.outdated(c.Managed, had):
		return seam.Conflict(c.Managed, messageFinalizerRemoved)
	case key == "":
		return nil
	case had.key == key:
		r.reportReserved(c)
		return nil
	}

	l, mine, err := r.leases.check(ctx, key, r.holder(c.Managed))
	if err != nil {
		return r.refused(c, err)
	}
	if mine {
		r.held.Update(r.store, c.Managed, func(h *holding) { h.take(key, l) })
		r.reportReserved(c)
	} else {
		r.notNeeded(c, messageUnconfirmed)
	}
	return nil
}

// A leaseCheck is the check that a managed resource still holds its lease.
type leaseCheck int

const (
	// leaseKnown relies on an earlier read by this process.
	leaseKnown leaseCheck = iota

	// leaseRead reads the lease from the API server.
	leaseRead

	// leaseRenewed also writes a lease that another process wrote last. That process can't
	// release the lease then.
	leaseRenewed
)

// reserve the external name of mg.
func (r *reservation) reserve(ctx context.Context, c *layer.Call, as leaseCheck) error {
	had, h := r.held.Get(r.store, c.Managed), r.holder(c.Managed)
	key, err := r.key(ctx, c.Managed)

	switch {
	case err != nil:
		return err
	case key == "":
		return nil
	case r.outdated(c.Managed, had):
		return seam.Conflict(c.Managed, messageFinalizerRemoved)
	case had.key == key && as == leaseKnown:
		r.reportReserved(c)
		return nil
	}

	l, err := r.leases.hold(ctx, key, h, had.lease, as == leaseRenewed, c.Now())
	if err != nil {
		if had.key == key {
			r.held.Update(r.store, c.Managed, (*holding).doubt)
		}
		return r.refused(c, err)
	}

	r.held.Update(r.store, c.Managed, func(h *holding) {
		h.take(key, l)
		h.released = ""
	})

	if !had.busy(c) {
		r.releaseFormer(ctx, c, key)
	}
	r.reportReserved(c)
	return nil
}

// outdated reports whether mg was read before this process removed its finalizer. Nothing may
// be reserved then. In a later version, other finalizers may keep the managed resource, and
// changed management policies may allow to delete the external resource: it is reserved again.
func (r *reservation) outdated(mg resource.Managed, h holding) bool {
	without := r.own != "" && !slices.Contains(mg.GetFinalizers(), r.own)
	return h.released != "" && !without && !seam.OlderThan(h.released, mg.GetResourceVersion())
}

func (r *reservation) refused(c *layer.Call, err error) error {
	var held *heldError
	if errors.As(err, &held) {
		r.setCondition(
			c, corev1.ConditionFalse, ReasonReservedByOther,
			fmt.Sprintf(
				"External name %q: %s (lease %s/%s).", meta.GetExternalName(c.Managed), held, r.leases.namespace,
				held.lease,
			),
		)
	}
	return errors.Wrapf(err, "cannot reserve external name %q", meta.GetExternalName(c.Managed))
}

// reportReserved sets the condition to True if the managed resource has the condition. It is
// called in each reconcile, because the last write of status may have failed.
func (r *reservation) reportReserved(c *layer.Call) {
	if seam.ConditionOf(c.Managed, TypeReserved).Status != corev1.ConditionTrue &&
		seam.ConditionOf(c.Managed, TypeReserved).Reason != "" {
		r.setCondition(c, corev1.ConditionTrue, ReasonReserved, "")
	}
}

// notNeeded sets the condition to Unknown if the managed resource has the condition.
func (r *reservation) notNeeded(c *layer.Call, message string) {
	if seam.ConditionOf(c.Managed, TypeReserved).Reason != "" {
		r.setCondition(c, corev1.ConditionUnknown, ReasonNotNeeded, message)
	}
}

func (r *reservation) setCondition(
	c *layer.Call, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string,
) {
	c.SetConditions(c.Managed, xpv2.Condition{
		Type:               TypeReserved,
		Status:             status,
		LastTransitionTime: metav1.NewTime(c.Now()),
		Reason:             reason,
		Message:            message,
	})
}

func (r *reservation) holder(mg resource.Managed) holder {
	return holder{
		APIVersion: r.kind.GroupVersion().String(),
		Kind:       r.kind.Kind, Namespace: mg.GetNamespace(), Name: mg.GetName(), UID: mg.GetUID(),
	}
}

package managed

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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// releaseTimeout bounds the requests that give a lease back.
const releaseTimeout = 10 * time.Second

const (
	messageOnlyObserved = "The management policies allow no change of the external resource."
	messageUnconfirmed  = "Nothing is reserved: no create has confirmed the external name."
)

// WithExternalNameReservation lets one managed resource at a time act on an
// external resource. Which one that is, is said by a Lease in the supplied namespace, one
// for each kind, provider config and external name. A managed resource holds it from
// before it creates the external resource, or after it was found to exist, until the
// finalizer of the managed resource is removed. Create, Update and Delete are called
// only while it holds the Lease, which the API server is asked each time.
//
// A create that failed gives the Lease back, unless the external resource exists: a name
// that no create has confirmed is reserved only while a create of it is in progress, or
// while its outcome is unknown. After a create that was interrupted, or had no answer,
// that is as long as a reconcile may take (WithTimeout), and a minute more; another create
// that fails meanwhile says nothing of the first one.
// A managed resource whose management policies allow no Create, Update or Delete holds
// nothing.
//
// A second managed resource says so in its Synced condition and in
// ExternalNameReserved, and tries again with backoff. Both name the first if it is in
// the same namespace; otherwise they name only the Lease, since the user may not be
// allowed to read the first. If the second is deleted, and none of its creates
// succeeded, it is removed without touching the external resource. Without an answer of
// the API server about the Lease nothing is done to the external resource.
//
// A Lease does not expire. It is taken over from a holder that, by its UID, no
// longer exists. One with its holder in the same namespace, or with a
// cluster-scoped holder, is also owned by it, and so collected as garbage; an
// owner in another namespace is not possible, and in a foreground deletion the Lease
// would be collected before its holder. Names that the external system
// assigns are reserved as soon as they are known.
//
// By default the external name has to be unique among the external resources of its
// kind and provider config. Managed resources whose provider configs have different names
// are not kept apart, even if both log in to one account. Namespaced provider configs of one
// name are different ones, too. If provider configs or kinds share external resources, or if
// names are unique only within a parent or a region, pass WithReservationKey.
//
// The provider needs get, create, update and delete of leases.coordination.k8s.io
// in the namespace, and get of each kind that shares the keys. It costs one or two
// requests when a managed resource is first observed by this process, one for each
// Create, Update and Delete, one more for a Create while it holds the Lease from an earlier
// process, two more and a call of Observe for a create that failed, one for each Observe of
// what was never created, is being created asynchronously, or is deleted in the foreground,
// two when another external name or other policies release a Lease, two for each try of a
// managed resource that waits, and one when the managed resource is removed; none while
// nothing changes.
//
// A managed resource that is given another external name reserves that, then releases
// the one before. If the provider restarts in between, the Lease of the one before stays
// until the managed resource is removed, or the Lease is deleted.
//
// WithExternalNameReservation panics if the namespace is not a name of one.
func WithExternalNameReservation(namespace string, o ...ReservationOption) ReconcilerOption {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		panic(errors.Errorf("managed.WithExternalNameReservation was given the namespace %q: pass the one in which the provider keeps its leases, such as its own (%s)", namespace, strings.Join(problems, ", ")))
	}
	var ro reservationOptions

	mustHaveNoNil(o, "WithExternalNameReservation", 2)
	for _, fn := range o {
		fn(&ro)
	}
	return func(r *Reconciler) {
		r.config.reservation = func(p parts, next external) layer {
			r := &reservation{
				external: next,
				kind:     p.kind,
				key:      ro.key.wrapped(),
				leases:   &leases{client: p.client, live: p.live, namespace: namespace},
				own:      p.settings.ownFinalizer,
				open:     p.settings.timeout + createMargin,
				finds:    p.settings.resolves,
				goesOn:   p.settings.resolves || p.settings.deterministicExternalName,
				log:      p.log,
				record:   p.record,
				store:    p.store,
			}

			if r.key == nil {
				r.key = defaultKey(p.kind.GroupKind(), p.log)
			}
			return layer{
				external: r,
				finalizer: func(next resource.Finalizer) resource.Finalizer {
					return &reservedFinalizer{Finalizer: next, reservation: r}
				},
				patch: seam.Patch{Conditions: []xpv2.ConditionType{TypeExternalNameReserved}},
			}
		}
	}
}

// A ReservationOption configures WithExternalNameReservation.
type ReservationOption func(*reservationOptions)

type reservationOptions struct {
	key reservationKey
}

// reservation keeps external resources to one managed resource each.
//
// What it knows is only in memory. It saves a read before Observe, which changes
// nothing, and before nothing else.
type reservation struct {
	external

	kind   schema.GroupVersionKind
	key    reservationKey
	leases *leases
	log    logging.Logger
	record event.Recorder

	// own is the name of the finalizer that the reconciler adds, or empty if it is unknown.
	own string

	// open is how long a create without a known outcome may be in progress.
	open time.Duration

	// finds says that what a create made that failed is looked up before the next Observe
	// ends, and goesOn that a create whose outcome is unknown stops nothing for good.
	finds, goesOn bool

	store *store.Store
	held  store.Key[holding]
}

// A holding is what is known of a managed resource.
type holding struct {
	leased
	creates

	// confirmed is the key whose external resource was last seen to exist, or was created.
	confirmed string

	// former is the lease of another key that it had, to be released once no create is in
	// progress that may be of that key.
	former lease

	// nothing means that the managed resource may hold nothing, and is known to.
	nothing bool

	// released is the resource version that the managed resource had before its finalizer
	// was removed. A cache may still show that version, for which nothing is reserved.
	released string
}

// leased is a lease that a managed resource was found to have.
type leased struct {
	key   string
	lease lease
}

// creates are what is known of the creates of a managed resource.
type creates struct {
	// open is until when one without a known outcome may be in progress.
	open time.Time

	// announced is the last one that this is known of, as upstream announced it.
	announced string
}

// busy reports whether an operation in progress may still change the external resource.
func (h holding) busy(c *call) bool {
	was := createOf(c.mg)
	return was.Incomplete() || was.Recorded || c.Now().Before(h.open)
}

// Observe the external resource. To observe does no harm, so a lease that was held before is
// good enough.
func (r *reservation) Observe(ctx context.Context, c *call) (observeResult, error) {
	if !seam.Allows(c.mg, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete) {
		return r.observeOnly(ctx, c)
	}
	var o observeResult
	err := r.before(ctx, c)
	if err == nil {
		if o, err = r.external.Observe(ctx, c); err != nil {
			return o, err
		}
		err = r.after(ctx, c, o)
	}
	if leaves(c.mg, err) {
		return observeResult{}, nil
	}
	return o, err
}

// before an Observe, reserve the external name if an external resource may exist. Otherwise
// check that no other managed resource has it.
func (r *reservation) before(ctx context.Context, c *call) error {
	was := createOf(c.mg)

	had := r.held.Update(r.store, c.mg, func(h *holding) {
		if was.Phase == creation.Announced && !was.Recorded && h.announced != was.Announcement {
			// It was interrupted.
			h.creates = creates{open: c.Now().Add(r.open), announced: was.Announcement}
		}
	})

	if !had.busy(c) {
		r.releaseFormer(ctx, c)
	}
	key, err := r.key(ctx, c.mg)
	if err != nil {
		return err
	}
	if had.key == "" && key == "" {
		// It may have waited for a name that it had before.
		r.notNeeded(c, messageUnconfirmed)
	}

	switch {
	case was.Recorded && was.Incomplete():
		// To observe may be to repeat the create that is recorded.
		return r.reserve(ctx, c, leaseRead)
	case lastMayExist(was):
		return r.reserve(ctx, c, leaseKnown)
	default:
		return r.check(ctx, c)
	}
}

// after an Observe, reserve the external name, which may be known only now, or release it if
// there is no external resource.
func (r *reservation) after(ctx context.Context, c *call, o observeResult) error {
	was := createOf(c.mg)

	switch {
	case o.State == seam.Done && (o.ResourceExists || lastMayExist(was)):
		if err := r.reserve(ctx, c, leaseKnown); err != nil {
			return err
		}
		if o.ResourceExists {
			r.confirm(c)
		}
	case (o.State == seam.Done || o.State == seam.Waiting) && !lastMayExist(was) && !c.Moved(c.mg):
		// A create failed in another process, or asynchronously.
		r.releaseUnused(ctx, c)
	}
	return nil
}

// confirm notes that the external resource of the reserved key was seen or created.
func (r *reservation) confirm(c *call) {
	r.held.Update(r.store, c.mg, func(h *holding) { h.confirmed = h.key })
}

// observeOnly observes for a managed resource that may not change its external
// resource, and so has nothing to reserve.
func (r *reservation) observeOnly(ctx context.Context, c *call) (observeResult, error) {
	had := r.held.Get(r.store, c.mg)

	if !had.busy(c) && !had.nothing && !r.outdated(c.mg, had) {
		r.releaseFormer(ctx, c)

		// An earlier process may have reserved it.
		key, err := r.key(ctx, c.mg)
		if err != nil {
			return observeResult{}, err
		}
		if had.key == "" && key != "" {
			had.lease = lease{name: leaseName(key)}
		}

		if had.lease.name == "" || r.giveBack(ctx, c.mg, had.lease, r.changed(c.mg)) {
			r.held.Update(r.store, c.mg, func(h *holding) { *h = holding{nothing: true, former: h.former} })
		}
	}

	if r.held.Get(r.store, c.mg).nothing || seam.ConditionOf(c.mg, TypeExternalNameReserved).Status == corev1.ConditionFalse {
		r.notNeeded(c, messageOnlyObserved)
	}
	return r.external.Observe(ctx, c)
}

// Create the external resource, while its name is reserved.
func (r *reservation) Create(ctx context.Context, c *call) (createResult, error) {
	open, announced := c.Now().Before(r.held.Get(r.store, c.mg).open), createOf(c.mg).Announcement
	o, err := r.create(ctx, c)
	r.held.Update(r.store, c.mg, func(h *holding) { h.announced = announced })
	if err != nil && open && r.goesOn && o.State != seam.InProgress {
		// It says nothing of the create before, which may still succeed.
		o.State = seam.Unknown
	}
	return o, err
}

func (r *reservation) create(ctx context.Context, c *call) (createResult, error) {
	was := createOf(c.mg)
	if err := r.reserve(ctx, c, leaseRenewed); err != nil {
		return createResult{Outcome: seam.Outcome{State: seam.Untried}}, err
	}
	o, err := r.external.Create(ctx, c)

	switch {
	case err == nil:
		// The create can't be undone, so an error is for the next reconcile,
		// which meets it again.
		if rerr := r.reserve(ctx, c, leaseKnown); rerr != nil {
			r.log.Info("Cannot reserve the name of a created external resource", "uid", c.mg.GetUID(), "error", rerr)
		} else if o.State == seam.Done {
			r.confirm(c)
		}
	case o.State == seam.Untried:
		r.releaseUnused(ctx, c)
	case o.State == seam.Unknown, o.State == seam.Done && asyncstate.OutcomeUnknown(err):
		r.held.Update(r.store, c.mg, func(h *holding) { h.open = c.Now().Add(r.open) })
	case was.Confirmed && creation.AlreadyExists(err) && !r.renamed(c):
		// The external resource is the one of the earlier create, which the external
		// system does not show.
	case o.State == seam.Done && !r.finds && r.absent(ctx, c):
		r.releaseUnused(ctx, c)
	}
	return o, err
}

// renamed reports whether this process knows that an external resource was confirmed under
// another key.
func (r *reservation) renamed(c *call) bool {
	h := r.held.Get(r.store, c.mg)
	return h.confirmed != "" && h.confirmed != h.key
}

// absent reports whether there is no external resource after a create that failed: the
// error may be that of a later step, or say that the external resource exists.
func (r *reservation) absent(ctx context.Context, c *call) bool {
	// The reconcile may have ended because a call took too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()

	// What Observe does to the managed resource must not be stored.
	mg, err := copyOf(c.mg)
	if err != nil {
		return false
	}
	o, err := c.client.Observe(ctx, mg)
	return err == nil && !o.ResourceExists
}

// Update the external resource, if its name is reserved.
func (r *reservation) Update(ctx context.Context, c *call) (ExternalUpdate, error) {
	if err := r.reserve(ctx, c, leaseRead); err != nil {
		return ExternalUpdate{}, err
	}
	return r.external.Update(ctx, c)
}

// Delete the external resource, if its name is reserved.
func (r *reservation) Delete(ctx context.Context, c *call) (deleteResult, error) {
	if err := r.reserve(ctx, c, leaseRead); err != nil {
		return deleteResult{}, err
	}
	return r.external.Delete(ctx, c)
}

// reservedFinalizer releases the lease of a managed resource whose finalizer is
// removed.
type reservedFinalizer struct {
	resource.Finalizer

	reservation *reservation
}

// RemoveFinalizer from the managed resource.
func (f *reservedFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	version := o.GetResourceVersion()
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	if mg, ok := o.(resource.Managed); ok {
		f.reservation.release(ctx, mg, version)
	}
	return nil
}

// lastMayExist reports whether the last create may have created the external resource.
func lastMayExist(s creation.State) bool { return s.Phase == creation.Created || s.Incomplete() }

// leaves reports whether a managed resource is to be removed as if there were no
// external resource, since that is reserved by another, and it created none itself.
func leaves(mg resource.Managed, err error) bool {
	var held *heldError
	return errors.As(err, &held) && meta.WasDeleted(mg) && !createOf(mg).MayExist()
}

// check that no other managed resource has what mg is to create.
func (r *reservation) check(ctx context.Context, c *call) error {
	had := r.held.Get(r.store, c.mg)
	key, err := r.key(ctx, c.mg)

	switch {
	case err != nil:
		return err
	case r.outdated(c.mg, had):
		return r.removed(c.mg)
	case key == "" || had.key == key:
		return nil
	}

	l, mine, err := r.leases.check(ctx, key, r.holder(c.mg))
	if err != nil {
		return r.refused(c, err)
	}
	if mine {
		r.held.Update(r.store, c.mg, func(h *holding) { h.leased, h.nothing = leased{key: key, lease: l}, false })
	} else {
		r.notNeeded(c, messageUnconfirmed)
	}
	return nil
}

// A certainty is how surely a managed resource must have its lease.
type certainty int

const (
	// leaseKnown means that it was found to have it.
	leaseKnown certainty = iota

	// leaseRead means that the API server says so now.
	leaseRead

	// leaseRenewed means that no other process of ours can release it either, because of
	// what it knows of an earlier create.
	leaseRenewed
)

// reserve the external name of mg, as surely as the caller needs it. In a foreground
// deletion the lease is always read: the garbage collector may have deleted it.
func (r *reservation) reserve(ctx context.Context, c *call, as certainty) error {
	had, h := r.held.Get(r.store, c.mg), r.holder(c.mg)
	key, err := r.key(ctx, c.mg)

	switch {
	case err != nil:
		return err
	case key == "":
		return nil
	case r.outdated(c.mg, had):
		return r.removed(c.mg)
	case had.key == key && as == leaseKnown && !h.foreground:
		return nil
	}

	l, err := r.leases.hold(ctx, key, h, had.lease, as == leaseRenewed, c.Now())
	if err != nil {
		if had.key == key {
			r.held.Update(r.store, c.mg, func(h *holding) { h.leased = leased{} })
		}
		return r.refused(c, err)
	}

	r.held.Update(r.store, c.mg, func(h *holding) {
		h.leased, h.nothing, h.released = leased{key: key, lease: l}, false, ""
		if had.key != "" && had.key != key {
			h.former = had.lease
		}
	})

	if !had.busy(c) {
		r.releaseFormer(ctx, c)
	}
	r.free(c)
	return nil
}

// outdated reports whether a managed resource was read as it was before its finalizer was
// removed. Other finalizers may keep it, and its management policies may then allow to delete
// the external resource after all: that is reserved again.
func (r *reservation) outdated(mg resource.Managed, h holding) bool {
	without := r.own != "" && !slices.Contains(mg.GetFinalizers(), r.own)
	return h.released != "" && !without && !seam.OlderThan(h.released, mg.GetResourceVersion())
}

func (r *reservation) removed(mg resource.Managed) error {
	return kerrors.NewConflict(schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind}, mg.GetName(), errors.New("its finalizer was removed"))
}

func (r *reservation) refused(c *call, err error) error {
	var held *heldError
	if errors.As(err, &held) {
		r.say(c, corev1.ConditionFalse, ReasonReservedByOther, fmt.Sprintf("External name %q: %s (lease %s/%s).", meta.GetExternalName(c.mg), held, r.leases.namespace, held.lease))
	}
	return errors.Wrapf(err, "cannot reserve external name %q", meta.GetExternalName(c.mg))
}

// free says that nothing stands in the way, if anything did before.
func (r *reservation) free(c *call) {
	if seam.ConditionOf(c.mg, TypeExternalNameReserved).Status != corev1.ConditionTrue && seam.ConditionOf(c.mg, TypeExternalNameReserved).Reason != "" {
		r.say(c, corev1.ConditionTrue, ReasonReserved, "")
	}
}

// notNeeded says that nothing is reserved, if anything else was said before.
func (r *reservation) notNeeded(c *call, message string) {
	if seam.ConditionOf(c.mg, TypeExternalNameReserved).Reason != "" {
		r.say(c, corev1.ConditionUnknown, ReasonReservationNotNeeded, message)
	}
}

// releaseUnused releases the lease of a managed resource whose creates all failed. What was
// found to exist, or was never to be created, is kept.
func (r *reservation) releaseUnused(ctx context.Context, c *call) {
	had := r.held.Get(r.store, c.mg)
	if had.key == "" || had.confirmed == had.key || c.Now().Before(had.open) || createOf(c.mg).Announcement == "" ||
		!r.giveBack(ctx, c.mg, had.lease, func(ctx context.Context) bool { return !r.failedAlone(ctx, c.mg) }) {
		return
	}
	r.held.Update(r.store, c.mg, func(h *holding) { *h = holding{former: h.former, confirmed: h.confirmed} })
	r.notNeeded(c, messageUnconfirmed)
}

// releaseFormer releases the lease of the key that the managed resource had before.
func (r *reservation) releaseFormer(ctx context.Context, c *call) {
	if l := r.held.Get(r.store, c.mg).former; l.name != "" && r.giveBack(ctx, c.mg, l, r.changed(c.mg)) {
		r.held.Update(r.store, c.mg, func(h *holding) { h.former = lease{} })
	}
}

// failedAlone reports whether a create that failed is the last one: it was not another
// process that has taken over, and whose create may have succeeded.
func (r *reservation) failedAlone(ctx context.Context, mg resource.Managed) bool {
	was := createOf(mg)
	if was.Phase == creation.Created {
		return false
	}
	live := r.live(ctx, mg)
	if live == nil {
		return false
	}
	is := createOf(live)
	return is.Announcement == was.Announcement && is.Phase != creation.Created
}

// changed returns a function that reports whether a managed resource may have changed since
// it was read: then another process may have taken over, and need what this one doesn't.
func (r *reservation) changed(mg resource.Managed) func(context.Context) bool {
	return func(ctx context.Context) bool {
		live := r.live(ctx, mg)
		return live == nil || live.GetResourceVersion() != mg.GetResourceVersion()
	}
}

// live returns a managed resource as the API server has it, or nil if that isn't known.
func (r *reservation) live(ctx context.Context, mg resource.Managed) *metav1.PartialObjectMetadata {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(r.kind)
	if err := r.leases.live.Get(ctx, client.ObjectKeyFromObject(mg), live); err != nil || live.GetUID() != mg.GetUID() {
		return nil
	}
	return live
}

// release the leases of a managed resource whose finalizer was removed when it had a
// resource version.
func (r *reservation) release(ctx context.Context, mg resource.Managed, version string) {
	had := r.held.Get(r.store, mg)
	r.held.Update(r.store, mg, func(h *holding) { *h = holding{released: version} })

	for _, l := range []lease{had.lease, had.former} {
		if l.name != "" {
			r.giveBack(ctx, mg, l, never)
		}
	}

	// An earlier process may have reserved it. If that can't be determined, the lease
	// is taken over once the managed resource no longer exists.
	key, err := r.key(ctx, mg)
	if err != nil && had.key == "" && !had.nothing {
		r.cannotRelease(mg, err)
	}
	if key != "" && key != had.key && !had.nothing {
		r.giveBack(ctx, mg, lease{name: leaseName(key)}, never)
	}
}

// giveBack releases a lease unless it is needed, and reports whether it did. A lease that
// stays is taken over once its holder no longer exists.
func (r *reservation) giveBack(ctx context.Context, mg resource.Managed, l lease, needed func(context.Context) bool) bool {
	// The reconcile may have ended because a call took too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	released, err := r.leases.release(ctx, l, r.holder(mg), needed)
	if err != nil {
		r.cannotRelease(mg, err)
	}
	return released
}

func (r *reservation) cannotRelease(mg resource.Managed, err error) {
	r.log.Info("Cannot release the reservation of an external name", "uid", mg.GetUID(), "error", err)
	r.record.Event(mg, event.Warning(reasonCannotRelease, err))
}

// never is a lease needed that is released whatever happens.
func never(context.Context) bool { return false }

func (r *reservation) say(c *call, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	c.SetConditions(c.mg, xpv2.Condition{Type: TypeExternalNameReserved, Status: status, LastTransitionTime: metav1.NewTime(c.Now()), Reason: reason, Message: message})
}

func (r *reservation) holder(mg resource.Managed) holder {
	return holder{
		APIVersion: r.kind.GroupVersion().String(), Kind: r.kind.Kind, Namespace: mg.GetNamespace(), Name: mg.GetName(), UID: mg.GetUID(),
		foreground: slices.Contains(mg.GetFinalizers(), metav1.FinalizerDeleteDependents),
	}
}

package reservation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	// releaseTimeout is the timeout of the requests that release leases. Upstream has returned by then.
	releaseTimeout = 10 * time.Second

	// maxNames is the number of other external names that a managed resource may reserve in a namesInterval.
	maxNames      = 5
	namesInterval = 10 * time.Minute
)

// With lets only one managed resource at a time act on an external resource. A Lease in the supplied namespace has the
// holder: one Lease for each kind, provider config and external name. A managed resource takes the Lease before it
// creates the external resource, or when it first observes an existing one. Create, Update and Delete are called only
// while it holds the Lease, which each of these calls reads from the API server. While the Lease cannot be read, no
// call changes the external resource.
//
// The managed resource holds the Lease until its finalizer is removed, whatever its creates lead to, and whatever its
// management policies become. So a managed resource whose create fails keeps others of that name waiting until it is
// deleted. The same is true for an earlier external name of a managed resource. Delete a Lease to free it earlier: its
// holder takes it again if it still needs it and no other managed resource has it by then.
//
// A Lease does not expire. It is taken over if its holder no longer exists, by UID. It stays until then if the provider
// dies while it removes a managed resource, or if anything else removes the finalizer.
//
// A second managed resource reports the conflict in its conditions Synced and ExternalNameReserved, and retries with
// backoff. Both conditions name the holder if it is in the same namespace. Otherwise they name only the Lease, because
// the user may not be allowed to read the holder. If the second managed resource is deleted, and no create of its own
// succeeded, it is removed without touching the external resource. A managed resource whose management policies allow
// no Create, Update or Delete takes no Lease and waits for none.
//
// By default, external names must be unique among the external resources of a kind and provider config. Two provider
// configs with different names, or in different namespaces, have different Leases, even if both log in to one account.
// If provider configs or kinds share external resources, or if names are unique only within a parent or a region, pass
// WithKey. Names that the external system assigns are reserved as soon as they are known. A managed resource that
// reserves a sixth other name within ten minutes is stopped until they have passed, and Synced says so: its provider
// sets another external name in each Observe.
//
// The provider needs the permissions get, create, update and delete for leases.coordination.k8s.io in the namespace,
// and get for each kind that shares the keys. It makes no requests while nothing changes. Otherwise it makes:
//
//   - one or two when this process first observes a managed resource;
//   - one for each Create, Update and Delete;
//   - one for each Observe of an external resource that was never created, or is being created asynchronously;
//   - two for each retry of a managed resource that waits, and for each new external name;
//   - two when the managed resource is removed, and two for each earlier external name.
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

// reservation calls the provider only for a managed resource that holds the lease of its external name.
type reservation struct {
	layer.External

	kind     schema.GroupVersionKind
	key      keyFunc
	leases   *leases
	log      logging.Logger
	recorder event.Recorder

	// finds reports whether a resolver looks up the external resource of a create that failed and has no record.
	finds bool

	store *store.Store
	held  store.Key[holding]
}

func newReservation(namespace string, key keyFunc, p layer.Parts, next layer.External) layer.Layer {
	r := &reservation{
		External: next,
		kind:     p.Kind,
		key:      key,
		leases:   &leases{client: p.Client, live: p.Live, namespace: namespace},
		log:      p.Log,
		recorder: p.Recorder,
		finds:    p.Settings.Resolves && !p.Settings.DeterministicExternalName,
		store:    p.Store,
	}
	return layer.Layer{
		External: r,
		Finalizer: func(next resource.Finalizer) resource.Finalizer {
			return &releasingFinalizer{Finalizer: next, reservation: r}
		},
		Patch: seam.Patch{Conditions: []xpv2.ConditionType{TypeReserved}},
	}
}

// A holding is the lease that this process knows a managed resource to hold.
type holding struct {
	// key is the reserved key. It is empty if the managed resource may have lost the lease.
	key string

	// lease is the name of the lease that was taken last.
	lease string

	// changes counts the changes of the lease since the time.
	changes int
	since   time.Time
}

// take records that the managed resource holds the lease of a key.
func (h *holding) take(key string, now time.Time) {
	if name := leaseName(key); name != h.lease {
		if now.Sub(h.since) >= namesInterval {
			h.changes, h.since = 0, now
		}
		if h.lease != "" {
			h.changes++
		}
		h.lease = name
	}
	h.key = key
}

// Observe the external resource, unless another managed resource has reserved it.
func (r *reservation) Observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	if !seam.Allows(c.Managed, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionDelete) {
		r.reportNotNeeded(c, messageOnlyObserved)
		return r.External.Observe(ctx, c)
	}
	o, err := r.observe(ctx, c)

	var held *heldError
	switch last := creation.Last(c.Managed); {
	case !errors.As(err, &held) || !meta.WasDeleted(c.Managed) || last.MayExist():
		return o, err
	case last.Phase == creation.Failed && last.Announcement != "" && r.looksUp(c, last):
		return o, errors.Wrap(err, messageMayHaveCreated)
	default:
		// No create of its own succeeded, so the external resource is the holder's.
		return layer.Observation{}, nil
	}
}

// looksUp reports whether the external resource is looked up of a create that failed, perhaps at a later step.
func (r *reservation) looksUp(c *layer.Call, failed creation.State) bool {
	if f, ok := c.Client.(interface{ LooksUp() bool }); ok && failed.Recorded {
		return f.LooksUp()
	}
	return r.finds
}

func (r *reservation) observe(ctx context.Context, c *layer.Call) (layer.Observation, error) {
	check := checkOnly
	switch last := creation.Last(c.Managed); {
	case last.Recorded && last.Incomplete():
		check = takeLive // Observe may repeat the recorded create.
	case last.Incomplete() || last.Phase == creation.Created:
		check = takeKnown
	}
	if err := r.reserve(ctx, c, check); err != nil {
		return layer.Observation{}, err
	}
	o, err := r.External.Observe(ctx, c)
	if err != nil || o.State != seam.Done || !o.ResourceExists {
		return o, err
	}
	// The name may be known only now.
	return o, r.reserve(ctx, c, takeKnown)
}

// Create the external resource, if its name is reserved.
func (r *reservation) Create(ctx context.Context, c *layer.Call) (layer.Creation, error) {
	if err := r.reserve(ctx, c, takeLive); err != nil {
		return layer.Creation{Outcome: seam.Outcome{State: seam.Untried}}, err
	}
	o, err := r.External.Create(ctx, c)
	if err != nil {
		return o, err
	}
	// Create may have set another name. Don't return the error, because upstream would record the create as failed.
	// The next reconcile reserves the name again.
	if err := r.reserve(ctx, c, takeKnown); err != nil {
		r.log.Info("Cannot reserve the name of a created external resource", "uid", c.Managed.GetUID(), "error", err)
	}
	return o, nil
}

// Update the external resource, if its name is reserved.
func (r *reservation) Update(ctx context.Context, c *layer.Call) (managed.ExternalUpdate, error) {
	if err := r.reserve(ctx, c, takeLive); err != nil {
		return managed.ExternalUpdate{}, err
	}
	return r.External.Update(ctx, c)
}

// Delete the external resource, if its name is reserved.
func (r *reservation) Delete(ctx context.Context, c *layer.Call) (layer.Deletion, error) {
	if err := r.reserve(ctx, c, takeLive); err != nil {
		return layer.Deletion{}, err
	}
	return r.External.Delete(ctx, c)
}

// A check says how reserve makes sure that a managed resource holds its lease.
type check int

const (
	// checkOnly succeeds unless another managed resource holds the lease. It takes no lease.
	checkOnly check = iota

	// takeKnown takes the lease unless this process knows that the managed resource holds it.
	takeKnown

	// takeLive reads the lease from the API server, and takes it if it is free.
	takeLive
)

// reserve the external name of the managed resource. It returns an error if another one holds the lease.
func (r *reservation) reserve(ctx context.Context, c *layer.Call, as check) error {
	had := r.held.Get(r.store, c.Managed)
	key, err := r.key(ctx, c.Managed)

	switch {
	case err != nil:
		return err
	case key == "":
		// The condition may be about an earlier name.
		r.reportNotNeeded(c, messageUnconfirmed)
		return nil
	case had.key == key && as != takeLive:
		r.reportReserved(c)
		return nil
	case as != checkOnly && c.Moved(c.Managed):
		return seam.Conflict(c.Managed, messageChanged)
	case had.changes >= maxNames && leaseName(key) != had.lease && c.Now().Sub(had.since) < namesInterval:
		return errors.Errorf(
			"cannot reserve external name %q: it is another one than in the last reconcile, %d times within %s; the provider must set the name of an external resource once",
			meta.GetExternalName(c.Managed), maxNames, namesInterval,
		)
	}

	mine, err := r.leases.hold(ctx, key, r.holder(c.Managed), claim{
		take: as != checkOnly, earlier: had.lease, now: c.Now(),
	})
	switch {
	case err != nil:
		r.held.Update(r.store, c.Managed, func(h *holding) { h.key = "" })
		return r.refused(c, err)
	case mine:
		r.held.Update(r.store, c.Managed, func(h *holding) { h.take(key, c.Now()) })
		r.reportReserved(c)
	default:
		r.reportNotNeeded(c, messageUnconfirmed)
	}
	return nil
}

func (r *reservation) refused(c *layer.Call, err error) error {
	name := meta.GetExternalName(c.Managed)
	var held *heldError
	if errors.As(err, &held) {
		r.reportHeld(c, fmt.Sprintf("External name %q: %s (lease %s/%s).", name, held, r.leases.namespace, held.lease))
	}
	return errors.Wrapf(err, "cannot reserve external name %q", name)
}

func (r *reservation) holder(mg resource.Managed) holder {
	return holder{
		APIVersion: r.kind.GroupVersion().String(),
		Kind:       r.kind.Kind, Namespace: mg.GetNamespace(), Name: mg.GetName(), UID: mg.GetUID(),
	}
}

// A releasingFinalizer releases the leases of a managed resource when its finalizer is removed.
type releasingFinalizer struct {
	resource.Finalizer

	reservation *reservation
}

// RemoveFinalizer from the managed resource.
func (f *releasingFinalizer) RemoveFinalizer(ctx context.Context, o resource.Object) error {
	if err := f.Finalizer.RemoveFinalizer(ctx, o); err != nil {
		return err
	}
	if mg, ok := o.(resource.Managed); ok {
		f.reservation.release(ctx, mg)
	}
	return nil
}

// release the leases of a managed resource. A lease that stays is taken over once its holder no longer exists.
func (r *reservation) release(ctx context.Context, mg resource.Managed) {
	// The reconcile may have ended because a call took too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()

	name := r.held.Get(r.store, mg).lease
	r.held.Delete(r.store, mg)
	var err error
	if name == "" {
		// An earlier process may have taken a lease.
		var key string
		if key, err = r.key(ctx, mg); key != "" {
			name = leaseName(key)
		}
	}
	if err == nil {
		err = r.leases.release(ctx, name, r.holder(mg))
	}
	if err != nil {
		r.log.Info("Cannot release the reservation of an external name", "uid", mg.GetUID(), "error", err)
		r.recorder.Event(mg, event.Warning(reasonCannotRelease, err))
	}
}

package managed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// TypeExternalNameReserved is the type of the condition that says whether a
// managed resource has its external name for itself. One that never had to wait
// for it does not have the condition.
const TypeExternalNameReserved xpv2.ConditionType = "ExternalNameReserved"

// Reasons of the ExternalNameReserved condition.
const (
	// ReasonReservedByOther means that another managed resource, which the
	// message names, has the external resource of this name, and that nothing
	// is done for this one until that is gone.
	ReasonReservedByOther xpv2.ConditionReason = "ReservedByOther"

	// ReasonReserved means that the managed resource has the name now.
	ReasonReserved xpv2.ConditionReason = "Reserved"
)

// WithExternalNameReservation lets one managed resource at a time act on an
// external resource. Who does is said by a Lease in the supplied namespace, one
// for each kind, provider config and external name, which a managed resource
// holds from before it observes or creates the external resource until its
// finalizer is gone. Its Create, Update and Delete are called only while it holds
// it, which is asked of the API server each time.
//
// A second one says so in its Synced condition and in ExternalNameReserved, both
// of which name the first, and tries again with backoff. If it is deleted, and
// never created anything, it goes without touching the external resource. Without
// an answer of the API server about the Lease nothing is done to the external
// resource.
//
// A Lease does not expire. It is taken over from a holder that, by its UID, does
// not exist any more. One with its holder in the same namespace, or with a
// cluster-scoped holder, is also owned by it, and so collected as garbage; an
// owner in another namespace is not possible. Names that the external system
// assigns are reserved as soon as they are known.
//
// By default the external name has to tell the external resource from all others
// of its kind and provider config. If it doesn't (names within a parent, or a
// region), or if kinds or provider configs share external resources, pass
// WithReservationKey. What is only observed (management policies: Observe) needs
// no reservation.
//
// The provider needs get, create, update and delete of leases.coordination.k8s.io
// in the namespace, and get of each kind that shares the keys. It costs one or two
// requests when a managed resource is first observed by this process, one for each
// Create, Update and Delete, and one when it is gone; none while nothing changes.
//
// WithExternalNameReservation panics if the namespace is not a name of one.
func WithExternalNameReservation(namespace string, o ...ReservationOption) ReconcilerOption {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		panic(errors.Errorf("managed.WithExternalNameReservation was given the namespace %q: pass the one in which the provider keeps its leases, such as its own (%s)", namespace, strings.Join(problems, ", ")))
	}

	var ro reservationOptions

	for i, fn := range o {
		if fn == nil {
			panic(errors.Errorf("managed.WithExternalNameReservation was given nil (argument %d): leave it out", i+2))
		}

		fn(&ro)
	}

	return func(r *Reconciler) {
		r.config.reservation = &reservation{namespace: namespace, key: ro.key, config: &r.config, held: map[client.ObjectKey]holding{}}
	}
}

// A ReservationOption configures WithExternalNameReservation.
type ReservationOption func(*reservationOptions)

type reservationOptions struct {
	key func(mg resource.Managed) string
}

// WithReservationKey sets what is reserved for a managed resource, in place of
// its kind, provider config and external name: two managed resources of whatever
// kind have the same key if and only if they have the same external resource. An
// empty key reserves nothing, as long as nothing is known to reserve. It must be
// made of what doesn't change in the life of the external resource, and be safe
// for concurrent use. WithReservationKey panics if key is nil.
func WithReservationKey(key func(mg resource.Managed) string) ReservationOption {
	mustNotBeNil(key, "WithReservationKey")
	return func(o *reservationOptions) { o.key = key }
}

// reservation keeps external resources to one managed resource each. It stands at
// the external seam, around every call, and behind the finalizer.
//
// What it knows is only in memory. It spares a read before Observe, which does no
// harm, and before nothing else.
type reservation struct {
	namespace string
	key       func(mg resource.Managed) string
	config    *config

	// kind and leases are those of the reconciler.
	kind   schema.GroupVersionKind
	leases *leases

	mu   sync.Mutex
	held map[client.ObjectKey]holding
}

// A holding is a lease that a managed resource was found to have.
type holding struct {
	uid   types.UID
	key   string
	lease lease

	// released means that the finalizer is gone, and with it the right to have
	// anything: a cache may still show the managed resource as it was.
	released bool
}

// patch makes the reservation one of m's controller of a kind.
func (r *reservation) patch(m manager.Manager, of schema.GroupVersionKind) seam.Patch {
	r.kind = of
	r.leases = &leases{client: m.GetClient(), live: liveReader(m), namespace: r.namespace}

	if r.key == nil {
		r.key = r.defaultKey
	}

	return seam.Patch{Gone: func(s *seam.Session) {
		r.mu.Lock()
		defer r.mu.Unlock()

		// After the finalizer was removed it stays known until the cache has
		// noticed, too.
		if s.Base() == nil || !r.held[s.Key()].released {
			delete(r.held, s.Key())
		}
	}}
}

// observing reserves what is about to be observed, or was and has a name only
// since. That it did so before is good enough. It tells whether the managed
// resource is to go as if there were nothing, since what there is is not its own.
func (r *reservation) observing(ctx context.Context, s *seam.Session, mg resource.Managed) (leave bool, err error) {
	if r == nil || s == nil || onlyObserves(mg) {
		return false, nil
	}

	err = r.reserve(ctx, s, mg, false)

	var held *heldError
	if errors.As(err, &held) && meta.WasDeleted(mg) && meta.GetExternalCreateSucceeded(mg).IsZero() && meta.GetExternalCreatePending(mg).IsZero() {
		return true, nil
	}

	return false, err
}

// acting makes sure that what is about to be changed is reserved.
func (r *reservation) acting(ctx context.Context, s *seam.Session, mg resource.Managed) error {
	if r == nil || s == nil {
		return nil
	}

	return r.reserve(ctx, s, mg, true)
}

// created reserves the name that a create came up with. It can't be undone, so
// that an error is for the next reconcile, which meets it again.
func (r *reservation) created(ctx context.Context, s *seam.Session, mg resource.Managed) {
	if r == nil || s == nil {
		return
	}

	if err := r.reserve(ctx, s, mg, false); err != nil {
		r.config.log.Info("Cannot reserve the name of what was created", "uid", mg.GetUID(), "error", err)
	}
}

// reserve what mg has. surely asks the API server also if it was mg's before.
func (r *reservation) reserve(ctx context.Context, s *seam.Session, mg resource.Managed, surely bool) error {
	key := r.key(mg)
	if key == "" {
		return nil
	}

	had := r.holding(mg)

	switch {
	case had.released:
		return kerrors.NewConflict(schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind}, mg.GetName(), errors.New("its finalizer was removed"))
	case had.key == key && !surely:
		return nil
	}

	l, err := r.leases.hold(ctx, key, r.holder(mg), s.Now())
	if err != nil {
		if had.key == key {
			r.remember(mg, holding{})
		}

		var held *heldError
		if errors.As(err, &held) {
			r.say(s, mg, corev1.ConditionFalse, ReasonReservedByOther, fmt.Sprintf("External name %q: %s (lease %s/%s).", meta.GetExternalName(mg), held, r.namespace, held.lease))
		}

		return errors.Wrapf(err, "cannot reserve external name %q", meta.GetExternalName(mg))
	}

	r.remember(mg, holding{key: key, lease: l})

	if had.key != "" && had.key != key {
		r.giveBack(ctx, mg, had.lease)
	}

	if seam.ConditionOf(mg, TypeExternalNameReserved).Status == corev1.ConditionFalse {
		r.say(s, mg, corev1.ConditionTrue, ReasonReserved, "")
	}

	return nil
}

// released gives back what a managed resource had whose finalizer is gone.
func (r *reservation) released(ctx context.Context, o client.Object) {
	mg, ok := o.(resource.Managed)
	if r == nil || !ok {
		return
	}

	had := r.holding(mg)
	r.remember(mg, holding{released: true})

	if had.key != "" {
		r.giveBack(ctx, mg, had.lease)
	}

	// An earlier process may have reserved it.
	if key := r.key(mg); key != "" && key != had.key && !onlyObserves(mg) {
		r.giveBack(ctx, mg, lease{name: leaseName(key)})
	}
}

// giveBack a lease. If that fails it stays, and is taken over by whoever needs
// it: there is nobody left to try again.
func (r *reservation) giveBack(ctx context.Context, mg resource.Managed, l lease) {
	if err := r.leases.release(ctx, l, r.holder(mg)); err != nil {
		r.config.log.Info("Cannot give back the reservation of an external name", "uid", mg.GetUID(), "error", err)
		r.config.record.Event(mg, event.Warning(reasonCannotRelease, err))
	}
}

func (r *reservation) say(s *seam.Session, mg resource.Managed, status corev1.ConditionStatus, reason xpv2.ConditionReason, message string) {
	s.SetConditions(mg, xpv2.Condition{Type: TypeExternalNameReserved, Status: status, LastTransitionTime: metav1.NewTime(s.Now()), Reason: reason, Message: message})
}

func (r *reservation) holder(mg resource.Managed) holder {
	return holder{APIVersion: r.kind.GroupVersion().String(), Kind: r.kind.Kind, Namespace: mg.GetNamespace(), Name: mg.GetName(), UID: mg.GetUID()}
}

func (r *reservation) holding(mg resource.Managed) holding {
	r.mu.Lock()
	defer r.mu.Unlock()

	h := r.held[client.ObjectKeyFromObject(mg)]
	if h.uid != mg.GetUID() {
		return holding{}
	}

	return h
}

func (r *reservation) remember(mg resource.Managed, h holding) {
	r.mu.Lock()
	defer r.mu.Unlock()

	h.uid = mg.GetUID()
	r.held[client.ObjectKeyFromObject(mg)] = h
}

// defaultKey is the kind, the provider config, and the external name.
func (r *reservation) defaultKey(mg resource.Managed) string {
	name := meta.GetExternalName(mg)
	if name == "" {
		return ""
	}

	return fmt.Sprintf("%s %s %q", r.kind.GroupKind(), providerConfigOf(mg), name)
}

// providerConfigOf names the provider config that a managed resource uses. Those
// of which the kind doesn't say Cluster are in its own namespace.
func providerConfigOf(mg resource.Managed) string {
	switch u := mg.(type) {
	case resource.TypedProviderConfigReferencer:
		if ref := u.GetProviderConfigReference(); ref != nil {
			if strings.HasPrefix(ref.Kind, "Cluster") {
				return ref.Kind + "/" + ref.Name
			}

			return ref.Kind + "/" + mg.GetNamespace() + "/" + ref.Name
		}
	case resource.ProviderConfigReferencer:
		if ref := u.GetProviderConfigReference(); ref != nil {
			return "/" + ref.Name
		}
	}

	return "-"
}

// onlyObserves tells whether nothing is ever done to a managed resource's
// external resource.
func onlyObserves(mg resource.Managed) bool {
	p := mg.GetManagementPolicies()
	return len(p) > 0 && !slices.ContainsFunc(p, func(a xpv2.ManagementAction) bool { return a != xpv2.ManagementActionObserve })
}

package main

import (
	"cmp"
	"slices"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
)

// pollInterval is how often an external resource is looked at that is as it should
// be.
const pollInterval = time.Minute

// How often, and how far apart, a resource has to be found missing before its
// deletion is believed, where a create may be on its way.
const (
	confirmations = 3
	confirmAfter  = 5 * time.Second
)

// How many calls a second an account may make, and how many at once, if the cloud throttles.
const (
	perSecond = 10
	burst     = 20
)

// operationTimeout is how long an operation may take.
const operationTimeout = 10 * time.Minute

// A mode is how a provider's client works.
type mode string

const (
	syncMode  mode = "sync"
	asyncMode mode = "async"
)

// A clientKind is how a client determines the outcome of an interrupted create.
type clientKind string

const (
	// tokenClient sends a token by which the cloud knows a request again.
	tokenClient clientKind = "token"

	// finderClient can ask the cloud for the resource of an owner.
	finderClient clientKind = "finder"

	// namedClient chooses the resource's id itself.
	namedClient clientKind = "name"

	// blindClient has nothing: the cloud makes up an id, and says it once.
	blindClient clientKind = "nothing"

	// connectClient is a finder that takes the external name when it is connected,
	// and finds no external resource if it was set later. It creates one then.
	connectClient clientKind = "connect"

	// planClient sends a token, and plans in Observe: without that it panics.
	planClient clientKind = "plan"
)

func clientKinds() []clientKind {
	return []clientKind{tokenClient, finderClient, namedClient, blindClient, connectClient, planClient}
}

// goesBy is the kind that determines outcomes in the same way.
func (k clientKind) goesBy() clientKind {
	return cmp.Or(map[clientKind]clientKind{connectClient: finderClient, planClient: tokenClient}[k], k)
}

// options of the sample's connectors for a client of this kind.
func (k clientKind) options() []sample.Option {
	switch k.goesBy() {
	case tokenClient:
		return []sample.Option{sample.WithCreateTokens()}
	case namedClient:
		return []sample.Option{sample.WithDeterministicNames()}
	default:
		return nil
	}
}

// declares returns the options of a tracker for a client of this kind.
func (k clientKind) declares() []asyncstate.TrackerOption {
	switch k.goesBy() {
	case tokenClient:
		return []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}
	case namedClient:
		return []asyncstate.TrackerOption{asyncstate.WithDeterministicNames()}
	default:
		return nil
	}
}

// Whose code is tested.
const (
	upstreamSide = "upstream"
	graftSide    = "graft"
)

// A column is a way to build a provider's reconciler.
type column struct {
	side string
	mode mode

	// build the reconciler of a process.
	build func(s *session, k clientKind) (reconcile.Reconciler, error)

	// mayStop lists how clients determine outcomes that may end with a condition
	// that asks a person. The others must never need one.
	mayStop []clientKind
}

// columns returns all of them: for each mode upstream's, then Graft's.
func columns() []column {
	return []column{
		{
			side: upstreamSide, mode: syncMode, mayStop: clientKinds(),
			build: func(s *session, k clientKind) (reconcile.Reconciler, error) {
				return newUpstream(s, k, newConnector(s, k, syncMode)), nil
			},
		},
		{
			side: graftSide, mode: syncMode, mayStop: []clientKind{tokenClient, blindClient},
			build: func(s *session, k clientKind) (reconcile.Reconciler, error) {
				c := newConnector(s, k, syncMode)
				switch k.goesBy() {
				case finderClient:
					return newGraft(s, k, c, graft.WithCreateResolver(graft.FindWithConnector(c))), nil
				case namedClient:
					// An external resource that was not found may be shown later.
					return newGraft(
						s, k, c, graft.WithDeletionConfirmation(confirmations, max(confirmAfter, s.cloud.lag/2)),
					), nil
				default:
					return newGraft(s, k, c), nil
				}
			},
		},
		{
			side: upstreamSide, mode: asyncMode, mayStop: clientKinds(),
			build: func(s *session, k clientKind) (reconcile.Reconciler, error) {
				o := append(k.options(), sample.WithBackground(), sample.WithSessions(s.open))
				return newUpstream(s, k, sample.NewAsync[resource.Managed](nil, o...)), nil
			},
		},
		{
			side: graftSide, mode: asyncMode, mayStop: []clientKind{blindClient},
			build: func(s *session, k clientKind) (reconcile.Reconciler, error) {
				m := s.process.Manager()
				t := asyncstate.NewTracker(m.GetClient(), append(k.declares(),
					asyncstate.WithLiveReader(m.GetAPIReader()),
					asyncstate.WithTimeout(operationTimeout),
				)...)
				if err := s.process.Watch(t.Source()); err != nil {
					return nil, err
				}
				return newGraft(s, k, newConnector(s, k, asyncMode), graft.WithAsync(t)), nil
			},
		},
	}
}

// newUpstream returns crossplane-runtime's reconciler, set up as a provider does
// it.
func newUpstream(s *session, k clientKind, c upstream.ExternalConnector) reconcile.Reconciler {
	o := append(settings(s, k), upstream.WithExternalConnector(c), upstream.WithInitializers(initializers(s, k)...))
	return upstream.NewReconciler(s.process.Manager(), v1alpha1.DatabaseManagedKind(), o...)
}

// newGraft does the same with Graft.
func newGraft(
	s *session, k clientKind, c graft.ExternalConnector, more ...graft.ReconcilerOption,
) reconcile.Reconciler {
	o := append(
		slices.Clone(more),
		graft.Upstream(settings(s, k)...),
		graft.WithExternalConnector(c),
		graft.WithInitializers(initializers(s, k)...),
	)
	if s.cloud.limited {
		o = append(o, graft.WithRateLimits(graft.NewRateLimits(perSecond, burst)))
	}
	return graft.NewReconciler(s.process.Manager(), v1alpha1.DatabaseManagedKind(), o...)
}

// settings are what both are given.
func settings(s *session, k clientKind) []upstream.ReconcilerOption {
	o := []upstream.ReconcilerOption{upstream.WithManagementPolicies(), upstream.WithPollInterval(pollInterval)}
	switch k {
	case namedClient:
		o = append(o, upstream.WithDeterministicExternalName(true))
	case connectClient:
		// The period begins before the create does, and times are stored in seconds.
		o = append(o, upstream.WithCreationGracePeriod(2*s.cloud.lag))
	}
	return o
}

func initializers(s *session, k clientKind) []upstream.Initializer {
	if k != namedClient {
		return nil
	}
	return []upstream.Initializer{upstream.NewNameAsExternalName(s.process.Manager().GetClient())}
}

package torture

import (
	"cmp"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

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

// Whose code is tested.
const (
	upstreamSide = "upstream"
	graftSide    = "graft"
)

// mayStop reports whether a run may end with a condition that asks a person for the outcome of a create.
func (r row) mayStop(side string) bool {
	k := r.kind.goesBy()
	return side == upstreamSide || k == blindClient || k == tokenClient && r.mode == syncMode
}

// build the reconciler of a process, set up as a provider does it. Upstream and Graft are given the same.
func (r row) build(side string, s *session) (reconcile.Reconciler, error) {
	m, of := s.process.Manager(), v1alpha1.DatabaseManagedKind()
	settings := []upstream.ReconcilerOption{upstream.WithManagementPolicies(), upstream.WithPollInterval(time.Minute)}
	clients := []sample.Option{sample.WithSessions(s.open)}
	var initializers []upstream.Initializer
	var tracks []asyncstate.TrackerOption
	switch r.kind.goesBy() {
	case tokenClient:
		clients = append(clients, sample.WithCreateTokens())
		tracks = append(tracks, asyncstate.WithIdempotentTokens())
	case namedClient:
		clients = append(clients, sample.WithDeterministicNames())
		tracks = append(tracks, asyncstate.WithDeterministicNames())
		settings = append(settings, upstream.WithDeterministicExternalName(true))
		initializers = append(initializers, upstream.NewNameAsExternalName(m.GetClient()))
	}
	if r.kind == connectClient {
		// The period begins before the create does, and times are stored in seconds.
		settings = append(settings, upstream.WithCreationGracePeriod(2*r.lag))
	}

	own := &connector{sync: sample.NewSync[resource.Managed](nil, clients...), session: s, row: r}
	if side == upstreamSide {
		var connector upstream.ExternalConnector = own
		if r.mode == asyncMode {
			connector = sample.NewAsync[resource.Managed](nil, append(clients, sample.WithBackground())...)
		}
		return upstream.NewReconciler(m, of, append(settings,
			upstream.WithExternalConnector(connector), upstream.WithInitializers(initializers...))...), nil
	}

	o := []graft.ReconcilerOption{
		graft.Upstream(settings...), graft.WithExternalConnector(own), graft.WithInitializers(initializers...),
	}
	if r.throttles > 0 {
		// 10 calls a second, and 20 at once.
		o = append(o, ratelimit.With(ratelimit.New(10, 20)))
	}
	switch {
	case r.mode == asyncMode:
		t := asyncstate.NewTracker(append(tracks, asyncstate.WithTimeout(10*time.Minute))...)
		if err := s.process.Watch(t.Source()); err != nil {
			return nil, err
		}
		o = append(o, asyncstate.With(t))
	case r.kind.goesBy() == finderClient:
		o = append(o, resolve.With(resolve.FindWithConnector(own)))
	}
	return graft.NewReconciler(m, of, o...), nil
}

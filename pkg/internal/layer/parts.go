package layer

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// createMargin is added to the timeout of a reconcile to get the time in which a create may be in progress, because
// clocks differ and the last request may still be running.
const createMargin = time.Minute

// Parts are the dependencies of layers.
type Parts struct {
	Kind     schema.GroupVersionKind
	Managed  resource.Managed // an empty managed resource of that kind
	Scheme   *runtime.Scheme
	Client   client.Client
	Seam     client.Client // the client seam
	Live     client.Reader // reads from the API server, not from the cache
	Log      logging.Logger
	Recorder event.Recorder

	// Store holds state of managed resources between reconciles.
	Store *store.Store

	// Run adds a runnable to the manager. It panics if the manager has no Add method.
	Run func(r manager.Runnable) error

	// Runs knows the operations that may still run.
	Runs *Runs

	Settings Settings
}

// Settings are the settings of the reconciler that layers depend on.
type Settings struct {
	// Timeout of a reconcile, and grace period after a create.
	Timeout, Grace time.Duration

	// Poll returns the time between two polls of a managed resource, by its annotation and upstream's hook. Without
	// polls it is zero or less.
	Poll func(mg client.Object) time.Duration

	DeterministicExternalName bool

	// Policies reports whether management policies are in force. None of them are a pause then.
	Policies bool

	// Async reports whether operations outlive the reconcile, Resolves whether creates without an outcome are
	// looked up.
	Async, Resolves bool

	// ResolveAfter is how long a create may still be in progress for a resolver. Zero means LongestCreate.
	ResolveAfter time.Duration

	// Reserves reports whether external names are reserved, by ReservationKey if that is not nil.
	Reserves       bool
	ReservationKey func(ctx context.Context, mg resource.Managed) (string, error)

	// Deadline of a deletion, the function to call when it has passed, and the finalizers that force orphan removes.
	Deadline  time.Duration
	Exceeded  func(ctx context.Context, o client.Object)
	Removable []string

	// Finalizer is the name of the finalizer that the reconciler adds, or empty if
	// the name is unknown.
	Finalizer string

	// Critical is the updater of WithCriticalAnnotationUpdater, or nil.
	Critical upstream.CriticalAnnotationUpdater

	// Disconnects reports whether the connector has its own Disconnect.
	Disconnects bool

	// Persist reports whether Graft stores annotations after each call, Reports whether it
	// reports deletions.
	Persist, Reports bool
}

// Retry returns the time until a reconcile is repeated that waits for the next poll. Without polls it is a minute,
// upstream's default poll interval.
func (s Settings) Retry(mg client.Object) time.Duration {
	if d := s.Poll(mg); d > 0 {
		return d
	}
	return time.Minute
}

// LongestCreate returns how long a create without a record may be in progress.
func (s Settings) LongestCreate() time.Duration { return creation.Sum(s.Timeout, createMargin) }

// Runs knows the operations that may still run.
type Runs struct {
	Settings Settings

	// Memory returns the operation of this process on the external resource of an object, whose time may have
	// passed. It is nil without operations that outlive the reconcile.
	Memory func(o client.Object) creation.Run
}

// Of returns the operation that may still run on the external resource of o. The settings and the memory of
// this process only add to what o says.
func (r *Runs) Of(o client.Object, now time.Time) creation.Run {
	run := creation.RunsUntil(o, now)
	if s := creation.Last(o); s.Phase == creation.Announced {
		run = run.Or(creation.RunOfAnnounced(s, r.Settings.LongestCreate())).At(now)
	}
	return run.Or(r.Own(o))
}

// Own returns the operation of this process on the external resource of o.
func (r *Runs) Own(o client.Object) creation.Run {
	if r.Memory == nil {
		return creation.Run{}
	}
	return r.Memory(o)
}

// An Option is an option of package managed that is a package of its own.
type Option struct {
	// Name of the function that returns the option. Of two options with one name the last one counts.
	Name string

	Layers []Staged

	// Set changes the settings that other layers depend on, unless it is nil.
	Set func(s *Settings)

	// Seam changes the options of the client seam, unless it is nil.
	Seam func(o *seam.Options)

	// Check returns an error with the fix unless the option works with these settings. It may be nil.
	Check func(s Settings) error
}

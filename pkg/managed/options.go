package managed

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A Reconciler reconciles managed resources with upstream's reconciler, changed
// at its seams. It is safe for concurrent use.
type Reconciler struct {
	seam   *seam.Reconciler
	config config
}

// A ReconcilerOption configures a Reconciler. As with upstream, the last one of
// options that are given twice counts.
type ReconcilerOption func(*Reconciler)

// config holds the values of the options.
type config struct {
	upstream []upstream.ReconcilerOption

	connector          *connection
	finalizer          resource.Finalizer
	initializer        Initializer
	criticalAnnotation CriticalAnnotationUpdater

	log     logging.Logger
	record  event.Recorder
	dropped droppedEvents

	// Layers that an option adds or removes. A layer is nil if its feature is off.
	phases, deleteRequest, annotations, finalizerGuard                           newLayer
	reservation, usageProtection, confirmation, preCreate, createResolver, async newLayer

	// escape are the options for the deadline of deletions and the way out of them.
	escape []reconciler.Option

	// limits are nil without WithRateLimits.
	limits *RateLimits

	// tracker is not nil if operations are asynchronous.
	tracker *asyncstate.Tracker

	// seams are the options of the seams. Tests inject time here.
	seams seam.Options
}

// fromUpstream returns an option that hands o to upstream.
func fromUpstream(o upstream.ReconcilerOption) ReconcilerOption {
	return func(r *Reconciler) {
		r.config.upstream = append(r.config.upstream, o)
	}
}

// WithUnchangedStatusWrites writes status at the end of every reconcile, as
// upstream does, even if nothing changed.
func WithUnchangedStatusWrites() ReconcilerOption {
	return func(r *Reconciler) { r.config.seams.WriteUnchangedStatus = true }
}

// WithFinalizer sets how finalizers are added and removed. As upstream, but a
// finalizer is not added to a managed resource that is paused or being deleted,
// and status that is in memory survives, whatever client f uses. It panics if f
// is nil.
func WithFinalizer(f resource.Finalizer) ReconcilerOption {
	mustNotBeNil(f, "WithFinalizer")
	return func(r *Reconciler) { r.config.finalizer = f }
}

// WithInitializers sets what runs before the external client is connected to.
// As upstream; and a managed resource that is being deleted says so if it can't
// be initialized. It panics if one of them is nil, also in an InitializerChain; a chain
// that is nil is an empty one.
func WithInitializers(i ...Initializer) ReconcilerOption {
	mustInitialize(i, "")
	return func(r *Reconciler) { r.config.initializer = upstream.InitializerChain(i) }
}

func mustInitialize(chain []Initializer, in string) {
	for n, i := range chain {
		at := fmt.Sprintf("%s%d", in, n+1)
		mustNotBeNil(i, fmt.Sprintf("WithInitializers (argument %s)", at))
		if c, ok := i.(upstream.InitializerChain); ok {
			mustInitialize(c, at+".")
		}
	}
}

// WithCriticalAnnotationUpdater sets how the annotations that record the
// start and the result of a create are stored. As upstream, and status that
// is in memory survives, whatever client u uses. The default is not upstream's:
// it writes exactly the annotations that changed. It panics if u is nil.
func WithCriticalAnnotationUpdater(u CriticalAnnotationUpdater) ReconcilerOption {
	mustNotBeNil(u, "WithCriticalAnnotationUpdater")
	return func(r *Reconciler) { r.config.criticalAnnotation = u }
}

// WithLogger sets where debug messages go. It panics if l is nil.
func WithLogger(l logging.Logger) ReconcilerOption {
	mustNotBeNil(l, "WithLogger")
	return func(r *Reconciler) {
		r.config.log = l
		fromUpstream(upstream.WithLogger(l))(r)
	}
}

// WithRecorder sets where events go. It panics if er is nil.
func WithRecorder(er event.Recorder) ReconcilerOption {
	mustNotBeNil(er, "WithRecorder")
	return func(r *Reconciler) {
		r.config.record = er
		fromUpstream(upstream.WithRecorder(&upstreamRecorder{Recorder: er, events: &r.config.dropped}))(r)
	}
}

func mustNotBeNil(v any, option string) {
	if is.Nil(v) {
		panic(errors.Errorf("managed.%s was given nil: leave the option out to get the default", option))
	}
}

// mustHaveNoNil panics if one of the options is nil. first is the number of the first one among
// the caller's arguments.
func mustHaveNoNil[T any](options []T, caller string, first int) {
	for i, o := range options {
		if is.Nil(o) {
			panic(errors.Errorf("managed.%s was given nil (argument %d): leave it out", caller, first+i))
		}
	}
}

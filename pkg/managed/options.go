package managed

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A Reconciler reconciles managed resources with upstream's reconciler, whose client and
// provider calls it wraps. It is safe for concurrent use.
type Reconciler struct {
	seam   *seam.Reconciler
	config config
}

// A ReconcilerOption configures a Reconciler. As with upstream, the last option wins if the
// same option is passed twice.
type ReconcilerOption func(*Reconciler)

// config holds the values of the options.
type config struct {
	upstream []upstream.ReconcilerOption

	connector          *providerConnector
	finalizer          resource.Finalizer
	initializer        upstream.Initializer
	criticalAnnotation upstream.CriticalAnnotationUpdater

	log      logging.Logger
	recorder event.Recorder

	// These are on by default.
	reports, persists, guardsFinalizer bool

	// options are those of other packages.
	options []layer.Option

	// seams has the options of the client seam.
	seams seam.Options
}

// With is the base of Graft's options that are packages of their own, which alone can import the type of its argument.
// Use those packages.
func With(o layer.Option) ReconcilerOption {
	return func(r *Reconciler) {
		r.config.options = append(slices.DeleteFunc(r.config.options, func(had layer.Option) bool {
			return had.Name == o.Name
		}), o)
	}
}

// fromUpstream returns an option that passes o to upstream's reconciler.
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

// WithLogger sets the logger. It panics if l is nil.
func WithLogger(l logging.Logger) ReconcilerOption {
	is.MustNotBeNil(l, "managed.WithLogger")
	return func(r *Reconciler) {
		r.config.log = l
		fromUpstream(upstream.WithLogger(l))(r)
	}
}

// WithRecorder sets the recorder of events. It panics if er is nil.
func WithRecorder(er event.Recorder) ReconcilerOption {
	is.MustNotBeNil(er, "managed.WithRecorder")
	return func(r *Reconciler) {
		r.config.recorder = er
		fromUpstream(upstream.WithRecorder(er))(r)
	}
}

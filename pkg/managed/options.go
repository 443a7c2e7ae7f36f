package managed

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A ReconcilerOption configures a Reconciler. As upstream has it, of an option
// that is given twice the last one counts.
type ReconcilerOption func(*Reconciler)

// config is what the options say.
type config struct {
	upstream []upstream.ReconcilerOption

	connector          *connection
	finalizer          resource.Finalizer
	initializer        Initializer
	criticalAnnotation CriticalAnnotationUpdater

	log    logging.Logger
	record event.Recorder

	async        *async
	confirmation *confirmation
	preCreate    *preCreate
	protection   *usageProtection
	reservation  *reservation

	createResolver *createResolver

	deterministicExternalName      bool
	withoutDeletionStatus          bool
	withoutExternalNamePersistence bool
	withoutFinalizerGuard          bool

	// seams are the options of the seams. Tests inject time here.
	seams seam.Options
}

// fromUpstream returns an option that hands o to upstream.
func fromUpstream(o upstream.ReconcilerOption) ReconcilerOption {
	return func(r *Reconciler) {
		r.config.upstream = append(r.config.upstream, o)
	}
}

// WithoutDeletionStatus leaves the status of a managed resource that is being
// deleted to upstream: it is written when upstream writes it, which is not in
// every phase, and has no Deleting condition.
func WithoutDeletionStatus() ReconcilerOption {
	return func(r *Reconciler) { r.config.withoutDeletionStatus = true }
}

// WithoutExternalNamePersistence leaves it to upstream when annotations that the
// external client set are stored: after Create, and after Observe only if that
// says ResourceLateInitialized and the management policies allow it.
func WithoutExternalNamePersistence() ReconcilerOption {
	return func(r *Reconciler) { r.config.withoutExternalNamePersistence = true }
}

// WithoutFinalizerGuard calls the finalizer as upstream does, whatever state the
// managed resource is in.
func WithoutFinalizerGuard() ReconcilerOption {
	return func(r *Reconciler) { r.config.withoutFinalizerGuard = true }
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

// WithInitializers sets what is run before the external client is connected to.
// As upstream; and a managed resource that is being deleted says so if it can't
// be initialized. It panics if one of them is nil.
func WithInitializers(i ...Initializer) ReconcilerOption {
	for n := range i {
		mustNotBeNil(i[n], fmt.Sprintf("WithInitializers (argument %d)", n+1))
	}

	return func(r *Reconciler) { r.config.initializer = upstream.InitializerChain(i) }
}

// WithCriticalAnnotationUpdater sets how the annotations that record the
// beginning and the result of a create are stored. As upstream, and status that
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
		fromUpstream(upstream.WithRecorder(er))(r)
	}
}

func mustNotBeNil(v any, option string) {
	if seam.IsNil(v) {
		panic(errors.Errorf("managed.%s was given nil: leave the option out to get the default", option))
	}
}

// mustSuit panics if this can't be the configuration of a reconciler of mg.
func (c *config) mustSuit(mg resource.Managed) {
	if c.connector != nil && !c.connector.accepts(mg) {
		panic(errors.Errorf("the external connector is one for %s, but the reconciler is one of %T: pass the connector of this kind", c.connector.of, mg))
	}

	c.async.mustSuit(c)
}

// upstreamOptions returns what upstream's reconciler is created with. The order
// matters: what wraps the user's own comes last.
func (c *config) upstreamOptions(cl client.Client, e *external) []upstream.ReconcilerOption {
	out := append([]upstream.ReconcilerOption(nil), c.upstream...)

	if c.async != nil {
		out = append(out, upstream.WithDeterministicExternalName(true))
	}

	if c.connector != nil {
		out = append(out, c.connector.option(e))
	}

	out = append(out, upstream.WithInitializers(c.initializerFor(cl)), upstream.WithFinalizer(c.finalizerFor(cl)))

	if u := c.criticalAnnotationsFor(cl); u != nil {
		out = append(out, upstream.WithCriticalAnnotationUpdater(u))
	}

	return out
}

// Event reasons.
const (
	reasonCannotStoreAnnotations event.Reason = "CannotStoreAnnotations"
	reasonOverwroteAnnotation    event.Reason = "OverwroteAnnotation"
	reasonCannotReportDeletion   event.Reason = "CannotReportDeletion"
	reasonConfirmingAbsence      event.Reason = "ConfirmingAbsence"
	reasonFoundAfterAll          event.Reason = "FoundAfterAll"
	reasonCannotProtectUsage     event.Reason = "CannotProtectUsage"
	reasonCannotRelease          event.Reason = "CannotReleaseReservation"
	reasonAdopted                event.Reason = "AdoptedExternalResource"
	reasonResolvedCreate         event.Reason = "ResolvedCreate"
	reasonCannotResolveCreate    event.Reason = "CannotResolveCreate"
)

// recordOverwritten tells the user that what somebody else wrote had to give way
// to the result of a create.
func (c *config) recordOverwritten(o client.Object, key, theirs, ours string) {
	msg := "another value of annotation " + key + " was replaced by the one that came of creating the external resource"
	if key == meta.AnnotationKeyExternalName {
		msg += fmt.Sprintf(": %q, not %q, is its external name", ours, theirs)
	}

	c.log.Info("Overwrote an annotation", "annotation", key, "uid", o.GetUID())
	c.record.Event(o, event.Warning(reasonOverwroteAnnotation, errors.New(msg)))
}

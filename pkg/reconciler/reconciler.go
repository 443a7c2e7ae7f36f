package reconciler

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const reasonCannotReportDeletion event.Reason = "CannotReportDeletion"

// A Reconciler reconciles objects of one kind with an inner reconciler, changed
// at its seams. It is safe for concurrent use if the inner reconciler is.
type Reconciler struct {
	seam *seam.Reconciler
	log  logging.Logger
	rec  event.Recorder
	opts seam.Options
}

// An Option configures a Reconciler.
type Option func(*Reconciler)

// WithLogger sets where debug messages go. By default they go nowhere. It panics
// if l is nil.
func WithLogger(l logging.Logger) Option {
	mustNotBeNil(l, "WithLogger")
	return func(r *Reconciler) { r.log = l }
}

// WithRecorder sets where events go. By default they go nowhere. It panics if er
// is nil.
func WithRecorder(er event.Recorder) Option {
	mustNotBeNil(er, "WithRecorder")
	return func(r *Reconciler) { r.rec = er }
}

// WithLiveReader sets what reads from the API server itself, such as the
// manager's GetAPIReader. It is used to resolve conflicts. By default that is
// the client, which may read from a cache: conflicts are then resolved when the
// cache has caught up. It panics if c is nil.
func WithLiveReader(c client.Reader) Option {
	mustNotBeNil(c, "WithLiveReader")
	return func(r *Reconciler) { r.opts.Live = c }
}

// WithUnchangedStatusWrites makes every status write of the inner reconciler,
// also those that are known to change nothing.
func WithUnchangedStatusWrites() Option {
	return func(r *Reconciler) { r.opts.WriteUnchangedStatus = true }
}

// New returns a Reconciler of objects of the supplied kind. The inner reconciler
// is what build returns, and must use the client that build is given, at least
// to read the object and to write its status.
//
// Objects may be read as the Go type that the client's scheme has for the kind,
// or as unstructured ones of any type.
//
// Before the inner reconciler sees that an object is being deleted,
// Ready=False/Deleting is on the API server. That takes one write a deletion,
// and none if it is there already. An object without conditions is left alone.
//
// New panics, with an error that says what to do, if the client, its scheme, the
// kind or build is missing, build returns nil, or an option is nil.
func New(c client.Client, of schema.GroupVersionKind, build func(client.Client) reconcile.Reconciler, o ...Option) *Reconciler {
	switch {
	case seam.IsNil(c):
		panic(errors.New("cannot create a reconciler without a client: pass the manager's"))
	case c.Scheme() == nil:
		panic(errors.New("cannot create a reconciler: the client has no scheme; pass the manager's client"))
	case of.Empty() || of.Kind == "":
		panic(errors.New("cannot create a reconciler without a kind: pass the group, version and kind that it reconciles"))
	case build == nil:
		panic(errors.Errorf("cannot create a reconciler of %s without an inner reconciler: pass a function that returns one", of))
	}

	r := &Reconciler{log: logging.NewNopLogger(), rec: event.NewNopRecorder()}
	for i, ro := range o {
		if ro == nil {
			panic(errors.Errorf("cannot create a reconciler of %s: option %d is nil; leave it out", of, i+1))
		}

		ro(r)
	}

	checked := func(c client.Client) reconcile.Reconciler {
		inner := build(c)
		if seam.IsNil(inner) {
			panic(errors.Errorf("cannot create a reconciler of %s: the function that builds the inner reconciler returned nil", of))
		}

		return inner
	}

	r.seam = seam.NewReconciler(c, seam.NewKind(of, c.Scheme()), checked, r.opts, seam.Patch{Open: r.open})

	return r
}

// Reconcile an object.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

// open says that the object is being deleted, if it is and nobody has said so.
func (r *Reconciler) open(ctx context.Context, s *seam.Session, o client.Object) error {
	if !meta.WasDeleted(o) {
		return nil
	}

	return s.Announce(ctx, o, r.failed, func(server client.Object) []xpv2.Condition {
		c, ok := seam.Conditioned(server)
		if !ok {
			return nil
		}

		if ready := c.GetCondition(xpv2.TypeReady); ready.Status == corev1.ConditionFalse && ready.Reason == xpv2.ReasonDeleting {
			return nil
		}

		return Deleting(s.Now(), ReasonDeletionRequested, "Deletion was requested.")
	})
}

func mustNotBeNil(v any, option string) {
	if seam.IsNil(v) {
		panic(errors.Errorf("reconciler.%s was given nil: leave the option out to get the default", option))
	}
}

func (r *Reconciler) failed(o client.Object, err error) {
	r.log.Info("Cannot report deletion", "uid", o.GetUID(), "error", err)
	r.rec.Event(o, event.Warning(reasonCannotReportDeletion, err))
}

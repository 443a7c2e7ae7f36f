package reconciler

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A Reconciler reconciles objects of one kind with an inner reconciler, changed
// at its seams. It is safe for concurrent use if the inner reconciler is.
type Reconciler struct {
	seam     *seam.Reconciler
	deletion *deletionReporter
	opts     seam.Options
}

// An Option configures a Reconciler.
type Option func(*Reconciler)

// WithLogger sets where debug messages go. By default they go nowhere. It panics
// if l is nil.
func WithLogger(l logging.Logger) Option {
	is.MustNotBeNil(l, "reconciler.WithLogger")
	return func(r *Reconciler) { r.deletion.escape.Log = l }
}

// WithRecorder sets where events go. By default they go nowhere. It panics if er
// is nil.
func WithRecorder(er event.Recorder) Option {
	is.MustNotBeNil(er, "reconciler.WithRecorder")
	return func(r *Reconciler) { r.deletion.escape.Record = er }
}

// WithLiveReader sets what reads from the API server itself, such as the
// manager's GetAPIReader. It is used to resolve conflicts, and to read objects that
// references name (see WithWatchedKinds). By default that is the client, which may
// read from a cache: conflicts are then resolved when the cache has caught up. It
// panics if c is nil.
func WithLiveReader(c client.Reader) Option {
	is.MustNotBeNil(c, "reconciler.WithLiveReader")
	return func(r *Reconciler) { r.opts.Live = c }
}

// WithUnchangedStatusWrites makes every status write of the inner reconciler,
// also those that are known to change nothing.
func WithUnchangedStatusWrites() Option {
	return func(r *Reconciler) { r.opts.WriteUnchangedStatus = true }
}

// WithDependents sets what lists the objects that must be deleted before the object
// can be. The Deleting condition then counts them, and says why they still exist.
// Each is read once in a reconcile of an object that is being deleted, with the
// reconciler's client; see WithWatchedKinds for those that references name. A look at
// them takes five seconds at most, and a read one second. What is not read by then is
// neither counted nor read again for a minute: the kind, or all of the object. While
// some are left, the object is reconciled again after WithReportInterval at the
// latest. It panics if l is nil.
func WithDependents(l DependentLister) Option {
	is.MustNotBeNil(l, "reconciler.WithDependents")
	return func(r *Reconciler) { r.deletion.dependents = l }
}

// WithWatchedKinds sets what reports whether the client's cache watches a kind
// already. The objects that a reference in a spec names, such as composed resources, are
// then read from the cache, without a request. Users write references, and
// must not be able to start a watch: objects of other kinds are read from the live
// reader. Without a live reader they are read from the client, which must then not
// read unstructured objects from a cache; a manager's client does not by default.
//
// By default no kind is known to be watched. watched is called once for each
// dependent of a report, and must be safe for concurrent use. It panics if watched
// is nil.
func WithWatchedKinds(watched func(of schema.GroupVersionKind) bool) Option {
	is.MustNotBeNil(watched, "reconciler.WithWatchedKinds")
	return func(r *Reconciler) { r.deletion.watched = watched }
}

// WithReportInterval sets how soon the dependents of an object that is being
// deleted are looked at again, if the inner reconciler doesn't ask for another
// reconcile sooner. Crossplane's reconciler of composite resources asks for none,
// and from then on hears nothing of its composed resources any more. By default
// it is 10 seconds. It panics if d is less than a second.
func WithReportInterval(d time.Duration) Option {
	if d < time.Second {
		panic(errors.Errorf("reconciler.WithReportInterval was given %s: pass a second or more", d))
	}
	return func(r *Reconciler) { r.deletion.interval = d }
}

// WithOwnFinalizers names the finalizers that the inner reconciler itself removes
// in the end. When there is nothing else to wait for, the Deleting condition then
// names the others. By default it names none. An object that has lost all of them
// because an operator asked to orphan it is not reconciled any more. It panics without
// finalizers, and if one is empty or the garbage collector's.
func WithOwnFinalizers(f ...string) Option {
	if err := deletion.CheckFinalizers(f); err != nil {
		panic(errors.Wrap(err, "reconciler.WithOwnFinalizers"))
	}
	return func(r *Reconciler) { r.deletion.escape.Own = f }
}

// WithDeletionDeadline sets how long a deletion may take. Past it, the reason of
// the Deleting condition is DeadlineExceeded, and there is one warning event; then
// exceeded is called, if it is not nil, with the object, which it must not change.
// It runs in the reconcile: it should be quick, and not panic. Nothing else
// happens: a deadline never deletes or orphans anything.
//
// Once means once, because the condition tells the next process that it was reported. Only
// a report of WithForceOrphan replaces that reason: if the request is then withdrawn, the
// next process reports the deadline again. An object without conditions has no deadline.
// By default there is none. WithDeletionDeadline panics if d is not positive.
func WithDeletionDeadline(d time.Duration, exceeded func(ctx context.Context, o client.Object)) Option {
	if err := deletion.CheckDeadline(d); err != nil {
		panic(errors.Wrap(err, "reconciler.WithDeletionDeadline"))
	}
	return func(r *Reconciler) { r.deletion.escape.Deadline, r.deletion.escape.Exceeded = d, exceeded }
}

// WithForceOrphan lets operators orphan an object that is being deleted but still
// exists: if they set the annotation AnnotationKeyForceOrphan to the object's UID, the
// supplied finalizers are removed, and no others. The external resource, for example, stays
// as it is. The condition, an event, a metric and the log report it. Before that, the
// condition explains the annotation. It never happens by itself.
//
// The objects that the object owns are kept: before its finalizers are removed, the
// object is deleted a second time, with the propagation policy Orphan, and the
// garbage collector removes the owner references. It exists until that is done. If
// the API server refuses a request, nothing is removed, and the inner reconciler does not
// see the object until the request is granted or the annotation is removed. An owned object
// that is being deleted already, since the owner was deleted in the foreground, goes
// on being deleted. It takes permission to delete and to update the object.
//
// It panics without finalizers, and if one is empty or the garbage collector's.
func WithForceOrphan(finalizers ...string) Option {
	if err := deletion.CheckFinalizers(finalizers); err != nil {
		panic(errors.Wrap(err, "reconciler.WithForceOrphan"))
	}
	return func(r *Reconciler) { r.deletion.escape.Removable = finalizers }
}

// defaultReportInterval is how soon dependents are looked at again.
const defaultReportInterval = 10 * time.Second

// WithMetrics sets what counts deletions. By default they are not counted. It panics
// if m is nil, or not made by NewMetrics.
func WithMetrics(m *Metrics) Option {
	if is.MustNotBeNil(m, "reconciler.WithMetrics"); m.reports == nil {
		panic(errors.New("reconciler.WithMetrics was given empty metrics: create them with NewMetrics"))
	}
	return func(r *Reconciler) { r.deletion.metrics = m }
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
// A terminal error of the inner reconciler is logged instead of returned while the
// report needs another reconcile: controller-runtime would never make that one.
//
// Wrap one reconciler of a kind. The reports of two on one object replace each other,
// from the fourth on once every WithReportInterval.
//
// New panics, with an error that says how to correct it, if the client, its scheme, the
// kind or build is missing, build returns nil, or an option is nil.
func New(
	c client.Client, of schema.GroupVersionKind, build func(client.Client) reconcile.Reconciler, o ...Option,
) *Reconciler {
	switch {
	case is.Nil(c):
		panic(errors.New("cannot create a reconciler without a client: pass the manager's"))
	case c.Scheme() == nil:
		panic(errors.New("cannot create a reconciler: the client has no scheme; pass the manager's client"))
	case of.Kind == "":
		panic(errors.New(
			"cannot create a reconciler without a kind: pass the group, version and kind that it reconciles",
		))
	case build == nil:
		panic(errors.Errorf(
			"cannot create a reconciler of %s without an inner reconciler: pass a function that returns one", of,
		))
	}

	conditions, err := newConditionsKind(of, c.Scheme())
	if err != nil {
		panic(errors.Wrapf(err, "cannot create a reconciler of %s", of))
	}
	objects := seam.NewKind(of, c.Scheme()).WithConditions(conditions.of)
	r := &Reconciler{deletion: &deletionReporter{
		metrics:  NewMetrics(),
		interval: defaultReportInterval,
		escape: deletion.Escape{
			Kind: of, Objects: objects, Client: c, Log: logging.NewNopLogger(), Record: event.NewNopRecorder(),
		},
	}}

	is.MustHaveNoNil(o, "reconciler.New", 4)
	for _, ro := range o {
		ro(r)
	}

	r.deletion.escape.Live = r.opts.Live
	r.deletion.escape.Metrics = r.deletion.metrics.join(of)

	inner := build(seam.NewClient(c))
	if is.Nil(inner) {
		panic(errors.Errorf(
			"cannot create a reconciler of %s: the function that builds the inner reconciler returned nil", of,
		))
	}
	r.seam = seam.NewReconciler(c, objects, inner, r.opts, r.deletion.patch())
	return r
}

// Reconcile an object.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.seam.Reconcile(ctx, req)
}

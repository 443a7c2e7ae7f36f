package reconciler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Delays between tries. They double, also if a policy engine reverts each write.
const (
	firstReleaseDelay = 10 * time.Millisecond
	lastReleaseDelay  = time.Second
)

var errOrphaning = errors.Errorf(
	"the garbage collector has not removed its finalizer %q yet", metav1.FinalizerOrphanDependents,
)

// errOperation is the reason why an object is not released while an operation may run on its external resource.
var errOperation = errors.New("its result would be lost")

// checkOperation returns an error if the result of an operation on the external resource could be lost.
func checkOperation(o client.Object) error {
	run := creation.RunsUntil(o, time.Now())
	if run.Until.IsZero() {
		return nil
	}
	return fmt.Errorf(
		"%s, and %w: release it after that, or settle it first by removing the annotations %s and %s",
		run, errOperation, creation.AnnotationKeyRecord, creation.AnnotationKeyPending,
	)
}

// Released is the state of an object that was released.
type Released struct {
	// Gone means that the object no longer exists.
	Gone bool

	// Holding are the finalizers that the object still has. No client can add to
	// them, since the object is being deleted. It may be empty although the object
	// still exists, if its kind is deleted with a grace period.
	//
	// Together with an error these are the finalizers of the last read, and the deletion may
	// not have been requested yet.
	Holding []string
}

// A ReleaseOption configures Release.
type ReleaseOption func(*release)

// WithPropagation sets how the garbage collector treats objects that the released one
// owns. The default is metav1.DeletePropagationOrphan: it leaves them alone, also if the
// object is being deleted already. Anything else deletes them, and what they stand for.
func WithPropagation(p metav1.DeletionPropagation) ReleaseOption {
	return func(r *release) { r.propagation = p }
}

// Release deletes an object without the cleanup of the supplied finalizers. Use it to
// move an object to another cluster, or to orphan its external resource.
//
// It changes the policies of a managed resource so that its external resource is kept,
// pauses the object, deletes it, and then removes the finalizers. The order makes it
// safe: once an object is being deleted, the API server refuses new finalizers, also
// from a controller that adds its own back at once. If the API server refuses the
// policies, because the kind has no deletionPolicy Orphan for example, nothing was
// changed.
//
// Exactly the supplied finalizers are removed, by a write that the API server
// refuses if the list has changed since it was read. Other finalizers, and all
// annotations but the pause, stay as they are. The finalizers that still hold the
// object are returned, whether or not it had one of the supplied ones. Such an object
// stays paused, and keeps its changed policies.
//
// To rule out external deletion, a spec.deletionPolicy of Delete becomes Orphan,
// and spec.managementPolicies lose Delete, of any object that has them. It is
// deleted at exactly the version at which that and the pause were read, so that
// no client can undo them in between. After five conflicts it is deleted at any
// version. Clients can still undo them later. Release first the object whose
// controller writes the spec of this one, a composite resource for example.
//
// Copy the object before: afterwards it may no longer exist. In the copy leave out
// what Release changed, if it was released before.
//
// o says which object: its kind, namespace, name and UID, which must be set. Of a
// typed object, the client's scheme must know the kind. An object that has the
// name but another UID is never touched, even if it takes the name right before
// a request. Nothing is read through the client, so it may have a cache. It needs
// permission to patch, delete and update the object.
//
// Release retries after conflicts and while the API server is unavailable.
// It waits for the garbage collector, if nothing else holds the object. Both end
// with ctx, whose error is then in the one returned. Give it a deadline. Called
// again, Release continues where it stopped, and writes nothing that is done
// already. It is safe for concurrent use, for the same object too.
//
// An error is returned at once while an operation of package asyncstate may run, whose result
// would be lost, and if a retry can't succeed: the API server
// forbids a request, does not know the kind, finds the object invalid, or a
// webhook refuses. The garbage collector's own finalizers can't be supplied, use
// WithPropagation.
func Release(
	ctx context.Context, c client.Client, o client.Object, finalizers []string, opts ...ReleaseOption,
) (Released, error) {
	if is.Nil(c) || is.Nil(o) {
		return Released{}, errors.New("cannot release without a client and an object: pass the manager's client, and what was read from the API server")
	}
	if o.GetUID() == "" {
		return Released{}, errors.New("cannot release an object without a UID: read it from the API server first")
	}
	if err := checkOperation(o); err != nil {
		return Released{}, errors.Wrap(err, "cannot release the object")
	}
	for _, f := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		if slices.Contains(finalizers, f) {
			return Released{}, errors.Errorf(
				"cannot release an object from %q: without it the garbage collector deletes what the object owns; use WithPropagation",
				f,
			)
		}
	}

	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return Released{}, errors.Wrap(err, "cannot tell the kind of the object to release")
	}
	r := &release{
		client:      c,
		kind:        gvk,
		key:         client.ObjectKeyFromObject(o),
		uid:         o.GetUID(),
		finalizers:  finalizers,
		propagation: metav1.DeletePropagationOrphan,
		wait:        seam.Wait,
	}

	if err := is.NilOption(opts, "reconciler.Release", 5); err != nil {
		return Released{}, err
	}
	for _, opt := range opts {
		opt(r)
	}

	switch r.propagation {
	case metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground:
	default:
		return Released{}, errors.Errorf(
			"cannot release an object: WithPropagation was given %q; pass Orphan, Background or Foreground",
			r.propagation,
		)
	}
	out, err := r.run(ctx)
	return out, errors.Wrapf(err, "cannot release %s %s", gvk.Kind, r.key)
}

func (r *release) run(ctx context.Context) (Released, error) {
	delay := firstReleaseDelay

	for {
		out, err := r.step(ctx)

		switch {
		case errors.Is(err, errGone):
			return Released{Gone: true}, nil
		case err == nil, r.permanent(err):
			return out, err
		}

		if werr := r.wait(ctx, delay); werr != nil {
			return out, fmt.Errorf("%w: %w", werr, err)
		}
		delay = min(2*delay, lastReleaseDelay)
	}
}

// step makes the next requests. It is called again after an error that is not permanent.
func (r *release) step(ctx context.Context) (Released, error) {
	o, err := r.read(ctx)
	if err != nil {
		return Released{Holding: r.holding}, err
	}
	if err := checkOperation(o); err != nil {
		return Released{Holding: r.holding}, err
	}

	// The policies come first: if the API server refuses them, the object stays as it is.
	for _, write := range []func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error){
		r.keepExternal, r.pause, r.requestDeletion, r.removeFinalizers,
	} {
		if o, err = write(ctx, o); err != nil {
			return Released{Holding: r.holding}, err
		}
	}

	out := Released{Holding: o.GetFinalizers()}
	grace := o.GetDeletionGracePeriodSeconds()

	switch {
	case slices.Equal(out.Holding, []string{metav1.FinalizerOrphanDependents}):
		// The deletion added it, and the garbage collector removes it.
		return out, errOrphaning
	case len(out.Holding) == 0 && meta.WasDeleted(o) && (grace == nil || *grace == 0):
		// The object is removed with its last finalizer.
		return out, errGone
	default:
		return out, nil
	}
}

// permanent reports whether a retry can't succeed.
func (r *release) permanent(err error) bool {
	switch {
	case errors.Is(err, errOperation):
		return true
	case kerrors.IsNotFound(err):
		return !seam.IsGone(err) // Its kind is not served.
	case kerrors.IsInvalid(err):
		// If the object has changed since it was read, that is the reason: a
		// test in a patch did not hold. If not, it is refused for good.
		at := r.version
		again := r.refused != nil && *r.refused == at
		r.refused = &at
		return again
	default:
		return seam.Permanent(err) || kmeta.IsNoMatchError(err)
	}
}

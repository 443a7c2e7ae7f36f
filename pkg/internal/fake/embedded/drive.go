package embedded

import (
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrUnsettled says that the limit of reconciles was reached first.
var ErrUnsettled = errors.New("the reconciler has not come to rest")

// A Step is one reconcile and what it returned.
type Step struct {
	Result reconcile.Result
	Err    error
}

// Requeued reports whether the work queue would return the request without waiting
// for a poll or an event.
func (s Step) Requeued() bool {
	return s.Err != nil || s.Result.Requeue //nolint:staticcheck // Upstream's reconciler returns it.
}

// A Trace is what the reconciles of one request returned, in order.
type Trace []Step

// Err returns the errors of all reconciles, joined.
func (t Trace) Err() error {
	errs := make([]error, 0, len(t))
	for _, s := range t {
		errs = append(errs, s.Err)
	}

	return errors.Join(errs...)
}

// Drive reconciles a request up to n times in a row, whatever each reconcile
// returns, as a work queue would that always has a reason. It stops before the
// next reconcile when until, if given, says so, or the context ends.
func Drive(ctx context.Context, r reconcile.Reconciler, req reconcile.Request, n int, until func(Trace) bool) Trace {
	t := make(Trace, 0, n)

	for len(t) < n && ctx.Err() == nil && (until == nil || !until(t)) {
		t = append(t, step(ctx, r, req))
	}

	return t
}

// Settle reconciles an object until a reconcile returns no error, asks for no
// other at once, and didn't change the object, or the object is gone; that is
// until a controller would wait for the next poll. It returns ErrUnsettled if that
// takes more than limit reconciles. Of obj only its kind, namespace and name
// matter; it isn't changed.
func (s *Server) Settle(ctx context.Context, r reconcile.Reconciler, obj client.Object, limit int) (Trace, error) {
	t := make(Trace, 0, limit)
	req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}

	before, err := s.versionOf(ctx, obj)
	if err != nil {
		return t, err
	}

	for len(t) < limit {
		if err := ctx.Err(); err != nil {
			return t, err
		}

		t = append(t, step(ctx, r, req))

		after, err := s.versionOf(ctx, obj)
		if err != nil {
			return t, err
		}

		if last := t[len(t)-1]; after == "" || (!last.Requeued() && before == after) {
			return t, nil
		}

		before = after
	}

	return t, fmt.Errorf("%w after %d reconciles of %s: %w", ErrUnsettled, limit, req, t[len(t)-1].failure())
}

func (s Step) failure() error {
	if s.Err != nil {
		return s.Err
	}

	return fmt.Errorf("the last one returned %+v", s.Result)
}

func step(ctx context.Context, r reconcile.Reconciler, req reconcile.Request) Step {
	result, err := r.Reconcile(ctx, req)

	return Step{Result: result, Err: err}
}

// versionOf returns the object's resourceVersion, empty if there is none.
func (s *Server) versionOf(ctx context.Context, obj client.Object) (string, error) {
	gvk, err := s.admin.GroupVersionKindFor(obj)
	if err != nil {
		return "", err
	}

	current, err := s.current(ctx, gvk, obj)
	if kerrors.IsNotFound(err) {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	return current.GetResourceVersion(), nil
}

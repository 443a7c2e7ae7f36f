package embedded

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrUnsettled says that the limit of reconciles was reached first.
var ErrUnsettled = errors.New("the reconciler has not come to rest")

// Settle reconciles an object until a reconcile returns no error, asks for no
// other at once, and didn't change the object, or the object is gone; that is
// until a controller would wait for the next poll. It returns ErrUnsettled if that
// takes more than limit reconciles. Of obj only its kind, namespace and name
// matter; it isn't changed.
func (s *Server) Settle(ctx context.Context, r reconcile.Reconciler, obj client.Object, limit int) error {
	var (
		result reconcile.Result
		failed error
	)

	req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
	before, err := s.versionOf(obj)
	if err != nil {
		return err
	}
	for range limit {
		if err := ctx.Err(); err != nil {
			return err
		}
		result, failed = r.Reconcile(ctx, req)
		after, err := s.versionOf(obj)
		if err != nil {
			return err
		}
		again := failed != nil || result.Requeue //nolint:staticcheck // Upstream's reconciler returns it.
		if after == "" || !again && before == after {
			return nil
		}
		before = after
	}
	//nolint:errorlint // The error may be nil.
	return fmt.Errorf("%w after %d reconciles of %s: the last one returned %+v and error %v",
		ErrUnsettled, limit, req, result, failed)
}

// versionOf returns the object's resourceVersion, empty if there is none.
func (s *Server) versionOf(obj client.Object) (string, error) {
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	_, r, err := s.objects.find(obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return r.object.GetResourceVersion(), nil
}

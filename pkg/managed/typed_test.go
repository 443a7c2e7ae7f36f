package managed

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A client of one type of managed resource is not called with another.
func TestTypedClientOfAnotherType(t *testing.T) {
	called := 0
	c := &typedClient[*v1alpha1.Bucket]{inner: TypedExternalClientFns[*v1alpha1.Bucket]{
		ObserveFn: func(context.Context, *v1alpha1.Bucket) (ExternalObservation, error) {
			called++
			return ExternalObservation{}, nil
		},
		CreateFn: func(context.Context, *v1alpha1.Bucket) (ExternalCreation, error) {
			called++
			return ExternalCreation{}, nil
		},
		UpdateFn: func(context.Context, *v1alpha1.Bucket) (ExternalUpdate, error) {
			called++
			return ExternalUpdate{}, nil
		},
		DeleteFn: func(context.Context, *v1alpha1.Bucket) (ExternalDelete, error) {
			called++
			return ExternalDelete{}, nil
		},
	}}

	calls := map[string]func(mg resource.Managed) error{
		"Observe": func(mg resource.Managed) error { _, err := c.Observe(t.Context(), mg); return err },
		"Create":  func(mg resource.Managed) error { _, err := c.Create(t.Context(), mg); return err },
		"Update":  func(mg resource.Managed) error { _, err := c.Update(t.Context(), mg); return err },
		"Delete":  func(mg resource.Managed) error { _, err := c.Delete(t.Context(), mg); return err },
	}

	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			called = 0

			if err := call(&v1alpha1.Database{}); err == nil || called != 0 {
				t.Errorf("%s of another type: want an error and no call, got %v and %d", name, err, called)
			}

			if err := call(bucket()); err != nil || called != 1 {
				t.Errorf("%s: want no error and one call, got %v and %d", name, err, called)
			}
		})
	}
}

// A connector that returns a client and an error has not connected.
func TestTypedConnectorFails(t *testing.T) {
	boom := errors.New("boom")
	client := TypedExternalClientFns[*v1alpha1.Bucket]{}

	cases := map[string]struct {
		reason string
		client TypedExternalClient[*v1alpha1.Bucket]
		err    error
	}{
		"Error":          {reason: "The error is returned.", err: boom},
		"ErrorAndClient": {reason: "The error is returned, and no client.", client: client, err: boom},
		"Neither":        {reason: "Nothing is returned, which the caller reports."},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &typedConnector[*v1alpha1.Bucket]{inner: TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{
				ConnectFn: func(context.Context, *v1alpha1.Bucket) (TypedExternalClient[*v1alpha1.Bucket], error) {
					return tc.client, tc.err
				},
			}}

			got, err := c.Connect(t.Context(), bucket())
			if got != nil || !errors.Is(err, tc.err) {
				t.Errorf("\n%s\nConnect(...): want no client and %v, got %v and %v", tc.reason, tc.err, got, err)
			}
		})
	}
}

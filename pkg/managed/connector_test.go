package managed

import (
	"context"
	"testing"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// Every option for a connector, in every spelling, connects and disconnects as
// upstream does: the connector and its client, each once a reconcile that
// connected.
func TestConnectors(t *testing.T) {
	type calls struct {
		Connect, Observe, ClientDisconnect, Disconnect int
	}

	type options struct {
		graft ReconcilerOption
		up    upstream.ReconcilerOption
	}

	fns := func(c *calls, err error) (ExternalConnectDisconnectorFns, TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) {
		client := ExternalClientFns{
			ObserveFn: func(ctx context.Context, mg resource.Managed) (ExternalObservation, error) {
				c.Observe++
				return exists(ctx, mg)
			},
			DisconnectFn: func(context.Context) error { c.ClientDisconnect++; return errors.New("ignored") },
		}

		disconnect := func(context.Context) error { c.Disconnect++; return errors.New("ignored") }

		p := provider{connectErr: err, client: client}
		see := func(resource.Managed) { c.Connect++ }

		return ExternalConnectDisconnectorFns{ConnectFn: connect[resource.Managed](p, see), DisconnectFn: disconnect},
			TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{ConnectFn: connect[*v1alpha1.Bucket](p, see), DisconnectFn: disconnect}
	}

	// A spelling is given an untyped and a typed connector.
	spellings := map[string]func(u ExternalConnectDisconnectorFns, ty TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options{
		"WithExternalConnector": func(u ExternalConnectDisconnectorFns, _ TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithExternalConnector(ExternalConnectorFn(u.ConnectFn)), upstream.WithExternalConnector(ExternalConnectorFn(u.ConnectFn))}
		},
		"WithExternalConnecter": func(u ExternalConnectDisconnectorFns, _ TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithExternalConnecter(ExternalConnectorFn(u.ConnectFn)), upstream.WithExternalConnecter(ExternalConnectorFn(u.ConnectFn))} //nolint:staticcheck // Providers use it.
		},
		"WithExternalConnectDisconnector": func(u ExternalConnectDisconnectorFns, _ TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithExternalConnectDisconnector(u), upstream.WithExternalConnectDisconnector(u)} //nolint:staticcheck // Providers use it.
		},
		"WithExternalConnectDisconnecter": func(u ExternalConnectDisconnectorFns, _ TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithExternalConnectDisconnecter(u), upstream.WithExternalConnectDisconnecter(u)} //nolint:staticcheck // Providers use it.
		},
		"WithTypedExternalConnector": func(_ ExternalConnectDisconnectorFns, ty TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			fn := TypedExternalConnectorFn[*v1alpha1.Bucket](ty.ConnectFn)
			return options{WithTypedExternalConnector(fn), upstream.WithTypedExternalConnector(fn)}
		},
		"WithTypedExternalConnectDisconnector": func(_ ExternalConnectDisconnectorFns, ty TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithTypedExternalConnectDisconnector(ty), upstream.WithTypedExternalConnectDisconnector(ty)} //nolint:staticcheck // Providers use it.
		},
		"WithTypedExternalConnectDisconnecter": func(_ ExternalConnectDisconnectorFns, ty TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]) options {
			return options{WithTypedExternalConnectDisconnecter(ty), upstream.WithTypedExternalConnectDisconnecter(ty)} //nolint:staticcheck // Providers use it.
		},
	}

	for name, spelling := range spellings {
		for outcome, err := range map[string]error{"Connects": nil, "Fails": errProvider} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				var want, got calls

				kind := resource.ManagedKind(testkit.BucketKind())
				up := upstream.NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spelling(fns(&want, err)).up)
				graft := NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spelling(fns(&got, err)).graft)

				run(t, up, "b", "b")
				run(t, graft, "b", "b")
				wants(t, "", "calls of upstream's and Graft's", want, got)
				wants(t, "", "connections in 2 reconciles", 2, got.Connect)
			})
		}
	}
}

// A client of one type of managed resource is not called with another.
func TestTypedClientOfAnotherType(t *testing.T) {
	called := 0
	c := &typedClient[*v1alpha1.Bucket]{inner: connected[*v1alpha1.Bucket](provider{client: ExternalClientFns{
		ObserveFn: counts[ExternalObservation](&called), CreateFn: counts[ExternalCreation](&called),
		UpdateFn: counts[ExternalUpdate](&called), DeleteFn: counts[ExternalDelete](&called),
	}})}

	calls := map[string]func(mg resource.Managed) error{
		"Observe": func(mg resource.Managed) error { _, err := c.Observe(t.Context(), mg); return err },
		"Create":  func(mg resource.Managed) error { _, err := c.Create(t.Context(), mg); return err },
		"Update":  func(mg resource.Managed) error { _, err := c.Update(t.Context(), mg); return err },
		"Delete":  func(mg resource.Managed) error { _, err := c.Delete(t.Context(), mg); return err },
	}

	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			called = 0

			err := call(&v1alpha1.Database{})
			wants(t, "It is of another type.", "error, calls", []any{true, 0}, []any{err != nil, called})
			must(t, call(bucket()))
			wants(t, "", "calls", 1, called)
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
			wants(t, tc.reason, "client, error", []any{nil, tc.err}, []any{got, err}, cmpopts.EquateErrors())
		})
	}
}

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

	// spellings returns the options for an untyped and a typed connector that counts its
	// calls.
	spellings := func(c *calls, err error) map[string]options {
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

		ufn, tfn := ExternalConnectorFn(connect[resource.Managed](p, see)), connect[*v1alpha1.Bucket](p, see)
		u := ExternalConnectDisconnectorFns{ConnectFn: ufn, DisconnectFn: disconnect}
		ty := TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{ConnectFn: tfn, DisconnectFn: disconnect}

		//nolint:staticcheck // Deprecated spellings, which providers use.
		return map[string]options{
			"WithExternalConnector":                {WithExternalConnector(ufn), upstream.WithExternalConnector(ufn)},
			"WithExternalConnecter":                {WithExternalConnecter(ufn), upstream.WithExternalConnecter(ufn)},
			"WithExternalConnectDisconnector":      {WithExternalConnectDisconnector(u), upstream.WithExternalConnectDisconnector(u)},
			"WithExternalConnectDisconnecter":      {WithExternalConnectDisconnecter(u), upstream.WithExternalConnectDisconnecter(u)},
			"WithTypedExternalConnector":           {WithTypedExternalConnector(tfn), upstream.WithTypedExternalConnector(tfn)},
			"WithTypedExternalConnectDisconnector": {WithTypedExternalConnectDisconnector(ty), upstream.WithTypedExternalConnectDisconnector(ty)},
			"WithTypedExternalConnectDisconnecter": {WithTypedExternalConnectDisconnecter(ty), upstream.WithTypedExternalConnectDisconnecter(ty)},
		}
	}

	for name := range spellings(&calls{}, nil) {
		for outcome, err := range map[string]error{"Connects": nil, "Fails": errProvider} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				var want, got calls

				kind := resource.ManagedKind(testkit.BucketKind())
				run(t, upstream.NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spellings(&want, err)[name].up), "b", "b")
				run(t, NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spellings(&got, err)[name].graft), "b", "b")

				wants(t, "", "calls of upstream's and Graft's", want, got)
				wants(t, "", "connections in 2 reconciles", 2, got.Connect)
			})
		}
	}
}

// A client of one type of managed resource is not called with another.
func TestTypedClientOfAnotherType(t *testing.T) {
	x := &outside{}
	c := &typedClient[*v1alpha1.Bucket]{inner: connected[*v1alpha1.Bucket](provider{client: x.client()})}

	for mg, want := range map[resource.Managed]int{&v1alpha1.Database{}: 0, bucket(): 4} {
		x.observes, x.acts = 0, nil

		_, oerr := c.Observe(t.Context(), mg)
		_, cerr := c.Create(t.Context(), mg)
		_, uerr := c.Update(t.Context(), mg)
		_, derr := c.Delete(t.Context(), mg)

		for _, err := range []error{oerr, cerr, uerr, derr} {
			wants(t, "", "called without an error", want > 0, err == nil)
		}

		wants(t, "", "calls", want, x.observes+len(x.acts))
	}
}

// A connector that returns a client and an error, or neither, has not connected.
func TestTypedConnectorFails(t *testing.T) {
	boom := errors.New("boom")

	for reason, returns := range map[string]struct {
		client TypedExternalClient[*v1alpha1.Bucket]
		err    error
	}{
		"The error is returned, and no client.":          {client: TypedExternalClientFns[*v1alpha1.Bucket]{}, err: boom},
		"Nothing is returned, which the caller reports.": {},
	} {
		c := &typedConnector[*v1alpha1.Bucket]{inner: TypedExternalConnectDisconnectorFns[*v1alpha1.Bucket]{
			ConnectFn: func(context.Context, *v1alpha1.Bucket) (TypedExternalClient[*v1alpha1.Bucket], error) {
				return returns.client, returns.err
			},
		}}

		got, err := c.Connect(t.Context(), bucket())
		wants(t, reason, "client, error", []any{nil, returns.err}, []any{got, err}, cmpopts.EquateErrors())
	}
}

package managed

import (
	"context"
	"testing"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
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
		client := upstream.ExternalClientFns{
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

	spellings := map[string]func(c *calls, err error) options{
		"WithExternalConnector": func(c *calls, err error) options {
			u, _ := fns(c, err)
			return options{WithExternalConnector(ExternalConnectorFn(u.ConnectFn)), upstream.WithExternalConnector(ExternalConnectorFn(u.ConnectFn))}
		},
		"WithExternalConnecter": func(c *calls, err error) options {
			u, _ := fns(c, err)
			return options{WithExternalConnecter(ExternalConnectorFn(u.ConnectFn)), upstream.WithExternalConnecter(ExternalConnectorFn(u.ConnectFn))} //nolint:staticcheck // Providers use it.
		},
		"WithExternalConnectDisconnector": func(c *calls, err error) options {
			u, _ := fns(c, err)
			return options{WithExternalConnectDisconnector(u), upstream.WithExternalConnectDisconnector(u)} //nolint:staticcheck // Providers use it.
		},
		"WithExternalConnectDisconnecter": func(c *calls, err error) options {
			u, _ := fns(c, err)
			return options{WithExternalConnectDisconnecter(u), upstream.WithExternalConnectDisconnecter(u)} //nolint:staticcheck // Providers use it.
		},
		"WithTypedExternalConnector": func(c *calls, err error) options {
			_, ty := fns(c, err)
			fn := TypedExternalConnectorFn[*v1alpha1.Bucket](ty.ConnectFn)

			return options{WithTypedExternalConnector(fn), upstream.WithTypedExternalConnector(fn)}
		},
		"WithTypedExternalConnectDisconnector": func(c *calls, err error) options {
			_, ty := fns(c, err)
			return options{WithTypedExternalConnectDisconnector(ty), upstream.WithTypedExternalConnectDisconnector(ty)} //nolint:staticcheck // Providers use it.
		},
		"WithTypedExternalConnectDisconnecter": func(c *calls, err error) options {
			_, ty := fns(c, err)
			return options{WithTypedExternalConnectDisconnecter(ty), upstream.WithTypedExternalConnectDisconnecter(ty)} //nolint:staticcheck // Providers use it.
		},
	}

	for name, spelling := range spellings {
		for outcome, err := range map[string]error{"Connects": nil, "Fails": errProvider} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				var want, got calls

				kind := resource.ManagedKind(testkit.BucketKind())
				up := upstream.NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spelling(&want, err).up)
				graft := NewReconciler(testkit.NewAPI(bucket(named("id-1"))).Manager(), kind, spelling(&got, err).graft)

				for range 2 {
					_, uerr := up.Reconcile(context.Background(), request())

					if _, gerr := graft.Reconcile(context.Background(), request()); uerr != nil || gerr != nil {
						t.Fatalf("Reconcile: %v, %v", uerr, gerr)
					}
				}

				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("calls: -upstream, +Graft:\n%s", diff)
				}

				if got.Connect != 2 {
					t.Errorf("connections in 2 reconciles: want 2, got %d", got.Connect)
				}
			})
		}
	}
}

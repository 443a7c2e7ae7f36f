package layer

import (
	"reflect"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A TypedClient is an external client that adapts one of a type of managed resource.
type TypedClient struct {
	upstream.ExternalClient

	// Own is the provider's own client.
	Own any
}

// ClientOf returns the provider's own external client, which may have more methods than c.
func ClientOf(c upstream.ExternalClient) any {
	if t, ok := c.(TypedClient); ok {
		return t.Own
	}
	return c
}

// As returns a managed resource as the type that a connector is for.
func As[M resource.Managed](o resource.Managed) (M, error) {
	mg, ok := o.(M)
	if !ok {
		return mg, errors.Errorf(
			"the connector is for %s, but the managed resource is a %T: pass the connector of this kind",
			reflect.TypeFor[M](), o,
		)
	}
	return mg, nil
}

// MustBeConnector panics if c, which the option of that name was given, is nil.
func MustBeConnector(c any, option string) {
	if is.Nil(c) {
		panic(errors.Errorf(
			"%s was given a nil connector: pass the one that connects to the external system", option,
		))
	}
}

package layer

import (
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// OutcomeOf returns the outcome of the last call of an external client. It is false if the
// client reports none. Only the clients of package asyncstate do.
func OutcomeOf(client any) (seam.Outcome, bool) {
	if c, ok := client.(interface{ Outcome() (seam.Outcome, bool) }); ok {
		return c.Outcome()
	}
	return seam.Outcome{}, false
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

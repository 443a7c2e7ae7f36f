package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
)

// A Type of operation.
type Type string

// The types of operations.
const (
	Create Type = "create"
	Update Type = "update"
	Delete Type = "delete"
)

// A Resumer is an external client that can resume an operation that another process
// began.
type Resumer = TypedResumer[resource.Managed]

// A TypedResumer is a Resumer for one type of managed resource.
type TypedResumer[M resource.Managed] interface {
	// Resume waits for the end of the operation that a.Handle identifies. It is
	// called in the background, as Create, Update and Delete are, and may use
	// all that they may. It is called only if the operation had set a handle.
	//
	// An error means what it means of the call that is resumed: the operation
	// failed, unless the error says that its outcome is unknown.
	Resume(ctx context.Context, mg M, a Attempt) error
}

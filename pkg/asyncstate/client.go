package asyncstate

import (
	"context"
	"time"

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

// An Attempt is what is known of an operation that was begun, and that nobody
// knows the result of.
type Attempt struct {
	// Type of the operation.
	Type Type

	// Number counts from 1. An attempt that failed is followed by the next.
	// One whose result is not known is not: it is the same attempt until that
	// is found out.
	Number int

	// Token is what Token returned in the operation. It is empty for a create
	// that was not begun by a Tracker.
	Token string

	// Handle is what was last given to SetHandle, if anything.
	Handle string

	// Started is when the operation began. Nothing of it reached the external
	// system earlier.
	Started time.Time
}

// A Resumer is an external client that can go on with an operation that another
// process began.
type Resumer = TypedResumer[resource.Managed]

// A TypedResumer is a Resumer for one type of managed resource.
type TypedResumer[M resource.Managed] interface {
	// Resume waits for the end of the operation that a.Handle stands for. It is
	// called in the background, as Create, Update and Delete are, and may use
	// all that they may. It is called only if the operation had set a handle.
	//
	// An error means what it means of the call that is resumed: the operation
	// failed, unless it says that its outcome is unknown.
	Resume(ctx context.Context, mg M, a Attempt) error
}

// A Finder looks for what a create may have made. External clients that
// implement it are asked after a crash.
type Finder = TypedFinder[resource.Managed]

// A TypedFinder is a Finder for one type of managed resource.
type TypedFinder[M resource.Managed] interface {
	// Find the external resource that attempt a made for mg, by the token, by a
	// tag that Create sets, or by anything else that can't be somebody else's.
	//
	// It must say Absent only if it is sure. If the external system may know of
	// a resource that it doesn't show yet, the answer is the zero Finding, or
	// an error; both mean that nobody knows.
	Find(ctx context.Context, mg M, a Attempt) (Finding, error)
}

// FinderFn is a function that is a Finder.
type FinderFn func(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error)

// Find calls the function.
func (fn FinderFn) Find(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error) {
	return fn(ctx, mg, a)
}

// A Finding is what a Finder knows. The zero Finding means that it doesn't.
type Finding struct {
	// Known is false if nobody knows.
	Known bool

	// ExternalName of the external resource. Empty if there is none.
	ExternalName string
}

// Found means that there is an external resource of that name. An empty name
// can't be stored, and means that nobody knows.
func Found(externalName string) Finding {
	return Finding{Known: externalName != "", ExternalName: externalName}
}

// Absent means that there surely is no external resource.
func Absent() Finding { return Finding{Known: true} }

// Found tells whether there is an external resource.
func (f Finding) Found() bool { return f.Known && f.ExternalName != "" }

// Absent tells whether there surely is none.
func (f Finding) Absent() bool { return f.Known && f.ExternalName == "" }

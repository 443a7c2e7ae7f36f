package asyncstate

import (
	"context"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
)

// An Attempt is what is known of an operation whose outcome is unknown.
type Attempt struct {
	// Type of the operation.
	Type Type

	// Number counts from 1. It is incremented after a failure, and unchanged
	// while the outcome is unknown.
	Number int

	// Token is what Token returned in the operation. It is empty for a create
	// that was not begun by a Tracker.
	Token string

	// Handle is what was last given to SetHandle, if anything.
	Handle string

	// Started is when the operation began, by the clock of the process that
	// began it. Nothing of it reached the external system earlier.
	Started time.Time
}

// A Finder looks up the external resource of a create that was interrupted, or that
// failed after it had made one. External clients implement it if the external system
// can be searched.
type Finder = TypedFinder[resource.Managed]

// A TypedFinder is a Finder for one type of managed resource.
type TypedFinder[M resource.Managed] interface {
	// Find the external resource that attempt a made for mg: by the token, by a
	// tag that Create sets, or by anything else that no other resource has. mg is a
	// copy: changes are lost.
	//
	// It must return Absent only if it is sure. If the external system may have
	// a resource that it does not show yet, it returns the zero Finding or an
	// error; both mean that the outcome is unknown. It is called again, after a
	// second at first and after five minutes at the latest.
	Find(ctx context.Context, mg M, a Attempt) (Finding, error)
}

// FinderFn is a function that is a Finder.
type FinderFn func(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error)

// Find calls the function.
func (fn FinderFn) Find(ctx context.Context, mg resource.Managed, a Attempt) (Finding, error) {
	return fn(ctx, mg, a)
}

// A Finding is the result of a Finder. The zero Finding means that it cannot tell.
type Finding struct {
	// Known is false if the Finder cannot tell.
	Known bool

	// ExternalName of the external resource. Empty if there is none.
	ExternalName string
}

// Found means that there is an external resource of that name. An empty name cannot
// be stored: it gives the zero Finding.
func Found(externalName string) Finding {
	return Finding{Known: externalName != "", ExternalName: externalName}
}

// Absent means that there surely is no external resource.
func Absent() Finding { return Finding{Known: true} }

// Found reports whether there is an external resource.
func (f Finding) Found() bool { return f.Known && f.ExternalName != "" }

// Absent reports whether there surely is none.
func (f Finding) Absent() bool { return f.Known && f.ExternalName == "" }

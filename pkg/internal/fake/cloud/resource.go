package cloud

import (
	"maps"
	"time"
)

// A State says how far a resource has come.
type State string

// The states of a resource.
const (
	// StateCreating means that the resource exists and isn't ready for use.
	StateCreating State = "creating"

	// StateAvailable means that the resource is ready for use.
	StateAvailable State = "available"

	// StateDeleting means that the resource goes away on its own.
	StateDeleting State = "deleting"
)

// A Resource is what the cloud tells about one of its resources. The caller owns
// it; changing it changes nothing in the cloud.
type Resource struct {
	// ID names the resource in the whole cloud.
	ID string

	// Kind of the resource, as it was given to Create.
	Kind string

	// Owner is the tag given to Create, to count resources by.
	Owner string

	// Endpoint at which the resource would serve.
	Endpoint string

	// State of the resource.
	State State

	// CreatedAt is when Create took effect.
	CreatedAt time.Time

	// Properties given to Create and Update, and the cloud's defaults.
	Properties map[string]string
}

// A CreateRequest asks for a resource.
type CreateRequest struct {
	// Kind of the resource. Required.
	Kind string

	// Name asks for this id. The cloud makes one up if it's empty.
	Name string

	// Owner tags the resource, for instance with a managed resource's UID.
	Owner string

	// Token makes the request idempotent: another request with the token of a
	// resource that still exists gets that resource. A token is forgotten with
	// its resource.
	Token string

	// Properties of the resource.
	Properties map[string]string
}

// A Filter selects resources. Empty fields select all.
type Filter struct {
	// Kind to select.
	Kind string

	// Owner to select.
	Owner string

	// Token selects the resource that was created with this idempotency token.
	Token string
}

// record is a resource as the cloud keeps it.
type record struct {
	Resource

	request CreateRequest

	deleting  bool
	deletedAt time.Time
}

func (f Filter) matches(r *record) bool {
	return (f.Kind == "" || f.Kind == r.Kind) && (f.Owner == "" || f.Owner == r.Owner) && (f.Token == "" ||
		f.Token == r.request.Token)
}

func (r CreateRequest) equal(o CreateRequest) bool {
	return r.Kind == o.Kind && r.Name == o.Name && r.Owner == o.Owner && r.Token == o.Token &&
		maps.Equal(r.Properties, o.Properties)
}

func (r *record) snapshot(s State) Resource {
	out := r.Resource
	out.State = s
	out.Properties = maps.Clone(r.Properties)
	return out
}

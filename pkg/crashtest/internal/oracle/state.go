package oracle

import (
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// A Run is the input of the oracle.
type Run struct {
	Events []*history.Event
	Final  State

	// Calm is the final state of the same scenario without a fault. It is nil if that is not known.
	Calm *State

	// End of the run. Window is how long before it nothing but polls should have happened.
	End, Window time.Duration

	// Effective has the calls that changed the external system in any run without a fault.
	Effective map[string]bool
}

// A State is the state of a run at one time.
type State struct {
	// Objects are the managed resources that the user created.
	Objects []Object

	// External has the resources that exist, by external name. Created names the ones that were
	// created since the start, in order.
	External map[string]string
	Created  []string
}

// object of a name, or one that doesn't exist.
func (s State) object(name string) Object {
	for _, o := range s.Objects {
		if o.Name == name {
			return o
		}
	}
	return Object{Name: name}
}

// An Object is a managed resource.
type Object struct {
	history.Version

	Name       string
	Finalizers []string

	// Conditions in one text.
	Conditions string

	// Undecided says that the reconciler waits for a person to determine the outcome of a create.
	Undecided bool

	// Async says that its operations are asynchronous. Fixed says that its policies forbid updates.
	Async, Fixed bool

	// Secret is the data of the connection secret. Details are the values of the external system,
	// and nil if that is not known.
	Secret, Details map[string]string
}

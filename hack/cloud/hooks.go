package cloud

import (
	"context"
	"maps"
)

// An Op is an operation of the cloud's API.
type Op string

// The operations.
const (
	OpLogin  Op = "Login"
	OpCreate Op = "Create"
	OpGet    Op = "Get"
	OpUpdate Op = "Update"
	OpDelete Op = "Delete"
	OpList   Op = "List"
)

// A Call describes one call of an operation to a hook.
type Call struct {
	// Op is the operation that is called.
	Op Op

	// ID of the resource. It is empty for Login and List, and before a Create
	// that doesn't ask for a name.
	ID string

	// Kind and Owner as far as the request names them.
	Kind, Owner string
}

// A Hook sees a call and fails it by returning an error, which the caller gets
// as it is, wrapped. It may use the cloud itself.
type Hook func(ctx context.Context, c Call) error

// Hooks inject failures. A nil hook does nothing.
type Hooks struct {
	// Before runs before the operation takes effect. If it fails nothing has
	// happened.
	Before Hook

	// After runs after the operation took effect. If it fails the effect stays
	// and the answer is lost.
	After Hook
}

// Counts tells how many calls of each operation reached the cloud, failed ones
// included.
type Counts map[Op]int

func (h Hook) run(ctx context.Context, c Call) error {
	if h == nil {
		return nil
	}

	return h(ctx, c)
}

// SetHooks replaces the hooks. Calls that are on their way keep the old ones.
func (c *Cloud) SetHooks(h Hooks) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.hooks = h
}

// Counts returns the calls so far.
func (c *Cloud) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.counts)
}

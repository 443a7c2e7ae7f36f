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

// An Effect is what an operation does to the cloud, and the error that it ends
// with. It takes no time and doesn't look at any context.
type Effect func() error

// An AroundHook decides when an operation takes effect, and whether it does. It
// calls effect at most once. It may do so after the caller has given up, as with a
// request that is still on its way. The caller gets the error that it returns.
type AroundHook func(ctx context.Context, c Call, effect Effect) error

// Hooks inject failures. A nil hook does nothing.
type Hooks struct {
	// Before runs before the operation takes effect. If it fails nothing has
	// happened.
	Before Hook

	// Around runs between the other two, in place of the effect, which it is
	// given. Credentials are checked by the effect.
	Around AroundHook

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

func (h AroundHook) run(ctx context.Context, c Call, effect Effect) error {
	if h == nil {
		return effect()
	}
	return h(ctx, c, effect)
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
